"""A trained encoder-decoder as a package of Argos Translate, which LibreTranslate installs as well.

    save_argos(model, source, target, data, folder)    # a folder of CTranslate2's and sentencepiece's files in it
    pack_argos(folder)                                 # dragoman-en_it.argosmodel, with the README.md of the folder

A package is a zip file of one folder: metadata.json, model/ (CTranslate2), README.md, and a sentencepiece.model that
cuts the source and joins the target. Ours cut bytes, for which Hugging Face's `tokenizers` has a letter each; sentence-
piece cuts letters. So its normalizer turns every character into the letters of its bytes, cleaned as `corpus.clean`
does, and its denormalizer turns them back. Between the two lie our own pieces, with their scores.

Limits: Argos Translate 1.10 or later, which joins by sentencepiece. For bpe, sentencepiece joins any two pieces that
make a third, in the order of our merges, but not only by our merges; and it does not know where our pre-tokenizer parts
words from marks, which no piece of ours crosses. `export` sees whether that makes a difference.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import tempfile
import unicodedata
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

from tokenizers import normalizers, pre_tokenizers

from dragoman.corpora.cleaning import clean
from dragoman.dataset import Tokenizer
from dragoman.export.to_ctranslate2 import ctranslate2_spec, save_ctranslate2
from dragoman.export.weights import BATCH, Batch, Opened, words_of
from dragoman.model import Transformer
from dragoman.settings import EOS, PAD, SOS, SPECIAL_TOKENS, UNK, DataConfig

BLANK = "▁"  # of sentencepiece
FILES = "package"  # folder of an export that becomes the zip file
NEVER = -1e6  # score of pieces that bpe does not merge: bytes
# Names are what a user chooses from. A language that is not here goes by its code.
NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian",
    "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician", "he": "Hebrew", "hi": "Hindi", "hu": "Hungarian",
    "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian",
    "nb": "Norwegian", "nl": "Dutch", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian",
    "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian", "sv": "Swedish", "th": "Thai", "tr": "Turkish",
    "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


def save_argos(model: Transformer, source: Tokenizer, target: Tokenizer, data: DataConfig, folder: Path) -> None:
    """Write the files of a package, its README.md apart, in float32."""
    files = folder / FILES
    (files / "model").mkdir(parents=True)
    save_ctranslate2(ctranslate2_spec(model, pieces_of(source), pieces_of(target)), files / "model")
    (files / "sentencepiece.model").write_bytes(sentencepiece_model(source, data))
    metadata = {"package_version": "1.0", "argos_version": "1.10", "type": "translate", "links": []}
    for side, code in (("from", data.source_lang or ""), ("to", data.target_lang)):
        metadata |= {f"{side}_code": code, f"{side}_name": NAMES.get(code, code)}
    text = json.dumps(metadata, ensure_ascii=False, indent=2) + "\n"
    (files / "metadata.json").write_text(text, encoding="utf-8")


def quantize_argos(model: Transformer, source: Tokenizer, target: Tokenizer, folder: Path) -> None:
    """Put int8 weights in place of the float32 ones that `save_argos` has left in a folder."""
    place = folder / FILES / "model"
    (place / "model.bin").unlink()
    save_ctranslate2(ctranslate2_spec(model, pieces_of(source), pieces_of(target)), place, "int8")


def package_name(metadata: Mapping[str, str]) -> str:
    """The folder in which Argos Translate keeps the package: a later one for the same languages takes its place."""
    codes = (re.sub(r"[^\w-]", "-", metadata[f"{side}_code"]) for side in ("from", "to"))
    return f"dragoman-{'_'.join(codes)}"


def pack_argos(folder: Path) -> None:
    """Make one file of what `save_argos` has left in a folder and of the README.md beside it, which stays."""
    files = folder / FILES
    shutil.copyfile(folder / "README.md", files / "README.md")
    name = package_name(json.loads((files / "metadata.json").read_bytes()))
    with zipfile.ZipFile(folder / f"{name}.argosmodel", "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(files.rglob("*")):
            if path.is_file():
                packed.write(path, f"{name}/{path.relative_to(files).as_posix()}")
    shutil.rmtree(files)


def open_argos(folder: Path) -> Opened:
    """What Argos Translate makes of the files before they are packed: its own steps, with a beam of one.

    Of these, two are left out: unknown words that are copied, which pieces over bytes do not have, and underscores that
    become blanks whatever the model has written.
    """
    import ctranslate2  # pyright: ignore[reportMissingImports]
    import sentencepiece  # pyright: ignore[reportMissingImports]

    files = folder / FILES
    translator = ctranslate2.Translator(str(files / "model"), inter_threads=1, intra_threads=1)
    cutter: Any = sentencepiece.SentencePieceProcessor(model_file=str(files / "sentencepiece.model"))
    source, target = vocabularies_of(files / "model")
    source_ids, target_ids = ({piece: i for i, piece in enumerate(side)} for side in (source, target))

    def greedy(sentences: Batch, limit: int) -> list[list[int]]:
        found = translator.translate_batch(
            [[source[i] for i in sentence] for sentence in sentences],
            beam_size=1, min_decoding_length=0, max_decoding_length=limit, length_penalty=0.2, max_batch_size=BATCH,
        )  # fmt: skip
        return [[target_ids[piece] for piece in result.hypotheses[0]] for result in found]

    def encode(texts: Sequence[str]) -> list[list[int]]:
        cut = cutter.encode(list(texts), out_type=str)
        return [[*(source_ids.get(piece, UNK) for piece in pieces), EOS] for pieces in cut]

    def decode(batch: Batch) -> list[str]:
        texts = (cutter.decode_pieces([target[i] for i in ids]).replace(BLANK, " ") for ids in batch)
        return [text.removeprefix(" ") for text in texts]

    return Opened(greedy, encode, decode)


def vocabularies_of(model: Path) -> list[list[str]]:
    """The pieces of source and target as CTranslate2 has saved them: in one file, if both are the same."""
    shared = model / "shared_vocabulary.json"
    paths = [shared] * 2 if shared.exists() else [model / f"{side}_vocabulary.json" for side in ("source", "target")]
    return [json.loads(path.read_bytes()) for path in paths]


# ------------------------------------------------------------------------------------------------------- sentencepiece


def pieces_of(tokenizer: Tokenizer) -> list[str]:
    """The tokens in the order of their ids, with sentencepiece's blank."""
    return [in_letters(token) for token in words_of(tokenizer)]


