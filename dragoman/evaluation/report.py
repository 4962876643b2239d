"""How good is a translator: the loss on held-out pairs, scores of its translations, and a report on them.

    python evaluate.py                                                # the newest run, on its test pairs
    python evaluate.py --run runs/wide --against runs/phrasebook      # is it really better than the other?
    python evaluate.py --run runs/wide --data letters.tsv --decoding.beam_size 5

    report = examine(Translator("runs/phrasebook"), pairs)
    write(report, Path("report"), "test")                             # test.json, test.html, test.tsv

Sums travel with their counts and are divided once, last, so that no figure depends on how the pairs were batched.
The scores themselves are in `scores`.

Scores go to standard output, everything else to standard error. Exit codes: 0 done, 2 wrong arguments, 3 unreadable
data, 4 no usable checkpoint, 7 a report that cannot be written.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dragoman import console, resources, serialization, storage
from dragoman import settings as settings_module
from dragoman.console import fit, shorten, visible
from dragoman.corpora.cleaning import AS_WRITTEN, clean, decode_line
from dragoman.corpora.sources import find_named
from dragoman.corpora.splitting import read_split
from dragoman.dataset import Pair, unzip_pairs
from dragoman.device import choose_device, tune_device
from dragoman.directions import Direction, by_direction, split_tag, tagged
from dragoman.errors import DataError
from dragoman.evaluation import page
from dragoman.evaluation.metrics import Comparison, Figure, Measured, compare, score
from dragoman.evaluation.repetition import has_loop
from dragoman.settings import DataConfig
from dragoman.translation.loading import newest_run
from dragoman.translation.results import Translation
from dragoman.translation.translator import Translator

LENGTHS = (1, 6, 11, 16, 21, 31)  # source tokens with which each bucket begins
UNKNOWN = (0, 1, 2, 3)  # unknown source words with which each bucket begins
WORST = 20
SHARE = 0.01  # of the translations must be wrong in one way to raise an alarm
RATIO = (0.8, 1.25)  # words of the translations per word of the references: beyond is an alarm


def bleu_by_direction(
    sources: Sequence[str], translations: Sequence[str], references: Sequence[str], data: DataConfig
) -> dict[Direction, float]:
    """The BLEU of each direction; nothing for a run that does not know of several."""
    return {
        direction: score([translations[i] for i in which], [references[i] for i in which], data.bleu_tokenize).bleu
        for direction, which in directions_of(sources, data).items()
    }


def directions_of(sources: Sequence[str], data: DataConfig) -> dict[Direction, list[int]]:
    """The positions of sources by direction; nothing for a run that does not know of several."""
    return by_direction(sources, Direction(data.source_lang or "", data.target_lang)) if data.several else {}


def untagged(text: str, data: DataConfig) -> str:
    """A source as a reader wants it."""
    return split_tag(text)[1] if data.several else text


# ------------------------------------------------------------------------------------------------------- the report


@dataclass(frozen=True)
class Bucket:
    """The translations of some sources, scored as a corpus of their own."""

    name: str  # "6-10", "31+"
    pairs: int
    bleu: float
    chrf: float


@dataclass(frozen=True)
class Alarm:
    """Something that is wrong with more than a few translations, in plain words."""

    name: str  # empty, cut, repeated, same, untranslated, unknown, length or useless
    text: str
    sentences: list[int]  # which, counted from 1; 20 at most, and none where it is about all of them


@dataclass(frozen=True)
class Row:
    """One sentence pair and its translation."""

    source: str
    reference: str
    translation: str
    chrf: float  # of this sentence alone
    tokens: int  # of the source, in the translator's own tokens
    unknown: int  # source words that the translator does not know
    complete: bool  # False: the limit of length cut the translation off
    words: int  # of the translation, as BLEU counts them
    reference_words: int


@dataclass(frozen=True)
class EvaluationReport:
    """How good a translator is on a set of pairs, and where it is not. `asdict` makes it the JSON file.

    Attributes:
        format: of this record; it changes when a reader would have to
        name: the split, or what else the pairs are called
        run, step, checkpoint: whose weights these are
        source_lang, target_lang: names of the languages
        decoding: the settings of the search
        cleaning: the settings by which sources and references were cleaned, and that the translations follow
        pairs: how many there are
        length_ratio: words of the translations per word of the references, as BLEU counts them
        figures: BLEU, chrF, TER, WER, CER
        copied: the same if every source were taken for its translation
        against: another translator on the same pairs
        directions: what each has, of a model of several; the figures are then of all pairs together
        lengths, unknown: buckets by source tokens and by unknown source words; none is empty
        alarms: what somebody should look at before believing in the scores
        worst: the sentences with the lowest chrF, counted from 1, the worst first
        sentences: all of them, in the order of the pairs
    """

    format: int
    name: str
    run: str
    step: int
    checkpoint: str
    source_lang: str
    target_lang: str
    decoding: dict[str, Any]
    cleaning: dict[str, Any]
    pairs: int
    length_ratio: float
    figures: list[Figure]
    copied: list[Figure]
    against: Comparison | None
    directions: list[Bucket]
    lengths: list[Bucket]
    unknown: list[Bucket]
    alarms: list[Alarm]
    worst: list[int]
    sentences: list[Row]


@dataclass(frozen=True)
class Earlier:
    """Translations that another translator made: (source, reference, translation)."""

    name: str
    rows: list[tuple[str, str, str]]

    def cleaned(self, data: DataConfig) -> Earlier:
        """The same in lower case, or in another form of Unicode, if a run with these settings is so."""
        return Earlier(self.name, [(cleaned_source(a, data), clean(b, data), clean(c, data)) for a, b, c in self.rows])

    def translations(self, pairs: Sequence[Pair]) -> list[str]:
        """One for each of the pairs. Raises DataError if these are other pairs; their order does not matter."""
        found: dict[Pair, list[str]] = defaultdict(list)
        for source, reference, translation in reversed(self.rows):
            found[split_tag(source)[1], reference].append(translation)
        # A tag is no part of the text: others may have been told the direction in another way.
        wanted = [(split_tag(source)[1], reference) for source, reference in pairs]
        ordered = [found[pair].pop() if found[pair] else None for pair in wanted]
        missing, more = ordered.count(None), sum(map(len, found.values()))
        if missing or more:
            raise DataError(
                f"{self.name} cannot be compared, for it is about other pairs: {missing:,} of the {len(pairs):,} here "
                f"are missing there, and {more:,} there are not here."
            )
        return [translation for translation in ordered if translation is not None]


def evaluate(
    translator: Translator,
    pairs: Sequence[Pair],
    tokenize: str = "13a",
    name: str = "test",
    earlier: Earlier | None = None,
    advance: Callable[[int], object] | None = None,
) -> EvaluationReport:
    """Translate the sources of pairs of cleaned text and report how good that is.

    Cleaned is as for the translator's training: with data.lowercase the references are in lower case, too.
    Beside the translating that takes some 4 seconds for 1,000 pairs of a dozen words, or 6 with earlier translations.

    Args:
        tokenize: that of sacreBLEU, as for `score`
        name: what the pairs are called
        earlier: translations of the same pairs, to compare with
        advance: is told, now and then, how many more sources are translated

    Raises DataError if there is no pair, or if the earlier translations are of other pairs.
    """
    before = check_pairs(pairs, name, earlier)
    sources, references = unzip_pairs(pairs)
    results = translator.explain(sources, advance=advance)
    translations = [result.text for result in results]
    measured = Measured.of(translations, references, tokenize)
    settings = translator.config
    copied = Measured.of([untagged(source, settings.data) for source in sources], references, tokenize)
    rows = [row_of(i, *pairs[i], result, measured) for i, result in enumerate(results)]
    directions = directions_of(sources, settings.data)
    languages = zip(*directions or [(settings.data.source_lang or "", settings.data.target_lang)], strict=True)
    source_lang, target_lang = (", ".join(dict.fromkeys(each)) for each in languages)
    words, expected = int(measured.bleu.sums[:, 0].sum()), int(measured.bleu.sums[:, 1].sum())
    return EvaluationReport(
        format=1,
        name=name,
        run=settings.run.name,
        step=translator.step,
        checkpoint=str(translator.path),
        source_lang=source_lang,
        target_lang=target_lang,
        decoding=asdict(settings.decoding),
        cleaning=cleaning(settings.data),
        pairs=len(pairs),
        length_ratio=words / max(1, expected),
        figures=measured.figures,
        copied=copied.figures,
        against=compare(earlier.name, measured, Measured.of(before, references, tokenize)) if earlier else None,
        directions=[bucket(str(direction), which, measured) for direction, which in directions.items()],
        lengths=buckets(LENGTHS, [row.tokens for row in rows], measured),
        unknown=buckets(UNKNOWN, [row.unknown for row in rows], measured),
        alarms=find_alarms(
            [replace(row, source=untagged(row.source, settings.data)) for row in rows], measured, copied
        ),
        worst=[i + 1 for i in sorted(range(len(rows)), key=lambda i: rows[i].chrf)[:WORST]],
        sentences=rows,
    )


def row_of(i: int, source: str, reference: str, result: Translation, measured: Measured) -> Row:
    """What there is to tell of sentence i."""
    return Row(
        source,
        reference,
        translation=result.text,
        chrf=measured.chrf.score([i]),
        tokens=sum(len(sentence.ids) for sentence in result.sentences),
        unknown=sum(len(sentence.unknown) for sentence in result.sentences),
        complete=all(sentence.candidates[0].complete for sentence in result.sentences),
        words=int(measured.bleu.sums[i, 0]),
        reference_words=int(measured.bleu.sums[i, 1]),
    )


def cleaning(data: DataConfig) -> dict[str, Any]:
    """The settings that say how text is cleaned, which scores depend on."""
    return {"lowercase": data.lowercase, "normalize": data.normalize}


def check_pairs(pairs: Sequence[Pair], name: str, earlier: Earlier | None) -> list[str]:
    """The earlier translations of the pairs, if any. Raises DataError as `examine` does."""
    if not pairs:
        raise DataError(f"there are no {name} pairs: name others (--split, --data).")
    return earlier.translations(pairs) if earlier else []


def buckets(firsts: Sequence[int], values: Sequence[int], measured: Measured) -> list[Bucket]:
    """The sentences parted by a value of each; a bucket goes from one of firsts to before the next."""
    found = []
    for first, after in zip(firsts, [*firsts[1:], None], strict=True):
        members = [
            i for i, value in enumerate(values) if max(value, firsts[0]) >= first and (after is None or value < after)
        ]
        name = f"{first}+" if after is None else str(first) if after == first + 1 else f"{first}-{after - 1}"
        if members:
            found.append(bucket(name, members, measured))
    return found


def bucket(name: str, members: Sequence[int], measured: Measured) -> Bucket:
    """Some of the sentences, by their positions."""
    return Bucket(name, len(members), measured.bleu.score(members), measured.chrf.score(members))


def find_alarms(rows: Sequence[Row], measured: Measured, copied: Measured) -> list[Alarm]:
    """What is wrong with one translation in a hundred or more, or with all of them together."""
    split = measured.bleu.metric.tokenizer  # type: ignore[attr-defined]
    found: list[Alarm] = []

    def look_at(name: str, wrong: Sequence[bool], what: str) -> None:
        which = [i for i, bad in enumerate(wrong, 1) if bad]
        if which and len(which) >= SHARE * len(rows):
            text = f"{len(which):,} of {len(rows):,} translations ({len(which) / len(rows):.1%}): {what}"
            found.append(Alarm(name, text, which[:20]))

    look_at("empty", [not row.translation for row in rows], "empty.")
    look_at(
        "repeated",
        # [UNK] is an alarm of its own; as a mark it does not count here.
        [has_loop(split(row.translation.replace("[UNK]", "?"))) and not has_loop(split(row.reference)) for row in rows],
        "the same words three times in a row or more, but not in the reference. So speaks a model that has learnt too "
        "little, or that never saw such sentences.",
    )
    look_at(
        "cut",
        [not row.complete for row in rows],
        "cut off at the limit of length. If they do not merely repeat themselves, raise decoding.max_length or "
        "decoding.max_ratio.",
    )
    same: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        same[row.translation].append(i)
    most = max(same.values(), key=lambda which: len({rows[i].reference for i in which}))
    others = len({rows[i].reference for i in most})
    if rows[most[0]].translation and others >= max(3, SHARE * len(rows)):
        text = f"{len(most):,} sources with {others:,} different references are all translated by the same words."
        found.append(Alarm("same", text, [i + 1 for i in most[:20]]))
    look_at(
        "untranslated",
        [row.translation == row.source != row.reference for row in rows],
        "the source again, but not in the reference. Are there untranslated pairs in the training data?",
    )
    look_at(
        "unknown",
        ["[UNK]" in row.translation and "[UNK]" not in row.source for row in rows],
        "with [UNK] in place of a word. decoding.unknown copy takes the source's word; a new run with tokenizer.kind "
        "bpe has no unknown words.",
    )
    words, expected = sum(row.words for row in rows), sum(row.reference_words for row in rows)
    if not RATIO[0] <= words / max(1, expected) <= RATIO[1]:
        wrong, right, turn = ("short", "longer", "higher") if words < expected else ("long", "shorter", "lower")
        text = (
            f"The translations have {words:,} words and the references {expected:,}: much too {wrong}. "
            f"In beam search, a {turn} decoding.length_penalty favours {right} ones."
        )
        found.append(Alarm("length", text, []))
    ours, nothing = measured.chrf.score(), copied.chrf.score()
    if ours <= nothing:
        text = (
            f"No better than no translation at all: chrF is {ours:.1f}, and {nothing:.1f} for the sources themselves."
        )
        found.append(Alarm("useless", text, []))
    return found


# ------------------------------------------------------------------------------------------------ showing and saving


def report_lines(report: EvaluationReport) -> list[str]:
    """The report as text for a terminal, at most 100 columns wide."""
    search = _changed(report.decoding, settings_module.DecodingConfig()) or ["default search"]
    settings = ", ".join(search + _changed(report.cleaning, AS_WRITTEN))
    title = (
        f"{report.run}, step {report.step}, {report.source_lang} to {report.target_lang}: "
        f"{report.pairs:,} {report.name} pair{'s' * (report.pairs != 1)}; {settings}"
    )
    found = [*textwrap.wrap(visible(title), 100), ""]

    table = [["", "score", "95 % interval", "source copied"]]
    for figure, copy in zip(report.figures, report.copied, strict=True):
        between = "" if figure.low is None else f"{figure.low:.2f} to {figure.high:.2f}"
        table.append([figure.name, f"{figure.score:.2f}", between, f"{copy.score:.2f}"])
    found += _aligned(table)
    found += ["BLEU and chrF: more is better; TER, WER, CER (edits per 100 of the reference): less is.", ""]

    if report.against:
        found += [*textwrap.wrap(visible(f"against {report.against.name}:"), 100)]
        table = [["", "there", "difference", "95 % interval", "p"]]
        for figure, each in zip(report.against.figures, report.against.differences, strict=False):
            between = f"{each.low:+.2f} to {each.high:+.2f}"
            p = "< 0.001" if each.p < 0.001 else f"{each.p:.3f}"
            table.append([each.name, f"{figure.score:.2f}", f"{each.difference:+.2f}", between, p])
        found += [*_aligned(table), ""]

    parted = (
        ("direction", report.directions),
        ("source tokens", report.lengths),
        ("unknown source words", report.unknown),
    )
    for label, parts in (each for each in parted if each[1]):
        table = [[label, "pairs", "BLEU", "chrF"]]
        table += [[part.name, f"{part.pairs:,}", f"{part.bleu:.2f}", f"{part.chrf:.2f}"] for part in parts]
        found += [*_aligned(table), ""]

    found += ["the worst by chrF (the report shows more):"]
    for i in report.worst[:3]:
        row = report.sentences[i - 1]
        texts = (f"{i:>6}  {row.source}", f"     =  {row.reference}", f"{row.chrf:6.1f}  {row.translation}")
        found += [shorten(visible(text), 100) for text in texts]
    found += [""]

    found += [*(f"{figure.name:6}{figure.signature}" for figure in report.figures), ""]
    for alarm in report.alarms:
        which = f" Sentence {', '.join(map(str, alarm.sentences[:5]))}." if alarm.sentences else ""
        found += textwrap.wrap(f"alarm: {alarm.text}{which}", 100, subsequent_indent="       ")
    found += [] if report.alarms else ["no alarm"]
    return found


def _changed(settings: dict[str, Any], defaults: settings_module.Section) -> list[str]:
    """Those that do not have their default, with their values."""
    usual = asdict(defaults)
    return [f"{key} {page.written(value)}" for key, value in settings.items() if value != usual.get(key)]


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines, the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(map(fit, row, widths, "<" + ">" * len(row))) for row in table]


def write_report(report: EvaluationReport, folder: Path, name: str) -> None:
    """Save a report as <name>.json, <name>.html and <name>.tsv in a folder, each whole or not at all.

    The rows of the TSV are source, reference and translation. Raises OSError if they cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    values = asdict(report)
    rows = [(row.source, row.reference, row.translation) for row in report.sentences]
    files = {
        "tsv": "".join("\t".join(map(clean, row)) + "\n" for row in rows).encode(),
        "html": page.evaluation(values).encode(),
        "json": serialization.json_bytes(values),
    }
    for ending, data in files.items():
        storage.replace_durably(folder / f"{name}.{ending}", data)


