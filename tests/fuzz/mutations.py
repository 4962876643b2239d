"""Inputs gone wrong: damaged bytes, values of another kind or size, and text that nobody types."""

from __future__ import annotations

import copy
import io
import json
import random
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

from dragoman.settings import SECTIONS, SETTINGS

NUMBERS = (0, 1, -1, 2, 7, 127, 255, 2**16, 2**20, 2**31 - 1, 2**31, 2**32, 2**53, 2**63, 2**64, -(2**63), 10**30)
FRACTIONS = (0.0, -0.0, 0.5, 1e-9, -1e-3, 1.5, 1e9, 1e18, 1e308, -1e308, 5e-324)
VALUES: tuple[Any, ...] = (
    None, True, False, "", " ", "\0", "x", "0", "null", "../x", "/etc/passwd", "\ud800", "é", "a" * 5000, [], {}, [[]],
    [None], {"": None}, [0] * 1000, *NUMBERS, *FRACTIONS,
)  # fmt: skip

CHARACTERS = (
    *"\0\x01\x07\x08\t\n\v\f\r\x1b\x1c\x1e\x7f\x80\x85\x9b\xa0\xad\u0300\u034f\u0345\u05d0\u0627\u064b\u0e31\u1100\u115f"
    "\u200b\u200d\u200e\u202a\u202e\u2028\u2029\u2066\u2069\u3000\u3002\ue000\ufe0f\ufeff\ufffd\uffff\ud800\udcff\udfff"
    "\U0001f468\U000e0041\U0010ffff",
    *"aAzZ0.,;:!?'\"’«»()[]{}<>&|/\\#$%@*_~`^+-= ßİıſǅﬁẞ£漢字あ한ก",
)
WORDS = (
    "the", "cat", "The", "CAT", "My", "name", "is", "[EOS]", "[PAD]", "[UNK]", "</s>", "<s>", "▁", "@@", "null", "Dr.",
    "https://x.org/a?b=c", "a@b.co", "{name}", "%s", "$1", "3.14", "1,000,000", "1st", "don't", "…", "👨‍👩‍👧‍👦", "🇮🇹",
    "שלום", "مرحبا", "東京都", "e\u0301", "ﷺ", "\u202eevil\u202c", "<b>", "</b>", "&amp;", "-->", "\r\n", "\n\n", "   ",
)  # fmt: skip

