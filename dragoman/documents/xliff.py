"""XLIFF 1.2 and 2.0: the target of each unit is filled. The source, and targets that are there already, stay.

Inline codes are spans, as tags are. What is filled in says that it needs a review.

Formats: OASIS, "XLIFF Version 1.2" and "XLIFF Version 2.0".
"""

from __future__ import annotations

import copy
from typing import Any

from dragoman.corpora.formats.xml_stream import local_name
from dragoman.documents.document import Document
from dragoman.documents.trees import TreeDocument
from dragoman.documents.zipped import parse_tree, serialize
from dragoman.errors import DataError

FLOWING = frozenset(["g", "pc", "mrk"])
OPEN_STATES = frozenset([None, "new", "needs-translation", "initial"])


class XliffDocument(TreeDocument):
    """See `document.Document`."""

    def __init__(self, content: bytes, target: str) -> None:
        root = parse_tree(content, "the XML")
        if local_name(root) != "xliff":
            raise DataError(f"this begins with <{local_name(root)}>, not with <xliff>: is this another format?")
        targets = [each for unit in root.iter("{*}trans-unit", "{*}segment") for each in _target(unit, target)]
        super().__init__(targets, lambda *_: False, lambda: serialize(root, content))

    def is_fixed(self, element: Any) -> bool:
        """Whether an inline element stays as it is."""
        is_protected = element.get("translate") == "no" or element.get("mtype") == "protected"
        return local_name(element) not in FLOWING or is_protected

    def shown(self, element: Any) -> str:
        """The text that is protected; that of codes is none."""
        return "".join(element.itertext()) if local_name(element) in FLOWING else ""


def parse_xliff(content: bytes, ending: str, target: str) -> Document:
    """Parse XLIFF. Raises DataError."""
    return XliffDocument(content, target)


def _target(unit: Any, language: str) -> list[Any]:
    """The new target of a unit, a copy of its source to be translated; none if the unit has one, or is left alone."""
    source, target = (next(unit.iterchildren(f"{{*}}{name}"), None) for name in ("source", "target"))
    around = [unit, *unit.iterancestors()]
    state = unit.get("state") or (None if target is None else target.get("state"))
    is_done = target is not None and "".join(target.itertext()).strip() and state not in OPEN_STATES - {None}
    if source is None or is_done or any(each.get("translate") == "no" for each in around):
        return []
    new = copy.deepcopy(source)
    new.tag, new.tail = source.tag.replace("source", "target"), source.tail
    if target is not None:
        for name, value in target.attrib.items():
            new.set(name, value)
        new.tail = target.tail
        unit.replace(target, new)
    else:
        source.addnext(new)
    if local_name(unit) == "segment":
        unit.set("state", "translated")
        around[-1].set("trgLang", around[-1].get("trgLang", language))
    else:
        new.set("state", "needs-review-translation")
        for file in (each for each in around if local_name(each) == "file"):
            file.set("target-language", file.get("target-language", language))
    return [new]
