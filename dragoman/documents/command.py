"""Translate files from the command line: report.docx becomes report.it.docx.

    translate_files(translator, [Path("report.docx"), Path("letters")], options)

A folder stands for all documents in it. A file that cannot be translated costs no other. Nothing is overwritten, except
by an --output that names a file.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dragoman import console, reading
from dragoman.corpora.formats.file_formats import DOCUMENTS
from dragoman.corpora.formats.files import File, open_unpacked
from dragoman.documents.document import translate_document
from dragoman.documents.files import LARGEST, SNIFFED, document_format, parse_file
from dragoman.errors import ConfigError, DataError
from dragoman.translation.output import Warnings, open_output, write
from dragoman.translation.translator import Translator

OF_LINES = ("align", "attention", "embed", "json", "paragraphs", "prefix", "shard")  # options for texts that are lines
ZIPPED = (".docx", ".pptx", ".xlsx", ".odt", ".odp", ".ods", ".epub")


def given_files(options: argparse.Namespace) -> list[Path]:
    """The documents and folders that the options name, or nothing if they name text.

    An argument is a file if there is one and its name ends like that of a document, and a folder if it is written like
    a path. Raises DataError for an --input that is not translated, and ConfigError for options that documents do not
    have.
    """
    if options.markup or options.score:
        return []
    paths = [Path(text) for text in options.sentences if _is_path(text)]
    if paths and len(paths) < len(options.sentences):
        other = next(text for text in options.sentences if not _is_path(text))
        raise ConfigError(f"{paths[0]} is a file, but {other} is not: translate files apart from sentences.")
    if options.input and (options.input.is_dir() or _is_document(options.input)):
        paths = [options.input]
    unsuitable = [f"--{name}" for name in OF_LINES if getattr(options, name)]
    if paths and unsuitable:
        raise ConfigError(
            f"{paths[0]} is translated as a whole: leave out {unsuitable[0]}, or take every line as text with "
            "--markup none."
        )
    return paths


def _is_path(text: str) -> bool:
    """Whether an argument is a document or a folder rather than a sentence."""
    path = Path(text)
    try:
        is_written_as_path = os.sep in text and any(map(str.isalnum, text))
        return (is_written_as_path and path.is_dir()) or (_ends_like_one(path) and path.is_file())
    except (OSError, ValueError):  # of text that cannot be a name
        return False


def _ends_like_one(path: Path) -> bool:
    return path.suffix.lower() in DOCUMENTS


def _is_document(path: Path) -> bool:
    """Whether a file is a document rather than lines of text. Raises DataError if its format is not translated."""
    if not path.is_file():
        return False
    name = str(path.with_name(str(File(path).name)))
    with open_unpacked(File(path)) as file:
        known = document_format(name, file.read(SNIFFED))
    is_document = known is not None and known.parser != "files:parse_lines"
    if known and is_document and name != str(path):
        raise DataError(f"{path} is {known.what} that is packed: unpack it, or take its lines with --markup none.")
    return is_document


def translate_files(translator: Translator, paths: Sequence[Path], options: argparse.Namespace) -> None:
    """Translate documents, each into a file beside it, or where --output says.

    Raises DataError, in the end, if one of them could not be translated.
    """
    target = options.to or translator.usual.target
    source = options.source or translator.usual.source
    found = [each for path in paths for each in _found(path, source, target)]
    if not found:
        raise DataError(f"{paths[0]} has no documents: their names end in {', '.join(DOCUMENTS)}.")
    failed, warnings = 0, Warnings()
    for path, folder in found:
        try:
            output = _output(path, folder, options, is_alone=paths == [path], languages=(source, target))
            _translate(translator, path, output, options, shown=not options.input or paths != [path])
        except DataError as error:
            if len(found) == 1:
                raise
            failed += 1
            console.warn(f"error: {error}")
        warnings.show([message for _, message in translator.warnings])
        translator.warnings = []
    warnings.count_hidden()
    if failed:
        raise DataError(f"{failed} of {len(found)} documents could not be translated: see above.")


def _found(path: Path, source: str, target: str) -> Iterator[tuple[Path, Path]]:
    """A file, or the documents in a folder, without those that translating it made, each with the folder named."""
    if not path.is_dir():
        yield path, path.parent
        return
    for each in sorted(path.rglob("*")):
        if (
            each.is_file()
            and _ends_like_one(each)
            and not each.name.startswith(".")
            and not _is_made(each, source, target)
        ):
            yield each, path


def _is_made(path: Path, source: str, target: str) -> bool:
    """Whether a file is a translation of one beside it."""
    stem = path.with_suffix("")
    origins = [stem.with_suffix(end + path.suffix) for end in ("", f".{source}")]
    return stem.suffix == f".{target}" and any(map(Path.exists, origins))


def _output(
    path: Path, folder: Path, options: argparse.Namespace, is_alone: bool, languages: tuple[str, str]
) -> Path | None:
    """Where the translation of a file goes: by default, report.docx and report.en.docx become report.it.docx beside it.

    None: standard output, for the text of an --input. Raises DataError if another file has that name.
    """
    output: Path | None = options.output
    if output and is_alone and not output.is_dir():
        if output.exists() and output.samefile(path):
            raise DataError(f"{path} would be overwritten: choose another --output.")
        return output
    if options.input and is_alone and not output and path.suffix.lower() not in ZIPPED:
        return None
    source, target = languages
    stem = path.name.removesuffix(path.suffix).removesuffix(f".{source}")
    place = output / path.parent.relative_to(folder) if output else path.parent
    result = place / f"{stem}.{target}{path.suffix}"
    if result.exists():
        raise DataError(f"{result} exists: rename or remove it, or name another file with --output.")
    return result


def _translate(
    translator: Translator,
    path: Path,
    output: Path | None,
    options: argparse.Namespace,
    shown: bool,
) -> None:
    """Translate one document into a file, or to standard output."""
    try:
        content = reading.read(path, LARGEST)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}.") from error
    document = parse_file(content, str(path), options.to or translator.usual.target)
    with _bar(len(document.inlines), path.name) as advance:
        written = translate_document(translator, document, options.to or "", options.source or "", advance)
    assert isinstance(written, bytes)
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
    with open_output(output) as file:
        if output:
            file.write(written)
        else:
            write(file, written.decode())
    if output and shown:
        console.warn(f"wrote {output}")


@contextlib.contextmanager
def _bar(total: int, name: str) -> Iterator[Callable[[int], object]]:
    """Context manager: a bar on standard error that counts texts, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda texts: None
        return
    from tqdm import tqdm  # slow to import

    with tqdm(total=total, unit="text", desc=name[:30], dynamic_ncols=True, leave=False) as bar:
        yield bar.update
