"""Text as a model reads it: decoded strictly, normalised, with single spaces."""

from __future__ import annotations

import unicodedata

from dragoman.errors import DataError
from dragoman.settings import DataConfig

AS_WRITTEN = DataConfig()  # for text that belongs to no run: NFC, and letters keep their case


def clean(text: str, data: DataConfig = AS_WRITTEN) -> str:
    """Normalise Unicode (data.normalize), turn each run of white space into one space, and strip the ends.

    All text passes through here before it becomes ids, in training and in translating. The result contains no tab and
    no line break, and cleaning it again changes nothing. data.lowercase uses Unicode's rules for every language, as
    published lower-cased scores do: ß stays, a final Σ becomes ς, and I becomes i in Turkish, too.
    """
    form = "NFKC" if data.normalize == "nfkc" else "NFC"
    text = unicodedata.normalize(form, text)
    if data.lowercase:
        text = unicodedata.normalize(form, text.lower())  # H with a line below is two characters, but ẖ is one
    return " ".join(text.split())


def is_text(text: str) -> bool:
    """Whether a string can be encoded as UTF-8. A lone surrogate, half of a character, cannot."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def require_text(*texts: str) -> None:
    """Raise DataError unless all of these are text, see `is_text`."""
    for text in texts:
        if not is_text(text):
            half = next(letter for letter in text if "\ud800" <= letter <= "\udfff")
            raise DataError(f"U+{ord(half):04X} is half of a character, which text never contains: decode it as UTF-8.")


def decode_line(raw: bytes, name: str, number: int, strict: bool = True) -> str:
    """Decode a line of UTF-8, without its end (LF or CRLF) and without a byte order mark at its start.

    Files that were joined have such a mark wherever one of them began.

    Args:
        name, number: of the file and the line, for messages
        strict: raise DataError for bytes that are not UTF-8; otherwise lone surrogates stand for them, and `is_text`
            is False for the line

    Raises:
        DataError: the line is not UTF-8, or the file is UTF-16
    """
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    if raw >= b"\xef\xbb\xbf":  # rarely: faster than to look for it
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    if number == 1 and raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        form = "UTF-32" if b"\0\0" in raw[:4] else "UTF-16"
        raise DataError(f"{name} is {form}, but text must be UTF-8: convert it, as with iconv -f {form} -t UTF-8.")
    if not strict:
        return raw.replace(b"\0", b"\xff").decode(errors="surrogateescape")
    if b"\0" in raw:
        form = "UTF-16LE" if raw.index(0) % 2 else "UTF-16BE"  # ASCII has its zeros there
        raise DataError(
            f"{name}:{number}, byte {raw.index(0) + 1}: a NUL, which text never contains: remove it, or, if the whole "
            f"file is UTF-16, convert it with iconv -f {form} -t UTF-8."
        )
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}:{number}, byte {error.start + 1}: 0x{raw[error.start]:02x} is not UTF-8 here: "
            "fix the line, or convert the file (from Windows or Excel: iconv -f CP1252 -t UTF-8)."
        ) from error
