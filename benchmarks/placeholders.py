"""What passes through a translation unharmed: addresses, code, placeholders, handles, paths, emoji, quantities, names.

    python benchmarks/placeholders.py runs/phrasebook runs/multi30k

The sentences are those of the validation split of each run, with one to three literals put in place of a word or added
at an end. A literal is unharmed if it stands in the translation exactly once, letter for letter, and touches no letter
or digit. Names are made up, so that no vocabulary of whole words knows them, and take the place of a capitalized word.
The last row counts the sentences for which the model itself wrote each placeholder once: in the others, the alignment
had to say where a literal belongs, and it may stand in a rough place.
"""

from __future__ import annotations

import argparse
import random
import re
import string
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import common  # noqa: F401  # it sets sys.path

from dragoman.translation.placeholders import as_target, restore_exactly
from dragoman.translation.results import Sentence
from dragoman.translation.translator import Translator

NAMES = "name"
ALONE = "without repair"


def letters(draw: random.Random, least: int = 3, most: int = 8) -> str:
    """A word that means nothing."""
    return "".join(draw.choices(string.ascii_lowercase, k=draw.randint(least, most)))


def name(draw: random.Random) -> str:
    """A name that no list has."""
    return "".join(draw.choice("bdfgklmnprstvz") + draw.choice("aeiou") for _ in range(draw.randint(2, 4))).capitalize()


def number(draw: random.Random) -> str:
    """A number, some with decimals."""
    return str(draw.randint(2, 999)) if draw.random() < 0.5 else f"{draw.randint(0, 99)}.{draw.randint(1, 99)}"


KINDS: dict[str, Callable[[random.Random], str]] = {
    "web address": lambda d: f"https://{letters(d)}.org/{letters(d)}?{letters(d, 1, 3)}={d.randint(1, 99)}",
    "mail address": lambda d: f"{letters(d)}.{letters(d)}@{letters(d)}.com",
    "`code`": lambda d: f"`{letters(d)}_{letters(d)}({d.randint(0, 9)})`",
    "{name}": lambda d: f"{{{letters(d)}}}",
    "{0}": lambda d: f"{{{d.randint(0, 9)}}}",
    "%s": lambda d: d.choice(["%s", "%d", "%.2f"]),
    "%(n)d": lambda d: f"%({letters(d, 1, 4)})d",
    "$HOME": lambda d: f"${letters(d).upper()}",
    "${X}": lambda d: f"${{{letters(d).upper()}}}",
    "@handle": lambda d: f"@{letters(d)}{d.randint(0, 99)}",
    "#tag": lambda d: f"#{letters(d)}",
    "path": lambda d: letters(d).join(d.choice([("/usr/", ".c"), ("~/", "/x"), ("C:\\", "\\y.exe"), ("src/", ".py")])),
    "emoji": lambda d: d.choice(["🙂", "👍🏽", "🇮🇹", "👩‍👩‍👧", "❤️", "🚀"]),
    "quantity": lambda d: f"{number(d)}{d.choice([' km', ' kg', ' °C', '%', ' €', ' MB', 'GB', ' min'])}",
    "version": lambda d: f"{d.choice(['', 'v'])}{d.randint(0, 9)}.{d.randint(0, 20)}.{d.randint(0, 99)}",
    "IBAN": lambda d: f"DE{d.randint(10, 99)} " + " ".join(f"{d.randint(0, 9999):04}" for _ in range(4)) + " 00",
    NAMES: name,
}  # fmt: skip


def sentence_with(text: str, literals: list[str], draw: random.Random, names: bool) -> str:
    """Put each literal in place of a word of more than three letters, or of a name, or at an end."""
    words = text.split(" ")
    mark = re.search(r"\W*$", words[-1])[0]  # type: ignore[index]
    words[-1] = words[-1].removesuffix(mark)
    wanted = str.istitle if names else str.isalpha
    free = [i for i, word in enumerate(words) if wanted(word) and len(word) > 3 and (i or not names)]
    for literal in literals:
        if free and (names or draw.random() < 0.5):
            words[free.pop(draw.randrange(len(free)))] = literal
        elif names:
            return ""
        else:
            place = draw.choice([0, len(words)])
            words.insert(place, literal)
            free = [i + (place == 0) for i in free]
    return " ".join(words) + mark


