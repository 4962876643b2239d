"""Our byte-level subword tokenizers as a sentencepiece.model.

Our tokenizers split bytes, each written as one letter by Hugging Face's `tokenizers`, but sentencepiece splits letters.
So the normalizer of the sentencepiece model first cleans a text like `corpora.cleaning.clean` and writes every
character as the letters of its bytes; the denormalizer does the reverse. In between are our own pieces and scores.

Limits: for BPE, sentencepiece merges any two pieces whose concatenation is a piece, in the order of our merges but not
only by our merges. It also does not know where our pre-tokenizer separates words from punctuation, which none of our
pieces crosses. `verification` checks whether either makes a difference.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

from tokenizers import normalizers, pre_tokenizers

from dragoman.dataset import Tokenizer
from dragoman.settings import EOS, PAD, SOS, SPECIAL_TOKENS, UNK, DataConfig
from dragoman.text.cleaning import clean

BLANK = "▁"  # how sentencepiece writes a blank
NEVER = -1e6  # score of pieces that are not the result of a merge: single bytes
REPLACEMENT = "\ufffd"  # �, written for bytes that are no character


def pieces_by_id(tokenizer: Tokenizer) -> list[str]:
    """List the tokens in the order of their ids, with sentencepiece's blank."""
    return [_with_blank(token) for token in tokenizer.tokens_by_id]


def _with_blank(token: str) -> str:
    """Replace the letter for a blank, the only one that sentencepiece writes differently."""
    return token.replace("Ġ", BLANK)


def sentencepiece_model(tokenizer: Tokenizer, data: DataConfig) -> bytes:
    """Make a sentencepiece.model that cleans and splits texts like ours and joins pieces of any byte-level tokenizer.

    Pieces that it does not contain, such as those of a separate target vocabulary, are joined as they are written.
    """
    from sentencepiece import sentencepiece_model_pb2 as protocol  # pyright: ignore[reportMissingImports]

    model: Any = protocol.ModelProto.FromString(_with_rules(data.normalize == "nfkc", data.lowercase))  # type: ignore[attr-defined]
    # These hold the path of a temporary file.
    model.normalizer_spec.normalization_rule_tsv = model.denormalizer_spec.normalization_rule_tsv = ""
    core = json.loads(tokenizer.to_json())["model"]
    if core["type"] == "BPE":
        model.trainer_spec.model_type = protocol.TrainerSpec.BPE  # type: ignore[attr-defined]
        scores: dict[str, float] = {}
        for rank, (left, right) in enumerate(core["merges"]):
            scores.setdefault(left + right, -float(rank))  # if several merges make a piece, the first one counts
    else:
        model.trainer_spec.model_type = protocol.TrainerSpec.UNIGRAM  # type: ignore[attr-defined]
        scores = dict(map(tuple, core["vocab"]))
    kinds = protocol.ModelProto.SentencePiece  # type: ignore[attr-defined]
    kind_of_special = dict.fromkeys(SPECIAL_TOKENS, kinds.CONTROL) | {SPECIAL_TOKENS[UNK]: kinds.UNKNOWN}
    del model.pieces[:]
    for token in tokenizer.tokens_by_id:
        kind = kind_of_special.get(token, kinds.NORMAL)
        model.pieces.add(piece=_with_blank(token), score=scores.get(token, NEVER), type=kind)
    spec = model.trainer_spec
    spec.vocab_size, spec.unk_surface = len(tokenizer), SPECIAL_TOKENS[UNK]
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = PAD, UNK, SOS, EOS
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = SPECIAL_TOKENS
    return model.SerializeToString()


def _characters() -> Iterator[str]:
    """All assigned characters, and the unassigned ones where later versions of Unicode will most likely add more."""
    for code in range(1, sys.maxunicode + 1):
        kind = unicodedata.category(chr(code))
        if kind != "Cs" and (code < 0x20000 or kind not in ("Cn", "Co")):
            yield chr(code)


def _normalization_rules(data: DataConfig) -> dict[str, str]:
    """Map each character, also as letter and combining marks, to the letters of its bytes after cleaning.

    Limit: if Unicode has no single character for a letter with its marks, the marks keep the order they are written in.
    """
    byte_level, rules = normalizers.ByteLevel(), {}
    for character in _characters():
        cleaned = clean(f".{character}.", data)[1:-1]  # the dots join nothing, and keep a blank from being stripped
        written = byte_level.normalize_str(cleaned).replace("Ġ", " ")
        rules[character] = written
        letter, *marks = unicodedata.normalize("NFD", character)
        for order in permutations(marks):
            for n in range(len(marks)):  # for example ế as e and two marks, or as ê and one mark
                parts = unicodedata.normalize("NFC", "".join([letter, *order[:n]])) + "".join(order[n:])
                if unicodedata.normalize("NFC", parts) == character:
                    rules[parts] = written
    return rules


def _denormalization_rules() -> dict[str, str]:
    """Map the letters of each character's bytes to the character, and the start of a character to one �, as ours do."""
    byte_level = normalizers.ByteLevel()
    rules = dict.fromkeys(pre_tokenizers.ByteLevel.alphabet(), REPLACEMENT)  # single bytes; ASCII follows below
    for code in range(0x10000, sys.maxunicode + 1, 0x40):  # the 64 characters of a step begin with the same three bytes
        written = byte_level.normalize_str(chr(code))
        rules[written[:2]] = rules[written[:3]] = REPLACEMENT
    for character in _characters():
        if character != " ":
            written = byte_level.normalize_str(character)
            rules[written] = character
            if len(written) == 3:
                rules[written[:2]] = REPLACEMENT
    return rules


@cache  # it takes seconds
def _with_rules(compatible: bool, lowercase: bool) -> bytes:
    """Train a throwaway sentencepiece model that holds the rules above: only the trainer can write them."""
    import sentencepiece  # pyright: ignore[reportMissingImports]

    data = DataConfig(normalize="nfkc" if compatible else "nfc", lowercase=lowercase)
    out = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        options = {}
        rules_by_name = {"normalization": _normalization_rules(data), "denormalization": _denormalization_rules()}
        for name, rules in rules_by_name.items():
            path = Path(folder, f"{name}.tsv")
            changing = (rule for rule in rules.items() if rule[0] != rule[1])  # sentencepiece refuses other rules
            lines = ("\t".join(" ".join(f"{ord(c):X}" for c in side) for side in rule) for rule in changing)
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            options[f"{name}_rule_tsv"] = str(path)
        sentencepiece.SentencePieceTrainer.train(  # type: ignore[attr-defined]
            sentence_iterator=iter(["a b c"]), model_writer=out, model_type="char", vocab_size=8, minloglevel=2,
            hard_vocab_limit=False, add_dummy_prefix=True, remove_extra_whitespaces=True, **options,
        )  # fmt: skip
    return out.getvalue()
