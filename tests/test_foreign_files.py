"""Files of other toolkits, units that cannot be read, several references: nothing is left out silently."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest

from conftest import read_splits
from dragoman.corpora.readers import read_units, say_choices
from dragoman.corpora.references import references_of
from dragoman.corpora.sources import find_source, find_sources
from dragoman.corpora.splitting import read_portions, read_split
from dragoman.dataset import Pair
from dragoman.errors import DataError
from dragoman.evaluation.metrics import Measurements
from dragoman.evaluation.pairs import read_data
from dragoman.settings import DataConfig

PAIRS = [("Good morning.", "Buongiorno."), ("See you soon.", "A presto."), ("It rains.", "Piove.")]
REFS = [
    ["Buongiorno a tutti quanti.", "Un saluto a voi tutti."],
    ["A presto amici miei cari.", "Ci vediamo fra non molto."],
    ["Oggi piove di nuovo.", "Sta di nuovo venendo giù acqua."],
]


def settings(train: object, **changes: object) -> DataConfig:
    return DataConfig(**{"source_lang": "en", "target_lang": "it", "train": str(train)} | changes)  # pyright: ignore


def read(train: object, **changes: object) -> list[Pair]:
    data = settings(train, **changes)
    return list(read_splits(find_source("train", data, data.train), data)["train"])


def sides(folder: Path, source: str, target: str) -> None:
    for name, texts in zip((source, target), zip(*PAIRS, strict=True), strict=True):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


# --- Names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "name"),
    [
        ("src-train.txt", "tgt-train.txt", "train"),
        ("src-train.txt", "tgt-train.txt", "src-train.txt"),
        ("src-train.txt", "tgt-train.txt", "tgt-train.txt"),
        ("src-train.txt", "tgt-train.txt", "."),
        ("news.src", "news.trg", "news"),
        ("news.source", "news.target", "news.source"),
        ("news_en.txt", "news_it.txt", "news"),
        ("eng_Latn.dev", "ita_Latn.dev", "dev"),
        ("eng_Latn.train", "ita_Latn.train", "."),
        ("source", "target", "."),
        ("source.txt", "target.txt", "source.txt"),
        ("en.txt", "it.txt", "."),
        ("one.a", "other.b", "one.a, other.b"),
        ("one.a", "other.b", "one.a other.b"),
        ("x.it", "x.en", "x.it,x.en"),
        ("OpenSubtitles.en-it.en", "OpenSubtitles.en-it.it", "."),
    ],
)
def test_parallel_text_under_the_names_of_other_toolkits(
    source: str, target: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the names of OpenNMT, Marian, Locomotive, FLORES and OPUS, and the order of two paths."""
    sides(tmp_path / "there", source, target)
    monkeypatch.chdir(tmp_path / "there")
    wanted = [(b, a) for a, b in PAIRS] if source == "x.it" else PAIRS
    assert read(name) == wanted


def test_folder_of_two_corpora_is_not_guessed_at(tmp_path: Path) -> None:
    sides(tmp_path, "a.src", "a.trg")
    sides(tmp_path, "b.src", "b.trg")
    with pytest.raises(DataError, match=r"has several corpora \(a\.src, a\.trg and b\.src, b\.trg\): name the files"):
        read(tmp_path)
    assert read(f"{tmp_path}/a.src, {tmp_path}/a.trg") == PAIRS


