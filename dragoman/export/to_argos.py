"""A trained encoder-decoder as a package for Argos Translate, which LibreTranslate can install too.

    save_argos(model, source, target, data, folder)    # write folder/package: CTranslate2's and sentencepiece's files
    pack_argos(folder)                                 # make dragoman-en_it.argosmodel of them and folder/README.md

A package is a zip file of one folder: metadata.json, model/ (CTranslate2), README.md, and a sentencepiece.model that
tokenizes the source and joins the target, see `sentencepiece_model`. It needs Argos Translate 1.10 or later.
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from babel import Locale

from dragoman import reading
from dragoman.architectures.ctranslate2_spec import ctranslate2_spec, save_ctranslate2
from dragoman.dataset import Tokenizer
from dragoman.export.loaded import Batch, LoadedExport, ctranslate2_greedy, saved_vocabularies
from dragoman.export.sentencepiece_model import BLANK, pieces_by_id, sentencepiece_model
from dragoman.model import Transformer
from dragoman.settings import EOS, UNK, DataConfig

PACKAGE = "package"  # the folder inside an export that becomes the zip file


def save_argos(
    model: Transformer,
    source: Tokenizer,
    target: Tokenizer,
    data: DataConfig,
    folder: Path,
    quantization: str | None = None,
) -> None:
    """Write the files of a package, without its README.md. quantization is that of `save_ctranslate2`."""
    package = folder / PACKAGE
    (package / "model").mkdir(parents=True)
    spec = ctranslate2_spec(model, pieces_by_id(source), pieces_by_id(target))
    save_ctranslate2(spec, package / "model", quantization)
    (package / "sentencepiece.model").write_bytes(sentencepiece_model(source, data))
    metadata = {"package_version": "1.0", "argos_version": "1.10", "type": "translate", "links": []}
    for side, code in (("from", data.source_lang or ""), ("to", data.target_lang)):
        # Shown to users of Argos Translate.
        metadata |= {f"{side}_code": code, f"{side}_name": Locale("en").languages.get(code, code)}
    text = json.dumps(metadata, ensure_ascii=False, indent=2) + "\n"
    (package / "metadata.json").write_text(text, encoding="utf-8")


def package_name(metadata: Mapping[str, str]) -> str:
    """Name the folder that Argos Translate installs to; another package with this name replaces it."""
    codes = (re.sub(r"[^\w-]", "-", metadata[f"{side}_code"]) for side in ("from", "to"))
    return f"dragoman-{'_'.join(codes)}"


def pack_argos(folder: Path) -> None:
    """Zip the files that `save_argos` wrote and a copy of the README.md beside them, and remove the files."""
    package = folder / PACKAGE
    shutil.copyfile(folder / "README.md", package / "README.md")
    name = package_name(json.loads(reading.read(package / "metadata.json", reading.NOTE)))
    with zipfile.ZipFile(folder / f"{name}.argosmodel", "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(package.rglob("*")):
            if path.is_file():
                packed.write(path, f"{name}/{path.relative_to(package).as_posix()}")
    shutil.rmtree(package)


def load_argos(folder: Path) -> LoadedExport:
    """Load the files before they are packed, to translate as Argos Translate does, but greedily.

    Two of its steps are left out: it copies unknown words, which byte-level subwords do not have, and it replaces every
    underscore that the model writes by a blank.
    """
    import sentencepiece  # pyright: ignore[reportMissingImports]

    package = folder / PACKAGE
    processor: Any = sentencepiece.SentencePieceProcessor(model_file=str(package / "sentencepiece.model"))
    source, target = saved_vocabularies(package / "model")
    ids_by_piece = {piece: i for i, piece in enumerate(source)}

    def encode(texts: Sequence[str]) -> list[list[int]]:
        encoded = processor.encode(list(texts), out_type=str)
        return [[*(ids_by_piece.get(piece, UNK) for piece in pieces), EOS] for pieces in encoded]

    def decode(batch: Batch) -> list[str]:
        texts = (processor.decode_pieces([target[i] for i in ids]).replace(BLANK, " ") for ids in batch)
        return [text.removeprefix(" ") for text in texts]

    return LoadedExport(ctranslate2_greedy(package / "model"), encode, decode)
