"""Marks that tools leave behind in a corpus: undone while it is read, where that is exact.

    units = undone(units, "pairs.tsv", say)      # "peut @-@ être" becomes "peut-être", and this is said once

Users neither type these marks nor want them in translations. Training, validation, test, the check and the cleaning all
read through here, so they agree. The first SAMPLE units decide for a corpus.

Limits: the spaces that a tokenizer puts around marks cannot be undone exactly, so the command that does it is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from itertools import chain, islice
from typing import NamedTuple

from dragoman.corpora.formats.units import LEFT_OUT, Say, Unit, Units, left_out
from dragoman.corpora.references import of_each

SAMPLE = 200
_ESCAPES = {"apos": "'", "quot": '"', "lt": "<", "gt": ">", "#91": "[", "#93": "]", "#124": "|", "amp": "&"}
_ESCAPE = re.compile(rf"&({'|'.join(_ESCAPES)});")
_SPLIT_MARK = re.compile(r"(?:^| )@([-–/,.])@(?= |$) ?")
_SEGMENT = re.compile(r"\s*<seg\b[^>]*>(.*)</seg>\s*", re.IGNORECASE)
_TAGS = re.compile(
    r"\s*</?(?:url|keywords|speaker|talkid|title|description|reviewer|translator|doc|docid|hl|p|srcset|refset|tstset|"
    r"mteval)\b.*>\s*|\s*<[?!][^>]*>\s*",
    re.IGNORECASE,
)


class Leftover(NamedTuple):
    """A kind of mark."""

    tool: str
    mark: str  # as messages show it
    sign: re.Pattern[str]  # in a text that has it
    share: float  # of the texts that must have the sign
    undo: Callable[[str], str]


LEFTOVERS = (
    Leftover(
        "subword-nmt", "@@", re.compile(r"\S@@(?: |$)"), 0.05, lambda text: text.replace("@@ ", "").removesuffix("@@")
    ),
    Leftover(
        "SentencePiece", "▁", re.compile("(?:^| )▁"), 0.5, lambda text: text.replace(" ", "").replace("▁", " ").strip()
    ),
    Leftover("OpenNMT", "￭", re.compile("￭"), 0.05, lambda text: re.sub(" ?￭ ?", "", text)),
    Leftover("Moses", "@-@", _SPLIT_MARK, 0.002, lambda text: _SPLIT_MARK.sub(r"\1", text)),
    Leftover(
        "Moses",
        "&apos;",
        re.compile(r"(?:^| )&(?:apos|quot|#91|#93|#124);\w* |\w&apos; "),
        0.002,
        lambda text: _ESCAPE.sub(lambda escape: _ESCAPES[escape[1]], text),
    ),
)


def undone(units: Units, name: str, say: Say) -> Units:
    """Undo what tools left behind in the units of a corpus of this name."""
    sample = list(islice(units, SAMPLE))
    texts = [text for unit in sample for text in unit[1:] if text and text < LEFT_OUT]
    present = [kind for kind in LEFTOVERS if sum(map(bool, map(kind.sign.search, texts))) > kind.share * len(texts)]
    tagged = any(_without_tags(unit) is not unit for unit in sample)
    for tool in dict.fromkeys(kind.tool for kind in present):
        marks = " and ".join(kind.mark for kind in present if kind.tool == tool)
        spaces = (
            "; the spaces around marks stay, unless you take them out first, of a file in one language, with "
            "sacremoses -l LANGUAGE detokenize"
        )
        say(f"{name}: {marks} of {tool} are undone{spaces if tool == 'Moses' else ''}")
    if tagged:
        say(f"{name}: tags of a test set are undone: <seg> is read, and lines that hold only tags are left out")
    units = chain(sample, units)
    if not present and not tagged:
        yield from units
        return

    def undo(text: str) -> str:
        return reduce(lambda so_far, kind: kind.undo(so_far), present, text)

    for position, source, target in map(_without_tags, units) if tagged else units:
        whole = source < LEFT_OUT and target < LEFT_OUT
        yield (position, undo(source), of_each(target, undo)) if whole else (position, source, target)


def _without_tags(unit: Unit) -> Unit:
    """Return the text inside <seg> of both sides; leave out a unit of tags; return the same unit if it is neither."""
    position, *texts = unit
    if not all(text.lstrip().startswith("<") for text in texts if text) or not any(texts):
        return unit
    segments = [_SEGMENT.fullmatch(text) for text in texts if text]
    if None not in segments:
        source, target = (of_each(text, lambda one: _SEGMENT.sub(r"\1", one).strip()) for text in texts)
        return position, source, target
    return left_out(position, " | ".join(texts), "tags") if all(map(_TAGS.fullmatch, filter(None, texts))) else unit