# ----------------------------------------------------------------------------------------------------- command line


def read_pairs(path: Path, data: DataConfig = AS_WRITTEN) -> list[Pair]:
    """The pairs that a run has kept, as <run>/data/<split>.tsv, cleaned for a run with these settings.

    Raises DataError.
    """
    return [(cleaned_source(source, data), clean(reference, data)) for source, reference in _rows(path, 2)]


def cleaned_source(text: str, data: DataConfig) -> str:
    """A source cleaned for a run with these settings; its tag, which may have capitals, stays what it is."""
    direction, rest = split_tag(text) if data.several else (None, text)
    return tagged(clean(rest, data), direction) if direction else clean(text, data)


def read_data(name: str, translator: Translator) -> list[Pair]:
    """Other pairs, found, read and cleaned as data.test is in training. Raises DataError."""
    data = replace(translator.config.data, test=name, config=None, revision=None, on_bad_line="error")
    try:
        return read_split("test", find_named("test", data, name), data)
    except DataError as error:
        raise DataError(str(error).replace("data.test", "--data")) from error


def asked_for(
    pairs: Sequence[Pair], name: str, translator: Translator, options: argparse.Namespace
) -> tuple[str, list[Pair]]:
    """The pairs of the directions that are asked for, and what to call them. Raises ConfigError for others."""
    translator.request("", options.to or "", options.source or "")
    sources = [source for source, _ in pairs]
    directions = directions_of(sources, translator.config.data) or {translator.usual: list(range(len(pairs)))}
    found = sorted(
        i
        for direction, which in directions.items()
        if options.to in (None, direction.target) and options.source in (None, direction.source)
        for i in which
    )
    name += f"-from-{options.source}" if options.source else ""
    return name + (f"-to-{options.to}" if options.to else ""), [pairs[i] for i in found]


