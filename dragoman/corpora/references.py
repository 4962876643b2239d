"""Several references of one source: a target that carries the others with it.

    target = reference(["Ciao.", "Salve."])      # a str, "Ciao.", for everything that needs one target
    references_of(target)                        # ["Ciao.", "Salve."], for scores

Only validation and test have several. `metrics` scores against all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class Reference(str):
    """The first reference, as text, with the others."""

    others: tuple[str, ...]

    def __new__(cls, text: str, others: Sequence[str] = ()) -> Reference:
        made = super().__new__(cls, text)
        made.others = tuple(others)
        return made


def reference(texts: Sequence[str]) -> str:
    """Make one target of one or more; empty ones after the first are left out."""
    first, *others = texts
    others = [text for text in others if text]
    return Reference(first, others) if others else first


def references_of(target: str) -> list[str]:
    """Return all references, the first one first."""
    return [target, *target.others] if isinstance(target, Reference) else [target]


def of_each(target: str, function: Callable[[str], str]) -> str:
    """Apply a function to each reference."""
    return (
        reference([function(text) for text in references_of(target)]) if type(target) is not str else function(target)
    )


def streams(targets: Sequence[str]) -> list[Any]:
    """Return all first references, all second ones and so on, as sacreBLEU takes them; None where there is none."""
    every = [references_of(target) for target in targets]
    most = max(map(len, every), default=1)
    return [targets, *([each[i] if i < len(each) else None for each in every] for i in range(1, most))]
