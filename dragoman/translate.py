"""In a clone, this stands for translate.py at the root. In a wheel, that file is here instead."""

from typing import TYPE_CHECKING

from dragoman.resources import load_from_root

if TYPE_CHECKING:
    from translate import *  # noqa: F403

load_from_root("translate")
