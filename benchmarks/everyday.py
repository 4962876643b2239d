"""Check that translations of everyday input keep its marks, numbers, labels, names and single words.

    python benchmarks/everyday.py runs/phrasebook runs/bpe --show 20
    python benchmarks/everyday.py runs/phrasebook --typed    # BLEU of the validation pairs typed in other ways instead

The inputs are in English, for runs on the bundled phrasebook; numbers and names are drawn anew for each seed. An input
passes if its translation

- has the same numbers, digit for digit,
- has each literal of the input once: names, prices, dates, brackets, list marks in front, marks at the end,
- equals the input, if that has nothing to translate,
- is not a copy of the input, if that is a known word (words that the Italian training text also has are left out),
- has a small letter, if the input has (no False Title),
- has as many lines,
- and, for an input with typographic apostrophes, is the same as with plain ones.
"""

# ruff: noqa: E501
from __future__ import annotations

import argparse
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import common  # noqa: F401  # it sets sys.path

from dragoman.evaluation.metrics import Measurements
from dragoman.evaluation.pairs import read_pairs
from dragoman.text.conventions import final_marks
from dragoman.text.letter_case import capitalized, lower, upper
from dragoman.translation.translator import Translator

SENTENCES = (
    "Where is the station?", "I'm a bit tired.", "The black cat is in the kitchen.", "She doesn't like the milk.",
    "Close the door, please!", "We are going home.", "They bought a new car yesterday.", "Do you have a pen?",
    "My brother is reading a newspaper.", "It's a beautiful day.", "Excuse me!", "Where are my keys?",
)  # fmt: skip
LIST_MARKS = ("1) ", "2. ", "3: ", "a) ", "(b) ", "- ", "* ", "• ", "– ", "> ", "# ", "## ", "[x] ", "[ ] ", "- [ ] ", "1.2. ",
              "iv) ", "→ ", "—", "🙂 ", "☐ ", "Q: ")  # fmt: skip
TAILS = (" :)", " :-)", " 🙂", " <3", ":", ",", "...", "?!", "!!!")
NOTHING = ("!", "?", "???", "—", "...", "…", "- -", "***", "I", "a", "B", "x.", "。", "؟", "🙂", "→", "17:43", "5 €", "+39 06 1234567",
           "[NAME]", "</s>", "<b>", "⟦1⟧", "[UNK]", "{name}", "https://x.org", "2026-11-23", "1,000.50", "50%", "(*)")  # fmt: skip
BRACKETS = ("[NAME]", "[x]", "[1]", "[first_name]", "{name}", "{{count}}", "<b>", "</s>", "<|end|>", "⟦1⟧", "⟦2⟧", "%s",
            "[YOUR NAME]", "[PAD]", "(Zrk)", "[Brzk Lmno]", "<user_id>")  # fmt: skip
APOSTROPHES = "’ʼ´`′＇"
DIALOGUE = (
    "{name}: Where are you?", "{name}: I'm at home.", "Anna: Good morning!", "Me: Are you sure?", "Step {digit}: Open the door.",
    "Note: The shop is closed.", "{name} and {other} are friends.", "Mr. {name} is here.", "Tom, where is the dog?",
    "- Where are you? - I'm here.", "Hello, {name}!", "Dear {name},", "Chapter {digit}", "Well, Anna is tired.",
    "“Where is {name}?”", "The cat: I like it.", "{name}! Where are you?", "Yes. I know.", "No! Come here.", "Thank you, {name}.",
)  # fmt: skip


def name(draw: random.Random) -> str:
    """A name that no list has."""
    return "".join(draw.choice("bdfgklmnprstvz") + draw.choice("aeiou") for _ in range(draw.randint(2, 4))).capitalize()


def is_unharmed(literal: str, translation: str) -> bool:
    """Whether a literal stands in a translation exactly once, by itself."""
    return len(re.findall(rf"(?<![^\W_]){re.escape(literal)}(?![^\W_])", translation)) == 1


@dataclass(frozen=True)
class Input:
    """A text, and the conditions for its translation."""

    kind: str
    text: str
    kept: tuple[str, ...] = ()  # each of these once
    starts: str = ""
    ends: str = ""
    is_same: bool = False
    is_word: bool = False
    plain: str = ""  # the same text with the plain forms of its marks

    def spoilt(self, found: str, plain: str) -> str:
        """The condition that a translation breaks; "" if it breaks none. `plain` is the translation of the plain text."""
        if re.search(r"\d", self.text) and Counter(re.findall(r"\d+", self.text)) != Counter(re.findall(r"\d+", found)):
            return "digits"
        if not (
            found.startswith(self.starts) and found.endswith(self.ends) and self.text.count("\n") == found.count("\n")
        ):
            return "margins or lines"
        if not all(is_unharmed(each, found) for each in self.kept):
            return "literals"
        if (self.is_same and found != self.text) or (self.is_word and found.casefold() == self.text.casefold()):
            return "copied" if self.is_word else "changed"
        if self.plain and re.sub(f"[{APOSTROPHES}]", "'", found) != plain:
            return "other than in plain form"
        if is_title(found) and not is_title(self.text):
            return "false title"
        return ""