def test_every_suggestion_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against "did you mean" with a path that the user cannot name."""
    sides(tmp_path / "deep", "train.src", "train.trg")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"did you mean (.*)\?") as error:
        read("deep/trian")
    assert read(str(error.value).rpartition("did you mean ")[2].removesuffix("?")) == PAIRS


RECORDS = [{"en": a, "it": b} for a, b in PAIRS]


# --- One unit that cannot be read -----------------------------------------------------------------------------------


def tmx(texts: list[str]) -> str:
    head = '<?xml version="1.0"?>\n<tmx version="1.4"><header srclang="en"/><body>\n'
    return head + "\n".join(texts) + "</body></tmx>\n"


def unit(a: str, b: str) -> str:
    return f'<tu><tuv xml:lang="en"><seg>{a}</seg></tuv><tuv xml:lang="it"><seg>{b}</seg></tuv></tu>'


XLIFF = '<xliff version="2.0" srcLang="en" trgLang="it" xmlns:x="urn:x"><file id="f">{}</file></xliff>'
UNIT = '<unit><segment x:n="1"><source>{}</source><target>{}</target></segment></unit>'
PO = 'msgid ""\nmsgstr "Language: it\\n"\n\n'
FIRST, SECOND, THIRD = PAIRS
BAD: dict[str, tuple[str, str]] = {
    "ampersand.tmx": (tmx([unit(*FIRST), unit("A & B", "A"), unit(*THIRD)]), ":4"),
    "entity.tmx": (tmx([unit(*FIRST), unit("A &mine; B", "A"), unit(*THIRD)]), ":4"),
    "control.tmx": (tmx([unit(*FIRST), unit("A \x02", "A"), unit(*THIRD)]), ":4"),
    "tag.tmx": (tmx([unit(*FIRST), unit("A", "A").replace("</seg>", "", 1), unit(*THIRD)]), ":4"),
    "end.tmx": (tmx([unit(*FIRST), unit("A", "A").replace("</tu>", ""), unit(*THIRD)]), ":4"),
    "a.xliff": (XLIFF.format("\n".join([UNIT.format(*FIRST), UNIT.format("a < b", "a"), UNIT.format(*THIRD)])), ":2"),
    "a.po": (
        PO + "".join(f'msgid "{a}"\nmsgstr "{b}"\n\n' for a, b in (FIRST, ('x" y', "z"), THIRD)),
        ":7",
    ),
    "number.jsonl": ("\n".join(json.dumps({"en": a, "it": b}) for a, b in (FIRST, ("x", 5), THIRD)), ":2"),
    "field.jsonl": ("\n".join([json.dumps(RECORDS[0]), '{"en": "x"}', json.dumps(RECORDS[2])]), ":2"),
    "null.jsonl": ("\n".join([json.dumps(RECORDS[0]), "null", json.dumps(RECORDS[2])]), ":2"),
    "first.jsonl": ("\n".join(['{"id": 1}', json.dumps(RECORDS[0]), json.dumps(RECORDS[2])]), ":1"),
    "comma.json": ("[" + json.dumps(RECORDS[0]) + ', {"en": "x" "it": "y"}, ' + json.dumps(RECORDS[2]) + "]", ""),
    "number.json": (json.dumps([RECORDS[0], {"en": "x", "it": 7}, RECORDS[2]]), "record 2"),
    "short.tsv": ("Good morning.\tBuongiorno.\nx\nIt rains.\tPiove.\n", ":2"),
    "open.csv": ('Good morning.,Buongiorno.\n"x,y\nIt rains.,Piove.\n', ":2"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_unit_that_cannot_be_read_costs_only_itself(name: str, tmp_path: Path) -> None:
    """Guards the remedy that the error names: it must work in every format, count the unit and say where it is."""
    content, place = BAD[name]
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"with --data\.on_bad_line skip|this is not JSON"):
        read(path)
    data = settings(path, on_bad_line="skip", validation_fraction=1e-9, test_fraction=0.0)
    [portion] = read_portions(find_sources(data), data)
    assert portion.pairs["train"] == [FIRST, THIRD]
    count = portion.counts["train"]
    assert (count.read, count.unreadable, len(count.places)) == (3, 1, 1)
    assert place in count.places[0]


def test_a_memory_without_its_end_is_read_to_the_end_and_counted(tmp_path: Path) -> None:
    """Guards against losing a third of a memory silently."""
    path = tmp_path / "cut.tmx"
    path.write_text(tmx([unit(*FIRST), unit(*SECOND), unit(*THIRD)])[:-60], encoding="utf-8")
    units = list(
        read_units(find_source("train", data := settings(path, on_bad_line="skip"), str(path)), data)["train"].units
    )
    assert [unit[1:] for unit in units[:2]] == [FIRST, SECOND]
    assert len(units) == 3 or "ends without" in units[-1][2]


def test_units_without_a_language_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    path.write_text(tmx([unit(*FIRST), unit("x", " "), unit(*THIRD)]), encoding="utf-8")
    data = settings(path, validation_fraction=1e-9, test_fraction=0.0)
    [portion] = read_portions(find_sources(data), data)
    assert portion.pairs["train"] == [FIRST, THIRD]
    assert portion.counts["train"].left_out == 1


# --- References -----------------------------------------------------------------------------------------------------


def table(rows: list[list[str]], mark: str) -> str:
    return "".join(mark.join(row) + "\n" for row in rows)


ROWS = [[a, *refs] for (a, _), refs in zip(PAIRS, REFS, strict=True)]
SEGMENTS = "".join(f'<seg id="{i}">{{}}</seg>\n' for i in range(1, 4))


def sgm(kind: str, *versions: list[str]) -> str:
    docs = "".join(
        f'<doc docid="d" sysid="s{i}">\n{SEGMENTS.format(*map(html.escape, texts))}</doc>\n'
        for i, texts in enumerate(versions)
    )
    return f'<{kind} setid="x" srclang="en" trglang="it">\n{docs}</{kind}>\n'


SOURCES, ONE, TWO = [a for a, _ in PAIRS], [a for a, _ in REFS], [b for _, b in REFS]
WMT = (
    f'<dataset id="x"><doc id="d"><src lang="en"><p>{SEGMENTS.format(*SOURCES)}</p></src>'
    f'<ref lang="it" translator="A">{SEGMENTS.format(*ONE)}</ref>'
    f'<hyp system="x" lang="it">{SEGMENTS.format(*SOURCES)}</hyp>'
    f'<ref lang="it" translator="B">{SEGMENTS.format(*TWO)}</ref></doc></dataset>'
)


def lines(texts: list[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


REFERENCES: dict[str, dict[str, str]] = {
    "t.csv": {"t.csv": table([["en", "it", "it2"], *ROWS], ",")},
    "t.tsv": {"t.tsv": table([["English", "Italian", "Italian 2"], *ROWS], "\t")},
    "twice.tsv": {"twice.tsv": table([["en", "it", "it"], *ROWS], "\t")},
    "roles.csv": {"roles.csv": table([["source", "ref1", "ref2"], *ROWS], ",")},
    "numbers.tsv": {"numbers.tsv": table([["en", "it0", "it1"], *ROWS], "\t")},
    "t": {"t.en": lines(SOURCES), "t.it0": lines(ONE), "t.it1": lines(TWO)},
    "u": {"u.en": lines(SOURCES), "u.it": lines(ONE), "u.it.ref1": lines(TWO)},
    "v": {"v.src": lines(SOURCES), "v.ref": lines(ONE), "v.ref1": lines(TWO)},
    "a, b, c": {"a": lines(SOURCES), "b": lines(ONE), "c": lines(TWO)},
    "s": {"s-src.en.sgm": sgm("srcset", SOURCES), "s-ref.it.sgm": sgm("refset", ONE, TWO)},
    "wmt.xml": {"wmt.xml": WMT},
    "l.jsonl": {"l.jsonl": lines([json.dumps({"en": a, "it": refs}) for a, refs in zip(SOURCES, REFS, strict=True)])},
    "f.json": {"f.json": json.dumps([{"en": a, "it": b, "it2": c} for a, b, c in ROWS])},
    "m.tmx": {
        "m.tmx": tmx([unit(a, b).replace("</tu>", f'<tuv xml:lang="it"><seg>{c}</seg></tuv></tu>') for a, b, c in ROWS])
    },
}


@pytest.mark.parametrize("name", REFERENCES)
def test_every_reference_is_scored(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against references that are dropped: the translations are the second ones."""
    monkeypatch.chdir(tmp_path)
    for file, content in REFERENCES[name].items():
        Path(file).write_text(content, encoding="utf-8")
    pairs = read_data(name, settings("unused"))
    assert [references_of(reference) for _, reference in pairs] == REFS
    targets = [reference for _, reference in pairs]
    figures = Measurements(TWO, targets).figures
    assert [round(each.score) for each in figures[:3]] == [100, 100, 0]
    assert all("nrefs:2" in each.signature for each in figures[:3])
    data = settings(name, test=name, validation=name)
    assert read_split("test", find_sources(data), data) == pairs


