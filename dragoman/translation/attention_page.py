"""Show which source tokens a translation looked at: an HTML page, or a table for a terminal.

    views = [(sentence, candidate, translator.attention(sentence, candidate).numpy())]
    Path("attention.html").write_text(page(views), encoding="utf-8")
    print(*table(*views[0]), sep="\\n")

Attention shows where the layers looked when they chose a token, which suggests what it was translated from but does not
prove it.

Shapes: L layers, H heads, T target tokens, S source tokens, both with [EOS].
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragoman.console import display_width, fit, visible
from dragoman.lazy import numpy as np
from dragoman.translation.results import Candidate, Sentence

TEMPLATES = Path(__file__).parent / "templates"
WIDTH = 100  # columns of a table
BAR = 10  # columns of a full bar
EIGHTHS = ("", *"▏▎▍▌▋▊▉")


def table(sentence: Sentence, candidate: Candidate, weights: np.ndarray) -> list[str]:
    """The lines of a table: for each target token its probability and the source token it looked at most.

    A second source token is named if its weight is at least half of the first one's. Lines are at most WIDTH columns
    wide and contain no control characters.

    Args:
        weights: (L, H, T, S) attention; each row sums to 1
    """
    source, target = sentence.tokens, candidate.tokens
    rows = [["token", "prob", "looks at", "weight", "", ""]]
    for t, shares in enumerate(weights.mean((0, 1), dtype=np.float64)):
        first, *others = np.argsort(-shares, kind="stable").tolist()
        remarks = []
        if others and 2 * shares[others[0]] >= shares[first]:
            remarks.append(f"also {source[others[0]]} {_percent(shares[others[0]])}")
        if first in sentence.unknown:
            remarks.append(f"{source[first]} is unknown")
        if t in candidate.copied:
            remarks.append(f"copied from {source[candidate.copied[t]]}")
        probability = _percent(math.exp(candidate.log_probs[t]))
        looks_at = [source[first], _percent(shares[first]), _bar(shares[first])]
        rows.append([target[t], probability, *looks_at, "; ".join(remarks)])
    rows = [[visible(cell) for cell in row] for row in rows]

    widest = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    label = (WIDTH - len("prob") - len("weight") - BAR - 5 * len("  ")) // 3  # columns for each of three labels
    widths = [min(widest[0], label), len("prob"), min(widest[2], label), len("weight"), BAR]
    widths.append(WIDTH - sum(widths) - 5 * len("  "))
    aligned = ("<", ">", "<", ">", "<", "<")
    return ["  ".join(map(fit, row, widths, aligned)).rstrip() for row in rows]


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _bar(share: float) -> str:
    """A bar of block characters, exact to an eighth of a column."""
    full, rest = divmod(round(8 * BAR * share), 8)
    return "█" * full + EIGHTHS[rest]


def page(views: Sequence[tuple[Sentence, Candidate, np.ndarray]]) -> str:
    """One self-contained HTML page that shows the attention of several sentences, all of one model.

    A view holds a sentence, one of its candidates and its attention (L, H, T, S), whose rows sum to 1.

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
            data=_json([_content(*view) for view in views]),
        )
    )


def _content(sentence: Sentence, candidate: Candidate, weights: np.ndarray) -> dict[str, Any]:
    """What the script needs of a sentence."""
    return {
        "text_source": sentence.source,
        "text_target": candidate.text,
        "source": [visible(label) for label in sentence.tokens],
        "target": [visible(label) for label in candidate.tokens],
        "probabilities": [round(math.exp(log_prob), 4) for log_prob in candidate.log_probs],
        # In ten-thousandths, finer than anything shown; decimals would make the page twice as large.
        "weights": np.rint(10_000 * weights).astype(int).tolist(),
        "copied": candidate.copied,
        "unknown": sentence.unknown,
    }


def _json(value: Any) -> str:
    """JSON for a script element: ASCII, with nothing in it that could end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    """The hash by which the policy of the page allows its one style or its one script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
