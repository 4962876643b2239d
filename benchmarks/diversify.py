"""Measure what data diversification gains (Nguyen et al. 2020): training on translations made by similar models.

    python benchmarks/diversify.py --config configs/multi30k-en-de.yaml --work /scratch/diverse --jobs 2 \
        --tests data/multi30k/test_2017_flickr --teachers 2 --backward 1 --model.preset small

Teachers train on the pairs of data.train, some in the direction of the config and some backward, each with its own
seed. Then they translate their own training text: forward teachers its sources, backward teachers its targets.
Students, one for each seed, train on the real pairs, --real times in each pass, and on all translations, once. With
--rounds, the students of a round are further teachers for new students, which start from new weights. Everything comes
from the training pairs, and the test sets are not used before the end.

Settings that follow change teachers and students. Those given as --teacher="--training.max_epochs 15 ..." and
--student="..." change only one of the two, for example the size of its model or the time of its training.

The table shows BLEU of teachers, each in its direction, and of students, greedy and with a beam of five, whose length
penalty is the one of PENALTIES with the best mean score on validation. The test sets are validation, the config's test
set, and those in --tests, named like data.test. The last rows have the mean and range of each round's students.
Finished runs and translations in --work are not made again, and interrupted runs are resumed.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from common import load_config, mean_and_range, train, write_texts

from dragoman.corpora import sources, splitting
from dragoman.evaluation.metrics import score, tokenization
from dragoman.settings import Config
from dragoman.translation.translator import Translator

PENALTIES = (1.0, 1.4)


@dataclass(frozen=True)
class Run:
    """A training: the name of its run and its own settings."""

    name: str
    settings: list[str]


def main() -> None:
    """Make the runs and translations that are missing, and print a table."""
    parser = argparse.ArgumentParser(description="Measure what translations by similar models gain.")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder for texts and runs")
    parser.add_argument("--teachers", type=int, default=2, help="teachers in the direction of the config")
    parser.add_argument("--backward", type=int, default=1, help="teachers in the other direction")
    parser.add_argument("--real", type=float, default=2.0, help="times that a student sees each real pair in a pass")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3], help="of the students; none: teachers only")
    parser.add_argument("--rounds", type=int, default=1, help="rounds of students, each of which teaches the next")
    parser.add_argument("--teacher", default="", metavar="SETTINGS", help="of the teachers only")
    parser.add_argument("--student", default="", metavar="SETTINGS", help="of the students only")
    parser.add_argument("--tests", nargs="*", default=[], help="further test sets")
    parser.add_argument("--jobs", type=int, default=1, help="simultaneous runs, which share the processors")
    options, options.settings = parser.parse_known_args()
    options.teacher, options.student = shlex.split(options.teacher), shlex.split(options.student)
    config = load_config(parser, options.config, options.settings)
    for settings in (options.teacher, options.student):
        load_config(parser, options.config, [*options.settings, *settings])
    if config.is_language_model or config.data.directions or not (config.data.test or config.data.test_fraction):
        parser.error(f"{options.config} must translate from one language into another and have a test set")
    options.work = options.work.resolve()
    languages = str(config.data.source_lang), config.data.target_lang
    found = sources.find_sources(config.data)
    pairs = {split: splitting.read_split(split, found, config.data) for split in sources.SPLITS}
    write_texts(options.work / "text", pairs, languages)
    teachers, rounds = train_all(options, languages)
    print("\n".join(table(options, config, teachers, rounds)))


def train_all(options: argparse.Namespace, languages: tuple[str, str]) -> tuple[list[str], list[list[str]]]:
    """Train the teachers, then round after round of students; return their names."""
    swapped = [f"--data.source_lang={languages[1]}", f"--data.target_lang={languages[0]}"]
    forward = [Run(f"forward-{i + 1}", [f"--run.seed={101 + i}"]) for i in range(options.teachers)]
    backward = [Run(f"backward-{i + 1}", [f"--run.seed={201 + i}", *swapped]) for i in range(options.backward)]
    real = options.work / "text" / "train"
    rounds: list[list[str]] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        teacher_runs = [
            replace(run, settings=[*run.settings, f"--data.train={real}", *options.teacher])
            for run in forward + backward
        ]
        list(pool.map(lambda run: train_run(options, run), teacher_runs))
        made = [
            translate(options, run.name, side, languages)
            for side, some in ((0, forward), (1, backward))
            for run in some
        ]
        while len(rounds) < options.rounds:
            if rounds:
                made += [translate(options, name, 0, languages) for name in rounds[-1]]
            mixture = " + ".join([f"{options.real:g} * {real}", *map(str, made)])
            settings = [f"--data.train={mixture}", *options.student]
            turn = f"round-{len(rounds) + 1}"
            student_runs = [Run(f"{turn}-student-{seed}", [f"--run.seed={seed}", *settings]) for seed in options.seeds]
            list(pool.map(lambda run: train_run(options, run), student_runs))
            rounds.append([run.name for run in student_runs])
    return [run.name for run in forward + backward], rounds


def train_run(options: argparse.Namespace, run: Run) -> None:
    """Train a run to its end, unless that is done."""
    text = options.work / "text"
    settings = [f"--data.validation={text / 'validation'}", f"--data.test={text / 'test'}"]
    print(f"{run.name}: see {options.work / run.name}.log", file=sys.stderr)
    train(options.work, run.name, options.config, [*settings, *options.settings, *run.settings], options.jobs)


def translate(options: argparse.Namespace, name: str, side: int, languages: tuple[str, str]) -> Path:
    """Let a run translate the real texts in languages[side]; return the new pairs, named like data.train.

    Empty translations are kept: reading the corpus drops such pairs.
    """
    folder = options.work / "text" / name
    given, made = (folder / f"train.{languages[each]}" for each in (side, 1 - side))
    if not made.exists():
        folder.mkdir(exist_ok=True)
        real = (options.work / "text" / f"train.{languages[side]}").read_text(encoding="utf-8")
        given.write_text(real, encoding="utf-8")
        search = Translator(options.work / name, "cpu").with_decoding(beam_size=5, split_sentences=False)
        found = search.translate(real.splitlines())
        scratch = made.with_suffix(".part")
        scratch.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
        scratch.replace(made)
    return folder / "train"


def table(
    options: argparse.Namespace, config: Config, teachers: Sequence[str], rounds: Sequence[Sequence[str]]
) -> list[str]:
    """Format a Markdown table with a row for each run, scored in its own direction."""
    languages = str(config.data.source_lang), config.data.target_lang
    sets = {split: options.work / "text" / split for split in ("validation", "test")}
    sets |= {Path(prefix).name: Path(prefix) for prefix in options.tests}
    texts = {
        name: {each: Path(f"{prefix}.{each}").read_text(encoding="utf-8").splitlines() for each in languages}
        for name, prefix in sets.items()
    }
    names = [*teachers, *(name for students in rounds for name in students)]
    translators = {name: Translator(options.work / name) for name in names}

    def bleu(name: str, texts: dict[str, list[str]], **search: float) -> float:
        side = translators[name].config.data
        found = translators[name].with_decoding(**search).translate(texts[str(side.source_lang)])
        return score(found, texts[side.target_lang], tokenization(config.data, side.target_lang)).bleu

    searches: dict[str, dict[str, float]] = {"greedy": {"beam_size": 1}}
    beams = [{"beam_size": 5, "length_penalty": penalty} for penalty in PENALTIES]
    suits = {str(beam): statistics.mean(bleu(name, texts["validation"], **beam) for name in names) for beam in beams}
    chosen = max(beams, key=lambda beam: suits[str(beam)])
    searches[f"beam 5, {chosen['length_penalty']:g}"] = chosen
    heads = [f"{which}, {search}" for which in texts for search in searches]
    lines = ["| run | parameters | " + " | ".join(heads) + " |", "| --- | --- |" + " --- |" * len(heads)]
    rows = {}
    for name in names:
        rows[name] = [bleu(name, some, **search) for some in texts.values() for search in searches.values()]
        size = sum(weight.numel() for weight in translators[name].model.parameters())
        lines.append(f"| {name} | {size / 1e6:.1f} M | " + " | ".join(f"{value:.2f}" for value in rows[name]) + " |")
    for turn, students in enumerate(rounds, 1):
        if len(students) > 1:
            cells = [mean_and_range(column) for column in zip(*(rows[name] for name in students), strict=True)]
            lines.append(f"| round {turn}, mean | | " + " | ".join(cells) + " |")
    language = config.data.target_lang
    references = texts["test"][language]
    return [*lines, "", score(references, references, tokenization(config.data, language)).signature]


if __name__ == "__main__":
    main()
