"""Translate with a trained model: text in, text out.

    python translate.py "The train leaves at nine." "Where is it?"
    python translate.py --input letter.en --output letter.it
    some-program | python translate.py --run runs/phrasebook | another-program
    python translate.py --to en "Dov'è la stazione?"       # of a model of several directions
    python translate.py --engine ctranslate2 "Where is it?"  # another program searches, see `export`
    python translate.py                                    # on a terminal: a prompt

    from translate import Translator
    Translator("runs/phrasebook").translate(["The train leaves at nine."])

One line in is one line out, whatever the line. Translations go to standard output, everything else to standard error.
Exit codes: 0 done, 2 wrong arguments, 3 unreadable input, 4 no usable checkpoint, 7 output that cannot be written.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from dragoman.__main__ import main as dragoman  # which imports this file again, under its package name

    sys.exit(dragoman(["translate", *sys.argv[1:]], "translate.py"))

import argparse
import atexit
import contextlib
import io
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO

from tqdm import tqdm

from dragoman import console, errors
from dragoman.console import visible
from dragoman.corpora.cleaning import decode_line
from dragoman.device import choose_device, tune_device
from dragoman.errors import DataError
from dragoman.translation import attention_page
from dragoman.translation.loading import newest_run
from dragoman.translation.results import Candidate, Sentence, Translation
from dragoman.translation.translator import Translator

LARGEST_PAGE = 100  # sentences on a page that shows their attention
MOST_WARNINGS = 20  # that are told one by one
HISTORY = Path.home() / ".dragoman_history"  # of the prompt


def arriving(stream: BinaryIO, name: str) -> Iterator[list[str]]:
    """The lines of a stream, as many at a time as have arrived: one from a person, thousands from a file.

    So a filter answers each line at once, and a file is still translated in full batches. Raises DataError for a line
    that is not UTF-8, once those before it have been taken.
    """
    rest, number = b"", 1
    while block := os.read(stream.fileno(), 2**18):
        *lines, rest = (rest + block).split(b"\n")
        yield from _decoded(lines, name, number)
        number += len(lines)
    yield from _decoded([rest] if rest else [], name, number)


def _decoded(lines: Sequence[bytes], name: str, first: int) -> Iterator[list[str]]:
    texts: list[str] = []
    for number, line in enumerate(lines, first):
        try:
            texts.append(decode_line(line, name, number))
        except DataError:
            if texts:
                yield texts
            raise
    if texts:
        yield texts


def lines_with_pairs(texts: Sequence[str], name: str, first: int) -> list[tuple[str, str]]:
    """Split lines of source TAB translation. Raises DataError for a line that is not one."""
    pairs = [tuple(text.split("\t")) for text in texts]
    for number, pair in enumerate(pairs, first):
        if len(pair) != 2:
            raise DataError(
                f"{name}:{number}: a pair to score is SOURCE TAB TRANSLATION; here are {len(pair)} columns."
            )
    return [(source, target) for source, target in pairs]


def to_score(texts: Sequence[str], name: str, first: int, alone: bool) -> list[tuple[str, str]]:
    """The pairs to score: lines of two columns, or arguments in turn; alone: texts of a language model."""
    if alone:
        return [("", text) for text in texts]
    if name == "argument" and len(texts) % 2 == 0 and not any("\t" in text for text in texts):
        return list(zip(texts[::2], texts[1::2], strict=True))
    return lines_with_pairs(texts, name, first)


def examples(run_folder: Path, numbers: Sequence[int]) -> list[tuple[str, str]]:
    """The sentence pairs of these numbers, from 1, of a run's test set. Raises DataError if there are none."""
    path = run_folder / "data" / "test.tsv"
    try:
        rows = path.read_text(encoding="utf-8").split("\n")[:-1]
    except OSError as error:
        raise DataError(f"{path}: --example needs the test set of a run: {error.strerror}.") from error
    for number in numbers:
        if not 1 <= number <= len(rows):
            raise DataError(f"--example {number}: the test set has the sentences 1 to {len(rows)}.")
    return lines_with_pairs([rows[number - 1] for number in numbers], str(path), 1)


def view(translator: Translator, sentence: Sentence, candidate: Candidate) -> attention_page.View:
    """What a person may want to see of a translation."""
    return attention_page.View(
        source=sentence.tokens,
        target=candidate.tokens,
        log_probs=candidate.log_probs,
        weights=translator.attention(sentence, candidate).numpy(),
        text_source=sentence.source,
        text_target=candidate.text,
        copied=candidate.copied,
        unknown=set(sentence.unknown),
    )


