"""What a cleaning has dropped: counts and examples, in cleaning.json, for the terminal and for the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dragoman.console import shorten, visible
from dragoman.evaluation.page import environment
from dragoman.filtering.commands import share
from dragoman.filtering.rules import REASONS
from dragoman.filtering.words import digest

EXAMPLES = 10  # of each reason
LONGEST = 300  # characters of an example
WIDTH = 80  # columns of the summary


@dataclass
class Outcome:
    """Counts of a cleaning, and examples of what was dropped."""

    corpus: str
    source_lang: str
    target_lang: str
    unit: str  # what positions count, such as line
    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)  # by reason
    examples: dict[str, list[tuple[int, int, str, str]]] = field(default_factory=dict)  # rank, position, texts

    @property
    def kept(self) -> int:
        return self.read - self.dropped.total()

    def drop(self, reason: str, position: int, source: str, target: str) -> None:
        """Count a dropped pair. The examples are those whose positions have the smallest hashes."""
        self.dropped[reason] += 1
        examples = self.examples.setdefault(reason, [])
        rank = digest(f"{reason} {position}")
        if len(examples) < EXAMPLES or rank < examples[-1][0]:
            examples.append((rank, position, _example(source), _example(target)))
            examples.sort()
            del examples[EXAMPLES:]

    def as_json(self) -> dict[str, Any]:
        """Return the content of cleaning.json, in the order of REASONS."""
        return {
            "format": 1,
            "corpus": self.corpus,
            "source_lang": self.source_lang,
            "target_lang": self.target_lang,
            "unit": self.unit,
            "read": self.read,
            "kept": self.kept,
            "dropped": [
                {
                    "reason": reason,
                    "meaning": kind.text,
                    "pairs": self.dropped[reason],
                    "examples": [
                        {"position": position, "source": source, "target": target}
                        for _, position, source, target in sorted(self.examples[reason], key=lambda row: row[1])
                    ],
                }
                for reason, kind in REASONS.items()
                if self.dropped[reason]
            ],
        }

    def lines(self) -> list[str]:
        """Return a summary for a terminal, at most WIDTH columns wide."""
        total = self.dropped.total()
        title = f"{self.source_lang} to {self.target_lang}, {self.corpus}"
        lines = [shorten(visible(title), WIDTH), "", f"{self.read:>10,}            pairs read"]
        lines += [_row(self.kept, self.read, "kept"), _row(total, self.read, "dropped")]
        lines += [""] * bool(total)
        for reason, kind in REASONS.items():
            if self.dropped[reason]:
                lines.append(_row(self.dropped[reason], self.read, f"{reason:<15} {kind.text}"))
        return lines


def render(content: Mapping[str, Any]) -> str:
    """Render the content of cleaning.json as a page: one HTML file without scripts."""
    template = environment(Path(__file__).parent / "templates").get_template("cleaning.html")
    return template.render(outcome=content)


def _row(count: int, of: int, text: str) -> str:
    return f"{count:>10,}  {share(count, of):>8}  {text}"


def _example(text: str) -> str:
    return shorten(visible(text[:LONGEST]), LONGEST)
