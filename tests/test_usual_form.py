"""Typed text is changed to the form of the training text, and the translation gets the form that was typed."""

from __future__ import annotations

import string
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT, SHARED
from dragoman.command_line import override
from dragoman.corpora.preparation import prepare_data
from dragoman.corpora.subwords import train_tokenizers
from dragoman.dataset import encode_pairs
from dragoman.settings import Config, TokenizerConfig
from dragoman.text.conventions import Conventions, conventions_of_ids, words
from dragoman.translation.usual_form import AS_IS, Form, is_likely_typo, nearest, to_usual_form

needs_multi30k = pytest.mark.skipif(not (SHARED / "multi30k").is_dir(), reason="needs Multi30k in ../shared/data")
ENGLISH = 10 * [
    "Where is the station?",
    "I don't know where Anna is.",
    "My friend Anna sees the black cat in Rome.",
    "The black cats are in the garden of my friend.",
    "Good morning, how are you?",
    "I think that I am at home at 9 a.m. today.",
]
ITALIAN = 10 * [
    "Dov'è la stazione?",
    "Non so dov'è Anna.",
    "Buongiorno, come stai?",
    "I gatti neri vedono la stazione.",
]
SOURCE, TARGET = Conventions.of(ENGLISH), Conventions.of(ITALIAN)
LOWER = Conventions.of(["i do n't know where anna is .", "where is it ?", "it 's the black cat , my friend ."] * 9)
LOWER_TARGET = Conventions.of(["l' amico è qui .", "dov' è la stazione ?"] * 9)


@pytest.mark.parametrize("line", ENGLISH[:6])
def test_text_like_the_training_text_stays(line: str) -> None:
    assert to_usual_form(line, SOURCE).text == line
    assert to_usual_form(line, SOURCE).form == AS_IS
    assert to_usual_form(line, SOURCE).corrections == []


@pytest.mark.parametrize("line", ENGLISH[:6])
@pytest.mark.parametrize(
    ("typed", "form"),
    [
        (str.upper, Form(capitals=True)),
        (lambda line: " ".join(word[0].upper() + word[1:] for word in line.split()), Form(title=True)),
        (str.lower, Form(lower_start=True)),
        (lambda line: line[:-1], Form(added_mark=True)),
        (lambda line: f"{line[:-1]}!!", Form(marks="!!")),
    ],
)
def test_other_forms_are_read_as_the_training_text(line: str, typed, form: Form) -> None:
    reading = to_usual_form(typed(line), SOURCE)
    assert reading.text[:-1] == line[:-1]
    assert form.marks or reading.text == line
    assert reading.form == form
    assert reading.corrections == []


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (Form(), "Dov'è la stazione?"),
        (Form(capitals=True), "DOV'È LA STAZIONE?"),
        (Form(title=True), "Dov'è La Stazione?"),
        (Form(lower_start=True), "dov'è la stazione?"),
        (Form(added_mark=True), "Dov'è la stazione"),
        (Form(marks="?!"), "Dov'è la stazione?!"),
        (Form(capitals=True, added_mark=True), "DOV'È LA STAZIONE"),
    ],
)
def test_translations_get_the_form_back(form: Form, expected: str) -> None:
    assert form.restore("Dov'è la stazione?", TARGET) == expected


def test_restoring_keeps_what_must_stay() -> None:
    """Guards names at the start, addresses in capitals, and a translation that is only a mark."""
    assert Form(lower_start=True).restore("Anna è qui.", TARGET) == "Anna è qui."
    assert Form(capitals=True).restore("Vedi https://x.org/Ab ora.", TARGET) == "VEDI https://x.org/Ab ORA."
    assert Form(added_mark=True).restore("?", TARGET) == "?"
    assert to_usual_form("WRITE TO Anna@x.org, ANNA", SOURCE).text == "Write to Anna@x.org, Anna."


