"""The page of the server in Chromium: every control, long texts, what the browser keeps, and accessibility."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from conftest import HANG
from echo import echo, reconfigured
from page_layout import assert_readable

pytest.importorskip("fastapi", reason="the server needs more libraries: pip install -e '.[serve]'")
from test_serve import Server, gate, serving  # noqa: F401  (gate is a fixture)

HTML = "My name is <img src=x onerror=alert(1)><b>Anna</b>, see"
EXAMPLES = ["My name is Anna.", "I live in Rome."]


@pytest.fixture
def browse(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a page in Chromium, and record its requests and errors."""
    opened = []

    def page_at(address: str, **options: Any) -> Any:
        page = browser.new_page(**options)
        opened.append(page)
        page.requests = []
        page.errors = []
        page.on("request", lambda request: page.requests.append(request))
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on("console", lambda message: page.errors.append(message.text))
        page.on("dialog", lambda dialog: page.errors.append(dialog.message))
        page.goto(address)
        page.get_by_text("English to Italian").wait_for()
        return page

    yield page_at
    for page in opened:
        page.close()


def address_of(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}/"


@contextmanager
def echoing() -> Iterator[str]:
    """The address of a server that repeats each text."""
    with serving(echo()) as server:
        yield address_of(server)


@contextmanager
def both_ways(folder: Path) -> Iterator[str]:
    """The address of a server of two directions, with examples for the first."""
    (folder / "data").mkdir()
    (folder / "data" / "validation.tsv").write_text("".join(f"{each}\tx\n" for each in EXAMPLES), encoding="utf-8")
    there, back = echo(), reconfigured(echo(), "--data.source_lang=it", "--data.target_lang=en", "--run.name=back")
    there.path = folder / "checkpoints" / "best"
    with serving(there, back) as server:
        yield address_of(server)


def settle(page: Any) -> None:
    """Wait until the text that is shown is translated."""
    page.wait_for_timeout(300)  # longer than the page waits for the next letter
    page.locator("#target[aria-busy=false]").wait_for()


def sent(page: Any) -> list[dict[str, Any]]:
    """The requests for translations so far."""
    return [json.loads(each.post_data) for each in page.requests if each.url.endswith("/translate")]


def languages(page: Any) -> tuple[str, str]:
    """The direction of the last one."""
    return sent(page)[-1]["source_lang"], sent(page)[-1]["target_lang"]


# --- Texts ---


def test_the_page_translates_as_you_type(browse: Callable[..., Any]) -> None:
    """Guards typing, pointing at words, moving with the keyboard, and choosing another translation."""
    with echoing() as address:
        page = browse(address)
        source, target = page.locator("#source"), page.locator("#target")
        source.press_sequentially("My name is Anna, and I live in")
        page.locator("#target:has-text('I live in')").wait_for()
        page.locator("#how > summary").click()
        rows = page.locator(".words")
        words = rows.nth(1).locator("button")
        assert words.nth(3).text_content() == "Anna"
        assert "copied from Anna" in words.nth(3).get_attribute("aria-label")
        assert "unknown" in rows.nth(0).locator("button").nth(3).get_attribute("class")

        weights = "all => all.map(word => Number(word.style.getPropertyValue('--weight')))"
        words.nth(1).hover()
        assert rows.nth(0).locator("button").evaluate_all(weights)[:3] == [0, 1, 0]
        assert rows.nth(0).locator("button").nth(1).text_content() == "name100%"
        page.mouse.move(0, 0)
        assert sum(rows.nth(0).locator("button").evaluate_all(weights)) == 0

        words.nth(0).focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        assert rows.nth(0).locator("button").evaluate_all(weights)[:4] == [0, 0, 1, 0]
        assert page.evaluate("document.activeElement.tabIndex") == 0

        choices = page.get_by_role("radio")
        assert choices.count() == 3
        assert choices.nth(0).is_checked()
        other = page.locator(".candidates label span").nth(1).text_content()
        choices.nth(1).check()
        assert target.text_content() == other
        source.press("Control+End")
        source.press_sequentially("\nsee")
        settle(page)
        assert target.text_content() == f"{other}\nsee"

        source.fill(HTML)
        page.locator("#target:has-text('onerror')").wait_for()
        settle(page)
        assert target.text_content() == echo("beam_size=3", "n_best=3").translate([HTML])[0]
        assert "<img" in target.text_content()
        assert page.locator("main img, main b:not(.word)").count() == 0
        assert page.locator("#sentences summary").text_content() == HTML

        page.get_by_role("button", name="Clear the text").click()
        page.locator("#how").wait_for(state="hidden")
        assert (source.input_value(), target.text_content()) == ("", "")
        assert page.errors == []
        assert {each.url.startswith(address) for each in page.requests} == {True}


