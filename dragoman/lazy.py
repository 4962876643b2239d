"""numpy and torch, each imported when something in it is first used.

    from dragoman.lazy import numpy as np, torch

The text around a translation by CTranslate2 needs neither, and importing them takes several times as long as
translating a sentence.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy
    import torch
else:

    class _Lazy:
        def __init__(self, name: str) -> None:
            self.__name__ = name

        def __getattr__(self, attribute: str) -> Any:
            found = getattr(import_module(self.__name__), attribute)
            setattr(self, attribute, found)  # the next use does not come here
            return found

    numpy, torch = _Lazy("numpy"), _Lazy("torch")
