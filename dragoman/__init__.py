"""Train a machine translator of your own, and use it.

    from dragoman import Translator

    Translator("runs/phrasebook")("Where is the station?")

train.py, translate.py, model.py and dataset.py are at the root of the repository, where a reader looks first;
everything around them is in this package. A wheel has those four in this package, too. Both ways they are imported
as `dragoman.train`, `dragoman.translate`, `dragoman.model` and `dragoman.dataset`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman import train
    from dragoman.translation.translator import Translator

    __version__: str

__all__ = ["Translator", "__version__", "train"]


def __getattr__(name: str) -> Any:
    """Import `Translator` and `train`, and with it torch, on first use: `dragoman --help` needs neither."""
    match name:
        case "Translator":
            from dragoman.translation.translator import Translator

            return Translator
        case "train":
            from importlib import import_module

            return import_module("dragoman.train")
        case "__version__":
            from dragoman.resources import version

            return version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
