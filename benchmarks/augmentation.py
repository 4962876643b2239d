"""Capitals, missing final marks and typos: read as the training text is written, or added to the training text.

    python benchmarks/augmentation.py text --data corpus/train --languages en de --passes 8 --output /scratch/augmented
    python train.py --data.train /scratch/augmented/train --training.max_epochs 1 --run.name augmented ...
    python benchmarks/augmentation.py table runs/plain runs/augmented

The text holds as many passes over the corpus as are asked for, each pair of each pass drawn anew: most as they are, and
a share of them changed on both sides (CAPITALS, Title Case, lower case, no final mark), or with a typo in the source.
Train on it for one pass, and on the corpus for as many as it holds.

The table has the scores of "typed differently" on the validation pairs of each run, with `decoding.tolerant` and
without.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import common  # noqa: F401  # it sets sys.path

from dragoman.dataset import Pair
from dragoman.evaluation.typed_differently import title, typed_differently, with_typo, without_mark
from dragoman.text.letter_case import lower, upper
from dragoman.translation.translator import Translator

BOTH_SIDES = (upper, title, lower, without_mark)


def changed(pair: Pair, languages: list[str], draw: random.Random) -> Pair:
    """A pair as somebody else would have typed it."""
    source, target = pair
    way = draw.randrange(len(BOTH_SIDES) + 1)
    if way == len(BOTH_SIDES):
        return with_typo(source, draw), target
    return BOTH_SIDES[way](source, languages[0]), BOTH_SIDES[way](target, languages[1])


def write_text(data: str, languages: list[str], passes: int, share: float, seed: int, output: Path) -> None:
    """Write the passes one after the other, as parallel text."""
    sides = [Path(f"{data}.{language}").read_text(encoding="utf-8").splitlines() for language in languages]
    output.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    pairs = [
        changed(pair, languages, draw) if draw.random() < share else pair
        for _ in range(passes)
        for pair in zip(*sides, strict=True)
    ]
    for language, side in zip(languages, zip(*pairs, strict=True), strict=True):
        (output / f"train.{language}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")


def print_table(runs: list[Path]) -> None:
    """Print a row for each way of typing, and two columns for each run."""
    columns, names = [], []
    for run in runs:
        lines = (run / "data" / "validation.tsv").read_text(encoding="utf-8").splitlines()
        pairs = [(source, target) for source, target in (line.split("\t")[:2] for line in lines)]
        for tolerant in (True, False):
            names.append(f"{run.name}, tolerant" if tolerant else run.name)
            columns.append(typed_differently(Translator(run).with_decoding(tolerant=tolerant), pairs))
    print("|".join(["", "", *(f" {name} " for name in names), ""]))
    print("|".join(["", *[" --- "] * (len(names) + 1), ""]))
    for row in zip(*columns, strict=True):
        print("|".join(["", f" {row[0].name} ", *(f" {cell.bleu:.2f} " for cell in row), ""]))


def main() -> None:
    """Write the text, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    text = commands.add_parser("text", help="write an augmented corpus")
    text.add_argument("--data", required=True, help="the corpus: PREFIX of PREFIX.en and PREFIX.de")
    text.add_argument("--languages", nargs=2, required=True)
    text.add_argument("--passes", type=int, required=True)
    text.add_argument("--share", type=float, default=0.3, help="of the pairs that are changed")
    text.add_argument("--seed", type=int, default=1)
    text.add_argument("--output", type=Path, required=True, help="folder for train.LANGUAGE")
    table = commands.add_parser("table", help="compare trained runs")
    table.add_argument("runs", nargs="+", type=Path, help="folders of runs")
    options = parser.parse_args()
    if options.command == "text":
        write_text(options.data, options.languages, options.passes, options.share, options.seed, options.output)
    else:
        print_table(options.runs)


if __name__ == "__main__":
    main()
