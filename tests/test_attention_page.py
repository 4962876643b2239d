"""The page and the table of attention: their numbers are those of the model, and no text becomes markup."""

from __future__ import annotations

import html
import json
import math
import re
import shutil
import subprocess
import unicodedata
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.console import visible
from dragoman.translation.attention_page import WIDTH, page, table
from dragoman.translation.results import Candidate, Sentence

ODD = [
    "</script><script>alert(1)</script>", "<script>alert(1)</script>", "<!--<script x", "</script x", "]]>",
    "<img src=x onerror=f()>", "\"'`", "&lt;", "a\u2028b\u2029c", "\u202egnp.exe", "\u200f",
    "\x1b[31m\x07", "a\tb\r\nc\0", "\ud800", "$data ${x}",
    "漢字かな", "🙂👍🏽", "e\u0301", "שלום", "",
]  # fmt: skip


View = tuple[Sentence, Candidate, np.ndarray]


def view_of(
    source: list[str],
    target: list[str],
    log_probs: list[float],
    weights: np.ndarray,
    copied: dict[int, int] | None = None,
    unknown: Sequence[int] = (),
) -> View:
    """A sentence, its translation, whose texts are their labels joined, and the attention."""
    candidate = Candidate(" ".join(target), [], target, log_probs, -1.0, True, copied or {})
    sentence = Sentence(" ".join(source), "", [], [], source, list(unknown), [candidate])
    return sentence, candidate, weights


def make_view(source: list[str], target: list[str], layers: int = 3, heads: int = 4, **others: Any) -> View:
    """A view with random weights."""
    random = np.random.default_rng(len(source) + 100 * len(target))
    weights = random.dirichlet(np.full(len(source), 0.3), (layers, heads, len(target)))
    return view_of(source, target, np.log(random.uniform(0.1, 1, len(target))).tolist(), weights, **others)


def cats() -> View:
    target = ["I", "gatti", "Black", "dormono", "<i>.</i>", "[EOS]"]
    return make_view(["The", "Black", "cats", "sleep", "<i>.</i>", "[EOS]"], target, copied={2: 1}, unknown=[1, 3])


