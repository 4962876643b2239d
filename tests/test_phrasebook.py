"""The bundled corpus: its files are those that the script writes, its lines are clean, and its splits are fair."""

from __future__ import annotations

import importlib.util
import re
import sys
import unicodedata
from collections import Counter
from types import ModuleType

import pytest

from conftest import ROOT

FOLDER = ROOT / "data" / "phrasebook"
Corpus = dict[str, list[tuple[str, str]]]


@pytest.fixture(scope="module")
def make() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("make_phrasebook", FOLDER / "make_phrasebook.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_phrasebook"] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def corpus(make: ModuleType) -> Corpus:
    """The pairs of each split, from the files."""
    lines = {split: (FOLDER / f"{split}.tsv").read_text(encoding="utf-8").splitlines() for split in make.SIZES}
    assert {tuple(rows.pop(0).split("\t")) for rows in lines.values()} == {("en", "it")}
    return {split: [(en, it) for en, it in (row.split("\t") for row in rows)] for split, rows in lines.items()}


@pytest.mark.slow
def test_files_are_up_to_date(make: ModuleType, corpus: Corpus) -> None:
    """Guards against words or patterns edited without a new corpus, and outdated figures in README.md."""
    for path, content in make.files():
        assert path.read_bytes() == content, f"{path.name} is out of date: run data/phrasebook/make_phrasebook.py"
    assert {split: len(pairs) for split, pairs in corpus.items()} == make.SIZES


@pytest.mark.slow
def test_contractions_make_no_other_sentence(make: ModuleType) -> None:
    """Guards against the same sentence with and without a contraction, such as "I am" and "I'm"."""
    plain = [sentence.plain.lower() for split in make.make_splits().values() for sentence in split]
    assert len(set(plain)) == len(plain)


def test_lines_are_clean(corpus: Corpus) -> None:
    """Guards against text that a reader of the file would have to strip or normalise."""
    for text in (text for pairs in corpus.values() for pair in pairs for text in pair):
        assert text == " ".join(text.split()) == unicodedata.normalize("NFC", text)
        assert re.fullmatch(r"[A-ZÈ0-9].*[.?!]", text), text
        assert not re.search(r"\s[.,?!:]|[{}_|=]|[^\w\s.,?!:'’-]", text), text


def test_splits_are_fair(make: ModuleType, corpus: Corpus) -> None:
    """Guards against test sentences that are in train, ambiguous sources, and words that no model can know."""
    sources = [en.lower() for pairs in corpus.values() for en, _ in pairs]
    assert len(set(sources)) == len(sources)
    for side in (0, 1):
        counts = Counter(word for pair in corpus["train"] for word in set(re.findall(r"\w+", pair[side])))
        assert min(counts.values()) >= make.RARE
        for split in ("validation", "test"):
            assert {word for pair in corpus[split] for word in re.findall(r"\w+", pair[side])} <= counts.keys()