def test_capitals_and_titles_are_told_from_names() -> None:
    assert to_usual_form("Where Is The Black-haired Cat?", SOURCE).text == "Where is the black-haired cat?"
    assert to_usual_form("Where is NATO?", SOURCE).text == "Where is NATO?"
    assert to_usual_form("Where is the CAT?", SOURCE).text == "Where is the cat?"
    assert to_usual_form("I see Anna in Rome.", SOURCE).form == AS_IS
    assert to_usual_form("my friend Anna", SOURCE).text == "My friend Anna."
    assert to_usual_form("anna is in rome", SOURCE).text == "Anna is in Rome."
    assert to_usual_form("I", SOURCE).form.capitals is False


def test_a_reading_makes_no_known_word_unknown() -> None:
    """Guards words that no sentence begins with: with a capital the vocabulary does not know them."""
    assert to_usual_form("garden of my friend", SOURCE).text == "garden of my friend."
    assert to_usual_form("Garden of my friend.", SOURCE).text == "garden of my friend."
    assert to_usual_form("Garden of my friend.", SOURCE).form == Form(capital_start=True)
    assert to_usual_form("GARDEN!", SOURCE).text == "garden."
    assert to_usual_form("zork is here", SOURCE).text == "zork is here."
    assert Form(capital_start=True).restore("giardino.", TARGET) == "Giardino."
    known = SOURCE.within({"Where", "is", "the", "station"})
    assert to_usual_form("where is the station", known).text == "Where is the station?"
    assert (known.has("Where"), known.has("garden"), known.has("don't")) == (True, False, False)


@pytest.mark.parametrize(
    ("lines", "typed"),
    [
        (["यह क्या है।", "मुझे पानी चाहिए।"], "मुझे पानी चाहिए"),
        (["এটা কি?", "আমি বাংলায় কথা বলি।"], "আমি বাংলায় কথা বলি"),
        (["أين المحطة؟", "أين الكتاب؟"], "أين الكتاب"),
        (["کیا حال ہے؟", "میں ٹھیک ہوں۔"], "میں ٹھیک ہوں"),
        (["Որտե՞ղ է կայարանը։", "Սա լավ է։"], "Սա լավ է"),
        (["Πού είναι;", "Είναι εδώ."], "Πού είναι;"),
    ],
)
def test_marks_and_words_of_other_scripts(lines: list[str], typed: str) -> None:
    """Guards words with vowel signs, which were cut in pieces, and other marks than a full stop at the end."""
    conventions = Conventions.of(10 * lines)
    line = next(line for line in lines if line.startswith(typed))
    assert to_usual_form(typed, conventions).text == line
    assert set(conventions.counts) == {word.lower() for line in lines for word in line[:-1].replace("՞", " ").split()}
    assert to_usual_form(line, conventions).form == AS_IS


@pytest.fixture(scope="module")
def phrasebook() -> Conventions:
    lines = (ROOT / "data" / "phrasebook" / "train.tsv").read_text("utf-8").splitlines()[1:]
    return Conventions.of([line.split("\t")[0] for line in lines], "en")


SPOKEN = (
    "{name}: {line}", "{name} Brown: {line}", "{line} — {name}", "- {line} - {other}", "“{line}” said {name}.",
    "{name}, {line}", "{line} {other} {name}!", "Dr. {name}: {line}", "{name} (Rome): {line}", "[{name}] {line}",
    "{name} and Anna Brown", "Chapter 3: {line}", "NEWS: {line}", "{line} OK?", "* {name} * {line}",
    "Mrs. {name} Brown", "10:45 {name}: {line}",
)  # fmt: skip
LINES = ("Where are you?", "I'm here.", "Good morning!", "Yes. I know.", "What is it? Tell me.", "Thank you very much.")


@pytest.mark.parametrize("name", ["Tom", "Anna", "Zoltan", "Mary Jane"])
def test_lines_of_a_dialogue_are_no_titles(name: str, phrasebook: Conventions) -> None:
    """Guards 400 lines with speakers, names and several sentences: none becomes a Title In Its Translation."""
    texts = [form.format(name=name, line=line, other=other) for form, line, other in product(SPOKEN, LINES, LINES)]
    assert [text for text in dict.fromkeys(texts) if to_usual_form(text, phrasebook).form.title] == []


