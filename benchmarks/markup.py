"""Measure whether tags end up around the right words, and their cost.

    python benchmarks/markup.py --run runs/phrasebook                           # English to Italian
    python benchmarks/markup.py --run runs/multi30k-en-de --split validation    # English to German

Words with one certain translation get tags: nouns of the phrasebook's lexicon, or WORDS for German. A word counts if
it is in the sentence once, and its translation in the reference once; it is dropped if the model's translation does not
contain it exactly once. With two such words in a sentence, a link goes around both and all between them:

    The <a href="x"><b>dog</b> is in front of the <i>table</i></a>.

Columns:
    well-formed  documents that a strict parser reads
    kept         documents with exactly the tags of the source
    right        tags around exactly the known word, its article allowed; links around both words and no other known one
    BLEU         of the translations without tags, and of the sentences translated without tags
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import sacrebleu
from common import ROOT, fail
from markdown_it import MarkdownIt

from dragoman.documents.markup import KINDS, translate_markup
from dragoman.translation.translator import Translator

WORDS = {
    "dog": "Hund", "man": "Mann", "woman": "Frau", "camera": "Kamera", "microphone": "Mikrofon", "stage": "Bühne",
    "lake": "See", "baby": "Baby", "sunglasses": "Sonnenbrille", "grass": "Gras", "child": "Kind", "bench": "Bank",
    "table": "Tisch", "guitar": "Gitarre", "beach": "Strand", "street": "Straße", "water": "Wasser", "girl": "Mädchen",
    "boy": "Junge", "boat": "Boot", "jacket": "Jacke", "dogs": "Hunde", "men": "Männer", "women": "Frauen",
    "people": "Menschen", "children": "Kinder", "park": "Park", "ball": "Ball", "hat": "Hut", "horse": "Pferd",
    "tree": "Baum", "snow": "Schnee", "bicycle": "Fahrrad", "yellow": "gelben", "red": "roten", "blue": "blauen",
    "black": "schwarzen", "runs": "rennt", "jumping": "springt", "holding": "hält", "sleeping": "schläft",
    "behind": "hinter", "mountain": "Berg", "car": "Auto", "helmet": "Helm", "wall": "Wand", "face": "Gesicht",
}  # fmt: skip
ARTICLES = {
    "il", "lo", "la", "i", "gli", "le", "un", "uno", "una", "der", "die", "das", "den", "dem", "des", "ein", "eine",
    "einen", "einem", "einer", "eines",
}  # fmt: skip
MARKS = ".,;:!?\"'()„“”"
FORMS = {
    "html": ("<p>{}</p>", "<b>{}</b>", "<i>{}</i>", '<a href="x">{}</a>'),
    "xml": ("<p>{}</p>", "<b>{}</b>", "<i>{}</i>", '<a href="x">{}</a>'),
    "markdown": ("{}", "**{}**", "*{}*", "[{}](x)"),
}
NAMES = {"strong": "b", "em": "i"}  # of the tags that Markdown's emphasis becomes


@dataclass(frozen=True)
class Case:
    """A sentence with known words."""

    source: str
    reference: str
    known: list[tuple[int, str]]  # word of the source, and its translation, in order; the first two get tags


@dataclass
class Counts:
    """What was found."""

    well_formed: int = 0
    kept: int = 0
    tags: int = 0
    right: int = 0


def main() -> None:
    """Print a table with a row for each kind of markup."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=ROOT / "runs" / "phrasebook", metavar="DIR")
    parser.add_argument("--split", choices=("test", "validation"), default="test")
    parser.add_argument("--sentences", type=int, default=500, help="at most this many (default: 500)")
    options = parser.parse_args()
    translator = Translator(options.run, "cpu")
    target = translator.config.data.target_lang
    words = {"it": nouns(), "de": WORDS}.get(target)
    if words is None:
        fail(f"no words with known translations into {target}: use a run into it or de")
    pairs = read_pairs(options.run / "data" / f"{options.split}.tsv")
    plain = translator.translate([source for source, _ in pairs])
    cases, dropped = find_cases(pairs, plain, words)
    print(f"{len(cases):,} sentences; {dropped:,} known words dropped: not once in the translation\n")
    if not cases:
        fail("the model translates none of the known words")
    print("| markup | sentences | well-formed | kept | tags | right | BLEU with tags | without | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for kind in KINDS:
        print(row(translator, kind, cases[: options.sentences]))


def nouns() -> dict[str, str]:
    """The nouns of the phrasebook's words that are one word in both languages, with their singular."""
    sys.path.insert(0, str(ROOT / "data" / "phrasebook"))
    from make_phrasebook import ALL_NOUNS  # pyright: ignore[reportMissingImports]

    return {noun.en: noun.it for noun in ALL_NOUNS if " " not in noun.en + noun.it}


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Sentence pairs of a run."""
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return [(source, target) for source, target in rows]


def cores(text: str, target: bool = False) -> list[str]:
    """The words of a text in lower case, without punctuation and, in a translation, without an elided article."""
    found = [word.strip(MARKS).lower() for word in text.split()]
    return [word.replace("’", "'").rpartition("'")[2] for word in found] if target else found


def find_cases(pairs: list[tuple[str, str]], plain: list[str], words: Mapping[str, str]) -> tuple[list[Case], int]:
    """Sentences with at least one known word, and how many known words the translations lost or doubled."""
    cases, dropped = [], 0
    for (source, reference), translation in zip(pairs, plain, strict=True):
        inside = cores(source)
        known = []
        for place, word in enumerate(inside):
            wanted = words.get(word, "").lower()
            if not wanted or inside.count(word) > 1 or cores(reference, target=True).count(wanted) != 1:
                continue
            if cores(translation, target=True).count(wanted) == 1:
                known.append((place, wanted))
            else:
                dropped += 1
        if known and len({wanted for _, wanted in known}) == len(known):
            cases.append(Case(source, reference, known))
    return cases, dropped


def tagged(case: Case, kind: str) -> str:
    """The sentence with tags: around one word, or around two words and around all from one to the other."""
    document, *forms, link = FORMS[kind]
    words = [escape(word) if kind != "markdown" else word for word in case.source.split()]
    places = [place for place, _ in case.known[:2]]
    for place, form in zip(places, forms, strict=False):
        word = words[place]
        core = word.strip(MARKS)
        before, after = word.split(core, 1)
        words[place] = before + form.format(core) + after
    if len(places) == 2:
        first, last = places
        end = words[last]
        after = case.source.split()[last]
        after = after[len(after.rstrip(MARKS)) :]
        words[last] = end.removesuffix(after) if after else end
        part = link.format(" ".join(words[first : last + 1])) + after
        words[first : last + 1] = [part]
    return document.format(" ".join(words))


def row(translator: Translator, kind: str, cases: list[Case]) -> str:
    """Translate the cases as one kind of markup, and check the tags."""
    counts = Counts()
    texts = []
    documents = [tagged(case, kind) for case in cases]
    # Once as one document, for the time; once each, for the check: both use the same code.
    start = time.perf_counter()
    translate_markup(translator, "<x>" * (kind == "xml") + "\n\n".join(documents) + "</x>" * (kind == "xml"), kind)
    seconds = time.perf_counter() - start
    for case, document in zip(cases, documents, strict=True):
        found = translate_markup(translator, document, kind)
        rendered = MarkdownIt().render(found) if kind == "markdown" else found
        try:
            tree = ElementTree.fromstring(f"<x>{rendered}</x>")
        except ElementTree.ParseError:
            texts.append("")
            continue
        counts.well_formed += 1
        texts.append("".join(tree.itertext()).strip())
        names = Counter(NAMES.get(element.tag, element.tag) for element in tree.iter())
        counts.kept += names == Counter(["x", "p", "b"] if len(case.known) == 1 else ["x", "p", "b", "i", "a"])
        for element in tree.iter():
            judge(counts, case, NAMES.get(element.tag, element.tag), "".join(element.itertext()))
    plain = translator.translate([case.source for case in cases])
    references = [[case.reference for case in cases]]
    scores = [sacrebleu.corpus_bleu(each, references).score for each in (texts, plain)]
    percent = [100 * each / len(cases) for each in (counts.well_formed, counts.kept)]
    return (
        f"| {kind} | {len(cases)} | {percent[0]:.1f} % | {percent[1]:.1f} % | {counts.tags} | "
        f"{100 * counts.right / counts.tags:.1f} % | {scores[0]:.2f} | {scores[1]:.2f} | {seconds:.1f} |"
    )


def judge(counts: Counts, case: Case, name: str, text: str) -> None:
    """Count one tag, and whether it is around the right words."""
    if name not in ("b", "i", "a"):
        return
    counts.tags += 1
    found = cores(text, target=True)
    if name == "a":
        inside, outside = [wanted for _, wanted in case.known[:2]], [wanted for _, wanted in case.known[2:]]
        between = [w for place, w in case.known[2:] if case.known[0][0] < place < case.known[1][0]]
        counts.right += all(w in found for w in inside) and not any(w in found for w in outside if w not in between)
    else:
        wanted = case.known["bi".index(name)][1]
        counts.right += [word for word in found if word and word not in ARTICLES] == [wanted]


if __name__ == "__main__":
    main()
