"""Write what follows from the code: docs/settings.md, the modules in docs/code.md, the plans in docs/scale.md.

    python docs/generate.py

Settings come from `dragoman.settings`, and their meanings from config.yaml. A module's line is the first line of its
docstring. A test fails if a page differs from the output of this program.
"""

from __future__ import annotations

import ast
import io
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import Field, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "dragoman"
sys.path.insert(0, str(ROOT))

from dragoman.command_line import parse_plan  # noqa: E402
from dragoman.config_file import meanings  # noqa: E402
from dragoman.setting_types import as_word, kind_of  # noqa: E402
from dragoman.settings import SECTIONS  # noqa: E402
from dragoman.training import scale  # noqa: E402

START, END = "<!-- modules: python docs/generate.py -->\n", "<!-- end of modules -->\n"
INTRODUCTION = """\
<!-- Written by docs/generate.py: change the meanings in config.yaml, then run it again. -->

# Settings

A run has these settings. Give them in a YAML file, on two levels as in [config.yaml](../config.yaml), which explains
each of them, or on the command line as `--section.key value`. The command line overrides the file, and the file
overrides the defaults. `python train.py --help` prints this list, and `python train.py --print_config` the settings in
use.

Each entry ends with whether a resumed run may change the setting: *yes*; *warns*, because curves change their course or
figures can no longer be compared; or *no*, because the weights or the data would not fit."""
RESUME = {"free": "yes", "warned": "warns", "refused": "no"}


def settings_page() -> str:
    """The page of settings: a list for each section, since a table would be too wide."""
    parts = [INTRODUCTION]
    for name, section in SECTIONS.items():
        entries = [
            f"- `{name}.{each.name}`: {_cell(meanings()[f'{name}.{each.name}'])}<br>\n"
            f"  <small>{_values(each)}; default `{as_word(each.default)}`; "
            f"resume: {RESUME[each.metadata['resume']]}</small>"
            for each in fields(section)
        ]
        parts.append("\n".join([f"## {name}", "", section.__doc__ or "", "", *entries]))
    return "\n".join(part + "\n" for part in parts)


def _values(declared: Field) -> str:
    """The allowed values of a setting: its type or its choices, and its limits."""
    base, choices, optional = kind_of(declared)
    names = {bool: "`true`, `false`", int: "integer", float: "number", str: "text"}
    words = ", ".join(f"`{choice}`" for choice in choices)
    kinds = [words] if base is str and choices else [names[base], *filter(None, [words])]
    limits = " and ".join(f"{rule} {bound:,}" for rule, bound in declared.metadata["limits"].items())
    return ", ".join([" ".join(filter(None, [kinds[0], limits])), *kinds[1:], *["`null`"] * optional])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def module_table() -> str:
    """The modules by room, each with the first line of its docstring."""
    parts = []
    rooms = sorted(path.parent for path in PACKAGE.rglob("*/__init__.py"))
    for folder, title in [(ROOT, "The four files at the root"), (PACKAGE, "`dragoman/`: the base")] + [
        (room, f"`{room.relative_to(PACKAGE)}/`") for room in rooms
    ]:
        rows = [
            f"| [{path.name.replace('__', '&#95;&#95;')}](../{path.relative_to(ROOT)}) | {_cell(line)} |"
            for path, line in _modules(folder)
        ]
        parts.append("\n".join([f"### {title}", "", "| module | what it does |", "| --- | --- |", *rows, ""]))
    return "\n".join(parts)


def _modules(folder: Path) -> Iterator[tuple[Path, str]]:
    """The modules of a folder and their first lines, without packages and the aliases of the root files."""
    for path in sorted(folder.glob("*.py")):
        if path.name == "__init__.py" or (folder == PACKAGE and (ROOT / path.name).exists()):
            continue
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        yield path, docstring.partition("\n")[0]


def code_page(page: str) -> str:
    """The page on the code with a new table of modules between its two marks."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{module_table()}\n{END}{after}"


def scale_page(page: str) -> str:
    """The page on scale with the output of every `dragoman plan` that it shows."""

    def shown(match: re.Match[str]) -> str:
        with redirect_stdout(io.StringIO()) as output:
            scale.main(parse_plan(shlex.split(match[1])))
        return f"$ dragoman plan {match[1]}\n{output.getvalue()}"

    return re.sub(r"(?<=```console\n)\$ dragoman plan (.*)\n(?:.*\n)*?(?=```\n)", shown, page)


if __name__ == "__main__":
    docs = ROOT / "docs"
    (docs / "settings.md").write_text(settings_page(), encoding="utf-8", newline="\n")
    code = docs / "code.md"
    code.write_text(code_page(code.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
    page = docs / "scale.md"
    page.write_text(scale_page(page.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