@pytest.mark.slow
def test_the_page_cancels_outdated_requests(browse: Callable[..., Any], gate: tuple[Event, Event]) -> None:  # noqa: F811
    """Guards against showing the translation of an earlier text."""
    started, go = gate
    with echoing() as address:
        page = browse(address)
        page.locator("#source").fill("My name")
        page.locator("#target[aria-busy=true]").wait_for()
        assert started.wait(HANG)
        with page.expect_event("requestfailed"):
            page.locator("#source").fill("I live in")
        go.set()
        page.locator("#target:has-text('I live in')").wait_for()
        assert page.locator("#status").text_content() == ""
        assert page.errors == []


def test_long_texts_are_translated_whole(browse: Callable[..., Any]) -> None:
    """Guards against cutting: each line of 20,000 characters arrives, in requests that the server accepts.

    An edit sends only the line that it changes.
    """
    line = "My name is Anna, and I live in: number! "
    lines = [f"{line}{i}" for i in range(300)] + ["", line * 150, "  ", "is the end"]
    text = "\n".join(lines)
    assert len(text) > 18_000
    with echoing() as address:
        page = browse(address)
        page.locator("#source").fill(text)
        page.locator("#progress").wait_for()
        settle(page)
        found = page.locator("#target").text_content().split("\n")
        assert len(found) == len(lines)
        assert [re.sub(r"\s", "", each) for each in found] == [re.sub(r"\s", "", each) for each in lines]
        assert max(sum(map(len, asked["texts"])) for asked in sent(page)) <= 5000
        assert "nothing is cut" in page.locator("#counter").text_content()
        before = len(sent(page))
        page.locator("#source").press("Control+End")
        page.locator("#source").press_sequentially(", see")
        page.locator("#target:has-text('end, see')").wait_for()
        assert {text for asked in sent(page)[before:] for text in asked["texts"]} <= {
            "is the end, see"[:i] for i in range(10, 16)
        }
        page.locator("#source").press("Control+Home")
        page.locator("#source").press_sequentially("see ")
        page.locator("#target:has-text('see My name')").wait_for()
        settle(page)
        changed = page.locator("#target").text_content().split("\n")
        assert changed[0] == f"see {found[0]}"
        assert changed[1:] == [*found[1:-1], "is the end, see"]
        assert page.errors == []


TEXTS = [
    "",
    "\n\n",
    "a b\n" * 5,
    "One sentence. Another one! " * 80,
    "word " * 900,
    "これは文です。" * 400,
    "x" * 2500,
    "🙂" * 1500,
    "end\n" + "no, stop " * 300 + "\n",
]


def test_splitting_loses_nothing_and_cuts_no_word(browse: Callable[..., Any]) -> None:
    """Joined, the parts are the text; they end at spaces or marks, unless a word is longer than a request."""
    with echoing() as address:
        page = browse(address)
        script = "async ([text, most]) => (await import('/requests.js')).split(text, most, 'it')"
        for text in TEXTS:
            for most in (50, 1000):
                parts = page.evaluate(script, [text, most])
                joined = "".join(part["text"] + part["after"].replace(" ", "") for part in parts)
                assert joined == text
                for part in parts:
                    assert len(part["text"].encode("utf-16-le")) // 2 <= most
                    if part["after"] == " " and "xx" not in text:
                        assert re.search(r"[\s。🙂]$", part["text"])


@pytest.mark.slow
def test_a_busy_server_is_asked_again(browse: Callable[..., Any]) -> None:
    """Guards 503 with Retry-After, an error with its remedy, and a server that wants a key."""
    replies: list[Any] = [
        (503, {"detail": "busy"}),
        (504, {"detail": "send less text at a time"}),
        (403, {"error": "this server asks for a key"}),
    ]
    with echoing() as address:
        page = browse(address)

        def refuse(route: Any) -> None:
            if not replies:
                return route.continue_()
            status, content = replies.pop(0)
            return route.fulfill(status=status, headers={"Retry-After": "1"}, json=content)

        page.route("**/translate", refuse)
        page.locator("#source").fill("My name is")
        page.get_by_text("Trying again in 1 s").wait_for()
        page.get_by_text("send less text at a time").wait_for()
        page.get_by_role("button", name="Try again").click()
        page.get_by_label("This server asks for a key.").fill("secret")
        page.get_by_role("button", name="Use").click()
        page.locator("#target:has-text('My name is')").wait_for()
        page.locator("#access").wait_for(state="hidden")
        assert page.requests[-1].headers["authorization"] == "Bearer secret"
        assert page.locator("#status").text_content() == ""


