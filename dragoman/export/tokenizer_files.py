"""Our tokenizers as files of Hugging Face's `tokenizers` that work without this program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import tokenizers
from tokenizers import Regex, normalizers, processors

from dragoman.dataset import Tokenizer
from dragoman.export.loaded import Batch
from dragoman.settings import EOS, DataConfig

SIDES = ("source", "target")


def portable_tokenizer(tokenizer: Tokenizer, data: DataConfig) -> tokenizers.Tokenizer:
    """Return a tokenizer that also cleans texts like `corpora.cleaning.clean` and appends [EOS]."""
    core = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    form = normalizers.NFKC() if data.normalize == "nfkc" else normalizers.NFC()
    steps = [form, *([normalizers.Lowercase(), form] if data.lowercase else [])]
    steps += [normalizers.Replace(Regex(r"[\s\x1c-\x1f]+"), " "), normalizers.Strip()]
    core.normalizer = normalizers.Sequence([*steps, core.normalizer])
    core.post_processor = processors.TemplateProcessing(single="$A [EOS]", special_tokens=[("[EOS]", EOS)])
    core.encode_special_tokens = True
    return core


def save_tokenizers(sides: tuple[tokenizers.Tokenizer, tokenizers.Tokenizer], folder: Path) -> None:
    """Write source.tokenizer.json and target.tokenizer.json."""
    for name, side in zip(SIDES, sides, strict=True):
        side.save(str(folder / f"{name}.tokenizer.json"))


def text_functions(folder: Path) -> tuple[Callable[[Sequence[str]], list[list[int]]], Callable[[Batch], list[str]]]:
    """Return `LoadedExport.encode` and `LoadedExport.decode` for the files that `save_tokenizers` wrote."""
    source, target = (tokenizers.Tokenizer.from_file(str(folder / f"{side}.tokenizer.json")) for side in SIDES)
    source.encode_special_tokens = True  # a setting that the file does not keep
    return (
        lambda texts: [encoding.ids for encoding in source.encode_batch(texts)],
        lambda batch: target.decode_batch(batch, skip_special_tokens=False),
    )
