"""Markup: every tag stays, around the right words; everything else stays as it is; hostile input does no harm."""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import in_child
from dragoman import command_line
from dragoman.__main__ import run as run_command
from dragoman.directions import Direction
from dragoman.documents.document import DocumentTask
from dragoman.documents.inline import MAX_DEPTH, Content, Inline, Placed, Span, move_spans
from dragoman.documents.markup import KINDS, parse_markup, translate_markup
from dragoman.errors import ConfigError, DataError
from dragoman.translation.results import Translation
from dragoman.translation.translator import Translator
from dragoman.translation.word_alignment import align_words, words_of
from echo import echo
from faults import untrained

EN_IT = Direction("en", "it")
ECHO = echo()
some = functools.partial(settings, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def shown(content: Content) -> str:
    """A content with the marks of its spans as tags."""

    def inner(each: Placed) -> str:
        return shown([Placed(span, None) for span in each.span.inside] if each.content is None else each.content)

    return "".join(
        each if isinstance(each, str) else f"<{each.span.mark}>{inner(each)}</{each.span.mark}>" for each in content
    )


def moved(text: str, translation: str, pairs: list[tuple[int, int]], *spans: Span) -> str:
    """Move spans, with an alignment from words of the translation to words of the text."""
    weights = np.zeros((len(translation.split()), len(text.split())))
    for target, source in pairs:
        weights[target, source] = 1
    return shown(move_spans(Inline(text, list(spans)), translation, weights, EN_IT))


# ---- Where spans go

CAT = ("The black cat sleeps.", "Il gatto nero dorme.", [(0, 0), (1, 2), (2, 1), (3, 3)])


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (4, 9, "Il gatto <b>nero</b> dorme."),
        (4, 13, "Il <b>gatto nero</b> dorme."),
        (0, 13, "<b>Il gatto nero</b> dorme."),
        (14, 20, "Il gatto nero <b>dorme</b>."),
        (14, 21, "Il gatto nero <b>dorme.</b>"),
        (0, 21, "<b>Il gatto nero dorme.</b>"),
        (6, 8, "Il gatto <b>nero</b> dorme."),  # never splits a word
    ],
)
def test_span_goes_around_its_words(start: int, end: int, expected: str) -> None:
    """Guards word order, contiguity, and punctuation that slips in or out."""
    assert moved(*CAT, Span("b", start, end)) == expected


def test_nested_spans_stay_nested_and_neighbours_apart() -> None:
    inner = Span("i", 4, 9)
    assert moved(*CAT, Span("b", 0, 13, [inner])) == "<b>Il gatto <i>nero</i></b> dorme."
    assert moved(*CAT, Span("b", 4, 9), Span("i", 10, 13)) == "Il <i>gatto</i> <b>nero</b> dorme."


def test_places_keep_their_neighbours() -> None:
    """An image stays before its word, and a note after its word."""
    assert moved("Hello <img> black cat".replace("<img> ", ""), "Ciao gatto nero", [(0, 0), (1, 2), (2, 1)],
                 Span("img", 6, 6)) == "Ciao gatto <img></img>nero"  # fmt: skip
    assert moved(*CAT, Span("sup", 9, 9, fixed=True)) == "Il gatto nero<sup></sup> dorme."
    assert moved(*CAT, Span("sup", 20, 20, fixed=True)) == "Il gatto nero dorme<sup></sup>."


@st.composite
def spans_in_text(draw: st.DrawFn) -> tuple[str, list[Span], np.ndarray]:
    """A text of words, nested spans, and how the words are reordered."""
    words = draw(st.lists(st.sampled_from(["cat,", "dog", "(eats)", "–", "x"]), min_size=1, max_size=8))
    text = " ".join(words)
    number = iter(range(100))

    def spans(start: int, end: int, depth: int) -> list[Span]:
        cuts = sorted(draw(st.lists(st.integers(start, end), min_size=2, max_size=6)))
        pairs = zip(cuts[::2], cuts[1::2], strict=False)
        found = []
        for first, last in pairs:
            inside = spans(first, last, depth - 1) if depth else []
            found.append(Span(f"t{next(number)}", first, last, inside))
        return found

    order = draw(st.permutations(range(len(words))))
    noise = draw(st.floats(0, 1))
    return text, spans(0, len(text), 2), (1 - noise) * np.eye(len(words))[order] + noise / len(words)


