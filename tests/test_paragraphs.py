"""Wrapped text: its paragraphs are translated and keep their places; text with a sentence a line is left alone."""

from __future__ import annotations

import random
import textwrap
from pathlib import Path

import pytest

from dragoman import translate
from dragoman.__main__ import run as run_command
from dragoman.command_line import parse_translate
from dragoman.documents.paragraphs import ParagraphsDocument, broken_lines
from echo import echo

SENTENCES = (
    "I hope that you are well and that you had a good journey.",
    "The train leaves at nine, and we will be at the well-known station of St. Pancras.",
    "Where is the station?",
    "My brother is reading a newspaper — in the kitchen, as always — and drinks 3 cups of coffee.",
    "“Is this your dog?” asked Mr. Miller.",
    "Ich habe gestern mit dem Chef gesprochen, und er hat gesagt, dass alle Mitarbeiter kommen.",
    "Non, je ne regrette rien : est-ce que tu viens ?",
    "See https://example.org/a/very/long/address/that/sticks/out?of=the&text=here for more.",
    "Η γάτα είναι μαύρη και ο σκύλος είναι άσπρος.",
)
SHAPES = {
    "": "",
    "> ": "> ",
    ">> ": ">> ",
    "> > ": "> > ",
    "    ": "    ",
    "\t": "\t",
    "- ": "  ",
    "12. ": "    ",
    "  ": "",
}


def paragraphs_of(text: str) -> list[str]:
    return [inline.line for inline in ParagraphsDocument(text).inlines]


def unchanged(text: str) -> str:
    """The text with each paragraph on a line."""
    document = ParagraphsDocument(text)
    return document.write([[inline.line] for inline in document.inlines])


@pytest.mark.parametrize("width", [34, 45, 60, 72, 78, 100])
def test_wrapped_paragraphs_are_found_again(width: int) -> None:
    """Guards against half sentences, joined or broken words, and lost quotation marks."""
    draw = random.Random(width)
    for _ in range(100):
        expected, lines = [], []
        for _ in range(draw.randint(1, 5)):
            paragraph = " ".join(draw.sample(SENTENCES, draw.randint(1, 4)))
            first, rest = draw.choice(list(SHAPES.items()))
            lines += textwrap.wrap(
                paragraph, width, initial_indent=first, subsequent_indent=rest, tabsize=1, break_long_words=False
            )
            lines.append("")
            expected += [first + paragraph, ""]
        assert unchanged("\n".join(lines)).split("\n") == expected


@pytest.mark.parametrize(
    "text",
    [
        "Dear Anna,\n\nThank you.\n\nBest regards,\nTom\n-- \nTom Miller\n",
        "Anna Miller\n221B Baker Street\nLondon NW1 6XE\nUnited Kingdom",
        "- milk\n- bread\n* eggs\n1. Call Tom.\n2) Call Anna.\na) Where?\n• Here.",
        "milk\nbread\neggs",
        "Title\n=====\n\nA sentence.\n\n  * * *\n\n> quoted\n>\n> \n>> twice\nanswer\n",
        "    indented\n  less\nnot at all\n        more",
        "\n\n\n",
        "",
        "I live in Rome.\nWhere is the station?\nMy name is Anna.",
        "Agenda:\n- the train\n- the station",
    ],
)
def test_what_is_not_wrapped_keeps_its_lines(text: str) -> None:
    """Guards addresses, lists, titles, greetings, blank lines, rules and indentation."""
    assert unchanged(text) == text
    assert broken_lines(text.split("\n")) == []


@pytest.mark.parametrize(
    ("text", "paragraphs"),
    [
        ("Please remember that we shall meet at\n9 - not at 10. The train, as always, leaves\n- late.", 1),
        ("- Please remember that we, as always, meet\n  at nine - or, if you come later, at ten\n  - here.", 1),
        ("The old woman is reading a book in the gar\u00ad\nden.", 1),
        ("The black cats are drinking the milk in the\nkitchen. Where are they now, and where is the\ndog?", 1),
        ("- The black cats are drinking the milk in\n  the kitchen.\n- Where are the keys?", 2),
        ("  First paragraph of a book, in which each of\nthem starts further right.\n  The next one does, too.", 2),
        ("我们明天早上坐火车去海边，你和你的朋友也想一\n起去吗？天气很好，我们可以在海里游泳。", 1),
        ("彼は毎朝新聞を読んでからコーヒーを飲んで会社に\n行きます。", 1),
        ("나는 어제 친구와 함께 바다에 가서 수영을\n했습니다. 날씨가 좋았습니다.", 1),
        ("เมื่อวานนี้ฉันไปทะเลกับเพื่อนและว่ายน้ำด้วย\nกันทั้งวัน", 1),
        ("> The cat is black and the dog is white and\n> they are here.\n\nNo, the cat is white.", 2),
    ],
)
def test_paragraphs_in_many_forms(text: str, paragraphs: int) -> None:
    """Guards dashes and numbers that look like bullets, soft hyphens, first lines, and scripts without spaces."""
    found = paragraphs_of(text)
    assert len(found) == paragraphs
    spaceless = text[0] in "我彼เ"
    whole = "".join(found) if spaceless else " ".join(found)
    words = text.replace("\u00ad\n", "").replace("> ", "").replace("\n- The", "\nThe").replace("\n- Where", "\nWhere")
    assert whole.split() == words.removeprefix("- ").replace("\n", "" if spaceless else " ").split()


@pytest.mark.parametrize("given", ["file", "stdin", "argument"])
def test_wrapped_text_is_named_once(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    """Guards the warning without the option, and what the option writes."""
    monkeypatch.setattr(translate, "load_translator", lambda *_: echo())
    text = "\n".join(textwrap.wrap("I live in Rome, and my name is Anna! " * 9, 45))
    letter = tmp_path / "letter.txt"
    letter.write_text(f"My name is Anna.\n\n{text}\n\n> {text[:40]}\n", encoding="utf-8")

    def run(*options: str) -> tuple[str, str]:
        source = [letter.read_text(encoding="utf-8")[:-1]] if given == "argument" else ["--input", str(letter)]
        with letter.open(encoding="utf-8") as file:
            monkeypatch.setattr("sys.stdin", file)
            words = [*(source if given != "stdin" else []), "--run", "here", *options]
            assert run_command("translate", parse_translate(words)) == 0
        output, said = capfd.readouterr()
        return output, "\n".join(line for line in said.split("\n") if "inside a sentence" in line)

    output, said = run()
    assert said.count("try --paragraphs") == 1
    assert f"lines {3}, " in said
    output, said = run("--paragraphs")
    assert said == ""
    assert output == f"My name is Anna.\n\n{' '.join(text.split())}\n\n> {text[:40]}\n"


@pytest.mark.parametrize("options", ["--markup html", "--json", "--align", "--prefix x", "--score", "--embed"])
def test_paragraphs_are_plain_text(options: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        parse_translate(["--paragraphs", *options.split()])
    assert "--paragraphs" in capsys.readouterr().err
