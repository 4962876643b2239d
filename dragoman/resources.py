"""Where to find the files that come with the program, in a clone and in an installed wheel."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

from dragoman.errors import ConfigError

_PACKAGE = Path(__file__).resolve().parent
IN_CLONE = not (_PACKAGE / "config.yaml").exists()
# Holds config.yaml and data/phrasebook; in a clone also runs/.
HOME = _PACKAGE.parent if IN_CLONE else _PACKAGE


def command(name: str) -> str:
    """How to run a command here, for messages: `python translate.py`, or `dragoman translate` once installed."""
    if not IN_CLONE:
        return f"dragoman {name}"
    return f"python {name}.py" if name in ("train", "translate") else f"python -m dragoman {name}"


def install(extra: str) -> str:
    """How to install the libraries of an extra here, for messages."""
    return f"pip install -e '.[{extra}]'" if IN_CLONE else f"pip install 'dragoman[{extra}]'"


def require(extra: str, modules: Sequence[str], user: str) -> None:
    """Raise ConfigError unless the modules of an extra are installed; the message names the user, which needs them."""
    if missing := [name for name in modules if not _is_installed(name)]:
        raise ConfigError(f"cannot find {' and '.join(missing)}: install what {user} needs with {install(extra)}")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


def version() -> str:
    """The version of the program: that of pyproject.toml in a clone, or of the installed package."""
    if IN_CLONE:
        import tomllib

        return tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    from importlib import metadata

    return metadata.version("dragoman")


def load_from_root(name: str) -> None:
    """Load a file at the root of the clone as a module of this package, in place of the module that calls this.

    It is found by its path, so that a `model.py` in the user's own folder is never taken for it.
    """
    spec = spec_from_file_location(f"dragoman.{name}", HOME / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