def is_title(text: str) -> bool:
    """Whether a text has three words or more, and none begins with a small letter."""
    words = re.findall(r"[^\W\d_]{3,}", text)
    return len(words) > 2 and not any(word[0].islower() for word in words)


NUMBERS: dict[str, Callable[[random.Random], str]] = {
    "integer": lambda d: str(d.randint(2, 9999)),
    "decimal": lambda d: f"{d.randint(0, 99)}{d.choice('.,')}{d.randint(10, 99)}",
    "thousands": lambda d: f"{d.randint(1, 99)}{d.choice(',. ')}{d.randint(100, 999)}",
    "time": lambda d: f"{d.randint(0, 23)}:{d.randint(10, 59)}{d.choice(['', ' am', ' pm', 'pm'])}",
    "date": lambda d: d.choice(["{}-{}-{}", "{}/{}/{}", "{}.{}.{}"]).format(d.randint(10, 28), d.randint(10, 12), d.randint(1970, 2030)),
    "price": lambda d: d.choice(["${}", "€{}", "{} €", "£{}", "{} EUR"]).format(f"{d.randint(1, 99)}.{d.randint(10, 99)}"),
    "range": lambda d: f"{d.randint(2, 30)}{d.choice(['-', '–', ' – ', ' - '])}{d.randint(31, 99)}",
    "quantity": lambda d: f"{d.randint(2, 999)}{d.choice([' km', ' kg', '%', ' °C', 'GB', ' min'])}",
    "phone": lambda d: f"+39 0{d.randint(1, 9)} {d.randint(1000000, 9999999)}",
    "fraction": lambda d: f"{d.randint(1, 3)}/{d.randint(4, 9)}",
    "word with digits": lambda d: d.choice(["A{}", "COVID-{}", "{}th", "{}s", "B-{}", "MP{}"]).format(d.randint(2, 99)),
}  # fmt: skip
NUMBER_FRAMES = (
    "The train leaves at {}.",
    "It costs {}.",
    "I have {} here",
    "{} is a lot.",
    "from {} to {}",
    "Where is {}?",
)
NAME_FRAMES = ("My name is {}.", "{} is here.", "Where is {}?", "I know {} very well", "{}", "{}'s book is red.")
NAMES: tuple[Callable[[random.Random], str], ...] = (
    name,
    lambda d: f"O'{name(d)}",
    lambda d: f"D’{name(d)}",
    lambda d: f"{name(d)}-{name(d)}",
    lambda d: f"Mc{name(d)}",
    lambda d: f"{name(d)} {name(d)}",
)


def inputs(draw: random.Random, words: list[str]) -> Iterator[Input]:
    """Yield all inputs; `words` are known to the model."""
    for mark in LIST_MARKS:
        yield Input("list marks", mark + draw.choice(SENTENCES), starts=mark)
        yield Input("list marks", mark + draw.choice(SENTENCES).lower().rstrip(".?!"), starts=mark)
    for tail in TAILS:
        for _ in range(2):
            yield Input("marks at the end", draw.choice(SENTENCES).rstrip(".?!") + tail, ends=tail)
    for text in NOTHING:
        yield Input("nothing to translate", text, is_same=True)
    for kind, number in NUMBERS.items():
        for frame in NUMBER_FRAMES:
            found = [number(draw) for _ in range(frame.count("{}"))]
            kept = tuple(found) if kind != "integer" and len(set(found)) == len(found) else ()
            yield Input("numbers", frame.format(*found), kept=kept)
    for made in NAMES:
        for frame in NAME_FRAMES:
            found = made(draw)
            yield Input("names", frame.format(found), kept=(found,))
    for bracket in BRACKETS:
        yield Input("brackets", f"{draw.choice(SENTENCES)} {bracket}", kept=(bracket,))
        yield Input("brackets", f"My name is {bracket}.", kept=(bracket,))
        yield Input("brackets", f"{bracket} is here.", kept=(bracket,))
    for mark in APOSTROPHES:
        for text in ("I'm a bit tired.", "She doesn't like the milk.", "It's a beautiful day."):
            yield Input("apostrophes", text.replace("'", mark), plain=text)
    yield Input("apostrophes", "“Where is the station?”", starts="“", ends="”")
    yield Input("apostrophes", "«Where is the station?»", starts="«", ends="»")
    yield Input("apostrophes", "Where is the station？", ends="？")
    yield Input("apostrophes", "I don't know…", ends="…")
    for text in DIALOGUE:
        one, other = name(draw), name(draw)
        kept = tuple(each for each, slot in ((one, "{name}"), (other, "{other}")) if slot in text)
        yield Input("dialogue", text.format(name=one, other=other, digit=draw.randint(2, 20)), kept=kept)
    for word in draw.sample(words, min(30, len(words))):
        yield Input("single words", word, is_word=True)
    for _ in range(5):
        yield Input(
            "lines",
            "\n".join([draw.choice(SENTENCES), "", "- " + draw.choice(SENTENCES), "1) milk", "???", " ", "milk"]),
        )


