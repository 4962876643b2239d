"""Show which source tokens a translation looked at: an HTML page, or a table for a terminal.

    Path("attention.html").write_text(page([view]), encoding="utf-8")
    print(*table(view), sep="\\n")

A `View` holds plain labels and numbers of one sentence. Attention shows where the layers looked when they chose a
token, which suggests what it was translated from but does not prove it.

Shapes: L layers, H heads, T target tokens, S source tokens.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.console import display_width, fit, visible
from dragoman.lazy import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, eq=False)
class View:
    """One sentence and its translation, token by token. A label is the text that shows a token to people."""

    source: Sequence[str]  # (S,) labels, [EOS] last
    target: Sequence[str]  # (T,) labels, [EOS] last if the translation is complete
    log_probs: Sequence[float]  # (T,) log-probability of each target token, in nats
    weights: ArrayLike  # (L, H, T, S) attention; each row sums to 1
    text_source: str
    text_target: str
    copied: Mapping[int, int] = field(default_factory=dict)  # target position -> source position it was copied from
    unknown: Set[int] = frozenset()  # source positions of unknown words

    @property
    def maps(self) -> np.ndarray:
        """The weights as an array (L, H, T, S)."""
        return np.asarray(self.weights, dtype=np.float64)

    def mean(self) -> np.ndarray:
        """The mean over all heads of all layers: (T, S)."""
        return self.maps.mean((0, 1))


TEMPLATES = Path(__file__).parent / "templates"
BAR = 10  # columns of a full bar
EIGHTHS = ("", *"▏▎▍▌▋▊▉")


def table(view: View, width: int = 100) -> list[str]:
    """The lines of a table: for each target token its probability and the source token it looked at most.

    A second source token is named if its weight is at least half of the first one's. Lines are at most `width` columns
    wide (at least 60) and contain no control characters.
    """
    rows = [["token", "prob", "looks at", "weight", "", ""]]
    for t, weights in enumerate(view.mean()):
        first, *others = np.argsort(-weights, kind="stable").tolist()
        remarks = []
        if others and 2 * weights[others[0]] >= weights[first]:
            remarks.append(f"also {view.source[others[0]]} {_percent(weights[others[0]])}")
        if first in view.unknown:
            remarks.append(f"{view.source[first]} is unknown")
        if t in view.copied:
            remarks.append(f"copied from {view.source[view.copied[t]]}")
        probability = _percent(math.exp(view.log_probs[t]))
        looks_at = [view.source[first], _percent(weights[first]), _bar(weights[first])]
        rows.append([view.target[t], probability, *looks_at, "; ".join(remarks)])
    rows = [[visible(cell) for cell in row] for row in rows]

    width = max(width, 60)
    widest = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    label = (width - len("prob") - len("weight") - BAR - 5 * len("  ")) // 3  # columns for each of three labels
    widths = [min(widest[0], label), len("prob"), min(widest[2], label), len("weight"), BAR]
    widths.append(width - sum(widths) - 5 * len("  "))
    aligned = ("<", ">", "<", ">", "<", "<")
    return ["  ".join(map(fit, row, widths, aligned)).rstrip() for row in rows]


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _bar(share: float) -> str:
    """A bar of block characters, exact to an eighth of a column."""
    full, rest = divmod(round(8 * BAR * share), 8)
    return "█" * full + EIGHTHS[rest]


def page(views: Sequence[View]) -> str:
    """One self-contained HTML page that shows the attention of several sentences, all of one model.

    No text becomes markup: the sentences arrive as JSON, and the script sets them as text. A content security policy
    forbids any other script and any request. The first maps are drawn at once, the others when they are opened, so that
    a browser can handle a hundred sentences.
    """
    from jinja2 import Environment  # here, because a translation without a page does not need it

    html = (TEMPLATES / "attention.html").read_text("utf-8")
    # The server's page has the same rows of words.
    style, script = (
        "".join((TEMPLATES / f"{name}.{kind}").read_text("utf-8") for name in ("words", "attention"))
        for kind in ("css", "js")
    )
    return (
        Environment(autoescape=True, keep_trailing_newline=True)
        .from_string(html)
        .render(
            style=style,
            style_hash=_hash(style),
            script=script,
            script_hash=_hash(script),
            data=_json([_content(view) for view in views]),
        )
    )


def _content(view: View) -> dict[str, Any]:
    """What the script needs of a sentence."""
    return {
        "text_source": view.text_source,
        "text_target": view.text_target,
        "source": [visible(label) for label in view.source],
        "target": [visible(label) for label in view.target],
        "probabilities": [round(math.exp(each), 4) for each in view.log_probs],
        # In ten-thousandths, finer than anything shown; decimals would make the page twice as large.
        "weights": np.rint(10_000 * view.maps).astype(int).tolist(),
        "copied": {str(t): s for t, s in view.copied.items()},
        "unknown": sorted(view.unknown),
    }


def _json(value: Any) -> str:
    """JSON for a script element: ASCII, with nothing in it that could end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    """The hash by which the policy of the page allows its one style or its one script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