class Elements(HTMLParser):
    """The elements of a page, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def embedded(text: str) -> list[dict]:
    data = text.partition('id="data">')[2].partition("</script>")[0]
    assert not set("<>&") & set(data), "no markup may remain: Python's parser is more lenient than a browser"
    return json.loads(data)


# --- The page -----------------------------------------------------------------------------------------------------


def test_page_contains_the_view() -> None:
    """Guards against swapped axes, a missing head or layer, and coarse rounding."""
    views = [cats(), make_view(["a", "[EOS]"], ["b", "c", "[EOS]"])]
    for (sentence, candidate, weights), found in zip(views, embedded(page(views)), strict=True):
        assert (found["source"], found["target"]) == (sentence.tokens, candidate.tokens)
        assert (found["text_source"], found["text_target"]) == (sentence.source, candidate.text)
        np.testing.assert_allclose(np.array(found["weights"]) / 10_000, weights, rtol=0, atol=0.5001e-4)
        np.testing.assert_allclose(found["probabilities"], np.exp(candidate.log_probs), rtol=0, atol=0.5001e-4)
        assert {int(t): s for t, s in found["copied"].items()} == candidate.copied
        assert found["unknown"] == sentence.unknown


@pytest.mark.parametrize("label", ODD)
def test_no_text_becomes_markup(label: str) -> None:
    """Guards against sentences that run as a script in the browser, or break the page."""
    text = page([make_view([label, "[EOS]"], ["a", label], copied={1: 0}, unknown=[0])])
    assert Elements(text).found == Elements(page([make_view(["a", "[EOS]"], ["a", "b"])])).found
    assert text.isascii()
    [found] = embedded(text)
    assert found["text_source"] == f"{label} [EOS]"
    assert found["source"][0] == found["target"][1] == visible(label)


def test_page_is_self_contained() -> None:
    """The page loads nothing from the network, so it can be read offline."""
    text = page([cats()])
    for tag, attributes in Elements(text).found:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert not attributes.keys() & {"src", "href", "srcset", "action", "onclick", "onload", "style"}
    assert not re.search(r"https?:|//[a-z]|url\(|@import|fetch\(|XMLHttp|import\(", text.replace('"use strict"', ""))
    assert "default-src 'none'" in text


def test_page_of_nothing() -> None:
    """Blank lines, and a translation without tokens, do not fail."""
    assert embedded(page([])) == []
    none = view_of(["[EOS]"], [], [], np.zeros((2, 2, 0, 1)))
    assert embedded(page([none]))[0]["target"] == []
    assert len(table(*none)) == 1


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def in_browser(text: str, folder: Path, script: str) -> str:
    """The page as HTML after a browser has run its own script, and then another one."""
    policy = re.search(r"<meta http-equiv.*?>", text, re.DOTALL)
    assert policy
    if script:  # without a script the policy stays, and the page itself must obey it
        text = text.replace(policy[0], "").replace("</body>", f'<script type="module">{script}</script></body>')
    (folder / "page.html").write_text(text, encoding="ascii")
    assert BROWSER
    command = [
        BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", f"--user-data-dir={folder / 'browser'}",
        "--virtual-time-budget=5000", "--dump-dom", (folder / "page.html").as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, check=True).stdout.decode()


def texts(found: str, pattern: str) -> list[str]:
    """The visible text of the elements that a pattern finds in a page."""
    return [html.unescape(re.sub("<.*?>", "", text)) for text in re.findall(pattern, found, re.DOTALL)]


@pytest.mark.skipif(not BROWSER, reason="no Chromium here")
def test_script_shows_the_numbers(tmp_path: Path) -> None:
    """Guards the JavaScript: a wrong layer, head, row or column would look just as plausible."""
    sentence, candidate, attention = view = cats()
    found = in_browser(page([view]), tmp_path, "")
    weights = [float(weight) for weight in re.findall(r"<td[^>]*--weight: ([\d.e-]+)", found)]
    np.testing.assert_allclose(np.reshape(weights, (6, 6)), attention.mean((0, 1)), atol=1e-4)
    assert texts(found, r"<button[^>]*>(.*?)</button>") == [*sentence.tokens, *candidate.tokens]
    assert texts(found, r'<button class="word unknown"[^>]*>(.*?)</button>') == ["Black", "sleep"]
    assert texts(found, r'<button class="word copied[^>]*>(.*?)</button>') == ["Black"]

    script = """
        for (const [name, number] of [["layer", 2], ["head", 4]]) {
            const [select] = document.getElementsByName(name);
            select.selectedIndex = number;
            select.dispatchEvent(new Event("change"));
        }
        document.querySelectorAll("button")[NUMBER].dispatchEvent(new MouseEvent("mouseenter"));
    """
    map = attention[1, 3]
    for number, shares in ((8, [*map[2], *[0] * 6]), (1, [*[0] * 6, *map[:, 1]])):  # a target word, a source word
        found = in_browser(page([view]), tmp_path, script.replace("NUMBER", str(number)))
        weights = [float(weight) for weight in re.findall(r"<td[^>]*--weight: ([\d.e-]+)", found)]
        np.testing.assert_allclose(np.reshape(weights, (6, 6)), map, atol=1e-4)
        shown = [float(text.rstrip("%") or 0) / 100 for text in texts(found, r"<small[^>]*>(.*?)</small>")]
        np.testing.assert_allclose(shown, shares, atol=0.0051)
        [readout] = texts(found.replace("\u2068", "").replace("\u2069", ""), r"<output[^>]*>(.*?)</output>")
        best = map[2].argmax()
        probable = f"{100 * math.exp(candidate.log_probs[2]):.0f}% probable"
        looks_at = f"looks at {sentence.tokens[best]} {100 * map[2, best]:.0f}%; copied from Black"
        expected = f"Black, {probable}, {looks_at}" if number == 8 else "Black, not in the vocabulary"
        assert readout == expected
    assert "<i>" not in found, "a label was parsed as markup"


# --- The table ----------------------------------------------------------------------------------------------------


def columns(text: str) -> int:
    """The columns that a terminal needs for a text, counted independently."""
    wide = sum(unicodedata.east_asian_width(letter) in ("W", "F") for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) > 0 for letter in text)


def test_table_shows_where_each_token_looked() -> None:
    """Guards the figures: the best source token, its weight, the second one, and unknown words."""
    weights = np.array([[[[0.7, 0.15, 0.15], [0.25, 0.3, 0.45]]], [[[0.5, 0.4, 0.1], [0.05, 0.2, 0.75]]]])
    view = view_of(["red", "Wine", "[EOS]"], ["Wine", "rosso"], [math.log(0.5), 0.0], weights, {0: 1}, [0])
    assert table(*view) == [
        "token  prob  looks at  weight",
        "Wine    50%  red          60%  ██████      red is unknown; copied from Wine",
        "rosso  100%  [EOS]        60%  ██████",
    ]


def test_columns_line_up_in_every_script() -> None:
    """Guards against counting characters where a terminal counts columns: 猫 takes two, an accent none."""
    labels = [
        "the",
        "猫",
        "ねこネコ",
        "🙂",
        "cafe\u0301",
        "ｗｉｄｅ",
        "한국어",
        "Donaudampfschifffahrt",
        "漢" * 30,
    ]
    heading, *rows = table(*make_view(labels, labels))
    assert len(rows) == len(labels)
    bars = {columns(re.split("[█▏▎▍▌▋▊▉]", row)[0]) for row in rows if re.search("[█▏▎▍▌▋▊▉]", row)}
    percents = {columns(row[: row.index("%")]) for row in rows}
    assert (percents, bars) == ({heading.index("prob") + 3}, {heading.index("weight") + 8})
    assert max(map(columns, [heading, *rows])) <= WIDTH


@given(st.lists(st.text(max_size=12) | st.sampled_from(ODD), min_size=1, max_size=5))
@settings(max_examples=100, deadline=None)
def test_table_has_no_control_characters(labels: list[str]) -> None:
    """Guards a terminal against a sentence that clears it, recolours it, or reverses the rest of the line."""
    lines = table(*make_view(labels, labels, 1, 1, copied={0: 0}, unknown=[0]))
    assert len(lines) == len(labels) + 1
    assert all(visible(line) == line for line in lines)