@pytest.mark.parametrize(
    "text", ["Good Morning", "The Black Cat", "Where Is The Station?", "OK, See The Cat", "I Know 3 Cats"]
)
def test_what_is_a_title(text: str) -> None:
    """Guards titles with few words, commas and numbers."""
    assert to_usual_form(text, SOURCE).form.title


@pytest.mark.parametrize(
    ("typed", "text", "translation", "expected"),
    [
        ("1) Where is it?", "Where is it?", "Dov'è?", "1) Dov'è?"),
        ("- [ ] where is the cat", "Where is the cat?", "Dov'è il gatto?", "- [ ] dov'è il gatto"),
        ("“Where is it?” :)", "Where is it?", "Dov'è?", "“Dov'è?” :)"),
        ("Good morning,", "Good morning?", "Buongiorno!", "Buongiorno,"),
        ("I don’t know.", "I don't know.", "Un po' d'olio.", "Un po’ d’olio."),
        ("Where is it。", "Where is it?", "Dov'è?", "Dov'è。"),
        ("Where is it…", "Where is it?", "Dov'è?", "Dov'è…"),
        ("Where is {x}", "Where is {x}", "Dov'è {x}.", "Dov'è {x}"),
        ("3 kg of it", "3 kg of it.", "3 kg di gatto.", "3 kg di gatto"),
        ("5 °C in Rome.", "5 °C in Rome.", "5 °C a Roma.", "5 °C a Roma."),
    ],
)
def test_marks_come_back_as_they_were_typed(typed: str, text: str, translation: str, expected: str) -> None:
    """Guards list marks, quotes and marks of other scripts: read as the training text has them, and given back."""
    reading = to_usual_form(typed, SOURCE)
    if typed != "Good morning,":  # its mark is that of the examples
        assert reading.text.rstrip(".?!") == text.rstrip(".?!")
    assert reading.form.restore(translation, TARGET) == expected


@pytest.mark.parametrize("text", ["I don't know, i.e. Anna is here.", "Where is it, e.g. at home?"])
def test_letters_of_an_abbreviation_stay(text: str) -> None:
    """Guards i.e., whose first letter is a word that has a capital in English."""
    assert to_usual_form(text, SOURCE).text == text


def test_typos() -> None:
    """Guards the words that may be corrected, and those that may not."""
    assert to_usual_form("Wehre is the staiton?", SOURCE).text == "Where is the station?"
    assert to_usual_form("Wehre is the staiton?", SOURCE).corrections == [("Wehre", "Where"), ("staiton", "station")]
    assert to_usual_form("I dont knnow.", SOURCE).text == "I don't know."
    for text in ("My friend Ana sees Satnion.", "The black cot is 1975.", "Where is teh cat?", "The blank station."):
        assert to_usual_form(text, SOURCE).corrections == []
    assert is_likely_typo("form", "from")
    assert not is_likely_typo("motel", "model")
    assert nearest("where", SOURCE) is None  # it is known


