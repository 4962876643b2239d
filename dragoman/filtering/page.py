"""The page of a cleaning: what was read, kept and dropped, with examples. One HTML file without scripts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.evaluation.page import environment

_environment = environment(Path(__file__).parent / "templates")


def render(outcome: Mapping[str, Any]) -> str:
    """Render the content of cleaning.json."""
    return _environment.get_template("cleaning.html").render(outcome=outcome)