# --- What the browser keeps ---


def test_a_reload_keeps_text_and_glossary(browse: Callable[..., Any]) -> None:
    """Guards the text and the glossary, and a reader who wants neither kept."""
    with echoing() as address:
        page = browse(address)
        page.locator("#terms > summary").click()
        page.locator("#glossary").fill("name = nome")
        page.locator("#source").fill("My name is")
        page.reload()
        page.locator("#target:has-text('My nome is')").wait_for()
        assert page.locator("#source").input_value() == "My name is"

        page.locator("#past > summary").click()
        page.get_by_label("Keep my text and glossary").uncheck()
        assert page.evaluate("Object.values({...localStorage})") == ["false"]
        page.reload()
        page.get_by_text("English to Italian").wait_for()
        page.wait_for_timeout(400)
        assert page.locator("#source").input_value() == ""


@pytest.mark.slow
def test_the_history_is_kept_only_if_wanted(browse: Callable[..., Any]) -> None:
    """Guards the history: off at first; then earlier texts can be opened and deleted."""
    with echoing() as address:
        page = browse(address)

        def enter(text: str) -> None:
            page.locator("#source").fill(text)
            settle(page)
            page.locator("#clear").click()

        page.locator("#past > summary").click()
        enter("My name is")
        assert page.locator("#history li").count() == 0
        page.get_by_label("Keep my last 50 translations").check()
        for text in ("I live in", "I live in: number!", "see"):
            enter(text)
        page.reload()
        page.locator("#past > summary").click()
        rows = page.locator("#history li")
        assert rows.locator("span:first-child").all_text_contents() == ["see", "I live in: number!"]
        rows.nth(1).get_by_role("button").first.click()
        page.locator("#target:has-text('I live in: number!')").wait_for()
        rows.nth(0).get_by_role("button", name="Delete").click()
        assert rows.count() == 1
        page.get_by_role("button", name="Delete all").click()
        assert rows.count() == 0
        assert page.errors == []


# --- Languages ---


@pytest.mark.slow
def test_languages_can_be_swapped_and_detected(browse: Callable[..., Any], tmp_path: Path) -> None:
    """Guards examples, the direction that a request asks for, and that a swap makes the translation the source."""
    with both_ways(tmp_path) as address:
        page = browse(address)
        page.get_by_role("button", name=EXAMPLES[0]).click()
        page.locator("#target:has-text('My name is Anna')").wait_for()
        assert page.get_by_role("button", name=EXAMPLES[0]).count() == 0
        assert languages(page) == ("en", "it")

        page.get_by_role("button", name="Swap the languages").click()
        page.get_by_text("Italian to English · run back").wait_for()
        settle(page)
        assert languages(page) == ("it", "en")
        assert page.locator("#source").input_value() == "My name is Anna."
        page.reload()
        page.get_by_text("Italian to English · run back").wait_for()

        page.get_by_label("Translate from").select_option("Detect language")
        page.locator("#source").fill("Je voudrais acheter un billet pour le train de demain matin, s'il vous plaît.")
        page.get_by_text("This text looks like French").wait_for()
        page.locator("#source").fill("Mi piacerebbe sapere quando parte il treno per Roma, per favore.")
        page.get_by_text("Detected: Italian").wait_for(state="attached")
        settle(page)
        assert languages(page) == ("it", "en")
        page.locator("#source").fill("I would like to know when the train to Rome leaves, please.")
        page.get_by_text("Detected: English").wait_for(state="attached")
        settle(page)
        assert languages(page) == ("en", "it")
        page.get_by_label("Translate from").select_option("Italian")
        settle(page)
        assert languages(page) == ("it", "en")


# --- Doubts ---