@given(spans_in_text())
@some(max_examples=300)
def test_moving_spans_loses_nothing(case: tuple[str, list[Span], np.ndarray]) -> None:
    """Guards against lost, doubled, crossing or empty tags, against lost text, and against tags inside words."""
    text, spans, weights = case
    words = text.split()
    translation = " ".join(words[int(row.argmax())] for row in weights)
    content = move_spans(Inline(text, spans), translation, weights, EN_IT)
    tree = ElementTree.fromstring(f"<x>{shown(content)}</x>")

    def names(each: list[Span]) -> list[Any]:
        return sorted(name for span in each for name in [span.mark, *names(span.inside)])

    assert sorted(element.tag for element in tree.iter() if element.tag != "x") == names(spans)
    assert "".join(tree.itertext()).split() == translation.split()


# ---- Words and tokens


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_alignment_of_words_is_that_of_their_tokens(kind: str) -> None:
    """Guards tokens that are counted to the wrong word: marks, unknown words, subwords, several sentences."""
    translator = echo(kind=kind)
    text = 'My name is "Zoltan", (see) number €5! And I live in Łódź.'
    [translation] = translator.with_alignments(translator.explain([text]))
    found = align_words(translator, translation, EN_IT)
    assert translation.text == text
    np.testing.assert_allclose(found, np.eye(len(text.split())), atol=1e-6)


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_empty_translation_has_no_alignment(kind: str) -> None:
    """If the translation of a text is empty, its tags stay."""
    translator = echo(kind=kind)
    [translation] = translator.explain(["My name"])
    [sentence] = translation.sentences
    nothing = replace(sentence, candidates=[replace(sentence.candidates[0], ids=[], tokens=[], text="")])
    [empty] = translator.with_alignments([Translation("My name", "", [nothing], [])])
    found = align_words(translator, empty, EN_IT)
    assert found.shape == (0, 2)
    inside = Span("i", 0, 2)
    assert shown(move_spans(Inline("My name", [Span("b", 0, 7, [inside])]), "", found, EN_IT)) == "<b><i></i></b>"


def test_words_of_a_language_without_spaces_are_characters() -> None:
    assert words_of("猫 が寝る", "ja") == [(0, 1), (2, 3), (3, 4), (4, 5)]


# ---- Documents: a translator that repeats its source must give them back

SAME = {
    "html": [
        "My <b>name</b> is <i>Anna</i>.",
        '<p class="x">My <a href="a?b=1&amp;c=2">name <em>is</em></a> 5 &lt; 6</p><pre>  a\n  b</pre>',
        "<ul><li>number<ul><li>name</li></ul></li><li>see</li></ul>",
        "My name<br>is <img src=\"x\"> Anna<!-- My --><script>if (a<b) 'My'</script>",
        'My <code>x = 1</code> and <span translate="no">a  b</span> <kbd class="y">Ctrl</kbd>.',
        "<!DOCTYPE html><html><head><title>My name</title><style>p > b {}</style></head><body><p>is</p></body></html>",
        "<table><tbody><tr><td>name</td><td>&nbsp;</td></tr></tbody></table>".replace("&nbsp;", "\u00a0"),
        "name<sup>1</sup>, name.",
        "<?php echo 1 ?><p>My name</p>",
        'My name <svg viewBox="0 0 1 1"><use xlink:href="#name"></use></svg> is<!-- name -->',
    ],
    "xml": [
        "My <b>name</b> &amp; number",
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE a [\n<!ENTITY e "x">\n]>\n'
        "<a><!-- My --><p>My &e; name</p><?pi x?></a>\n",
        '<x:a xmlns:x="urn:y"><x:b k="My">My <x:c/>name</x:b>\n  <code>  My</code></x:a>',
    ],
    "markdown": [
        "---\ntitle: My name\n---\n\nMy *name* is **Anna** and _I_ live in `a  b`.\n",
        "My name\n=======\n\n## number ##\n\n1) My\n   name\n\n   * see `x`\n   * ![name](a.png \"see\")\n",
        "| My | name |\n|:--|--:|\n| `a` | [see](x_y*z) and \\| number |\n",
        '> My [name][1] is <b>Anna</b>\\\n> and <https://a.b>\n\n[1]: http://x.y  "My"\n',
        "```\nMy name\n```\n\n<div>My\n</div>\n\n    My name\n",
        "- [ ] My ~~name~~[^a]\n- [x] number\n\n[^a]: see 1. and \\*this\\*\n",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in SAME.items() for text in texts])
