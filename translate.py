"""Translate with a trained model: text in, translation out.

    python translate.py "The train leaves at nine." "Where is it?"
    python translate.py --input letter.en --output letter.it
    python translate.py --input huge.en.gz --output huge.it.gz --shard 3/16     # the third of 16 parts
    some-program | python translate.py --run runs/phrasebook | another-program
    python translate.py --to en "Dov'è la stazione?"         # with a model of several directions
    python translate.py report.docx                          # writes report.it.docx; also .pptx, .odt, .html, .srt ...
    python translate.py --paragraphs --input mail.txt        # lines that are wrapped
    python translate.py --engine torch "Where is it?"        # with the search of this program, not CTranslate2's
    python translate.py                                      # on a terminal: a prompt

    from dragoman import Translator
    Translator("runs/phrasebook").translate(["The train leaves at nine."])

Each line in is one line out, or decoding.n_best lines. Translations go to standard output, all else to standard error.
Exit codes: 0 done, 2 wrong arguments, 3 unreadable input, 4 no usable checkpoint, 5 output in use, 7 unwritable output.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from dragoman.__main__ import main as run_command  # which imports this file again, as dragoman.translate

    sys.exit(run_command(["translate", *sys.argv[1:]], "translate.py"))

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman import console, reading
from dragoman.documents.command import given_files, translate_files
from dragoman.documents.paragraphs import broken_lines
from dragoman.errors import ConfigError, DataError
from dragoman.translation.bulk import open_lines
from dragoman.translation.input import Input, find_input, pairs_to_score
from dragoman.translation.loading import last_saved, usual_run
from dragoman.translation.output import AttentionPage, Warnings, as_json, as_text, open_output, score_line, write
from dragoman.translation.prompt import converse
from dragoman.translation.request import Request
from dragoman.translation.translator import Translator

if TYPE_CHECKING:
    from tqdm import tqdm

LOOKED_AT = 1000  # lines of a block that may show that a text is wrapped


def main(options: argparse.Namespace) -> None:
    """Translate what the command line names."""
    # A checkpoint is in the checkpoints/ of its run.
    run = options.checkpoint[0].absolute().parent.parent if options.checkpoint else options.run or usual_run()
    files = given_files(options)
    given = find_input(options) if not files else None
    if given and given.shard and not options.shard:  # one of several ranks
        from dragoman.device import choose_device  # slow to import
        from dragoman.distributed import Ranks

        options.device = str(Ranks.from_environment().own_device(choose_device(options.device)))
    translator = load_translator(options, run)
    to, source, prefix = options.to or "", options.source or "", options.prefix or ""
    if not (options.run or options.checkpoint):
        other = "; to use another run, name it with --run" if len(last_saved(run.parent)) > 1 else ""
        console.warn(f"using {run}, {describe(translator)}{other}")
    translator.request("", to, source)  # refuses unknown languages before translating anything
    if given is None:
        translate_files(translator, files, options)
        return
    if given.markup:
        translate_documents(translator, given, options)
        return
    plain = not (options.output or options.json or options.align or options.score or options.attention or options.embed)
    if given.name == "stdin" and plain and sys.stdin.isatty() and sys.stdout.isatty():
        converse(translator, to, source, prefix)
    else:
        translate_lines(translator, given, options, lambda text: translator.request(text, to, source, prefix))


def describe(translator: Translator) -> str:
    """What a model does: "en to it"."""
    if translator.config.is_language_model:
        return f"a language model of {translator.usual.target}"
    return ", ".join(f"{each.source} to {each.target}" for each in translator.config.data.several or [translator.usual])


def translate_documents(translator: Translator, given: Input, options: argparse.Namespace) -> None:
    """Translate text with tags: each argument is a document, and so is a whole file or stream."""
    texts = list(whole_text(given))
    if given.name != "argument":
        texts = ["".join(f"{text}\n" for text in texts)]
    from dragoman.documents.markup import translate_markup  # slow to import

    warnings = Warnings()
    with open_output(options.output) as output:
        for number, text in enumerate(texts, 1):
            try:
                text = translate_markup(translator, text, given.markup, options.to or "", options.source or "")
            except DataError as error:
                place = f"argument {number}" if given.name == "argument" else given.name
                raise DataError(f"{place}: {error}") from None
            warnings.show([message for _, message in translator.warnings])
            write(output, text + "\n" * (given.name == "argument"))
    warnings.count_hidden()


def whole_text(given: Input) -> Iterator[str]:
    """The lines of a document. Raises DataError if it is too large to be parsed in memory."""
    size = 0
    for text in chain.from_iterable(given.blocks):
        size += len(text) + 1
        if size > reading.TEXT:
            most = reading.shown(reading.TEXT)
            raise DataError(f"{given.name} is larger than {most}, the most that a document may have: split it.")
        yield text


def load_translator(options: argparse.Namespace, run: Path) -> Translator:
    """The translator that the options name. Raises ConfigError for options that the model has no use for."""
    translator = Translator(options.checkpoint or run, options.device, options.overrides, options.engine)
    if translator.config.is_language_model and (options.align or options.attention):
        raise ConfigError("--align and --attention show the source, but a language model has no source.")
    if options.glossary:
        translator = translator.with_glossary(options.glossary)
    return translator


def translate_lines(
    translator: Translator, given: Input, options: argparse.Namespace, request: Callable[[str], Request]
) -> None:
    """Translate blocks of lines and write each block as soon as it is done."""
    page = AttentionPage(options.attention) if options.attention else None
    warnings, first, hinted = Warnings(), given.first, bool(options.score or options.embed)
    with (
        open_lines(translator, given, options) as (has, add),
        open_output(page.path) if page else contextlib.nullcontext() as page_output,
        progress_bar(given, options) as bar,
    ):
        for texts in given.blocks:
            if not has(texts):
                hinted = hinted or hint_at_paragraphs(texts, first, given)
                lines = translate_block(translator, texts, first, given, options, request, page)
                with bar.external_write_mode(file=sys.stderr) if bar else contextlib.nullcontext():
                    warnings.show([f"text {first + i}: {message}" for i, message in translator.warnings])
                add("".join(f"{line}\n" for line in lines))
            if bar:
                bar.update(len(texts))
            first += len(texts)
        if page and page_output:
            page.write(page_output)
    warnings.count_hidden()


def hint_at_paragraphs(texts: Sequence[str], first: int, given: Input) -> bool:
    """Warn if lines of a block end inside sentences, as in wrapped text. Returns whether they do."""
    if given.name == "argument":
        texts = "\n\n".join(texts).split("\n")  # an argument may have several lines
    broken = [first + number for number in broken_lines(texts[:LOOKED_AT])]
    if broken:
        shown = ", ".join(f"{number:,}" for number in broken[:3]) + (", ..." if len(broken) > 3 else "")
        lines = f"line {shown} ends" if len(broken) == 1 else f"lines {shown} end"
        console.warn(f"{given.name}: {lines} inside a sentence, but each line is translated alone: try --paragraphs")
    return bool(broken)


def progress_bar(given: Input, options: argparse.Namespace) -> contextlib.AbstractContextManager[tqdm | None]:
    """A bar on standard error that counts lines; None if the total is unknown or standard error is not a terminal."""
    beside_text = options.output is None and sys.stdout.isatty()  # it would get in the way of the translations
    if given.sizes is None or beside_text or not sys.stderr.isatty():
        return contextlib.nullcontext()
    from tqdm import tqdm  # slow to import

    return tqdm(total=sum(given.sizes), unit="line", dynamic_ncols=True)


def translate_block(
    translator: Translator,
    texts: Sequence[str],
    first: int,
    given: Input,
    options: argparse.Namespace,
    request: Callable[[str], Request],
    page: AttentionPage | None,
) -> list[str]:
    """The output for each line of a block, the first of which has the number `first`."""
    if options.score:
        pairs = pairs_to_score(texts, given.name, first, translator.config.is_language_model)
        scored = translator.score([(request(text), translation) for text, translation in pairs], first)
        return [score_line(candidate, options.json) for candidate in scored]
    if options.embed:
        vectors = translator.embed(list(map(request, texts))).tolist()
        return [json.dumps([round(each, 6) for each in vector]) for vector in vectors]
    translations = translator.explain(list(map(request, texts)))
    if options.json or options.align or options.attention:
        translations = translator.with_log_probs(translations)
    if options.json:
        translations = translator.with_alignments(translations)
    if page:
        page.add(translator, translations)
    if options.json:
        return list(map(as_json, translations))
    return [as_text(translator, translation, options.align) for translation in translations]