def known_words(translator: Translator) -> list[str]:
    """The lower-case words of the source training text that the target text does not have."""
    assert translator.trained.conventions
    assert translator.trained.readable
    source, target = translator.trained.readable, translator.trained.conventions[1]
    forms = {*source.inside, *source.first}
    return sorted(
        word for word in forms if word.isalpha() and word.islower() and len(word) > 1 and not target.usual(word)
    )


def measure(run: Path, seed: int, show: int) -> dict[str, tuple[int, int]]:
    """For each kind, the number of inputs that pass, and of all."""
    draw = random.Random(seed)
    translator = Translator(run, engine="auto")
    made = list(inputs(draw, known_words(translator)))
    found = translator.translate([each.text for each in made])
    plain = translator.translate([each.plain for each in made])
    unspoilt: dict[str, int] = defaultdict(int)
    for each, translation, of_plain in zip(made, found, plain, strict=True):
        how = each.spoilt(translation, of_plain)
        unspoilt[each.kind] += not how
        if how and show > 0:
            show -= 1
            print(f"{each.kind}, {how}\n  {each.text!r}\n  {translation!r}")
    totals = Counter(each.kind for each in made)
    return {kind: (unspoilt[kind], total) for kind, total in totals.items()}


def without_mark(text: str) -> str:
    """Drop the final mark, unless nothing else is there."""
    return text.removesuffix(final_marks(text)).rstrip() or text


def with_typo(text: str, draw: random.Random) -> str:
    """Swap two neighbouring letters of one word, if there is a word of four small letters or more."""
    words = [word for word in re.finditer(r"\b[^\W\d_A-ZÀ-Þ]{4,}\b", text) if len(set(word[0])) > 1]
    if not words:
        return text
    word = draw.choice(words)
    i = draw.choice([i for i in range(word.start(), word.end() - 1) if text[i] != text[i + 1]])
    return text[:i] + text[i + 1] + text[i] + text[i + 2 :]


def print_typed(run: Path, draw: random.Random) -> None:
    """Print a table: BLEU of a run of one direction, with and without decoding.tolerant, for each way of typing.

    Translations and references are compared in capitals where the way of typing changes the case.
    """
    pairs = read_pairs(run / "data" / "validation.tsv")
    translators = [
        Translator(run, overrides=["--decoding.tolerant", value], engine="auto") for value in ("false", "true")
    ]
    data = translators[0].config.data
    language, target = data.source_lang or "", data.target_lang
    ways: dict[str, tuple[Callable[[str], str], Callable[[str], str]]] = {
        "as it is": (str, str),
        "IN CAPITALS": (lambda text: upper(text, language), lambda text: upper(text, target)),
        "In Title Case": (
            lambda text: re.sub(r"(?<!\S)[^\W\d_]\S*", lambda word: capitalized(word[0], language), text),
            lambda text: upper(text, target),
        ),
        "in lower case": (lambda text: lower(text, language), lambda text: upper(text, target)),
        "without the final mark": (without_mark, without_mark),
        "with a typo": (lambda text: with_typo(text, draw), str),
    }
    print(f"{run.name:22}   not tolerant       tolerant")
    for name, (typed, compared) in ways.items():
        sources, references = [typed(source) for source, _ in pairs], [compared(reference) for _, reference in pairs]
        translations = [[compared(text) for text in translator.translate(sources)] for translator in translators]
        bleu = [Measurements(texts, references).bleu.score() for texts in translations]
        print(f"{name:22}{bleu[0]:15.2f}{bleu[1]:15.2f}")


def main() -> None:
    """Measure the runs, and print a table with a column for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs")
    parser.add_argument("--seed", type=int, default=1, help="for the numbers, names and words")
    parser.add_argument("--show", type=int, default=0, help="how many spoilt translations to show")
    parser.add_argument("--typed", action="store_true", help="measure BLEU of validation pairs typed in other ways")
    options = parser.parse_args()
    if options.typed:
        for run in options.runs:
            print_typed(run, random.Random(options.seed))
        return
    columns = [measure(run, options.seed, options.show) for run in options.runs]
    width = max(12, *(len(run.name) + 2 for run in options.runs))
    print(f"{'':22}" + "".join(f"{run.name:>{width}}" for run in options.runs))
    for kind in columns[0]:
        print(f"{kind:22}" + "".join(f"{'{} of {}'.format(*column[kind]):>{width}}" for column in columns))
    sums = [tuple(map(sum, zip(*column.values(), strict=True))) for column in columns]
    print(f"{'all':22}" + "".join(f"{'{} of {}'.format(*total):>{width}}" for total in sums))


if __name__ == "__main__":
    main()