def test_document_without_changes_comes_back(kind: str, text: str) -> None:
    """Guards what is not text: attributes, entities, code, comments, lists, tables, definitions, white space."""
    expected = text.replace("My\n   name", "My name")  # a paragraph becomes one line
    assert translate_markup(echo(), text, kind) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<p>My name<p>is", "<p>My name</p><p>is</p>"),
        ("<b>My <i>name</b> is</i>", "<b>My <i>name</i></b> <i>is</i>"),
        ("My </p> name", "My <p></p> name"),
        ("a < b & c", "a &lt; b &amp; c"),
        ("<td>name", "name"),
    ],
)
def test_malformed_html_is_repaired_as_browsers_do(text: str, expected: str) -> None:
    assert translate_markup(echo(), text, "html") == expected


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("<a>\n  <b>My</a>", "line 2, column"),
        ("My <b>name", "line 1, column .*b line 1 and the end"),
        ("<a>&x;</a>", "line 1, column 7"),
        ("<a/></x><x>", "line 1, column"),
    ],
)
def test_malformed_xml_is_refused_with_its_place(text: str, where: str) -> None:
    with pytest.raises(DataError, match=where):
        translate_markup(echo(), text, "xml")


def test_attributes_that_are_text_are_translated() -> None:
    """Translates descriptions and titles, but not addresses and names."""
    html = (
        '<img alt="one" src="no"><a title="two" href="no" id="no">three <i aria-label="four">five</i></a>'
        '<input placeholder="six" value="no"><code title="no"><b title="no">no</b></code><p class="notranslate">no</p>'
    )
    markdown = '![seven *eight*](no "nine") [ten](no "eleven")'
    tasks = [
        DocumentTask.begin(ECHO, parse_markup(html, "html")),
        DocumentTask.begin(ECHO, parse_markup(markdown, "markdown")),
    ]
    words = {word for task in tasks for request in task.requests for word in request.text.split()}
    assert words == {"one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"}


# ---- Hostile input

