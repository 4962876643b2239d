"""What a cleaning has dropped: counts and examples, in cleaning.json, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dragoman.console import shorten, visible
from dragoman.evaluation.page import environment
from dragoman.filtering.commands import share
from dragoman.filtering.rules import REASONS

EXAMPLES = 10  # of each reason
LONGEST = 300  # characters of an example
WIDTH = 80  # columns of the summary


@dataclass
class Dropped:
    """The pairs that were dropped for one reason; the fields are those of cleaning.json."""

    reason: str
    meaning: str
    pairs: int
    examples: list[dict[str, Any]] = field(default_factory=list)

    def add_example(self, position: int, source: str, target: str) -> None:
        """Add a pair, shortened, and without characters that act on a terminal."""
        source, target = (shorten(visible(text[:LONGEST]), LONGEST) for text in (source, target))
        self.examples.append({"position": position, "source": source, "target": target})


@dataclass
class Outcome:
    """What was read, kept and dropped; the fields are those of cleaning.json."""

    corpus: str
    source_lang: str
    target_lang: str
    unit: str  # what positions count, such as line
    read: int
    kept: int
    dropped: list[Dropped]  # in the order of REASONS
    format: int = 1

    def lines(self) -> list[str]:
        """Return a summary for a terminal, at most WIDTH columns wide."""

        def row(count: int, text: str) -> str:
            return f"{count:>10,}  {share(count, self.read):>8}  {text}"

        title = f"{self.source_lang} to {self.target_lang}, {self.corpus}"
        lines = [shorten(visible(title), WIDTH), "", f"{self.read:>10,}            pairs read"]
        lines += [row(self.kept, "kept"), row(self.read - self.kept, "dropped")]
        lines += [""] * bool(self.dropped)
        return lines + [row(part.pairs, f"{part.reason:<15} {part.meaning}") for part in self.dropped]


def dropped_of(numbers: np.ndarray) -> tuple[list[Dropped], dict[int, Dropped]]:
    """Return what was dropped, and the rows of some random examples.

    Args:
        numbers: (N), of the reason of each pair, from 1 in the order of REASONS; 0 if it stays
    """
    draw, parts, rows_shown = np.random.default_rng(0), list[Dropped](), dict[int, Dropped]()
    for number, (reason, kind) in enumerate(REASONS.items(), 1):
        rows = np.flatnonzero(numbers == number)
        if len(rows):
            parts.append(Dropped(reason, kind.text, len(rows)))
            rows_shown |= dict.fromkeys(draw.permutation(rows)[:EXAMPLES].tolist(), parts[-1])
    return parts, rows_shown


def render(content: Mapping[str, Any]) -> str:
    """Render the content of cleaning.json as a page: one HTML file without scripts."""
    template = environment(Path(__file__).parent / "templates").get_template("cleaning.html")
    return template.render(outcome=content)
