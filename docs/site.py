"""Hooks of mkdocs: links from a page to a file of the repository lead to a page that shows the file.

On a code host such a link opens the file. The site has no files outside docs/, so it gets a page for each linked one.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)[^)\s]+(?=\))")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".md": "markdown", ".ipynb": "json", ".toml": "toml"}


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add a page for each linked file outside docs/."""
    for page in list(files.documentation_pages()):
        for link in LINK.findall(page.content_string):
            path = _outside(link, page.src_uri)
            if path and not files.get_file_from_path(_shown_at(path)):
                files.append(File.generated(config, _shown_at(path), content=_shown(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links to files outside docs/ into links to their pages."""
    folder = os.path.dirname(page.file.src_uri)

    def replaced(match: re.Match[str]) -> str:
        path = _outside(match.group(), page.file.src_uri)
        return os.path.relpath(_shown_at(path), folder) if path else match.group()

    return markdown if page.file.src_uri.startswith("source/") else LINK.sub(replaced, markdown)


def _outside(link: str, page: str) -> Path | None:
    """The file or folder of the repository that a link names, unless it is inside docs/."""
    path = (ROOT / "docs" / page).parent.joinpath(urldefrag(link).url).resolve()
    if not path.exists():
        return None  # mkdocs warns about it
    readable = not path.is_relative_to(ROOT / "docs") or path.suffix == ".py"
    return path if readable and path.is_relative_to(ROOT) else None


def _shown_at(path: Path) -> str:
    return f"source/{path.relative_to(ROOT).as_posix()}.md"


def _shown(path: Path) -> str:
    """A page with the text of a file, or with the names in a folder."""
    heading = (
        f"---\nsearch:\n  exclude: true\n---\n\n# {path.relative_to(ROOT).as_posix().replace('_', chr(92) + '_')}\n\n"
    )
    if path.is_dir():
        return heading + "\n".join(f"- `{each.name}`" for each in sorted(path.iterdir()) if each.name[0] not in "._")
    return f"{heading}~~~~~~{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text(encoding='utf-8')}\n~~~~~~\n"