@pytest.mark.parametrize("of_sentence", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_doubt_is_marked_where_it_stands(browse: Callable[..., Any], of_sentence: bool) -> None:
    """Guards the reason on focus and hover, and Escape; for a sentence, and for a whole line."""
    doubt = "the model is unsure about 'name'."

    def answered(route: Any) -> None:
        reply = route.fetch()
        content = reply.json()
        for translation in content["translations"]:
            translation["warnings"] = [doubt] if "name" in translation["source"] else []
            for sentence in translation["sentences"]:
                sentence["warnings"] = [doubt] if of_sentence and "name" in sentence["source"] else []
        route.fulfill(json=content)

    with echoing() as address:
        page = browse(address)
        page.route("**/translate", answered)
        page.locator("#source").fill("I live in number.\nMy name is number. I live in number.")
        page.get_by_role("button", name="1 doubtful place").click()
        marked = page.locator("#target .doubt")
        expected = "My name is number." if of_sentence else "My name is number. I live in number."
        assert marked.text_content() == expected
        reason = page.get_by_role("tooltip")
        assert reason.text_content() == doubt
        assert page.evaluate("document.activeElement.getAttribute('aria-describedby')") == "reason"
        page.keyboard.press("Escape")
        assert not reason.is_visible()
        marked.hover()
        assert reason.is_visible()
        page.mouse.move(0, 0)
        reason.wait_for(state="hidden")
        assert page.locator("#target").text_content() == page.locator("#source").input_value()
        page.locator("#how > summary").click()
        page.get_by_role("radio").nth(4).check()
        assert marked.count() == (0 if of_sentence else 1)
        assert page.errors == []


# --- Documents ---

DROP = """([name, content]) => {
  const data = new DataTransfer();
  data.items.add(new File([content], name, {type: name.endsWith("log") ? "text/plain" : ""}));
  for (const type of ["dragover", "drop"]) {
    document.querySelector("#source").dispatchEvent(new DragEvent(type, {dataTransfer: data, bubbles: true}));
  }
}"""


def test_documents_are_translated_and_offered(browse: Callable[..., Any]) -> None:
    """Guards choosing and dropping files, the name and content of the download, errors, and cancelling."""
    with echoing() as address:
        page = browse(address)
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name="Document").click()
        chooser.value.set_files(
            [{"name": "report.en.md", "mimeType": "", "buffer": b"# My name\n\nI live *in* number.\n"}]
        )
        with page.expect_download() as download:
            page.get_by_role("link", name="Download").click()
        assert download.value.suggested_filename == "report.it.md"
        assert download.value.path().read_bytes() == b"# My name\n\nI live *in* number.\n"

        page.evaluate(DROP, ["broken.DOCX", "x"])
        page.locator("#documents .error:has-text('broken.DOCX')").wait_for()
        page.evaluate(DROP, ["photo.png", "x"])
        page.get_by_text("photo.png cannot be translated here, only text .txt").wait_for()
        page.get_by_role("button", name="Remove broken.DOCX").click()
        assert page.locator("#documents li").count() == 1
        page.evaluate(DROP, ["letter.log", "My name is"])
        page.locator("#target:has-text('My name is')").wait_for()

        page.route("**/translate_file", lambda route: None)  # never answered
        page.evaluate(DROP, ["slow.md", "x"])
        page.get_by_role("progressbar", name="Translating slow.md").wait_for()
        with page.expect_event("requestfailed"):
            page.get_by_role("button", name="Cancel").click()


# --- For everyone ---


def fill_everything(page: Any) -> None:
    """Use each part of the page, so that all of it is shown."""
    page.get_by_text("English to Italian").wait_for()
    page.locator("#terms > summary").click()
    page.locator("#glossary").fill("station = fermata")
    page.locator("#past > summary").click()
    page.get_by_label("Keep my last 50 translations").check()
    page.locator("#source").fill("My name is Christopher-Alexander, and I live in: number! (see)")
    page.locator("#target:has-text('Christopher')").wait_for()
    settle(page)
    page.locator("#clear").click()
    page.locator("#source").fill("qwert asdf yxcv number")
    page.locator("#target:has-text('yxcv')").wait_for()
    settle(page)
    page.locator("#how > summary").click()
    page.locator(".words").nth(1).locator("button").first.hover()
    page.locator("#doubts").click()


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_is_accessible(browse: Callable[..., Any], tmp_path: Path, theme: str) -> None:
    """axe-core finds nothing serious on the empty page, and with every part in use."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python").Axe()
    with both_ways(tmp_path) as address:
        page = browse(address, color_scheme=theme)
        for prepare in (lambda page: None, fill_everything):
            prepare(page)
            violations = axe.run(page).response["violations"]
            serious = [each for each in violations if each["impact"] in ("serious", "critical")]
            assert not serious, "\n".join(f"{each['help']}: {each['nodes'][0]['html']}" for each in serious)


@pytest.mark.slow
def test_the_page_is_readable(browser: Any) -> None:
    """No label covers another, or leaves its box or the screen of a phone."""
    with echoing() as address:
        assert_readable(browser, address)
        assert_readable(browser, address, fill_everything)
