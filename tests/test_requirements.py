"""The pinned libraries: every dependency is among them, in an allowed version, with hashes and without an index."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins(name: str) -> dict[str, set[str]]:
    """The pinned versions of each library: more than one where platforms or Python versions need different ones."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        if match := re.match(r"([\w.-]+)==([^ ]+)", line):
            found.setdefault(canonicalize_name(match[1]), set()).add(match[2])
    return found


def dependencies(extras: bool) -> list[Requirement]:
    extra = PROJECT["optional-dependencies"].values() if extras else []
    listed = [Requirement(text) for texts in (PROJECT["dependencies"], *extra) for text in texts]
    return [each for each in listed if each.name != PROJECT["name"]]


@pytest.mark.parametrize(("name", "extras"), [("requirements.txt", False), ("requirements-dev.txt", True)])
def test_every_dependency_is_pinned_in_an_allowed_version(name: str, extras: bool) -> None:
    """Guards against a change of pyproject.toml after which CI tests other libraries than users get."""
    pinned = pins(name)
    for each in dependencies(extras):
        versions = pinned.get(canonicalize_name(each.name))
        assert versions, f"{each.name} is not in {name}: write it again, see CONTRIBUTING.md"
        assert all(each.specifier.contains(version) for version in versions), each


def test_default_install_is_a_part_of_the_developers_one() -> None:
    """Guards against users who get versions that CI never ran."""
    of_all = pins("requirements-dev.txt")
    assert {name: of_all.get(name) for name in pins("requirements.txt")} == pins("requirements.txt")


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_every_pin_has_hashes_and_names_no_place(name: str) -> None:
    """Guards against files that could be replaced, and against a private index."""
    lines = [line for line in (ROOT / name).read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith(" "):
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line)
        else:
            assert re.fullmatch(r"[\w.-]+==[\w.+!]+( ; [^@]+)? \\", line)
            assert following.startswith("    --hash=")
