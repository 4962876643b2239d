"""Text as the model reads it."""

from __future__ import annotations

import unicodedata

from dragoman.errors import DataError
from dragoman.settings import DataConfig

AS_WRITTEN = DataConfig()  # to clean text by, where no run says how: letters stay what they are


# --- Text ---------------------------------------------------------------------------------------------------------


def clean(text: str, data: DataConfig = AS_WRITTEN) -> str:
    """Compose letters and their accents (data.normalize), make each run of white space one blank, and strip the ends.

    Whatever becomes ids goes through here, in training and in translating. The result has neither tab nor line break,
    and what is clean stays as it is. Lower case (data.lowercase) is that of Unicode whatever the language, as in
    published lower-cased scores: ß stays, Σ at the end of a word becomes ς, and I becomes i in Turkish, too.
    """
    form = "NFKC" if data.normalize == "nfkc" else "NFC"
    text = unicodedata.normalize(form, text)
    if data.lowercase:
        text = unicodedata.normalize(form, text.lower())  # H and a line below are two letters, but ẖ is one
    return " ".join(text.split())


def decode_line(raw: bytes, name: str, number: int, strict: bool = True) -> str:
    """The text of a line, without its end (LF or CRLF) and without the mark (BOM) that may begin the first line.

    Raises DataError, which tells the name of the file or stream and the number of the line, if that is not UTF-8. If
    not strict, lone surrogates stand for the wrong bytes instead, by which `is_text` knows the line.
    """
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    if number == 1:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise DataError(f"{name} is UTF-16, but text must be UTF-8: convert it (iconv -f UTF-16 -t UTF-8).")
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    if not strict:
        return raw.replace(b"\0", b"\xff").decode(errors="surrogateescape")
    if b"\0" in raw:
        raise DataError(f"{name}:{number}, byte {raw.index(0) + 1}: a NUL, which no text has: is this UTF-8?")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}:{number}, byte {error.start + 1}: 0x{raw[error.start]:02x} is not UTF-8 here: "
            "mend the line, or convert the file (iconv -f ISO-8859-1 -t UTF-8, if that is what it is)."
        ) from error
