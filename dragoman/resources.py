"""Where to find the files that come with the program, in a clone and in an installed wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
IN_CLONE = not (_PACKAGE / "config.yaml").exists()
# Holds config.yaml and data/phrasebook; in a clone also runs/.
HOME = _PACKAGE.parent if IN_CLONE else _PACKAGE


def command(name: str) -> str:
    """How to run a command here, for messages: `python translate.py`, or `dragoman translate` once installed."""
    if not IN_CLONE:
        return f"dragoman {name}"
    return f"python {name}.py" if name in ("train", "translate") else f"python -m dragoman {name}"
