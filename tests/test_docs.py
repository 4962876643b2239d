"""The pages in docs, checked against the program: every name, link, number and figure."""

from __future__ import annotations

import ast
import base64
import doctest
import importlib.util
import io
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread

from conftest import ROOT
from dragoman import settings as settings_module

DOCS = ROOT / "docs"
PAGE = DOCS / "transformer.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")  # images included
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


# --- Links --------------------------------------------------------------------------------------------------------


def links(page: Path) -> list[tuple[str, str]]:
    """The links of a page outside code blocks, as (text, target)."""
    return LINK.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))


PAGES = [*DOCS.glob("*.md"), *ROOT.glob("*.md"), ROOT / "runs" / "README.md"]
LINKS = [(page, text, target) for page in sorted(PAGES) for text, target in dict.fromkeys(links(page))]


@cache
def names(module: Path) -> frozenset[str]:
    """Everything a module defines: functions, constants, classes, and their methods, fields and attributes."""
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
    """What is wrong with a link to a file of this project: no such file, name or setting. None if nothing is."""
    name = text.strip("`")
    if not path.exists():
        return f"{path} does not exist"
    if not text.startswith("`"):
        return None
    if path.suffix == ".yaml":
        return None if name in settings_module.SETTINGS else f"there is no setting {name}"
    if path.suffix == ".py" and name.removeprefix(f"{path.stem}.") not in names(path):
        return f"{path.name} has no {name}"
    return None


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as common Markdown viewers make them."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(("page", "text", "target"), LINKS, ids=[f"{text}->{target}" for _, text, target in LINKS])
def test_links_resolve(page: Path, text: str, target: str) -> None:
    """Guards against a renamed function, a removed setting and a missing figure."""
    if re.match(r"[a-z]+:", target):
        return  # external: would need a network
    file, _, anchor = target.partition("#")
    path = (page.parent / file).resolve() if file else page
    assert missing(text, path) is None
    if anchor:
        assert anchor in anchors(path)


# --- Code and numbers of transformer.md ---------------------------------------------------------------------------


def without_prose(page: str) -> str:
    """Only the Python blocks, on their original lines, so that a failure names the line of the page."""
    kept, inside = [], False
    for line in page.splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            line = ""
        kept.append(line if inside else "")
    return "\n".join(kept) + "\n"


@pytest.fixture(scope="module")
def space() -> dict[str, Any]:
    """The variables after the page's code has run, with a report of failures for the first test."""
    text = PAGE.read_text(encoding="utf-8")
    test = doctest.DocTestParser().get_doctest(without_prose(text), {"__name__": "page"}, PAGE.name, str(PAGE), 0)
    report = io.StringIO()
    runner = doctest.DocTestRunner(verbose=False, optionflags=OPTIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        runner.run(test, out=report.write, clear_globs=False)
    return test.globs | {"report": report.getvalue(), "examples": len(test.examples)}


def test_the_code_on_the_page_prints_what_the_page_says(space: dict[str, Any]) -> None:
    assert not space["report"], space["report"]
    assert space["examples"] > 100


def test_shapes_match_their_letters(space: dict[str, Any]) -> None:
    """Checks each `(B, S, D)` = `(2, 9, 128)` in text and tables against what the page's code has made."""
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


# --- Figures ------------------------------------------------------------------------------------------------------

IMAGE = re.compile(r"data:image/png;base64,([\w+/=\s]+)")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    """docs/figures.py, which is a script outside the package."""
    spec = importlib.util.spec_from_file_location("figures", DOCS / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.path", ["", *sys.path])  # the script replaces the first entry
        spec.loader.exec_module(module)
    return module


class Drawing(NamedTuple):
    """What a figure shows, apart from where its fonts and layout put it."""

    texts: list[str]
    shapes: list[np.ndarray]  # the points (n, 2) of all curves and areas in each plot, scaled to the unit square
    images: list[np.ndarray]  # the first; the pixels of a colour bar depend on the layout


def curves(group: ElementTree.Element) -> Iterator[np.ndarray]:
    """The points of each curve or area in a group; shorter paths are ticks and legends."""
    if re.match(r"line2d|.*Collection", group.get("id", "")):
        for path in group.iter(f"{SVG}path"):
            points = re.findall(r"(-?[\d.]+) (-?[\d.]+)", path.get("d", ""))
            if len(points) > 3:
                yield np.array(points, float)


def drawing(path: Path) -> Drawing:
    svg = path.read_text(encoding="utf-8")
    plots = [each for each in ElementTree.fromstring(svg).iter(f"{SVG}g") if each.get("id", "").startswith("axes_")]
    shapes = [
        np.concatenate(found)
        for plot in plots
        if (found := [points for group in plot.iterfind(f"{SVG}g") for points in curves(group)])
    ]
    scaled = [(each - each.min(0)) / np.ptp(each, 0) for each in shapes]
    images = [imread(io.BytesIO(base64.b64decode(image)), format="png") for image in IMAGE.findall(svg)[:1]]
    return Drawing(re.findall(r"<!-- (.*?) -->", svg), scaled, images)


def test_figures_show_what_the_program_draws(figures: ModuleType, tmp_path: Path) -> None:
    """Guards against figures of an older program; another CPU, font or layout may move them."""
    drawn = figures.draw(tmp_path)
    assert [path.name for path in drawn] == ["positions.svg", "distance.svg", "masks.svg"]
    for path in drawn:
        new, kept = drawing(path), drawing(DOCS / path.name)
        assert new.texts == kept.texts
        assert len(new.texts) > 10
        assert [each.shape for each in new.shapes] == [each.shape for each in kept.shapes]
        assert len(new.shapes) > 0
        for shapes in zip(new.shapes + new.images, kept.shapes + kept.images, strict=True):
            np.testing.assert_allclose(*shapes, atol=0.02)
    assert drawing(drawn[0]).images


def test_every_figure_is_shown() -> None:
    """Guards against a figure that no page uses. That each figure in use exists, the links test checks."""
    shown = {target for page in DOCS.glob("*.md") for _, target in links(page)}
    pictures = {path for kind in ("*.svg", "images/*") for path in DOCS.glob(kind)}
    assert {str(path.relative_to(DOCS)) for path in pictures} <= shown
    assert all(path.stat().st_size < 200_000 for path in (DOCS / "images").iterdir())
