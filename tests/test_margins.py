"""Marks around a sentence, labels, and typographic variants of marks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.translation.margins import as_typed, known_marks, split_label, split_margins

LIST_MARKS = """
1)_ 2._ 3:_ 1.2._ a)_ (b)_ iv)_ B._ -_ *_ •_ •_-_ –_ — →_ >_ ##_ [x]_ [_]_ -_[_]_ 🙂_ 🎉
""".split()  # noqa: SIM905
TAILS = ["_:)", "_:-(", "_;P", "_<3", "_🙂", "_😍😍", ",", ":", ";"]
NO_TAILS = (
    "It costs 5 €",
    "It grew by 5 %",
    "Where is it ?",
    "Well ...",
    "C#",
    "He said (no)",
    "It is “here”",
    "e.g. this!",
)


@pytest.mark.parametrize("mark", LIST_MARKS)
@pytest.mark.parametrize("tail", ["", *TAILS])
def test_what_stands_around_a_sentence(mark: str, tail: str) -> None:
    """Removes list marks, smileys and the like, which the model has not seen."""
    before, after = mark.replace("_", " "), tail.replace("_", " ")
    assert split_margins(f"{before}Where is it?{after}") == (before, "Where is it?", after)


@pytest.mark.parametrize("text", ["5 cats", "25", "1.5 kg", "2010 was good", "-5 degrees", "[NAME] is here", *NO_TAILS])
def test_what_belongs_to_a_sentence_stays(text: str) -> None:
    """Guards numbers, units and quotations."""
    assert split_margins(text) == ("", text, "")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('"Where?"', "Where?"),
        ("“It's here.”", "It's here."),
        ("'It's here'", "It's here"),
        ("«*Here*»", "Here"),
        ("(Is it here?).", "Is it here?"),
        ("1) “Here” :)", "Here"),
        ('"Yes," he said. "No."', '"Yes," he said. "No."'),
        ("(a) or (b)", "or (b)"),
        ("__name__", "__name__"),
    ],
)
def test_marks_that_enclose_a_whole_sentence(text: str, sentence: str) -> None:
    """Guards quotations inside a sentence, whose marks belong together."""
    assert split_margins(text)[1] == sentence


def test_labels() -> None:
    """Guards clauses before a colon, which are not labels: their words agree with those after it."""
    assert split_label("Step 1: Open the door.") == ["Step 1:", "Open the door."]
    assert split_label("Tom : Where are you?") == ["Tom :", "Where are you?"]
    assert split_label("- Tom: Where are you?") == ["- Tom:", "Where are you?"]
    assert split_label("I like this purse: I bought it.") == ["I like this purse: I bought it."]
    for text in ("at 17:43", "https://x.org", "Tom:", "No! Tom: here", ":", "a:b"):
        assert split_label(text) == [text]


@pytest.mark.parametrize("mark", "’ʼ´`‘′＇")
def test_apostrophes_of_others(mark: str) -> None:
    """Guards words with an apostrophe that the training text writes in another way."""
    typed = f"I{mark}m here, it{mark}s late"
    text, variants = known_marks(typed, "'")
    assert text == "I'm here, it's late"
    assert as_typed("Un po' e l'ora", variants) == f"Un po{mark} e l{mark}ora"
    if mark != "`":  # every vocabulary of subwords has one
        assert known_marks(typed, {mark, "'"}) == (typed, {})


def test_other_marks() -> None:
    """Guards quotation marks, which come in pairs, and wide marks, which contain their space."""
    text, variants = known_marks("“Hello，Anna！Well–known？", "\"',!?-")
    assert text == '"Hello, Anna! Well-known?'
    assert as_typed("Ciao, bene-noto!?", variants) == "Ciao， bene–noto！？"
    text, variants = known_marks("“a” “b”", '"')
    assert as_typed(text, variants) == "“a” “b”"
    assert known_marks("“a” — b…", "'") == ("“a” — b…", {})  # nothing better is known


@given(st.text(max_size=60) | st.text(alphabet="ab1 .,:;!?'\"’“”()[]*_-—•🙂)(", max_size=60))
@settings(max_examples=300, deadline=None)
def test_nothing_gets_lost(text: str) -> None:
    """Guards every character of a line."""
    line = " ".join(text.split())
    assert "".join(split_margins(line)) == line
    assert " ".join(split_label(line)) == line
    changed, variants = known_marks(line, "'")
    assert len(changed) >= len(line)
    as_typed(changed, variants)


@pytest.mark.parametrize("piece", ["1) ", "- ", "a: ", " :)", ",", '"', "🙂", "’a", "(", "•", "1.", "a ", "I) ", "*"])
def test_long_lines_take_linear_time(piece: str) -> None:
    """Guards against patterns that try every start: this fails by timeout."""
    for text in (piece * 50_000, "a" + piece * 50_000, piece * 50_000 + "a"):
        split_margins(text)
        split_label(text)
        known_marks(text, "'")
