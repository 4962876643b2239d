"""Evaluate a translator on held-out pairs: scores with confidence intervals, alarms, and the worst sentences.

    dragoman evaluate                                                # the newest run, on its test pairs
    dragoman evaluate --run runs/wide --against runs/phrasebook      # is the difference significant?
    dragoman evaluate --run runs/wide --data letters.tsv --decoding.beam_size 5

    report = evaluate(Translator("runs/phrasebook"), pairs)

Scores go to standard output, messages to standard error.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from tqdm import tqdm

from dragoman import checkpoint, config_file, console, serialization
from dragoman.corpora.sources import DOWNLOADS
from dragoman.dataset import Pair, unzip_pairs
from dragoman.device import choose_device, tune_device
from dragoman.errors import DataError
from dragoman.evaluation.alarms import find_alarms, judged
from dragoman.evaluation.metrics import Measurements, compare
from dragoman.evaluation.pairs import EarlierTranslations, read_data, read_earlier, read_pairs
from dragoman.evaluation.per_direction import indices_by_direction, select_pairs, tokenizations
from dragoman.evaluation.report import Bucket, EvaluatedSentence, EvaluationReport, report_lines, write_report
from dragoman.settings import Config
from dragoman.translation.loading import usual_run
from dragoman.translation.results import Translation
from dragoman.translation.translator import Translator

LENGTH_BUCKETS = (1, 6, 11, 16, 21, 31)  # lower bounds, in source tokens
WORST = 20
GROUP = 1_000  # sources that are translated together


def evaluate(
    translator: Translator,
    pairs: Sequence[Pair],
    name: str = "test",
    earlier: Sequence[EarlierTranslations] = (),
    advance: Callable[[int], object] | None = None,
) -> EvaluationReport:
    """Translate the sources of cleaned pairs and measure the translations.

    Pairs must be cleaned as for the training of the translator: in lower case with data.lowercase, for example.

    Args:
        name: of the pairs, for the report
        earlier: translations of the same pairs by other translators, to compare with
        advance: called after each group of sources with their number

    Raises DataError if there are no pairs, or if the earlier translations are of other pairs.
    """
    earlier_translations = earlier_translations_of(pairs, name, earlier)
    sources, references = unzip_pairs(pairs)
    data = translator.config.data
    tokenize = tokenizations(sources, data)
    results: list[Translation] = []
    for start in range(0, len(sources), GROUP):
        results += translator.explain(sources[start : start + GROUP])
        if advance:
            advance(len(results) - start)
    measured = Measurements([result.text for result in results], references, tokenize)
    copied = Measurements([result.source for result in results], references, tokenize)
    sentences = [evaluated_sentence(i, *pairs[i], result, measured) for i, result in enumerate(results)]
    untagged = [replace(each, source=result.source) for each, result in zip(sentences, results, strict=True)]
    directions = indices_by_direction(sources, data)
    languages = zip(*directions or [(data.source_lang or "", data.target_lang)], strict=True)
    source_lang, target_lang = (", ".join(dict.fromkeys(each)) for each in languages)
    alarms = find_alarms(untagged, measured, copied, searches=translator.config.decoding.beam_size > 1)
    words, expected = int(measured.bleu.sums[:, 0].sum()), int(measured.bleu.sums[:, 1].sum())
    return EvaluationReport(
        format=2,
        name=name,
        run=translator.config.run.name,
        step=translator.step,
        checkpoint=str(translator.path),
        source_lang=source_lang,
        target_lang=target_lang,
        decoding=asdict(translator.config.decoding),
        cleaning={"lowercase": data.lowercase, "normalize": data.normalize},
        pairs=len(pairs),
        length_ratio=words / max(1, expected),
        figures=measured.figures,
        copied=copied.figures,
        against=[
            compare(other.name, measured, Measurements(translations, references, tokenize))
            for other, translations in zip(earlier, earlier_translations, strict=True)
        ],
        directions=[bucket(str(direction), which, measured) for direction, which in directions.items()],
        lengths=length_buckets([each.tokens for each in sentences], measured),
        alarms=judged(alarms, *run_so_far(translator), len(translator.target)),
        worst=[i + 1 for i in sorted(range(len(sentences)), key=lambda i: sentences[i].chrf)[:WORST]],
        sentences=sentences,
    )


def run_so_far(translator: Translator) -> tuple[Config, int]:
    """The settings of the run and its newest step, which may be newer than these (best) weights."""
    newest = checkpoint.newest(translator.path.parent, quarantine=False, warn=lambda _: None, only=["config.yaml"])
    if newest is None:  # the checkpoint has been copied, or is an average
        return translator.config, translator.step
    return config_file.loads(newest.files["config.yaml"], newest.path / "config.yaml"), newest.step


def earlier_translations_of(
    pairs: Sequence[Pair], name: str, earlier: Sequence[EarlierTranslations]
) -> list[list[str]]:
    """The earlier translations of the pairs, by each translator. Raises DataError as `evaluate` does."""
    if not pairs:
        raise DataError(f"there are no {name} pairs: choose others with --split or --data.")
    return [other.for_pairs(pairs) for other in earlier]


def evaluated_sentence(
    i: int, source: str, reference: str, result: Translation, measured: Measurements
) -> EvaluatedSentence:
    """The entry of sentence i in the report."""
    return EvaluatedSentence(
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


def length_buckets(lengths: Sequence[int], measured: Measurements) -> list[Bucket]:
    """Group the sentences by their number of source tokens. An empty source counts as the shortest."""
    groups = []
    for low, end in zip(LENGTH_BUCKETS, [*LENGTH_BUCKETS[1:], None], strict=True):
        members = [i for i, length in enumerate(lengths) if max(length, 1) >= low and (end is None or length < end)]
        if members:
            groups.append(bucket(f"{low}-{end - 1}" if end else f"{low}+", members, measured))
    return groups


def bucket(name: str, members: Sequence[int], measured: Measurements) -> Bucket:
    """Score the sentences with these indices."""
    return Bucket(name, len(members), measured.bleu.score(members), measured.chrf.score(members))


def main(options: argparse.Namespace) -> None:
    """Evaluate as the command line says. Raises DragomanError, and OSError if the report cannot be written."""
    tune_device(choose_device(options.device))
    weights: list[Path] = options.checkpoint or [options.run or usual_run()]
    run: Path | None = options.run or (None if options.checkpoint else weights[0])
    translator = Translator(weights, options.device, options.overrides)
    data = translator.config.data
    if translator.config.is_language_model:
        raise DataError("a language model does not translate: its perplexity is in result.json of its run.")
    # A checkpoint is in <run>/checkpoints/ or, if it is an average, in <run>, unless it was moved.
    parents = translator.path.absolute().parents
    name, pairs = named_pairs(options, [run] if run else [parents[1], parents[0]], translator)
    all_directions = name
    if options.to or options.source:
        pairs = select_pairs(pairs, translator, options.to, options.source)
        name += f"-from-{options.source}" if options.source else ""
        name += f"-to-{options.to}" if options.to else ""
    chosen = f" --data {shlex.quote(options.data)}" if options.data else f" --split {options.split}"
    earlier = [read_earlier(other, name, all_directions, chosen).cleaned(data) for other in options.against]
    earlier_translations_of(pairs, name, earlier)  # fails here rather than after the long work
    folder: Path | None = options.output or (run / "report" if run and not options.checkpoint else None)
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    with tqdm(total=len(pairs), unit="sentence", dynamic_ncols=True, disable=None, leave=False) as bar:
        report = evaluate(translator, pairs, name, earlier, bar.update)
    if options.checkpoint:
        report = replace(report, checkpoint=" + ".join(map(str, weights)))
    if folder:
        write_report(report, folder, name)
        console.warn(f"wrote the report to {folder / name}.html, .json and .tsv")
    lines = "".join(f"{line}\n" for line in report_lines(report)).encode()
    sys.stdout.buffer.write(serialization.json_bytes(asdict(report)) if options.json else lines)
    sys.stdout.buffer.flush()


def named_pairs(options: argparse.Namespace, runs: Sequence[Path], translator: Translator) -> tuple[str, list[Pair]]:
    """The pairs of --data or --split, and their name in the report. Those of the first of `runs` that has such pairs.

    Raises DataError.
    """
    data = translator.config.data
    if options.data:
        path = Path(options.data)
        # Two files, newstest.2014.en and .de, are named without their suffix already.
        name = path.stem if path.is_file() else path.name
        if options.data.partition(":")[0] in DOWNLOADS:
            name = re.sub("[:/]", "-", options.data)
        return f"data-{name}", read_data(options.data, data)
    paths = [run / "data" / f"{options.split}.tsv" for run in runs]
    path = next(filter(Path.exists, paths), None)
    if path is None:
        raise DataError(f"{paths[0]} does not exist: choose the pairs to translate with --data.")
    return options.split, read_pairs(path, data)
