"""Measure the effect of a glossary on the translations of a run.

    python benchmarks/glossary.py --run runs/multi30k-en-de
    python benchmarks/glossary.py --run runs/multi30k-en-de --split test

Each sentence gets a glossary of one term. Its source is a word that occurs once in the source sentence. Its target is,
in turn,

- a word that occurs once in the reference. Words count as translations of each other if they often share a training
  pair: their Dice coefficient, 2 n(both) / (n(one) + n(other)), is at least 0.25, and they share 5 pairs or more.
- a made-up name, which no model would write.

Each is translated without the glossary and with it. `rest` is the chrF without the term: its target (without a
glossary, the word of the reference) is removed from the translation, and the word of the reference from the reference.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import common  # it puts the repository on sys.path
import numpy as np

from dragoman.dataset import EncodedSide
from dragoman.device import choose_device, describe_device, tune_device
from dragoman.evaluation.metrics import Measurements, tokenization
from dragoman.translation.glossary import Glossary
from dragoman.translation.term_placement import missing_targets
from dragoman.translation.translator import Translator

LEAST_DICE, LEAST_PAIRS = 0.25, 5
MOST_FREQUENT = 0.05  # of the training sentences: more frequent words are not terms
NAMES = ("Zorvax", "Klimpo", "Brunella 300", "Tavistor", "Xeno-Pax", "Mirandol")


class Case(NamedTuple):
    """A sentence pair, and a word of each side that translates the other."""

    source: str
    reference: str
    word: str
    translation: str


def words(text: str) -> list[str]:
    """The words of a text with three letters or more."""
    return re.findall(r"\w{3,}", text)


def training_text(run: Path, translator: Translator) -> list[tuple[str, str]]:
    """The training pairs of a run."""
    sides = []
    for name, tokenizer in (("source", translator.source), ("target", translator.target)):
        ids, offsets = (np.load(run / "data" / f"train.{name}{kind}.npy") for kind in ("", ".offsets"))
        side = EncodedSide(ids, offsets)
        texts = [side.ids[a:b].tolist() for a, b in zip(side.offsets, side.offsets[1:], strict=False)]
        sides.append(tokenizer.decode_batch(texts))
    return list(zip(*sides, strict=True))


def lexicon(pairs: Sequence[tuple[str, str]]) -> dict[str, set[str]]:
    """From each source word, in lower case, to the words that often share a pair with it."""
    sources: Counter[str] = Counter()
    targets: Counter[str] = Counter()
    both: Counter[tuple[str, str]] = Counter()
    for source, target in pairs:
        ours, theirs = set(words(source.lower())), set(words(target))
        sources.update(ours)
        targets.update(theirs)
        both.update((one, other) for one in ours for other in theirs)
    found: dict[str, set[str]] = defaultdict(set)
    for (one, other), count in both.items():
        rare = sources[one] <= MOST_FREQUENT * len(pairs)
        if rare and count >= LEAST_PAIRS and 2 * count >= LEAST_DICE * (sources[one] + targets[other]):
            found[one].add(other)
    return found


def make_cases(pairs: Sequence[tuple[str, str]], known: dict[str, set[str]], count: int) -> list[Case]:
    """Draw sentences and words, each source word at most once."""
    draw = random.Random(1)
    found: dict[str, Case] = {}
    for source, reference in draw.sample(pairs, len(pairs)):
        ours, theirs = Counter(words(source.lower())), Counter(words(reference))
        options = [
            (one, other)
            for one in ours
            if ours[one] == 1 and one not in found
            for other in sorted(known.get(one, set()))
            if theirs[other] == 1
        ]
        if options:
            one, other = draw.choice(options)
            found[one] = Case(source, reference, one, other)
    return list(found.values())[:count]


def without(text: str, word: str) -> str:
    """A text without a word."""
    return " ".join(re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "", text, flags=re.IGNORECASE).split())


def row(translator: Translator, cases: Sequence[Case], targets: Sequence[str], with_glossary: bool) -> str:
    """Translate with the glossary or without, and format the figures."""
    started = time.perf_counter()
    texts = translator.translate(
        [
            (translator.with_glossary({case.word: target}) if with_glossary else translator).request(case.source)
            for case, target in zip(cases, targets, strict=True)
        ]
    )
    seconds = time.perf_counter() - started
    terms = [Glossary({case.word: target}).find(case.source) for case, target in zip(cases, targets, strict=True)]
    placed = sum(not missing_targets(each, text) for each, text in zip(terms, texts, strict=True))
    tokenize = tokenization(translator.config.data, translator.config.data.target_lang)
    whole = Measurements(texts, [case.reference for case in cases], tokenize)
    removed = targets if with_glossary else [case.translation for case in cases]
    rest = Measurements(
        [without(text, word) for text, word in zip(texts, removed, strict=True)],
        [without(case.reference, case.translation) for case in cases],
        tokenize,
    )
    way = "glossary" if with_glossary else "no glossary"
    bleu, chrf, rest_chrf = whole.bleu.score(), whole.chrf.score(), rest.chrf.score()
    return f"{way:15}{placed / len(cases):8.1%}{bleu:8.2f}{chrf:8.2f}{rest_chrf:8.2f}{seconds:9.1f}"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Measure what a glossary does to translations.")
    parser.add_argument("--run", type=Path, required=True, metavar="DIR")
    parser.add_argument("--split", choices=("validation", "test"), default="validation")
    parser.add_argument("--terms", type=int, default=200, help="most terms, one for each sentence (default: 200)")
    parser.add_argument("--beam_size", type=int, default=1)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    device = choose_device(options.device)
    tune_device(device)
    translator = Translator(options.run, options.device).with_decoding(beam_size=options.beam_size, n_best=1)
    lines = (options.run / "data" / f"{options.split}.tsv").read_text(encoding="utf-8").split("\n")[:-1]
    pairs = [(source, reference) for source, reference in (line.split("\t") for line in lines)]
    cases = make_cases(pairs, lexicon(training_text(options.run, translator)), options.terms)
    if not cases:
        common.fail("no word of these sentences has a known translation in its reference: the corpus is too small.")
    translator.translate([case.source for case in cases])  # untimed: it makes the engine
    print(
        f"{describe_device(device, translator.trained.dtype)}\n{len(cases)} terms in {options.run}, {options.split}\n"
    )
    print(f"{'target':16}{'way':15}{'placed':>8}{'BLEU':>8}{'chrF':>8}{'rest':>8}{'seconds':>9}")
    made_up = [NAMES[i % len(NAMES)] for i in range(len(cases))]
    for name, targets in (("of a reference", [case.translation for case in cases]), ("made up", made_up)):
        for with_glossary in (False, True):
            print(f"{name:16}{row(translator, cases, targets, with_glossary)}")


if __name__ == "__main__":
    main()