def read_earlier(path: Path, name: str, whole: str = "") -> Earlier:
    """The translations of a run (its report of that name), of a report's JSON, or of a TSV such as beside it.

    A run of one direction has the report on the whole where one of several has one of that name.

    Raises DataError.
    """
    if path.is_dir():
        file = path / "report" / f"{name}.json"
        if not file.is_file():
            file = file.with_name(f"{whole or name}.json")
        if not file.is_file():
            raise DataError(f"there is no {file}: make it first, with {resources.command('evaluate')} --run {path}.")
        path = file
    if path.suffix != ".json":
        return Earlier(str(path), [(a, b, c) for a, b, c in _rows(path, 3)])
    try:
        values = json.loads(_read(path))
        rows = [(row["source"], row["reference"], row["translation"]) for row in values["sentences"]]
        if not all(isinstance(text, str) for row in rows for text in row):
            raise TypeError("a sentence is not text")
        return Earlier(f"{values['run']}, step {values['step']}", rows)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is no report of evaluate.py ({error}).") from error


def _rows(path: Path, cells: int) -> list[list[str]]:
    rows = []
    for number, line in enumerate(_read(path).removesuffix(b"\n").split(b"\n"), 1):
        row = decode_line(line, str(path), number).split("\t")
        if len(row) != cells and row != [""]:
            raise DataError(f"{path}:{number}: {len(row)} columns, but there must be {cells}, parted by tabs.")
        rows += [row] if row != [""] else []
    return rows


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error


