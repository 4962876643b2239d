"""The README and docs as pages: their links and tables, what is generated from the code, and the notebook."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from conftest import HANG, ROOT
from dragoman import errors

DOCS = ROOT / "docs"
README = ROOT / "README.md"
NOTEBOOK = ROOT / "examples" / "first_translator.ipynb"


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_readme_is_short() -> None:
    """A long README is not read: details belong on a page of docs."""
    assert len(text_of(README).splitlines()) <= 200


def test_every_page_is_in_the_navigation() -> None:
    """Every page can be found in the navigation."""
    navigation = set(re.findall(r": ([\w-]+\.md)$", text_of(ROOT / "mkdocs.yml"), re.MULTILINE))
    assert navigation == {page.name for page in DOCS.glob("*.md")}


def test_every_exit_code_is_explained() -> None:
    """Guards the table that scripts rely on."""
    codes = {
        each.exit_code
        for each in vars(errors).values()
        if isinstance(each, type) and each.__module__ == errors.__name__
    }
    rows = re.findall(r"^\| ([\d, ]+) \|", text_of(DOCS / "reliability.md"), re.MULTILINE)
    listed = {int(code) for row in rows for code in row.split(", ")}
    assert listed == codes - {errors.DragomanError.exit_code} | {0, 130, 143}


def test_every_promise_names_tests_that_exist() -> None:
    """The numbers in the table of failures are those of tests, in the files that it names."""
    numbers = set()
    page = text_of(DOCS / "reliability.md")
    for listed, file in re.findall(r"\[([\d, –]+)\]\(\.\./(tests/faults/\w+\.py)\)", page):
        found = set(re.findall(r"def test_(\d\d)_", text_of(ROOT / file)))
        for part in listed.split(", "):
            first, _, last = part.partition("–")
            wanted = {f"{number:02}" for number in range(int(first), int(last or first) + 1)}
            assert wanted <= found, (listed, file)
            numbers |= wanted
    assert numbers >= {f"{number:02}" for number in range(1, 41)} - {"18", "28"}


def test_every_dependency_has_its_reason() -> None:
    """The table of dependencies lists exactly those in pyproject.toml."""
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    section = text_of(DOCS / "code.md").partition("\n## Dependencies\n")[2]
    base, _, extras = section.partition("The extras add:")
    names = [re.split(r"[<>=\[]", each)[0] for each in project["dependencies"]]
    assert sorted(re.findall(r"^\| ([a-z]\S+) \|", base, re.MULTILINE)) == sorted(["library", *names])
    for extra, libraries in project["optional-dependencies"].items():
        [row] = re.findall(rf"^\| `{extra}` \|.*$", extras, re.MULTILINE)
        assert extra == "dev" or all(re.split(r"[<>=\[]", each)[0] in row for each in libraries), extra


# What is made from the code


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """docs/generate.py, which is a script."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.path", [*sys.path])
        spec.loader.exec_module(module)
    return module


def test_settings_page_is_fresh(generate: ModuleType) -> None:
    """Guards the page against a setting or default that has changed. Remedy: python docs/generate.py"""
    assert text_of(DOCS / "settings.md") == generate.settings_page()


def test_module_table_is_fresh(generate: ModuleType) -> None:
    """Guards the map of the code against a module that was added or moved. Remedy: python docs/generate.py"""
    page = text_of(DOCS / "code.md")
    assert page == generate.code_page(page)


def test_plans_are_fresh(generate: ModuleType) -> None:
    """Guards the plans on the page against figures that were measured anew. Remedy: python docs/generate.py"""
    page = text_of(DOCS / "scale.md")
    assert page == generate.scale_page(page)
    assert page.count("time: preparing") == page.count("$ dragoman plan") > 1


# Slow


@pytest.mark.slow
def test_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Guards links and anchors as mkdocs resolves them, and against a page that loads something from the network."""
    pytest.importorskip("mkdocs")
    # Not --quiet: with it, --strict forgives every warning.
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    result = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    for page in tmp_path.rglob("*.html"):
        assert not re.search(r"<(?:script|img|iframe)[^>]+src=\"?https?:", text_of(page)), page
        assert not re.search(r"<link[^>]+rel=\"?stylesheet[^>]+href=\"?https?:", text_of(page)), page


def test_notebook_holds_its_outputs() -> None:
    """Guards against a notebook that was saved without outputs, with an error, or with huge pictures."""
    notebook = json.loads(text_of(NOTEBOOK))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    assert not any(output["output_type"] == "error" for cell in cells for output in cell["outputs"])
    assert NOTEBOOK.stat().st_size < 200_000


@pytest.mark.slow
def test_notebook_runs() -> None:
    """Guards the notebook against a name of the program that has changed."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(NOTEBOOK, 4)
    for cell in notebook.cells:
        cell.source = cell.source.replace('"training.log_every": 500', '"training.max_steps": 60')
    resources = {"metadata": {"path": str(NOTEBOOK.parent)}}
    nbclient.NotebookClient(notebook, timeout=HANG, kernel_name="python3", resources=resources).execute()
    assert "step 60," in str(notebook)
