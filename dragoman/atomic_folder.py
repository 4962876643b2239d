"""An output folder that appears whole or not at all, even after a crash or a power cut.

    with atomic_folder(Path("exports/onnx")) as folder:          # a new folder beside it, with a hidden name
        (folder / "model.onnx").write_bytes(...)

Two folders cannot be exchanged atomically. So one that already has the name is renamed to `replaced-NAME`, the new one
takes the name, and the old one is deleted. A process killed between the two renames leaves the old one whole under the
other name; the next call with the same name deletes it.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dragoman.storage import STALE, make_folder, remove_temporaries, storing, sync, temporary_name


@contextmanager
def atomic_folder(final: Path) -> Iterator[Path]:
    """Yield an empty folder beside `final`, and rename it to `final` at the end; after an error, remove it.

    What a killed process left is removed by the next call for the same name, an hour later or more.

    Raises StorageError.
    """
    made = temporary_name(final)
    with storing(final):
        make_folder(final.parent)
        remove_temporaries(final.parent, re.escape(final.name), time.time() - STALE)
        os.mkdir(made)
    try:
        yield made
        with storing(final):
            publish(made, final)
    finally:
        shutil.rmtree(made, ignore_errors=True)  # after a failure; a published one has another name by now


def publish(made: Path, final: Path) -> None:
    """Make all files of a folder durable and rename it to `final`, in place of a folder with that name."""
    for path in (*made.rglob("*"), made):
        sync(path)
    replaced = final.with_name(f"replaced-{final.name}")
    if os.path.lexists(final):  # a folder cannot be renamed onto a non-empty one
        discard(replaced)
        os.rename(final, replaced)
    os.rename(made, final)
    sync(final.parent)
    discard(replaced)


def discard(folder: Path) -> None:
    """Delete a folder, if it exists, so that others see it whole or not at all."""
    with suppress(FileNotFoundError):
        hidden = temporary_name(folder.with_name(folder.name.removeprefix("replaced-")))
        os.rename(folder, hidden)
        shutil.rmtree(hidden)