def as_json(translator: Translator, translation: Translation, reference: str | None = None) -> str:
    """All that is known of a translation, in a line."""
    return json.dumps(
        {
            "source": translation.source,
            **({} if reference is None else {"reference": reference}),
            "translation": translation.text,
            "sentences": [
                {
                    "source": sentence.source,
                    "tokens": sentence.tokens,
                    "unknown": sentence.unknown,
                    "candidates": [
                        _candidate_json(candidate) | {"alignment": translator.align(sentence, candidate)}
                        for candidate in sentence.candidates
                    ],
                }
                for sentence in translation.sentences
            ],
        },
        ensure_ascii=False,
    )


def score_line(candidate: Candidate, in_full: bool) -> str:
    """The score of a given translation, alone or with those of its tokens as JSON."""
    return json.dumps(_candidate_json(candidate), ensure_ascii=False) if in_full else f"{candidate.score:.4f}"


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    return {
        "translation": candidate.text,
        "score": round(candidate.score, 4) if math.isfinite(candidate.score) else None,  # JSON has no -inf
        "complete": candidate.complete,
        "tokens": candidate.tokens,
        "log_probs": [round(each, 4) if math.isfinite(each) else None for each in candidate.log_probs],
        "copied": {str(t): s for t, s in candidate.copied.items()},
    }


def as_table(translator: Translator, translation: Translation) -> str:
    """The alignment of each sentence, and its other candidates, for a terminal."""
    lines = []
    for sentence in translation.sentences:
        best, *others = sentence.candidates
        lines += [*attention_page.table(view(translator, sentence, best)), ""]
        lines += [f"{other.score:8.3f}  {other.text}" for other in others] + [""] * bool(others)
    return "\n".join(lines)


def converse(translator: Translator, to: str = "", source: str = "", prefix: str = "") -> None:
    """A prompt on a terminal: a line is answered word by word. Up and down fetch earlier lines, of other days, too.

    to, source: languages, of a model of several directions
    prefix: what every translation begins with
    """
    with contextlib.suppress(ImportError, OSError):  # a system without readline, a home that cannot be read
        import readline

        atexit.register(_remember, readline)
        readline.read_history_file(HISTORY)
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):  # text is UTF-8 here as well, whatever the locale
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    usual = translator.usual
    languages = f"{visible(source or (to and f'to {to}') or usual.source or usual.target)} > "
    console.warn("type a sentence and press Enter; Ctrl-D ends")
    while True:
        try:
            text = decode_line(input(languages).encode(errors="surrogateescape"), "the line", 1)
        except EOFError:
            print()
            return
        except DataError as error:
            console.warn(str(error))
            continue
        try:
            translator.speak(
                translator.asking(text, to, source) if to or source else text,
                lambda words: print(printable(words), end="", flush=True),
                prefix,
            )
        except DataError as error:
            console.warn(str(error))
        print()
        for message in translator.warnings:
            console.warn(message)


def _remember(readline: Any) -> None:
    with contextlib.suppress(OSError):
        readline.set_history_length(1000)
        readline.write_history_file(HISTORY)


def printable(text: str) -> str:
    """Text for a terminal, which takes no part of it for a command; line feeds stay."""
    return "\n".join(map(visible, text.split("\n")))


@dataclass(frozen=True)
class Input:
    """What there is to translate, as blocks of lines."""

    name: str  # for messages that tell a line
    blocks: Iterator[list[str]]
    lines: int | None = None  # how many, if that is known before
    references: Sequence[str] = ()  # one for each line, if there are any


def find_input(options: argparse.Namespace, folder: Path) -> Input:
    """Sentences from the command line, examples from the run in a folder, lines of a file or of standard input."""
    if options.example:
        sources, references = zip(*examples(folder, options.example), strict=True)
        return Input("example", iter([list(sources)]), references=references)
    if options.sentences:
        # As bytes, so that an argument that is not UTF-8 is told like a line that is not.
        texts = [decode_line(os.fsencode(text), "argument", i) for i, text in enumerate(options.sentences, 1)]
        return Input("argument", iter([texts]))
    if options.input:
        file = open_file(options.input)
        return Input(str(options.input), arriving(file, str(options.input)), count_lines(options.input))
    return Input("stdin", arriving(sys.stdin.buffer, "stdin"))


