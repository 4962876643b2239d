"""The page of a report: no text can change its structure, and the file loads nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from dragoman.console import visible
from dragoman.evaluation.curves import shared_charts, ticks
from dragoman.evaluation.page import render_comparison, render_page

NASTY = (
    "</dd></title></style><script>alert(1)</script><img src=x onerror=alert(1)>\"'> & &lt; {{ 7 * 7 }} {% x %} \u202e"
)


def report(text: str = "the cat", rows: int = 30, against: int = 1, alarms: bool = True) -> dict[str, Any]:
    """The contents of a report's JSON file, with one text in all places where text can come from outside."""
    names = ("BLEU", "chrF", "TER", "WER", "CER")
    figures = [
        {
            "name": name,
            "score": 40.0,
            "low": 38.0 if i < 3 else None,
            "high": 43.0 if i < 3 else None,
            "signature": text,
        }
        for i, name in enumerate(names)
    ]
    differences = [{"name": name, "difference": -1.5, "low": -3.0, "high": 0.2, "p": 0.04} for name in names[:3]]
    sentence = {
        "source": text,
        "reference": text,
        "translation": text,
        "tokens": 3,
        "unknown": 0,
        "complete": True,
        "reference_words": 12,
    }
    bucket = {"name": "1-5", "pairs": rows, "bleu": 100.0, "chrf": 0.0}
    return {
        "name": text,
        "run": text,
        "step": 12000,
        "checkpoint": text,
        "source_lang": text,
        "target_lang": text,
        "decoding": {"beam_size": 5, "unknown": text},
        "pairs": rows,
        "length_ratio": 0.97,
        "figures": figures,
        "copied": figures,
        "against": [{"name": text, "figures": figures, "differences": differences}] * against,
        "directions": [bucket],
        "lengths": [bucket],
        "alarms": [{"name": "empty", "text": text, "sentences": list(range(1, 21))}] if alarms else [],
        "worst": list(range(1, min(rows, 20) + 1)),
        "sentences": [sentence | {"chrf": 100 * i / rows, "words": 2 * i} for i in range(rows)],
    }


class Outline(HTMLParser):
    """The elements of a page with their attributes, its text, and the elements left open."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, list[str]]] = []
        self.values: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag != "meta":  # it has no end tag
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, [name for name, _ in attrs]))
        self.values += [value or "" for _, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize(
    "text", [NASTY, "", "\x00\x1b[31m\x07", "a" * 5000, "https://example.org/x.js", "שלום 漢字 🙂"]
)
def test_no_text_changes_the_page(text: str) -> None:
    """Guards against texts taken for markup or script: elements and attributes are the same for every text."""
    plain, nasty = Outline(render_page(report())), Outline(render_page(report(text)))
    assert nasty.elements == plain.elements
    assert not nasty.open
    assert visible(text) in nasty.text
    assert not {tag for tag, _ in nasty.elements} & {"script", "img", "link", "iframe", "object", "base", "form", "a"}


@pytest.mark.parametrize("text", [NASTY, "\x00\x1b[31m\x07", "https://example.org/x.js", "שלום 漢字 🙂"])
def test_no_name_changes_the_page_of_several_runs(text: str) -> None:
    """Guards the names of runs, their settings and notes, which are text from folders that anybody may have made."""

    def page(text: str) -> str:
        difference = {"name": "BLEU", "difference": -1.5, "low": -3.0, "high": 0.2, "p": 0.04}
        pair = {"run": text, "other": text, "differences": [difference]}
        compared = {"name": text, "pairs": 9, "differences": [pair], "notes": [text]}
        charts = shared_charts({text: {"score/bleu": [(10, 1.0)]}}, {text: 2.0})
        return render_comparison(compared, [["", text], ["data.train", text]], charts)

    plain, nasty = Outline(page("wide")), Outline(page(text))
    assert nasty.elements == plain.elements
    assert not nasty.open
    assert visible(text) in nasty.text
    assert "default-src 'none'" in page(text)
    assert {name for _, names in nasty.elements for name in names}.isdisjoint({"src", "href", "style"})


def test_a_page_loads_nothing() -> None:
    """Guards privacy and reading without a network: nothing is loaded, and the policy forbids it."""
    page = render_page(report())
    assert not re.search(r"https?:|//|@import|url\(|\bsrc=|\bhref=|\bon\w+=|javascript", page)
    assert "default-src 'none'" in page
    outline = Outline(render_page(report("https://example.org/x.js")))
    named = [value for value in outline.values if "://" in value]
    assert set(named) <= {"https://example.org/x.js"}  # as a language name
    assert {name for _, names in outline.elements for name in names}.isdisjoint({"src", "href", "style"})


def test_a_page_has_two_themes_and_fits_a_phone() -> None:
    """Guards the style for two themes and phones, and against colours outside the themes."""
    page = render_page(report())
    assert "prefers-color-scheme: dark" in page
    assert 'content="width=device-width' in page
    style = page[page.index("<style>") : page.index("</style>")]
    rules = re.sub(r":root \{.*?\}", "", style, flags=re.DOTALL)
    assert "#" not in rules
    names = set(re.findall(r"var\((--[\w-]+)\)", style))
    light, dark = (set(re.findall(r"(--[\w-]+):", part)) for part in re.findall(r":root \{(.*?)\}", style, re.DOTALL))
    assert names == light == dark


@pytest.mark.parametrize("alarms", [True, False])
def test_a_page_without_alarms_says_so(alarms: bool) -> None:
    """Guards against an empty section, which would look as if nothing had been checked."""
    assert ("None.</span>" in render_page(report(alarms=alarms))) != alarms


def test_visible_keeps_readable_text() -> None:
    """Guards scripts that need invisible characters: joiners in emoji, Persian and Hindi, and direction marks."""
    for text in ("👩‍🚀", "می‌خواهم", "क्‍ष", "שלום\u200f", "l'amico", "漢字", "a\u00a0b", ""):
        assert visible(text) == text
    assert visible("a\x1bb\u202ec\ud800\x85\u2028") == "a⟨U+001B⟩b⟨U+202E⟩c⟨U+D800⟩⟨U+0085⟩⟨U+2028⟩"


@pytest.mark.parametrize("highest", [0.5, 1, 5, 6, 7, 31.2, 100, 106.4, 731, 12345])
def test_ticks_reach_the_highest_value(highest: float) -> None:
    """Guards axes: a few round numbers, from zero to the highest value or the next step."""
    found = ticks(highest)
    assert found[0] == 0
    assert found[-1] >= highest
    assert found[-2] < highest
    assert len(found) <= 8
    assert str(found[1]).rstrip("0") in ("1", "2", "5")