def is_unharmed(literal: str, translation: str) -> bool:
    """Whether a literal stands in a translation exactly once, by itself."""
    return len(re.findall(rf"(?<![^\W_]){re.escape(literal)}(?![^\W_])", translation)) == 1


def measure(run: Path, count: int, seed: int, show: int) -> dict[str, tuple[int, int]]:
    """For each kind of literal, how many were unharmed, and how many there were; for ALONE, the same of sentences."""
    draw = random.Random(seed)
    lines = (run / "data" / "validation.tsv").read_text(encoding="utf-8").splitlines()
    sources = [line.split("\t")[0] for line in lines]
    made: list[tuple[str, list[tuple[str, str]]]] = []
    per_kind: Counter[str] = Counter()
    others = [kind for kind in KINDS if kind != NAMES]
    for first in KINDS:
        for _ in range(1000 * count):  # a corpus without names has no place for one
            if per_kind[first] >= count:
                break
            more = [] if first == NAMES else draw.choices(others, k=draw.choice([0, 0, 0, 1, 1, 2]))
            literals = [(kind, KINDS[kind](draw)) for kind in (first, *more)]
            written = [literal for _, literal in literals]
            text = sentence_with(draw.choice(sources), written, draw, first == NAMES)
            if text and len(set(written)) == len(written) and all(is_unharmed(each, text) for each in written):
                made.append((text, literals))
                per_kind.update(kind for kind, _ in literals)
    translator = Translator(run)
    translations = translator.explain([text for text, _ in made])
    unharmed: Counter[str] = Counter()
    for (text, literals), translation in zip(made, translations, strict=True):
        per_kind[ALONE] += 1
        unharmed[ALONE] += all(needed_no_repair(translator, sentence) for sentence in translation.sentences)
        for kind, literal in literals:
            found = is_unharmed(literal, translation.text)
            unharmed[kind] += found
            if not found and show > 0:
                show -= 1
                print(f"{literal}\n  {text}\n  {translation.text}")
    return {kind: (unharmed[kind], per_kind[kind]) for kind in (*KINDS, ALONE)}


def needed_no_repair(translator: Translator, sentence: Sentence) -> bool:
    """Whether the model wrote each placeholder of a sentence exactly once."""
    hiders = translator.trained.hiders
    hidden = as_target(sentence.ids, *hiders)
    return restore_exactly(sentence.candidates[0].ids, hidden, hiders[1].stand_ins) is not None


def main() -> None:
    """Measure the runs, and print a table with a column for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs")
    parser.add_argument("--count", type=int, default=60, help="literals of each kind, at least")
    parser.add_argument("--seed", type=int, default=1, help="for the sentences and the literals")
    parser.add_argument("--show", type=int, default=0, help="how many literals that were harmed to show")
    options = parser.parse_args()
    rows: dict[str, list[str]] = defaultdict(list)
    for run in options.runs:
        found = measure(run, options.count, options.seed, options.show)
        literals, alone = [found[kind] for kind in KINDS if kind != NAMES], found.pop(ALONE)
        found["all but names"] = sum(unharmed for unharmed, _ in literals), sum(total for _, total in literals)
        found[ALONE] = alone
        for kind, (unharmed, total) in found.items():
            rows[kind].append(f"{unharmed / max(1, total):.1%} of {total}")
    width = max(len(run.name) for run in options.runs) + 8
    print(f"{'':14}" + "".join(f"{run.name:>{width}}" for run in options.runs))
    for kind, shares in rows.items():
        print(f"{kind:14}" + "".join(f"{share:>{width}}" for share in shares))


if __name__ == "__main__":
    main()
