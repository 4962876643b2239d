"""Messages of programs: catalogues of gettext (.po, .pot), and JSON (.json, .arb) and YAML (.yaml, .yml) of messages.

A .po gets what it lacks: messages that have a translation, fuzzy or not, keep it. In the other formats every text is
translated; keys, numbers, addresses, identifiers and ICU plurals stay. If a translation has lost a placeholder, the
message stays as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from dragoman.corpora.formats.language_names import language_of
from dragoman.documents.document import Document
from dragoman.documents.files import TextDocument
from dragoman.documents.segments import TAG, Segment, SegmentedDocument, pieces
from dragoman.errors import DataError

FIELD = re.compile(
    r'^(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)[ \t]+((?:"(?:[^"\\\n]|\\.)*"[ \t]*\r?(?:\n[ \t]*(?=")|\n|\Z))+)',
    re.MULTILINE,
)
# What is no language: addresses, paths, colours, keys in any style.
IDENTIFIER = re.compile(r"\S*[/@:#_\\]\S*|\S*\w[.]\w\S*|[a-z]+[A-Z]\w*|[A-Z0-9_]*[0-9_][A-Z0-9_]*")
LONGEST_IDENTIFIER = 100  # characters; the pattern takes quadratic time
ICU = re.compile(r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\b")
JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]')


def is_language(text: str) -> bool:
    """Whether the text of a message can be translated, rather than a name that programs use."""
    is_identifier = len(text) <= LONGEST_IDENTIFIER and IDENTIFIER.fullmatch(text)
    return any(map(str.isalpha, TAG.sub("", text))) and not is_identifier and not ICU.search(text)


# ---- .po


def parse_po(content: bytes, ending: str, target: str) -> Document:
    """Parse a catalogue. Raises DataError."""
    return TextDocument(content, lambda text: SegmentedDocument(text, [*_of_po(text, target)]))


def _of_po(text: str, target: str) -> Iterator[Segment]:
    """The parts to change: the header, and translations that are empty."""
    from babel.messages.pofile import denormalize, normalize

    fields = [*FIELD.finditer(text)]
    _check(text, fields)
    end_of_line = "\r\n" if "\r\n" in text else "\n"
    singular = plural = ""
    for field in fields:
        name, value = field[1], denormalize(field[2].strip())
        if name == "msgid":
            singular = plural = value
        elif name == "msgid_plural":
            plural = value
        elif name.startswith("msgstr") and not singular:
            if new := _header(value, target):
                yield Segment(*field.span(2), [], partial(_as_po, text=new, end=end_of_line))
        elif name.startswith("msgstr") and not value:
            source = singular if name in ("msgstr", "msgstr[0]") else plural

            def write(translation: str, field: re.Match[str] = field) -> str:
                # Babel takes quadratic time to wrap a long word.
                width = 76 if max(map(len, translation.split()), default=0) < 500 else 0
                lines = normalize(translation, width=width).split("\n")
                return end_of_line.join(lines) + field[2][len(field[2].rstrip()) :]

            yield Segment(*field.span(2), pieces(source), write)


def _as_po(_: str, text: str, end: str) -> str:
    from babel.messages.pofile import normalize

    return normalize(text, width=0).replace("\n", end) + end


def _check(text: str, fields: list[re.Match[str]]) -> None:
    """Raise DataError for a line that belongs to no field."""
    rest, start = fields[::-1], 0
    for number, line in enumerate(text.split("\n"), 1):
        while rest and rest[-1].end() <= start:
            rest.pop()
        is_inside = rest and rest[-1].start() <= start
        if line.strip() and not line.startswith("#") and not is_inside:
            raise DataError(f"line {number}: expected a comment, or msgid or msgstr with a text in quotes.")
        start += len(line) + 1


def _header(header: str, target: str) -> str:
    """The header with the language and the rule for plurals, if it lacks them; else nothing."""
    from babel.messages.plurals import get_plural

    new = re.sub(r"^Language: *$", f"Language: {target}", header, flags=re.MULTILINE)
    rule = get_plural(target.replace("-", "_")).plural_forms
    new = re.sub(r"nplurals=INTEGER; plural=EXPRESSION;?", lambda _: f"{rule};".replace(";;", ";"), new)
    return new if new != header else ""


# ---- JSON


def parse_json(content: bytes, ending: str, target: str) -> Document:
    """Parse JSON whose texts are values. Raises DataError."""

    def parse(text: str) -> Document:
        try:
            json.loads(text)
        except RecursionError:
            raise DataError("this is nested too deeply.") from None
        except ValueError as error:
            raise DataError(f"this is not JSON: {error}.") from None
        return SegmentedDocument(text, [*_of_json(text)])

    return TextDocument(content, parse)


def _of_json(text: str) -> Iterator[Segment]:
    """The values that are texts; not those of keys that begin with @, which describe other texts."""
    write = partial(json.dumps, ensure_ascii=text.isascii() and "\\u" in text)
    depth, description = 0, None  # the depth at which a description began
    for token, following in pairwise([*JSON_TOKEN.finditer(text), None]):
        assert token
        depth += (token[0] in "{[") - (token[0] in "}]")
        if description is not None and (depth < description or (depth == description and token[0] == ",")):
            description = None
        if token[0][0] != '"':
            continue
        value = json.loads(token[0])
        if following and following[0] == ":":
            if value.startswith("@") and description is None:
                description = depth
        elif description is None and is_language(value):
            yield Segment(*token.span(), pieces(value), write)


# ---- YAML


def parse_yaml(content: bytes, ending: str, target: str) -> Document:
    """Parse YAML whose texts are values; one key around all that is a language becomes the target. Raises DataError."""
    import yaml

    def parse(text: str) -> Document:
        try:
            root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
        except RecursionError:
            raise DataError("this is nested too deeply.") from None
        except yaml.YAMLError as error:
            raise DataError(f"this is not YAML: {' '.join(str(error).split())[:200]}.") from None
        segments = []
        if isinstance(root, yaml.MappingNode) and len(root.value) == 1:
            [(key, inside)] = root.value
            if isinstance(inside, yaml.MappingNode) and language_of(key.value):
                segments.append(Segment(key.start_mark.index, key.end_mark.index, [], lambda _: target))
        segments += _of_yaml(text, root, set())
        return SegmentedDocument(text, sorted(segments))

    return TextDocument(content, parse)


def _of_yaml(text: str, node: Any, seen: set[int]) -> Iterator[Segment]:
    """The values that are texts; those that an alias repeats, once."""
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node.value, list):
        for child in node.value:
            yield from _of_yaml(text, child[1] if isinstance(child, tuple) else child, seen)
        return
    start, end = node.start_mark.index, node.end_mark.index
    start += len(re.match(r"(?:[&!]\S*\s+)*", text[start:end])[0])  # type: ignore[index]  # an anchor or a tag
    raw = text[start:end]
    if node.tag == "tag:yaml.org,2002:str" and is_language(node.value):
        yield Segment(start, end, pieces(node.value), partial(_as_yaml, raw=raw, style=node.style))


def _as_yaml(text: str, raw: str, style: str | None) -> str:
    """A text in the style of the one it replaces, or in quotes if it would be read as something else."""
    import yaml

    if style in ("|", ">"):
        head, _, body = raw.partition("\n")
        indent = re.match(r"(?:[ \t]*\r?\n)*([ \t]*)", body)
        assert indent
        kept = raw[len(raw.rstrip()) :]
        lines = [f"{indent[1]}{line}" if line else "" for line in text.strip("\n").split("\n")]
        return "\n".join([head, *lines]) + kept
    if style == "'":
        return "'" + text.replace("'", "''").replace("\n", "\n\n") + "'"
    if style is None and "\n" not in text:
        try:
            [(_, value)] = yaml.compose(f"k: {text}", Loader=yaml.SafeLoader).value
            if value.tag == "tag:yaml.org,2002:str" and value.value == text and value.style is None:
                return text
        except (yaml.YAMLError, ValueError, AttributeError):
            pass
    return json.dumps(text, ensure_ascii=False)
