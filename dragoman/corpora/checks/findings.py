"""What the corpus check can report."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.corpora.downloads.fetch import Record

LEVELS = ("grave", "look", "note")
# Every kind of finding: the share of pairs that makes it grave (a tenth of that is worth a look, less is a note), the
# share below which it is not reported, and what is said of those pairs.
KINDS: dict[str, tuple[float, float, str]] = {
    "not_utf8": (0, 0, "not UTF-8, where training stops: fix them, or set data.on_bad_line skip"),
    "broken_row": (0, 0, "rows unlike the others, where training stops: fix them, or set data.on_bad_line skip"),
    "no_pair": (10, 0, "no pairs, such as fuzzy messages and rows of names: training leaves them out"),
    "slipped": (0, 0, "slipped: from about {unit} {first:,} to {last:,} the translation is {where}"),
    "unaligned": (0, 0, "not translations, judging by their lengths: look at {unit}s {first:,} to {last:,}"),
    "label": (0, 0, "in {language} by their text, not in {expected}"),
    "header": (0, 0, "like names of columns, not like a pair: leave this row out"),
    "overlap": (0.01, 0, "whose {what} also in training: scores will be too good"),
    "near_overlap": (
        0.01,
        0,
        "that differ from training only in capitals or marks: scores will be too good",
    ),
    "mojibake": (0.01, 0, "decoded wrongly and encoded again, as è that became Ã¨"),
    "replaced": (0.01, 0, "with U+FFFD, which stands for characters that were lost"),
    "question_marks": (0.01, 0, "with a question mark inside a word, where a letter was lost"),
    "control": (0.01, 0, "with control characters or invisible ones, which spoil words"),
    "empty": (0.1, 0, "without text on a side: training drops them"),
    "swapped": (0.01, 0, "swapped: each side reads like the language of the other"),
    "language": (0.01, 0, "with both sides in one language"),
    "script": (0.01, 0, "mostly in another script than the rest of their side"),
    "copied": (0.01, 0, "copied: both sides are the same"),
    "near_copied": (0.01, 0, "nearly copied: most words are the same on both sides"),
    "machine": (0.01, 0, "made by a machine: one side goes round in circles, or says so"),
    "lowercased": (
        10,
        0.5,
        "lower-cased before ({language}): what people type will be lower-cased, too",
    ),
    "tokenized": (
        10,
        0.5,
        "tokenized before ({language}): what people type will be split, too; to undo it in a file of this language "
        "alone: sacremoses -l {language} detokenize",
    ),
    "uneven": (0.01, 0, "far more uneven than the others here: a side is incomplete, or translated very freely"),
    "numbers": (0.5, 0.3, "with different numbers on the two sides, of those with a number of three digits or more"),
    "too_long": (0.02, 0, "longer than data.max_length ({limit} tokens): training drops them"),
    "too_uneven": (0.1, 0, "more uneven than data.max_ratio ({limit:g}): training drops them"),
    "unknown": (0.05, 0.005, "tokens that the vocabulary would not know ({language}): {words}"),
    "markup": (0.05, 0, "with HTML tags or entities"),
    "addresses": (0.1, 0, "with web addresses"),
    "boilerplate": (0.3, 0.005, "that come ten times or more, apart from digits, capitals and marks"),
    "duplicates": (0.3, 0.001, "that occurred before, word for word"),
    "same_source": (10, 0.2, "whose source occurred before, with another target"),
    "same_target": (10, 0.2, "whose target occurred before, with another source"),
}


@dataclass(frozen=True)
class Example:
    """A pair that is safe to print on a terminal, shortened if it is long."""

    line: int  # or the number of whatever SplitSummary.unit says
    source: str
    target: str


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with some of the pairs, or may be."""

    name: str  # one of KINDS
    level: str  # one of LEVELS
    split: str
    count: int
    of: int  # how many were looked at: all, a sample, or those that the question is about
    text: str
    examples: list[Example]


@dataclass(frozen=True)
class SuggestedSetting:
    """A setting that suits this corpus better."""

    key: str
    value: str
    why: str


@dataclass(frozen=True)
class SplitSummary:
    """What was read, and what example numbers count, such as line or row."""

    name: str
    read: int
    unit: str


@dataclass(frozen=True)
class Diagnosis:
    """The result of the check; `asdict` turns it into the JSON object."""

    format: int  # of this record; changes when readers must change
    source_lang: str | None
    target_lang: str
    splits: list[SplitSummary]
    downloads: list[Record]  # where the corpus came from, if it came from the internet
    sampled: int  # training pairs that were tokenised
    findings: list[Finding]  # the gravest first
    settings: list[SuggestedSetting]
    verdict: str
    command: str  # that trains as suggested
    clean: str | None = None  # the command that drops what is grave, if there is something that it drops