@needs_multi30k
def test_names_and_rare_words_are_not_corrected() -> None:
    """Guards the 485 words of Multi30k's held-out sets that its training set does not have."""
    train, *held_out = (
        (SHARED / "multi30k" / f"{name}.en").read_text(encoding="utf-8").split("\n")
        for name in ("train", "val", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
    )
    conventions = Conventions.of(train)
    lines = {word[0]: line for text in held_out for line in text for word, _ in words(line)}
    unknown = {word: line for word, line in lines.items() if not conventions.counts[word.lower()]}
    assert len(unknown) > 400
    corrected = {pair for line in unknown.values() for pair in to_usual_form(line, conventions).corrections}
    typos = ("preforming", "clif", "preforms", "bandana", "carying", "skiis")  # the annotators' own
    assert {typed for typed, _ in corrected if typed in unknown} == {*typos}


def test_lower_cased_and_tokenized_text() -> None:
    """Guards corpora that others have prepared: what people type is brought into their form, and back."""
    assert LOWER.is_lowercase
    assert LOWER.is_tokenized
    reading = to_usual_form("I don't know where Anna is.", LOWER)
    assert reading.text == "i do n't know where anna is ."
    assert reading.form == Form(capital_start=True, join_marks=True)
    assert reading.form.restore("dov' è l' amico ?", LOWER_TARGET) == "Dov'è l'amico?"
    already = "i do n't know where anna is ."
    assert to_usual_form(already, LOWER).text == already
    assert to_usual_form(already, LOWER).form == AS_IS
    assert not SOURCE.is_lowercase
    assert not SOURCE.is_tokenized


def test_escaped_marks() -> None:
    """Guards corpora with &apos; for every apostrophe, as Moses writes it."""
    escaped = Conventions.of(["it &apos;s the cat .", "he said &quot; no &quot; ."] * 9)
    assert to_usual_form("It's the cat.", escaped).text == "it &apos;s the cat ."


def test_scripts_without_spaces_or_case() -> None:
    japanese = Conventions.of(["駅はどこですか。", "私は日本へ行ったことがない。"] * 9)
    assert japanese.inside == {}
    assert to_usual_form("駅はどこですか", japanese).text == "駅はどこですか"
    arabic = Conventions.of(["أين المحطة؟", "القطة السوداء في الحديقة."] * 9)
    assert to_usual_form("القطة السوداء في الحديقة.", arabic) == to_usual_form("القطة السوداء في الحديقة.", arabic)
    assert to_usual_form("القطة السوداء في الحديقة.", arabic).text == "القطة السوداء في الحديقة."


@given(st.text(max_size=200) | st.text(alphabet=string.ascii_letters + " .!?'’\"", max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_text_can_be_read(text: str) -> None:
    """Guards against exceptions, and against letters that vanish."""
    for conventions in (SOURCE, LOWER, Conventions.of([])):
        reading = to_usual_form(" ".join(text.split()), conventions)
        reading.form.restore(reading.text, TARGET)
        if not reading.corrections and conventions is SOURCE:
            whole = f"{reading.form.before}{reading.text}{reading.form.after}"
            assert [c for c in whole.casefold() if c.isalnum()] == [c for c in text.casefold() if c.isalnum()]


@pytest.mark.parametrize("letter", [".", " .", "a.", "A", "'", "a' ", "?!", "é", "&apos; "])
def test_long_lines_take_linear_time(letter: str) -> None:
    """Guards against patterns that try every start: a line of a megabyte would take hours, this fails by timeout."""
    for conventions in (SOURCE, LOWER):
        reading = to_usual_form(letter * (200_000 // len(letter)) + "x", conventions)
        reading.form.restore(reading.text, LOWER_TARGET)


def test_conventions_are_saved_without_loss() -> None:
    assert Conventions.from_json(SOURCE.json) == SOURCE
    for text in ("[]", "{}", '{"inside": 1}', SOURCE.json.replace('"first": {', '"first": {"a": "b", ')):
        with pytest.raises(ValueError, match=r"conventions|malformed"):
            Conventions.from_json(text)


def test_data_have_conventions_of_both_sides(tmp_path: Path) -> None:
    rows = [(line, ITALIAN[i % len(ITALIAN)]) for i, line in enumerate(ENGLISH)]
    rows = [(f"{source} {i}", target) for i, (source, target) in enumerate(rows)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    words = [f"data.train={tmp_path / 'pairs.tsv'}", "data.source_lang=en", "data.target_lang=it"]
    config = override(Config(), [f"--{word}" for word in [*words, "data.validation_fraction=0.2"]])
    made = prepare_data(config, tmp_path / "data", print)
    again = prepare_data(config, tmp_path / "data", print)
    assert made.conventions == again.conventions
    assert made.conventions[0].usual("ANNA") == "Anna"
    assert made.conventions[1].usual("STAZIONE") == "stazione"


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_older_data_give_the_same_conventions(kind: str) -> None:
    """Guards runs whose data were prepared before conventions were saved: they are learnt from the ids."""
    pairs = list(zip(ENGLISH, ENGLISH, strict=True))
    settings = TokenizerConfig(kind=kind, min_frequency=1, vocab_size=400)  # type: ignore[arg-type]
    source, target = train_tokenizers(ENGLISH, ENGLISH, settings)
    assert conventions_of_ids(encode_pairs(pairs, source, target).source, source) == SOURCE