def named(data: str) -> str:
    """What the report on pairs is called by: two languages' files, newstest.2014.en and .de, have no suffix to lose."""
    path = Path(data)
    return path.stem if path.is_file() else path.name


def main(options: argparse.Namespace) -> None:
    """Evaluate what the command line names."""
    tune_device(choose_device(options.device))
    weights: list[Path] = options.checkpoint or [options.run or newest_run()]
    home: Path | None = options.run or (None if options.checkpoint else weights[0])
    translator = Translator(weights, options.device, options.overrides)
    if translator.config.is_language_model:
        raise DataError("a language model translates nothing that could be scored: result.json has its perplexity.")
    if options.data:
        name, pairs = f"data-{named(options.data)}", read_data(options.data, translator)
    else:
        # A checkpoint lies in runs/<name>/checkpoints/ unless it was moved.
        place = (home or weights[0].absolute().parent.parent) / "data" / f"{options.split}.tsv"
        if not place.exists():
            raise DataError(f"there is no {place}: name the pairs to translate with --data.")
        name, pairs = options.split, read_pairs(place, translator.config.data)
    whole = name
    if options.to or options.source:
        name, pairs = asked_for(pairs, name, translator, options)
    earlier = read_earlier(options.against, name, whole) if options.against else None
    if earlier:  # a file of anybody's may hold what a report no longer does
        earlier = earlier.cleaned(translator.config.data)
    check_pairs(pairs, name, earlier)
    folder: Path | None = options.output
    if not folder and home and not options.checkpoint:
        folder = home / "report"
    if folder:
        folder.mkdir(parents=True, exist_ok=True)  # what cannot be written is told before the long work
    with tqdm(total=len(pairs), unit="sentence", dynamic_ncols=True, disable=None, leave=False) as bar:
        report = evaluate(translator, pairs, translator.config.data.bleu_tokenize, name, earlier, bar.update)
    if options.checkpoint:
        report = replace(report, checkpoint=" + ".join(map(str, weights)))
    if options.json:
        text = serialization.json_bytes(asdict(report))
    else:
        text = "".join(f"{line}\n" for line in report_lines(report)).encode()
    if folder:
        write_report(report, folder, name)
        console.warn(f"the report is in {folder / name}.html, .json and .tsv")
    sys.stdout.buffer.write(text)
    sys.stdout.buffer.flush()
