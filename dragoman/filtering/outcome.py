"""What a cleaning has dropped: counts by reason, in cleaning.json and for the terminal."""

from __future__ import annotations

from dataclasses import dataclass

from dragoman.console import shorten, visible
from dragoman.filtering.commands import share

WIDTH = 80  # columns of the summary


@dataclass
class Dropped:
    """The pairs that were dropped for one reason; the fields are those of cleaning.json."""

    reason: str
    meaning: str
    pairs: int


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
    format: int = 2

    def lines(self) -> list[str]:
        """Return a summary for a terminal, at most WIDTH columns wide."""

        def row(count: int, text: str) -> str:
            return f"{count:>10,}  {share(count, self.read):>8}  {text}"

        title = f"{self.source_lang} to {self.target_lang}, {self.corpus}"
        lines = [shorten(visible(title), WIDTH), "", f"{self.read:>10,}            pairs read"]
        lines += [row(self.kept, "kept"), row(self.read - self.kept, "dropped")]
        lines += [""] * bool(self.dropped)
        return lines + [row(part.pairs, f"{part.reason:<15} {part.meaning}") for part in self.dropped]