def in_letters(token: str) -> str:
    """A token of a byte-level tokenizer, in which only the blank has another letter here."""
    return token.replace("Ġ", BLANK)


def sentencepiece_model(tokenizer: Tokenizer, data: DataConfig) -> bytes:
    """A sentencepiece.model that cleans and cuts texts as we do, and joins pieces of any byte-level tokenizer.

    Pieces that it does not have, as those of a target with a vocabulary of its own, are joined as they are written.
    """
    from sentencepiece import sentencepiece_model_pb2 as protocol  # pyright: ignore[reportMissingImports]

    made: Any = protocol.ModelProto.FromString(with_rules(data.normalize == "nfkc", data.lowercase))  # type: ignore[attr-defined]
    made.normalizer_spec.normalization_rule_tsv = made.denormalizer_spec.normalization_rule_tsv = ""  # a temporary name
    core = json.loads(tokenizer.to_json())["model"]
    if core["type"] == "BPE":
        made.trainer_spec.model_type = protocol.TrainerSpec.BPE  # type: ignore[attr-defined]
        scores: dict[str, float] = {}
        for rank, (left, right) in enumerate(core["merges"]):
            scores.setdefault(left + right, -float(rank))  # made by another merge, too, it is made by the first one
    else:
        made.trainer_spec.model_type = protocol.TrainerSpec.UNIGRAM  # type: ignore[attr-defined]
        scores = dict(map(tuple, core["vocab"]))
    kinds = protocol.ModelProto.SentencePiece  # type: ignore[attr-defined]
    of_special = dict.fromkeys(SPECIAL_TOKENS, kinds.CONTROL) | {SPECIAL_TOKENS[UNK]: kinds.UNKNOWN}
    del made.pieces[:]
    for token in words_of(tokenizer):
        kind = of_special.get(token, kinds.NORMAL)
        made.pieces.add(piece=in_letters(token), score=scores.get(token, NEVER), type=kind)
    spec = made.trainer_spec
    spec.vocab_size, spec.unk_surface = len(tokenizer), SPECIAL_TOKENS[UNK]
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = PAD, UNK, SOS, EOS
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = SPECIAL_TOKENS
    return made.SerializeToString()


