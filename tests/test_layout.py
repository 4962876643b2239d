"""The layout of the code: which way imports point, what a wheel holds, and what --help imports."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from conftest import ROOT
from dragoman.__main__ import COMMANDS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SCRIPTS = sorted(path.name for path in ROOT.glob("*.py"))


def test_imports_point_one_way(tmp_path: Path) -> None:
    """Guards the layers in pyproject.toml: a module may import what is below it. Checks the layout of the wheel."""
    pytest.importorskip("importlinter")
    shutil.copytree(ROOT / "dragoman", tmp_path / "dragoman", ignore=shutil.ignore_patterns("__pycache__"))
    for source, target in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"].items():
        if source.endswith(".py"):
            shutil.copy(ROOT / source, tmp_path / target)
    check = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", check, "--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_wheel_holds_the_root_files_in_place_of_their_aliases() -> None:
    """Guards the installed package: a root file missing from the wheel fails only for the user."""
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert SCRIPTS == ["dataset.py", "model.py", "train.py", "translate.py"]
    assert sorted(wheel["exclude"]) == [f"dragoman/{name}" for name in SCRIPTS]
    included = {source: target for source, target in wheel["force-include"].items() if source.endswith(".py")}
    assert included == {name: f"dragoman/{name}" for name in SCRIPTS}


@pytest.mark.parametrize("name", SCRIPTS)
def test_module_of_the_package_is_the_root_file(name: str) -> None:
    """Guards against a clone in which `dragoman.model` is another file, such as the user's own model.py."""
    stem = name.removesuffix(".py")
    assert import_module(f"dragoman.{stem}").__file__ == str(ROOT / name)
    assert stem not in sys.stdlib_module_names


def imported(arguments: list[str], *modules: str) -> tuple[int, str, set[str]]:
    """Run a command line in a fresh interpreter: exit code, output, and which of the modules it imported."""
    code = (
        "import runpy, sys\n"
        f"sys.argv = {arguments!r}\n"
        "run = runpy.run_path if sys.argv[0].endswith('.py') else runpy.run_module\n"
        "try:\n"
        "    run(sys.argv[0], run_name='__main__')\n"
        "    code = 0\n"
        "except SystemExit as stop:\n"
        "    code = stop.code or 0\n"
        f"print('imported', *(set({modules!r}) & set(sys.modules)))\n"
        "sys.exit(code)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    output, _, names = result.stdout.rpartition("imported")
    return result.returncode, output + result.stderr, set(names.split())


@pytest.mark.parametrize("command", [["train.py"], ["translate.py"], *(["dragoman", name] for name in COMMANDS)])
def test_help_does_not_wait_for_torch(command: list[str]) -> None:
    """--help is answered before torch is imported, which takes a second."""
    code, output, names = imported([*command, "--help"], "torch", "numpy")
    assert code == 0, output
    assert "usage" in output
    assert names == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_mistake_does_not_wait_for_torch(command: str) -> None:
    """Guards against a typing mistake, which must be answered as quickly as --help."""
    code, output, names = imported(["dragoman", command, "--no_such_option=1"], "torch", "numpy")
    assert code == 2, output
    assert output.count("\n") == 1
    assert names == set()