SCALARS = (
    "null", "~", "true", "no", "NaN", ".nan", ".inf", "-.inf", "1e999", "0x10", "0b1", "0o7", "1_000", "12:30:45", "=",
    "<<", "2001-01-01", "''", '"\\u0000"', '"\\ud800"', "| text", ">-\n  folded", "!!python/name:os.system",
    "!!binary aGk=", "!!set {a}", "!!float 1", "[1, 2]", "{a: b}", "&a [*a]", "*a", "@x", "`x`", "%x", "\t", "- - - 1",
    "? a", "9" * 5000, *map(str, NUMBERS), *map(str, FRACTIONS),
)  # of YAML  # fmt: skip


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Damage bytes at random: cut, insert, delete, repeat, or change some."""
    if not data:
        return draw.randbytes(draw.choice([1, 2, 8, 300]))
    at = draw.randrange(len(data))
    length = draw.choice([1, 2, 8, 300])
    match draw.randrange(6):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + draw.randbytes(length) + data[at:]
        case 2:
            return data[:at] + data[at + length :]
        case 3:
            return data[:at] + data[at : at + length] * draw.choice([2, 3, 100]) + data[at + length :]
        case 4:  # in the header, which holds lengths and names
            return _with_changes(data, draw, min(len(data), 400), draw.choice([1, 3, 20]))
        case _:
            return _with_changes(data, draw, len(data), draw.choice([1, 1, 3, 100]))


def _with_changes(data: bytes, draw: random.Random, size: int, count: int) -> bytes:
    """Change bits or bytes among the first `size`."""
    changed = bytearray(data)
    for _ in range(count):
        changed[draw.randrange(size)] ^= 1 << draw.randrange(8) if draw.random() < 0.5 else draw.randrange(256)
    return bytes(changed)


def spliced(text: str, draw: random.Random, parts: Sequence[str]) -> str:
    """Damage text but not its encoding: cut, repeat, delete, move, or insert one of the parts, a few times over."""
    for _ in range(draw.choice([1, 1, 2, 5, 20])):
        start, end = sorted(draw.randrange(len(text) + 1) for _ in range(2))
        end = min(end, start + draw.choice([1, 4, 30, 1000]))
        match draw.randrange(5):
            case 0:
                text = text[:start] + text[end:]
            case 1 if len(text) < 100_000:
                text = text[:end] + text[start:end] * draw.choice([1, 2, 30]) + text[end:]
            case 2:
                at = draw.randrange(len(text) + 1)
                text = text[:at] + text[start:end] + text[at:]
            case _:
                text = text[:start] + draw.choice(parts) * draw.choice([1, 1, 1, 2, 50]) + text[start:]
    return text


def forged(value: Any, draw: random.Random) -> Any:
    """A copy of a value of lists, dicts, text and numbers, with one or a few parts removed, exchanged or forged."""
    root = [copy.deepcopy(value)]
    for _ in range(draw.choice([1, 1, 1, 2, 5])):
        _forge_part(root, draw)
    return root[0]


def _forge_part(root: list[Any], draw: random.Random) -> None:
    """Change one place in a tree: walk down from the root, and stop at a leaf or, rarely, before."""
    holder: Any = root
    key: Any = 0
    while isinstance(holder[key], list | dict) and holder[key] and draw.random() < 0.9:
        holder = holder[key]
        key = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    match draw.randrange(5):
        case 0 if holder is not root:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        case 1:
            holder[draw.choice([*holder, *map(str, VALUES[:9])])] = copy.deepcopy(holder[key])
        case 2 if isinstance(holder[key], int | float):
            holder[key] = draw.choice([*NUMBERS, *FRACTIONS, holder[key] + 1, holder[key] - 1, -holder[key]])
        case _:
            holder[key] = copy.deepcopy(draw.choice(VALUES))


def forged_json(data: bytes, draw: random.Random) -> bytes:
    """JSON of another content."""
    return json.dumps(forged(json.loads(data), draw)).encode()


def forged_settings(text: str, draw: random.Random) -> str:
    """A config file with other values or names of a few settings."""
    lines = text.splitlines()
    for _ in range(draw.choice([1, 1, 2, 10])):
        at = draw.randrange(len(lines))
        name = lines[at].partition(":")[0]
        match draw.randrange(6):
            case 0:
                lines[at] = f"{draw.choice([name, '', *SECTIONS, *SETTINGS])}: {scalar(draw)}"
            case 1:
                lines.insert(at, draw.choice(lines))
            case 2 if len(lines) > 1:
                del lines[at]
            case _:
                lines[at] = f"{name}: {scalar(draw)}"
    return "\n".join(lines) + "\n"


def scalar(draw: random.Random) -> str:
    """What may stand for the value of a setting in YAML."""
    return any_text(draw, 40) if draw.random() < 0.2 else draw.choice(SCALARS)


def forged_zip(data: bytes, draw: random.Random, mutate: Callable[[str, bytes], bytes]) -> bytes:
    """A .zip, in which one member is mutated, renamed, doubled, grown or left out; packed or not."""
    stream = io.BytesIO()
    packing = draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w", packing) as new:
        chosen = draw.choice(old.namelist())
        for name in old.namelist():
            content = old.read(name)
            match draw.randrange(12) if name == chosen else 99:
                case 0:
                    new.writestr(any_text(draw, 30).encode(errors="ignore").decode().replace("\0", "") or "x", content)
                case 1:
                    continue
                case 2:
                    new.writestr(name, bytes(draw.choice([10**5, 10**7])))
                case 99:
                    new.writestr(name, content)
                case _:
                    new.writestr(name, mutate(name, content))
    return stream.getvalue()


def any_text(draw: random.Random, longest: int = 200) -> str:
    """Text of words, marks and characters of any kind, halves of characters too; sometimes one of them many times."""
    size = draw.choice([0, 1, 3, 10, 40, longest])
    text = ""
    while len(text) < size:
        match draw.randrange(5):
            case 0:
                text += chr(draw.randrange(draw.choice([0x80, 0x800, 0x10000, 0x110000])))
            case 1:
                text += draw.choice(CHARACTERS) * draw.choice([1, 1, 1, 2, 30, longest])
            case _:
                text += draw.choice(WORDS) + draw.choice(["", " ", " ", ". ", "\t"])
    return text[:longest]