def characters() -> Iterator[str]:
    """All that a text may hold, and what later versions of Unicode will have most likely: new marks and emoji."""
    for code in range(1, sys.maxunicode + 1):
        kind = unicodedata.category(chr(code))
        if kind != "Cs" and (code < 0x20000 or kind not in ("Cn", "Co")):
            yield chr(code)


def normalizing(data: DataConfig) -> dict[str, str]:
    """The letters of a character's bytes, after cleaning; likewise of a character that is written in its parts.

    Marks on a letter which Unicode has no character for stay in the order in which they are written.
    """
    letters, rules = normalizers.ByteLevel(), {}
    for character in characters():
        cleaned = clean(f".{character}.", data)[1:-1]  # with what joins nothing, or a blank would be stripped
        written = letters.normalize_str(cleaned).replace("Ġ", " ")
        rules[character] = written
        letter, *marks = unicodedata.normalize("NFD", character)
        for order in permutations(marks):
            for n in range(len(marks)):  # ế as e and both marks, or as ê and one
                parts = unicodedata.normalize("NFC", "".join([letter, *order[:n]])) + "".join(order[n:])
                if unicodedata.normalize("NFC", parts) == character:
                    rules[parts] = written
    return rules


def denormalizing() -> dict[str, str]:
    """Back from the letters of its bytes to a character; what is left of one becomes a single �, as with ours."""
    letters, rules = normalizers.ByteLevel(), {}
    for character in characters():
        if character != " ":
            written = letters.normalize_str(character)
            rules[written] = character
            for n in range(2, len(written)):
                rules[written[:n]] = "\ufffd"
    return dict.fromkeys(pre_tokenizers.ByteLevel.alphabet(), "\ufffd") | rules  # a single letter is ASCII, or a part


@cache  # for it takes seconds
def with_rules(compatible: bool, lowercase: bool) -> bytes:
    """A sentencepiece model whose only worth are its rules for letters, which its trainer alone can write."""
    import sentencepiece  # pyright: ignore[reportMissingImports]

    data = DataConfig(normalize="nfkc" if compatible else "nfc", lowercase=lowercase)
    out = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        options = {}
        for name, rules in (("normalization", normalizing(data)), ("denormalization", denormalizing())):
            path = Path(folder, f"{name}.tsv")
            changing = (rule for rule in rules.items() if rule[0] != rule[1])  # it refuses rules that do nothing
            lines = ("\t".join(" ".join(f"{ord(c):X}" for c in side) for side in rule) for rule in changing)
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            options[f"{name}_rule_tsv"] = str(path)
        sentencepiece.SentencePieceTrainer.train(  # type: ignore[attr-defined]
            sentence_iterator=iter(["a b c"]), model_writer=out, model_type="char", vocab_size=8, minloglevel=2,
            hard_vocab_limit=False, add_dummy_prefix=True, remove_extra_whitespaces=True, **options,
        )  # fmt: skip
    return out.getvalue()