def main(options: argparse.Namespace) -> None:
    """Translate what the command line names."""
    # Of a checkpoint, the run in whose checkpoints/ it lies.
    folder = options.checkpoint[0].absolute().parent.parent if options.checkpoint else options.run or newest_run()
    given = find_input(options, folder)
    tune_device(choose_device(options.device))
    translator = Translator(options.checkpoint or folder, options.device, options.overrides)
    if options.engine:
        from dragoman.export.ctranslate2_engine import with_ctranslate2  # slow to import

        translator = with_ctranslate2(translator, folder)
    if translator.config.is_language_model and (options.align or options.attention or options.example):
        raise errors.ConfigError("a language model has no source for --align, --attention or --example to show.")
    if translator.config.decoding.n_best > 1 and not (options.json or options.align):
        console.warn("decoding.n_best: only --json and --align show more than the best translation")
    plain = not (options.output or options.json or options.align or options.score or options.attention or options.embed)
    to, source = options.to or "", options.source or ""
    translator.asking("", to, source)  # which refuses unknown languages at once
    if given.name == "stdin" and plain and sys.stdin.isatty() and sys.stdout.isatty():
        converse(translator, to, source, options.prefix or "")
        return

    page = Page(options.attention)
    warnings = 0
    first = 1
    hidden = given.lines is None or (options.output is None and sys.stdout.isatty())
    with (
        writing(options.output) as output,
        writing(options.attention) if options.attention else contextlib.nullcontext() as sheet,
        tqdm(total=given.lines, unit="line", dynamic_ncols=True, disable=hidden or None) as bar,  # None: if no terminal
    ):
        for texts in given.blocks:
            lines = answers(translator, texts, first, given, options, page, bar)
            for message in translator.warnings:
                warnings += 1
                if warnings <= MOST_WARNINGS:
                    with bar.external_write_mode(file=sys.stderr):
                        console.warn(message)
            text = "".join(f"{line}\n" for line in lines)
            output.write((printable(text) if output.isatty() else text).encode())
            output.flush()
            first += len(texts)
        page.write(sheet)
    if warnings > MOST_WARNINGS:
        console.warn(f"and {warnings - MOST_WARNINGS:,} warnings more")


def answers(
    translator: Translator,
    texts: Sequence[str],
    first: int,
    given: Input,
    options: argparse.Namespace,
    page: Page,
    bar: tqdm,
) -> list[str]:
    """What to write for each of some lines, of which the first is line `first` of what is given."""

    def ask(text: str) -> str:
        to, source = options.to or "", options.source or ""
        return translator.asking(text, to, source) if to or source else text

    if options.score:
        pairs = to_score(texts, given.name, first, translator.config.is_language_model)
        found = translator.score([(ask(text), translation) for text, translation in pairs], first)
        bar.update(len(texts))
        return [score_line(candidate, options.json) for candidate in found]
    if options.embed:
        vectors = translator.embed(list(map(ask, texts)), first).tolist()
        bar.update(len(texts))
        return [json.dumps([round(each, 6) for each in vector]) for vector in vectors]
    prefixes = [options.prefix] * len(texts) if options.prefix else None
    translations = translator.explain(list(map(ask, texts)), first, bar.update, prefixes)
    page.add(translator, translations)
    rows = zip_longest(translations, given.references[: len(texts)])
    return [answer(translator, translation, reference, options) for translation, reference in rows]


def answer(translator: Translator, translation: Translation, reference: str | None, options: argparse.Namespace) -> str:
    """A translation in the form that was asked for."""
    if options.json:
        return as_json(translator, translation, reference)
    text = as_table(translator, translation) if options.align else translation.text
    if reference is None:
        return text
    text = f"\n{text}" if options.align else f"translation  {text}\n"
    return f"source       {translation.source}\nreference    {reference}\n{text}"


class Page:
    """The page that shows the attention of some sentences, of the first hundred at most."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.views: list[attention_page.View] = []
        self.left_out = 0

    def add(self, translator: Translator, translations: Sequence[Translation]) -> None:
        """Add the sentences of translations, if there is to be a page at all."""
        for sentence in (s for t in translations for s in t.sentences if self.path):
            if len(self.views) < LARGEST_PAGE:
                self.views.append(view(translator, sentence, sentence.candidates[0]))
            else:
                self.left_out += 1

    def write(self, output: BinaryIO | None) -> None:
        """Write the page, if there is to be one."""
        if output:
            output.write(attention_page.page(self.views).encode())
        if self.left_out:
            console.warn(f"{self.path} shows the first {LARGEST_PAGE} sentences, and leaves out {self.left_out:,}")


def count_lines(path: Path) -> int | None:
    """How many lines a file has; None for what can be read only once, such as a pipe."""
    if not path.is_file():
        return None
    with open_file(path) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b""))


@contextmanager
def writing(path: Path | None) -> Iterator[BinaryIO]:
    """Where translations go. A file takes its name when it is whole: until then the old one stays, the input even.

    Raises OSError with the name that was given.
    """
    if path is None:
        yield sys.stdout.buffer
    elif path.exists() and not path.is_file():  # a device, a pipe
        with path.open("wb") as output:
            yield output
    else:
        beside = path.with_name(f".{path.name}.tmp")
        try:
            with beside.open("wb") as output:
                yield output
            beside.replace(path)
        except OSError as error:
            if error.filename == str(beside):
                error.filename = str(path)
            raise
        finally:
            beside.unlink(missing_ok=True)


def open_file(path: Path) -> BinaryIO:
    """Open a file to read. Raises DataError if it cannot be."""
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be opened: {error.strerror}.") from error