# --- Tables ---------------------------------------------------------------------------------------------------------

SPOKEN = [('"Stop!" she said.', "«Alt!» disse."), ("It's 5 o'clock, I think.", "Credo, le cinque."), ("Yes", "Sì")]
QUOTED = {
    "all cells": ('"Good morning."\t"Buongiorno."\n"See you soon."\t"A presto."\n"It rains."\t"Piove."\n', PAIRS),
    "those with quotes": (
        '"""Stop!"" she said."\t«Alt!» disse.\nIt\'s 5 o\'clock, I think.\tCredo, le cinque.\nYes\tSì\n',
        SPOKEN,
    ),
    "none": ("".join(f"{a}\t{b}\n" for a, b in SPOKEN), SPOKEN),
    "one that nothing closes": ('"Good\tBene\nSo\tCosì\n', [('"Good', "Bene"), ("So", "Così")]),
    "late": (
        "".join(f"{i} a\t{i} b\n" for i in range(300)) + '"say ""a"""\tb\n',
        [*((f"{i} a", f"{i} b") for i in range(300)), ('say "a"', "b")],
    ),
}


@pytest.mark.parametrize("ending", ["csv", "tsv", "txt"])
@pytest.mark.parametrize("case", QUOTED)
def test_quotes_are_judged_by_content_whatever_the_ending(case: str, ending: str, tmp_path: Path) -> None:
    """Guards against rows that an open quote swallows, and quotes that stay around each cell, for some endings only."""
    content, wanted = QUOTED[case]
    (tmp_path / f"a.{ending}").write_text(content, encoding="utf-8")
    assert read(tmp_path / f"a.{ending}") == wanted


