"""What a model gains from translations made by models of its kind: data diversification (Nguyen et al. 2020), measured.

    python benchmarks/diversify.py --config configs/multi30k-en-de.yaml --work /scratch/diverse --jobs 2 \
        --tests data/multi30k/test_2017_flickr --teachers 2 --backward 1 --model.preset small

Teachers learn the pairs of data.train: some in the direction of the config, some backwards, each with its own seed.
They translate what they have learnt from, the forward ones its sources, the backward ones its targets. Students, by the
seeds that are asked for, then learn from the real pairs, --real times in each pass, and from all that was made, once.
In a further round (--rounds) the students are teachers too, and new ones begin, from nothing, with what they add.
Nothing comes from outside these pairs, and no sentence of the test sets is looked at before the end.

Settings that follow change teachers and students alike; those given as --teacher="--training.max_epochs 15 ..." and
--student="..." change one of the two, which may so have a size or a time of its own.

The table: BLEU of teachers, each in its direction, and of students, greedy and with a beam of five, whose length
penalty is the one of PENALTIES that suits the validation pairs best on average; of validation, of the config's own test
set and of those in --tests, which are named like data.test. Below, mean and range of each round's students. A run or
translation that --work holds is not made again, and a run that was cut short goes on.
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

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)
sys.path.append(str(ROOT / "benchmarks"))

import trainings

from dragoman.corpora import sources, splitting
from dragoman.evaluation.metrics import score
from dragoman.settings import Config
from dragoman.translation.translator import Translator

PENALTIES = (1.0, 1.4)


@dataclass(frozen=True)
class Run:
    """A training."""

    name: str
    settings: list[str]


def main() -> None:
    """Make what is not there yet, and print a table."""
    parser = argparse.ArgumentParser(description="Measure what translations by a model's own kind are worth to it.")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder of texts and runs")
    parser.add_argument("--teachers", type=int, default=2, help="in the direction of the config")
    parser.add_argument("--backward", type=int, default=1, help="teachers in the other direction")
    parser.add_argument("--real", type=float, default=2.0, help="how often a student sees each real pair in a pass")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3], help="of the students; none: teachers alone")
    parser.add_argument("--rounds", type=int, default=1, help="of students, each of which teaches the next")
    parser.add_argument("--teacher", default="", metavar="SETTINGS", help="of the teachers alone")
    parser.add_argument("--student", default="", metavar="SETTINGS", help="of the students alone")
    parser.add_argument("--tests", nargs="*", default=[], help="further test sets")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, which share the processors")
    options, options.settings = parser.parse_known_args()
    options.teacher, options.student = shlex.split(options.teacher), shlex.split(options.student)
    config = trainings.configured(parser, options.config, options.settings)
    for settings in (options.teacher, options.student):
        trainings.configured(parser, options.config, [*options.settings, *settings])
    if config.is_language_model or config.data.directions or not (config.data.test or config.data.test_fraction):
        parser.error(f"{options.config} is not of one language into another, with a test set")
    options.work = options.work.resolve()
    languages = str(config.data.source_lang), config.data.target_lang
    pairs, _, _ = splitting.read_corpus(sources.find_sources(config.data), config.data)
    trainings.write_texts(options.work / "text", pairs, languages)
    teachers, rounds = taught(options, languages)
    print("\n".join(table(options, config, teachers, rounds)))


def taught(options: argparse.Namespace, languages: tuple[str, str]) -> tuple[list[str], list[list[str]]]:
    """Train teachers, and round by round their students; return their names."""
    swapped = [f"--data.source_lang={languages[1]}", f"--data.target_lang={languages[0]}"]
    forward = [Run(f"forward-{i + 1}", [f"--run.seed={101 + i}"]) for i in range(options.teachers)]
    backward = [Run(f"backward-{i + 1}", [f"--run.seed={201 + i}", *swapped]) for i in range(options.backward)]
    real = options.work / "text" / "train"
    rounds: list[list[str]] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        teach = [
            replace(run, settings=[*run.settings, f"--data.train={real}", *options.teacher])
            for run in forward + backward
        ]
        list(pool.map(lambda run: trained(options, run), teach))
        made = [
            translated(options, run.name, side, languages)
            for side, some in ((0, forward), (1, backward))
            for run in some
        ]
        while len(rounds) < options.rounds:
            if rounds:
                made += [translated(options, name, 0, languages) for name in rounds[-1]]
            mixture = " + ".join([f"{options.real:g} * {real}", *map(str, made)])
            settings = [f"--data.train={mixture}", *options.student]
            turn = f"round-{len(rounds) + 1}"
            learn = [Run(f"{turn}-student-{seed}", [f"--run.seed={seed}", *settings]) for seed in options.seeds]
            list(pool.map(lambda run: trained(options, run), learn))
            rounds.append([run.name for run in learn])
    return [run.name for run in forward + backward], rounds


def trained(options: argparse.Namespace, run: Run) -> None:
    """Train a run to its end, unless it is there."""
    text = options.work / "text"
    settings = [f"--data.validation={text / 'validation'}", f"--data.test={text / 'test'}"]
    print(f"{run.name}: see {options.work / run.name}.log", file=sys.stderr, flush=True)
    trainings.train(options.work, run.name, options.config, [*settings, *options.settings, *run.settings], options.jobs)


def translated(options: argparse.Namespace, name: str, side: int, languages: tuple[str, str]) -> Path:
    """Translate one side of the real pairs, and return the pairs of it, named like data.train.

    What is read is in languages[side]; a sentence that came out empty is left as it is: a corpus drops it as a pair.
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
    """A Markdown table, a row for each run, in the direction in which it translates."""
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
        return score(found, texts[side.target_lang], config.data.bleu_tokenize).bleu

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
            columns = zip(*(rows[name] for name in students), strict=True)
            cells = [
                f"{statistics.mean(column):.2f} [{min(column):.2f}, {max(column):.2f}]" for column in map(list, columns)
            ]
            lines.append(f"| round {turn}, mean | | " + " | ".join(cells) + " |")
    references = texts["test"][config.data.target_lang]
    return [*lines, "", score(references, references, config.data.bleu_tokenize).signature]


if __name__ == "__main__":
    main()
