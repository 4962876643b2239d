"""What the pages of docs say is held against the program: every name, every link, every number, every figure."""

from __future__ import annotations

import ast
import base64
import doctest
import importlib.util
import io
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.image import imread

from conftest import ROOT
from dragoman import settings as settings_module

DOCS = ROOT / "docs"
PAGE = DOCS / "transformer.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")  # of an image, too
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def links(page: Path) -> list[tuple[str, str]]:
    """The links of a page, as (text, target); what stands in blocks of code is none."""
    return LINK.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))


LINKS = [(page, text, target) for page in sorted(DOCS.glob("*.md")) for text, target in dict.fromkeys(links(page))]


@cache
def names(module: Path) -> frozenset[str]:
    """All that a module defines: functions, constants, classes, and of these methods, fields and attributes."""
    return frozenset(_names(ast.parse(module.read_text(encoding="utf-8")).body))


def _names(body: list[ast.stmt]) -> list[str]:
    found = []
    for node in body:
        match node:
            case ast.FunctionDef(name=name):
                found.append(name)
            case ast.ClassDef(name=name, body=inside):
                found += [name, *(f"{name}.{inner}" for inner in _names(inside))]
                assigned = (each for each in ast.walk(node) if isinstance(each, ast.Attribute))
                found += [f"{name}.{each.attr}" for each in assigned if isinstance(each.ctx, ast.Store)]
            case ast.Assign(targets=targets):
                found += [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.append(name)
    return found


def missing(text: str, path: Path) -> str | None:
    """What a link promises to a file of this project, and the file does not hold; None if all is well."""
    name = text.strip("`")
    if not path.exists():
        return f"{path} does not exist"
    if not text.startswith("`"):
        return None
    if path.suffix == ".yaml":
        return None if name in settings_module.keys() else f"there is no setting {name}"  # noqa: SIM118
    if path.suffix == ".py" and name.removeprefix(f"{path.stem}.") not in names(path):
        return f"{path.name} has no {name}"
    return None


def anchors(page: Path) -> set[str]:
    """The headings of a page as addresses within it, as the common viewers of Markdown make them."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(("page", "text", "target"), LINKS, ids=[f"{text}->{target}" for _, text, target in LINKS])
def test_a_link_leads_somewhere(page: Path, text: str, target: str) -> None:
    """Guards the page against a function that was renamed, a setting that is gone, a figure that was not drawn."""
    if re.match(r"[a-z]+:", target):
        return  # elsewhere, which needs a network
    file, _, anchor = target.partition("#")
    path = (page.parent / file).resolve() if file else page
    assert missing(text, path) is None
    if anchor:
        assert anchor in anchors(path)


@pytest.mark.parametrize(
    ("text", "file"),
    [("`Attention.wights`", "model.py"), ("`dataset.make_batches`", "dataset.py"), ("`model.normkind`", "config.yaml"),
     ("any text", "modal.py")],
)  # fmt: skip
def test_a_link_to_nothing_is_found(text: str, file: str) -> None:
    """Guards the test above, which would be as quiet if it looked at nothing."""
    assert missing(text, ROOT / file)


def without_prose(page: str) -> str:
    """The blocks of Python alone, each line where it stood, so that a failure names the line of the page."""
    kept, inside = [], False
    for line in page.splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            line = ""
        kept.append(line if inside else "")
    return "\n".join(kept) + "\n"


@pytest.fixture(scope="module")
def space() -> dict[str, Any]:
    """What the page's code has defined when it has run through; its failures are told by the test that follows."""
    text = PAGE.read_text(encoding="utf-8")
    test = doctest.DocTestParser().get_doctest(without_prose(text), {"__name__": "page"}, PAGE.name, str(PAGE), 0)
    report = io.StringIO()
    runner = doctest.DocTestRunner(verbose=False, optionflags=OPTIONS)
    runner.run(test, out=report.write, clear_globs=False)
    return test.globs | {"report": report.getvalue(), "examples": len(test.examples)}


def test_the_code_of_the_page_says_what_stands_there(space: dict[str, Any]) -> None:
    """Guards every number that the program can compute, and that the text is about the program as it is."""
    assert not space["report"], space["report"]
    assert space["examples"] > 100


def test_shapes_are_those_of_the_letters(space: dict[str, Any]) -> None:
    """Guards each `(B, S, D)` = `(2, 9, 128)`, in the text as in tables, by what the page's code has made."""
    settings = space["config"].model
    letters = {
        "B": len(space["source"]), "H": settings.n_heads, "T": space["target"].shape[1], "S": space["source"].shape[1],
        "D": settings.d_model, "K": space["q"].shape[3], "V": len(space["italian"]), "F": settings.d_ff,
        "N": int(space["at_once"].lengths(space["source"]).max()),
    }  # fmt: skip
    text = PAGE.read_text(encoding="utf-8")
    table = re.findall(r"^\| ([A-Z]) \|.* \| (\d+) \|$", text, re.MULTILINE)
    assert {letter: int(number) for letter, number in table} == letters
    pairs = re.findall(r"`(\([A-Z0-9, +]+\))`(?:\s*=\s*| \| )`(\([0-9, ]+\))`", text)
    assert len(pairs) > 30
    for shape, numbers in pairs:
        sizes = [sum(letters.get(part) or int(part) for part in size.split(" + ")) for size in shape[1:-1].split(", ")]
        assert str(tuple(sizes)) == numbers, shape


# ------------------------------------------------------------------------------------------------------------- figures

VERSION = f"Matplotlib v{mpl.__version__},"
IMAGE = re.compile(r"data:image/png;base64,([\w+/=\s]+)")


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    """docs/figures.py, which is a script and no module."""
    spec = importlib.util.spec_from_file_location("figures", DOCS / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.path", ["", *sys.path])  # of which it sets the first
        spec.loader.exec_module(module)
    return module


def apart(svg: str) -> tuple[str, list[np.ndarray]]:
    """A figure's lines, and the pixels of the images in it, which another zlib may have packed otherwise."""
    pixels = [imread(io.BytesIO(base64.b64decode(image)), format="png") for image in IMAGE.findall(svg)]
    return IMAGE.sub("", svg), pixels


def test_figures_are_those_that_the_program_draws(figures: ModuleType, tmp_path: Path) -> None:
    """Guards figures of an older program. Another matplotlib draws them otherwise: then it is enough that it does."""
    drawn = figures.draw(tmp_path)
    assert [path.name for path in drawn] == ["positions.svg", "distance.svg", "masks.svg"]
    for path in drawn:
        new, kept = (each.read_text(encoding="utf-8") for each in (path, DOCS / path.name))
        assert VERSION in new
        if VERSION in kept:
            (lines, pixels), (kept_lines, kept_pixels) = apart(new), apart(kept)
            assert lines == kept_lines
            for image, kept_image in zip(pixels, kept_pixels, strict=True):
                np.testing.assert_array_equal(image, kept_image)


def test_drawing_twice_gives_the_same_bytes(figures: ModuleType, tmp_path: Path) -> None:
    """Guards against a date or a random name in a figure, which would change it whenever it is drawn."""
    paths = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for path in paths:
        figures.save(figures.masks(), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_every_figure_is_shown(figures: ModuleType) -> None:
    """Guards against a figure that nobody sees any more; that each one shown is there, the links tell."""
    shown = {target for page in DOCS.glob("*.md") for _, target in links(page) if target.endswith(".svg")}
    assert {path.name for path in DOCS.glob("*.svg")} == shown