@pytest.mark.parametrize("ending", ["csv", "tsv", "txt"])
@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_separator_is_found_whatever_the_ending(mark: str, ending: str, tmp_path: Path) -> None:
    (tmp_path / f"a.{ending}").write_text(table([["en", "it"], *map(list, PAIRS)], mark), encoding="utf-8")
    assert read(tmp_path / f"a.{ending}") == PAIRS


@pytest.mark.parametrize("ending", ["csv", "tsv", "txt"])
@pytest.mark.parametrize("second", ["en,it", "\ufeffen,it", "EN,IT"])
def test_names_come_again_where_tables_were_joined(second: str, ending: str, tmp_path: Path) -> None:
    """Guards against a pair of names, a mark inside the text, and columns that are swapped from there on."""
    mark = "," if ending == "csv" else "\t"
    rows = [["en", "it"], *map(list, PAIRS[:2]), second.split(","), list(PAIRS[2])]
    (tmp_path / f"a.{ending}").write_text(table(rows, mark), encoding="utf-8")
    assert read(tmp_path / f"a.{ending}") == PAIRS
    rows[3:] = [second.removeprefix("\ufeff").split(",")[::-1], list(PAIRS[2])[::-1]]
    (tmp_path / f"a.{ending}").write_text(table(rows, mark), encoding="utf-8")
    assert read(tmp_path / f"a.{ending}") == PAIRS


def test_byte_order_marks_inside_parallel_text(tmp_path: Path) -> None:
    for name, texts in (("t.en", [a for a, _ in PAIRS]), ("t.it", [b for _, b in PAIRS])):
        (tmp_path / name).write_text("".join(f"\ufeff{text}\r\n" for text in texts), encoding="utf-8")
    assert read(tmp_path / "t") == PAIRS


