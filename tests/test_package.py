"""The wheel has one importable name and all that the default run needs; a clone works without being installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from conftest import HANG

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
PACKAGED = ("train.py", "translate.py", "model.py", "dataset.py")
SHORT = (
    "--training.max_steps=3", "--training.device=cpu", "--model.d_model=16", "--model.d_ff=16",
    "--data.validation_fraction=0.001", "--data.test_fraction=0", "--run.name=short",
)  # fmt: skip


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository without what git ignores."""
    folder = tmp_path_factory.mktemp("clone") / "dragoman"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def installed(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel installed, which borrows its dependencies from this one."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), str(clone)]
    subprocess.run([*pip, *build], check=True)
    [wheel] = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    subprocess.run([*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)], check=True)
    return folder / "venv"


def site_packages(environment: Path) -> Path:
    [found] = environment.glob("lib/python3*/site-packages")
    return found


def run(words: list[str | Path], folder: Path, **environment: str) -> str:
    """Run a program and return its standard output."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, words)), cwd=folder, capture_output=True, text=True, env=clean | environment, timeout=HANG
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_adds_one_name(installed: Path) -> None:
    """Guards site-packages against modules called `train` or `dataset`."""
    names = {path.name for path in site_packages(installed).iterdir() if path.name != "__pycache__"}
    assert {name for name in names if not name.endswith(".dist-info")} == {"dragoman"}
    for name in PACKAGED:  # the files of the root, not their aliases
        assert (site_packages(installed) / "dragoman" / name).read_text() == (ROOT / name).read_text()


def test_the_wheel_trains_and_translates_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    """Guards what only a user of the wheel would notice: a file that is missing there, an import by a root name."""
    (site_packages(installed) / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    dragoman = installed / "bin" / "dragoman"
    run([dragoman, "train", *SHORT], tmp_path)
    assert (tmp_path / "runs" / "short" / "checkpoints").is_dir()
    assert run([dragoman, "translate", "--device", "cpu", "Good morning!"], tmp_path).count("\n") == 1
    code = (
        "import dragoman; from dragoman import Translator; "
        "print(dragoman.__file__, Translator('runs/short', 'cpu').step)"
    )
    said = run([installed / "bin" / "python", "-c", code], tmp_path)
    assert str(site_packages(installed)) in said
    assert said.endswith(" 3\n")


def test_a_clone_trains_and_translates_without_an_install(clone: Path, tmp_path: Path) -> None:
    """Guards the two commands of the README, which a reader runs before installing anything but the dependencies."""
    for name in PACKAGED:  # a user's own files of these names are left alone
        (tmp_path / name).write_text("raise SystemExit('this is not the file that was meant')")
    runs = f"--run.dir={tmp_path}"
    run([sys.executable, clone / "train.py", "--config", clone / "config.yaml", *SHORT, runs], tmp_path)
    translated = run(
        [sys.executable, clone / "translate.py", "--run", tmp_path / "short", "--device", "cpu", "Hello!"], tmp_path
    )
    assert translated.count("\n") == 1
