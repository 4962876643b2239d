"""The runs that a server offers, each with its translating thread, and which one a request goes to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dragoman.corpora.prepared_files import load_head
from dragoman.directions import Direction, split_tag
from dragoman.errors import ConfigError
from dragoman.server.batcher import Batcher
from dragoman.server.schemas import DirectionInfo
from dragoman.translation.translator import Translator

EXAMPLES = 6  # sentences for the empty page
EXAMPLE_WORDS = range(4, 11)
LOOKED_AT = 200  # validation pairs


class Models:
    """The models of a server; the first one is used where a request names no languages."""

    def __init__(self, batchers: Sequence[Batcher]) -> None:
        """Raises ConfigError if two of them translate the same direction."""
        self.batchers = list(batchers)
        self.by_direction: dict[Direction, Batcher] = {}
        for batcher in batchers:
            translator = batcher.translator
            for direction in translator.config.data.several or [translator.usual]:
                other = self.by_direction.setdefault(Direction(*direction), batcher)
                if other is not batcher:
                    raise ConfigError(
                        f"{other.translator.path} and {translator.path} both translate {direction[0]} to "
                        f"{direction[1]}: serve one of them."
                    )

    def choose(self, source: str, target: str) -> Batcher:
        """The model that translates between languages, either of which may be empty. Raises ConfigError."""
        if len(self.batchers) == 1:
            return self.batchers[0]  # which says itself what it knows
        for direction, batcher in self.by_direction.items():
            if source in ("", direction.source) and target in ("", direction.target):
                return batcher
        known = ", ".join(f"{each.source} to {each.target}" for each in self.by_direction)
        raise ConfigError(f"no model here translates {source or 'anything'} to {target or 'anything'}, only {known}.")

    def directions(self) -> list[DirectionInfo]:
        """What is offered, with sentences to try."""
        return [
            DirectionInfo(
                source_lang=direction.source or None,
                target_lang=direction.target,
                run=batcher.translator.config.run.name,
                step=batcher.translator.step,
                examples=examples(batcher.translator, direction),
            )
            for direction, batcher in self.by_direction.items()
        ]

    def give_up(self) -> None:
        """Cancel all jobs."""
        for batcher in self.batchers:
            batcher.give_up()


def examples(translator: Translator, direction: Direction) -> list[str]:
    """A few sentences of the validation set of a run, if it is beside the checkpoint."""
    run: Path = translator.path.absolute().parent.parent
    chosen: list[str] = []
    for source, _ in load_head(run / "data" / "validation.tsv", LOOKED_AT):
        of, text = split_tag(source) if translator.config.data.several else (None, source)
        fits = len(text.split()) in EXAMPLE_WORDS and text not in chosen
        if fits and (of is None or of.target == direction.target):
            chosen.append(text)
    return chosen[:: max(1, len(chosen) // EXAMPLES)][:EXAMPLES]
