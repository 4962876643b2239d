"""The layout of the code: who may import whom, and that what is packaged is what is there."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Each module, its level, and the modules of this project that it may import: all of them on lower levels. The table in
# the README tells what lives in each.
LAYOUT: dict[str, tuple[int, set[str]]] = {
    "text": (0, set()),
    "languages": (0, set()),
    "ctc": (0, set()),
    "presets": (0, set()),
    "inside": (0, set()),
    "runtime": (0, set()),
    "scores": (0, set()),
    "segment": (0, set()),
    "web": (0, set()),
    "ranks": (1, {"runtime"}),
    "config": (1, {"languages", "presets", "text"}),
    "attention": (1, {"text"}),
    "pages": (1, {"text"}),
    "tokenizer": (2, {"config", "languages"}),
    "coach": (2, {"config", "text"}),
    "corpus": (2, {"config", "languages"}),
    "model": (2, {"config", "ctc", "inside", "runtime"}),
    "optim": (2, {"config", "ctc"}),
    "checkpoint": (2, {"config", "text"}),
    "decoding": (2, {"config", "ctc"}),
    "dataset": (3, {"config", "corpus", "tokenizer"}),
    "progress": (3, {"checkpoint", "config", "text"}),
    "engine": (3, {"model", "runtime"}),
    "health": (3, {"config", "model"}),
    "foreign": (3, {"config", "model", "tokenizer"}),
    "preparing": (4, {"checkpoint", "config", "corpus", "dataset", "languages", "segment", "tokenizer"}),
    "subwords": (4, {"config", "dataset", "tokenizer"}),
    "board": (4, {"config", "health"}),
    "translator": (
        4,
        {
            "checkpoint",
            "config",
            "corpus",
            "ctc",
            "dataset",
            "decoding",
            "engine",
            "languages",
            "model",
            "runtime",
            "segment",
            "text",
            "tokenizer",
        },
    ),
    "to_ctranslate2": (4, {"config", "decoding", "foreign", "model", "tokenizer"}),
    "to_huggingface": (4, {"config", "dataset", "foreign", "model"}),
    "to_onnx": (4, {"config", "dataset", "foreign", "model"}),
    "samples": (5, {"board", "config", "model", "preparing", "translator"}),
    "batching": (5, {"runtime", "translator"}),
    "to_argos": (5, {"config", "corpus", "foreign", "model", "to_ctranslate2", "tokenizer"}),
    "evaluate": (
        5,
        {
            "checkpoint",
            "config",
            "corpus",
            "dataset",
            "languages",
            "model",
            "optim",
            "pages",
            "runtime",
            "scores",
            "text",
            "translator",
        },
    ),
    "doctor": (
        5,
        {"checkpoint", "config", "corpus", "dataset", "preparing", "presets", "text", "tokenizer", "translator"},
    ),
    "start": (5, {"checkpoint", "config", "corpus", "preparing", "presets", "progress", "runtime", "translator"}),
    "formats": (
        6,
        {"config", "foreign", "model", "to_argos", "to_ctranslate2", "to_huggingface", "to_onnx", "tokenizer"},
    ),
    "serve": (6, {"batching", "config", "corpus", "runtime", "text", "translator", "web"}),
    "results": (
        6,
        {
            "board",
            "checkpoint",
            "config",
            "corpus",
            "dataset",
            "evaluate",
            "model",
            "preparing",
            "progress",
            "scores",
            "translator",
        },
    ),
    "export": (
        7,
        {
            "checkpoint",
            "config",
            "corpus",
            "engine",
            "foreign",
            "formats",
            "languages",
            "model",
            "scores",
            "text",
            "to_argos",
            "to_ctranslate2",
            "translator",
        },
    ),
    "train": (
        7,
        {
            "board",
            "checkpoint",
            "coach",
            "config",
            "corpus",
            "dataset",
            "evaluate",
            "health",
            "model",
            "optim",
            "preparing",
            "presets",
            "progress",
            "ranks",
            "results",
            "runtime",
            "samples",
            "scores",
            "start",
            "subwords",
            "text",
            "translator",
        },
    ),
    "translate": (8, {"attention", "config", "corpus", "export", "runtime", "text", "translator"}),
}
MODULES = sorted(path.stem for path in ROOT.glob("*.py"))


def imports(module: str) -> set[str]:
    """The project's own modules that a module imports, anywhere in its text."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / f"{module}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found & set(MODULES)


def test_every_module_has_its_place() -> None:
    """Guards against a module that nobody has thought about."""
    assert set(LAYOUT) == set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    """Guards the layout: a new arrow is a decision, taken in the table above."""
    level, allowed = LAYOUT[module]
    assert imports(module) == allowed
    assert all(LAYOUT[other][0] < level for other in allowed)


def test_package_holds_every_module() -> None:
    """Guards the installed package: a module missing from the list fails only at the user's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert sorted(project["tool"]["setuptools"]["py-modules"]) == MODULES


def test_no_module_shadows_the_standard_library() -> None:
    """Guards scripts: run as `python train.py`, a `tokenize.py` beside it would replace Python's own."""
    assert not set(MODULES) & set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    "script", ["checkpoint.py", "doctor.py", "evaluate.py", "export.py", "serve.py", "train.py", "translate.py"]
)
def test_help_does_not_wait_for_torch(script: str) -> None:
    """Guards the first second: help and mistakes are answered before torch is imported."""
    code = (
        "import runpy, sys\n"
        f"sys.argv = [{script!r}, '--help']\n"
        "try:\n"
        f"    runpy.run_path({script!r}, run_name='__main__')\n"
        "except SystemExit as stop:\n"
        "    assert not stop.code, stop.code\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "usage" in result.stdout