PIECES = st.one_of(
    st.sampled_from(
        ["<b>", "</b>", "<p", "<", ">", "&", "&#x0;", "&lt", "<!--", "-->", "<a href=", '"', "<br>", "</p>", "<code>",
         "<table>", "<svg>", "<select>", "]]>", "<![CDATA[", "<?", "?>", "*", "**", "_", "`", "```", "[", "](", ")",
         "|", "\n", "\n\n", "- ", "1. ", "> ", "# ", "---\n", "    ", "\t", "~~", "![", "[^1]", "\\", "My", "。"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    st.builds(lambda letter, times: letter * times, st.sampled_from("a .<*[>_`|"), st.integers(1, 300)),
)  # fmt: skip


ANY_TEXT = st.lists(PIECES, max_size=20).map("".join)


@given(ANY_TEXT, st.sampled_from(KINDS))
@some(max_examples=150)
def test_any_text_gets_an_answer(text: str, kind: str) -> None:
    """Guards against a traceback, and against output that cannot be read again."""
    check_answer(text, kind)


@pytest.mark.slow
@given(ANY_TEXT | st.text(), st.sampled_from(KINDS))
@some(max_examples=1000)
def test_a_thousand_texts_get_an_answer(text: str, kind: str) -> None:
    """The same with any characters."""
    check_answer(text, kind)


def check_answer(text: str, kind: str) -> None:
    found = answer(text, kind)
    if found.startswith("error: "):
        assert "\n" not in found
    elif kind == "xml":
        translate_markup(ECHO, found, kind)


def answer(text: str, kind: str) -> str:
    """The translation of a document, or why it is refused."""
    try:
        return translate_markup(ECHO, text, kind)
    except DataError as error:
        return f"error: {error}"


BOMB = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
HUGE = {
    "nested html": ("<b>" * 100_000, "html"),
    "nested div": ("<div>" * 100_000, "html"),
    "nested xml": ("<a>" * 100_000 + "</a>" * 100_000, "xml"),
    "nested quotes": (">" * 100_000 + "My", "markdown"),
    "nested emphasis": ("*My **name " * 2_000 + "** a*" * 2_000, "markdown"),
    "brackets": ("[" * 20_000, "markdown"),
    "attributes": ("<a" + " b" * 500_000 + ">", "html"),
    "paragraphs": ("<p>My" * 20_000, "html"),
    "comments": ("<!---->" * 50_000, "html"),
    "many tags": ("<i>My</i> " * 3_000, "html"),
    "many empty tags": ("My" + "<i></i>" * 20_000, "html"),
    "an attribute": (f'<a title="{"My name " * 10_000}"/>', "xml"),
    "entities": (f'<!DOCTYPE a [<!ENTITY l0 "l">{BOMB}]><a>&l9;</a>', "xml"),
    "entities in an attribute": (f'<!DOCTYPE a [<!ENTITY l0 "l">{BOMB}]><a title="&l9;"/>', "xml"),
}


@pytest.mark.parametrize("name", HUGE)
def test_huge_input_ends_soon(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against stack overflows, exploding entities and quadratic time, with which this would take hours."""
    monkeypatch.setattr(
        Translator, "explain", lambda self, asked, **_: [Translation(each.text, each.text, [], []) for each in asked]
    )
    assert len(answer(*HUGE[name]).split("\n")) < 3


def test_external_entities_are_not_loaded(tmp_path: Path) -> None:
    """External entities could read files of the server."""
    secret = tmp_path / "secret.txt"
    secret.write_text("My secret")
    text = f'<!DOCTYPE a [<!ENTITY e SYSTEM "{secret.as_uri()}">]><a><p>My &e; name</p></a>'
    found = translate_markup(echo(), text, "xml")
    assert "My &e; name" in found
    assert "secret</" not in found
    text = f'<!DOCTYPE a SYSTEM "{secret.as_uri()}"><a>My name</a>'
    assert "<a>My name</a>" in translate_markup(echo(), text, "xml")


def test_depth_that_is_allowed_works() -> None:
    text = "<b>" * (MAX_DEPTH - 10) + "name" + "</b>" * (MAX_DEPTH - 10)
    assert translate_markup(echo(), text, "html") == text
    assert translate_markup(echo(), text, "xml") == text


# ---- Around it


def test_plain_text_is_translated_as_without_tags() -> None:
    """Tags must not change the input of the model, or its translation."""
    translator = echo()
    text = "My name is Anna, and I live in Rome."
    found = translate_markup(translator, f"<p>{text.replace('name', '<b>name</b>')}</p>", "html")
    assert "".join(ElementTree.fromstring(found).itertext()) == translator.translate([text])[0]


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lxml", None)
    with pytest.raises(ConfigError, match=r"cannot find lxml.*pip install.*\[documents\]"):
        translate_markup(echo(), "<a/>", "xml")
    assert translate_markup(echo(), "name", "html") == "name"


def test_warnings_quote_the_text() -> None:
    translator = echo("max_length=2")
    translate_markup(translator, "<p>My name is Anna.</p>", "html")
    assert translator.warnings[0][1].startswith('"My name is Anna.": the translation was cut off')


def test_command_line(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """An argument is a document, and so is a file; a mistake is one line that says where."""
    run = str(untrained.run(tmp_path))
    capfdbinary.readouterr()  # what the preparation printed
    page = tmp_path / "page.xml"
    page.write_text("<a>\n<p>the <b>cat</b></p>\n<q/>\n</a>\n", encoding="utf-8")

    def translate(*arguments: str) -> tuple[int, str, str]:
        code = in_child(
            lambda: run_command(
                "translate", command_line.parse_translate(["--run", run, "--device", "cpu", *arguments])
            )
        )
        output = capfdbinary.readouterr()
        return code, output.out.decode(), output.err.decode()

    code, output, _ = translate("--markup", "xml", "--input", str(page))
    assert code == 0
    assert [element.tag for element in ElementTree.fromstring(output).iter()] == ["a", "p", "b", "q"]
    code, output, _ = translate("--markup", "html", "<i>the cat</i>", "the <br>dog")
    assert code == 0
    assert [line.count("<") for line in output.splitlines()] == [2, 1]
    page.write_text("<a>\n<p>the cat</a>", encoding="utf-8")
    code, output, error = translate("--markup", "xml", "--input", str(page))
    assert (code, output) == (3, "")
    assert f"{page}: line 2, column" in error
    assert error.count("\n") == 1
    with pytest.raises(SystemExit):
        command_line.parse_translate(["--markup", "html", "--json", "x"])