# --- One language -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "files", "name"),
    [
        ("en", "en", {"a.tsv": "he go\the goes\nok\tok\n"}, "a.tsv"),
        ("en", "en", {"a.csv": "source,target\nhe go,he goes\nok,ok\n"}, "a.csv"),
        ("en", "en", {"a.csv": "en,en\nhe go,he goes\nok,ok\n"}, "a.csv"),
        ("en", "en", {"a.src": "he go\nok\n", "a.tgt": "he goes\nok\n"}, "a"),
        ("de-AT", "de-DE", {"a.csv": "de-AT,de-DE\nhe go,he goes\nok,ok\n"}, "a.csv"),
        ("en", "en", {"a.tmx": tmx([unit("he go", "he goes"), unit("ok", "ok")]).replace('"it"', '"en"')}, "a.tmx"),
    ],
)  # fmt: skip
def test_both_sides_may_be_in_one_language(
    source: str, target: str, files: dict[str, str], name: str, tmp_path: Path
) -> None:
    for file, content in files.items():
        (tmp_path / file).write_text(content, encoding="utf-8")
    assert read(tmp_path / name, source_lang=source, target_lang=target) == [("he go", "he goes"), ("ok", "ok")]


# --- What tools leave behind ------------------------------------------------------------------------------------------

LEFT = {
    "hyphens": (
        "a well @-@ known and blue @-@ green sea",
        "a well-known and blue-green sea",
        "@-@ of Moses",
    ),
    "escapes": (
        "it &apos;s a &quot; test &quot; &#91; 1 &#93;",
        'it \'s a " test " [ 1 ]',
        "&apos; of Moses",
    ),
    "bpe": ("the un@@ believ@@ able th@@ ing", "the unbelievable thing", "@@ of subword-nmt are undone"),
    "pieces": ("▁The ▁un believ able ▁thing .", "The unbelievable thing.", "▁ of SentencePiece are undone"),
    "joiners": ("Hello ￭, wor ￭ld ￭!", "Hello, world!", "￭ of OpenNMT are undone"),
    "segments": ('<seg id="1"> Good day. </seg>', "Good day.", "<seg> is read"),
}


@pytest.mark.parametrize("kind", LEFT)
def test_marks_of_tools_are_undone_and_said(kind: str, tmp_path: Path) -> None:
    """Guards against translations with marks that nobody types: peut @-@ être."""
    marked, plain, said = LEFT[kind]
    path = tmp_path / "a.tsv"
    path.write_text(f"{marked}\t{marked}\n" * 3, encoding="utf-8")
    assert read(path) == [(plain, plain)] * 3
    heard: list[str] = []
    say_choices(find_sources(data := settings(path)), data, heard.append)
    assert said in " ".join(heard)


@pytest.mark.parametrize(
    "text",
    [
        "AT&amp;T is a company", "me@example.org, @-mentions and a@@b", "Write &lt;b&gt; for bold", "a - b @ c",
        "he said &quot;hi&quot; to me", "don&apos;t",
    ],
)  # fmt: skip
def test_text_that_only_looks_like_marks_stays(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(f"{text}\t{text}\n" * 3, encoding="utf-8")
    assert read(path) == [(text, text)] * 3


def test_tags_of_iwslt_are_left_out_and_counted(tmp_path: Path) -> None:
    """Guards against addresses and keywords that are trained on as text."""
    head = ["<url>http://a.b/c</url>", "<keywords>talks, x</keywords>", "<talkid>1</talkid>", "<title>A: b</title>"]
    for language, texts in (("en", [a for a, _ in PAIRS]), ("it", [b for _, b in PAIRS])):
        (tmp_path / f"train.tags.en-it.{language}").write_text(lines([*head, *texts]), encoding="utf-8")
    data = settings(tmp_path / "train.tags.en-it", validation_fraction=1e-9, test_fraction=0.0)
    [portion] = read_portions(find_sources(data), data)
    assert portion.pairs["train"] == PAIRS
    assert portion.counts["train"].left_out == 4
