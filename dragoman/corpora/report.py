"""What a corpus holds, and what was done to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dragoman.corpora.splitting import Count

# --- The report ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SideReport:
    """One language: lengths of the training sentences in tokens, the vocabulary, and how well it covers."""

    language: str
    mean: float
    median: float
    percentile_99: float
    longest: int
    sentences: int  # one line in 200 has so many or more
    vocabulary: int
    left_out: int  # kinds of word that occur in training but have no id
    unknown: float  # share of the validation tokens


@dataclass(frozen=True)
class CorpusReport:
    """What the corpus holds, and what was done to it."""

    counts: dict[str, Count]
    sides: list[SideReport]  # of source and target; of plain text the same one twice
    repeated: dict[str, int]  # by split: sentences whose source, or plain text, stands in training, too

    @classmethod
    def of(cls, values: dict[str, Any]) -> CorpusReport:
        """The report of which `asdict` made the values."""
        counts = {split: Count(**count) for split, count in values["counts"].items()}
        return cls(counts, [SideReport(**side) for side in values["sides"]], values["repeated"])

    @property
    def plain(self) -> bool:
        """Whether this is about plain text, of which there is but one side."""
        return self.sides[0] == self.sides[1]

    @property
    def _things(self) -> str:
        return "texts" if self.plain else "pairs"

    def lines(self) -> list[str]:
        """The report, to be printed."""
        lines = []
        for split, count in self.counts.items():
            reasons = {
                "are empty" if self.plain else "lack a side": count.empty,
                "are not UTF-8": count.unreadable,
                "are too long": count.too_long,
                "are too uneven": count.uneven,
            }
            why = "".join(f"; {number:,} {reason} and are dropped" for reason, number in reasons.items() if number)
            lines.append(f"{split}: {count.read:,} {self._things}{why}")
        for side in self.sides[self.plain :]:
            rare = f" (without {side.left_out:,} rarer words)" if side.left_out else ""
            lines.append(
                f"{side.language}: {side.mean:.1f} tokens a sentence, half up to {side.median:.0f}, 99 % up to "
                f"{side.percentile_99:.0f}, longest {side.longest}; vocabulary {side.vocabulary:,}{rare}; "
                f"{side.unknown:.2%} of the validation tokens are unknown"
            )
        return lines + [f"warning: {warning}" for warning in self.warnings()]

    def warnings(self) -> list[str]:
        """What somebody should look at before believing in the run."""
        found = [
            f"{count.dropped / count.read:.0%} of the {split} {self._things} are dropped: is the corpus what it should "
            "be, and data.max_length large enough?"
            for split, count in self.counts.items()
            if count.dropped > 0.2 * count.read
        ]
        found += [
            f"{side.unknown:.0%} of the {side.language} validation tokens are unknown and will be "
            f"{'written' if self.plain else 'translated'} as [UNK]: "
            "set tokenizer.kind to bpe, or lower tokenizer.min_frequency."
            for side in self.sides[self.plain :]
            if side.unknown > 0.05
        ]
        return found + [
            f"{number:,} {'texts' if self.plain else 'source sentences'} of {split} stand in train, too: "
            "scores will flatter."
            for split, number in self.repeated.items()
            if number
        ]
