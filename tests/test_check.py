"""The corpus check finds each fault where it is, and nothing else."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT, SHARED, tiny_pairs, write_tsv
from dragoman import check, command_line, presets
from dragoman.__main__ import run as run_command
from dragoman.check import Diagnosis, SplitSummary, check_corpus, diagnosis_lines
from dragoman.command_line import override, parse_check
from dragoman.console import display_width
from dragoman.dataset import Pair
from dragoman.filtering import checked
from dragoman.filtering.checked import KINDS, LEVELS
from dragoman.settings import Config, changes
from dragoman.training import outlook

# Every source and every target occurs once, and is long enough to show its language.
MANY = [(a.capitalize(), b.capitalize()) for a, b in dict(tiny_pairs(3000)).items() if len(a.split()) > 3][:1400]
GOOD = MANY[:800]  # fewer than a lexicon is learnt from

needs_multi30k = pytest.mark.skipif(not (SHARED / "multi30k").is_dir(), reason="needs Multi30k in ../shared/data")

PLAIN = {"model__architecture": "decoder-only", "tokenizer__shared": True}  # what a language model requires


@pytest.fixture(autouse=True)
def no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of a known speed, since measuring takes seconds; the test of the whole command measures."""
    monkeypatch.setattr(check, "_measured_speed", lambda *_: 2000)


def settings(folder: Path, pairs: list[Pair], **changes: object) -> Config:
    """Make a config for pairs in a table, all words of which are known."""
    words = {"data.train": write_tsv(folder / "pairs.tsv", pairs), "tokenizer.min_frequency": 1}
    words |= {key.replace("__", "."): value for key, value in changes.items()}
    return override(Config(), [f"--{key}={'null' if value is None else value}" for key, value in words.items()])


def found(diagnosis: Diagnosis) -> dict[str, list[int]]:
    """Return the lines of the examples, by kind of finding."""
    return {finding.name: [example.line for example in finding.examples] for finding in diagnosis.findings}


def text_of(diagnosis: Diagnosis, name: str) -> str:
    [finding] = [finding for finding in diagnosis.findings if finding.name == name]
    return finding.text


@pytest.mark.parametrize(("minutes", "too_short"), [(1, True), (100, False)])
def test_the_verdict_says_how_long_usable_translations_take(
    minutes: int, too_short: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards "nothing stands in the way" before a training that cannot become usable in its time."""
    monkeypatch.setattr(outlook, "SURELY_FAST", 0)
    config = settings(tmp_path, GOOD, training__max_minutes=minutes, training__max_epochs=None)
    verdict = check_corpus(config).verdict
    assert "On this machine, translations become usable after about" in verdict
    assert verdict.startswith("Too little training: training.max_minutes is 1, ") == too_short
    assert verdict.startswith("No serious problems found") != too_short


# Lines of a file, what becomes of their texts ({} is the text, {:.0} leaves none of it), and what is found there.
FAULTS: list[tuple[int, str, str, list[str]]] = [
    (5, "{} CafÃ© Ã  lâ€™heure", "{}", ["mojibake"]),
    (9, "{}", "{} citt\ufffd", ["mojibake"]),
    (14, "{}\x07\x1b[31m", "{}", ["control"]),
    (16, "cat \u00ad{}", "{}", ["control"]),
    (21, "{:.0}", "il gatto", ["empty"]),
    (22, "cat", "!{:.0}", ["empty"]),
    (31, "{}", "вот что было здесь, и ещё раз здесь", ["script"]),
    (35, "Σ σ 猫 {}", "{}", []),
    (41, "{}", "The black cat wants the red bread.", ["language"]),
    (
        43, "I bambini giocano con una palla rossa nel giardino.",
        "The children are playing with a red ball in the garden.", ["swapped"],
    ),
    (51, "Xyz Qaa, 1, 2, 3, 4", "Xyz Qaa, 1, 2, 3, 4 {:.0}", ["copied"]),
    (61, "{}", "{}" + " il pane è qui" * 9, ["length"]),
    (75, "{} https://a.b/?c=d?e", "{} https://a.b/?c=d?e", []),
    (81, "{} 1,101.", "{} 1.101,0", []),
    (83, "{} 1,101.", "{} 1.102", ["numbers"]),
    (91, "<b>{}</b>", "{}&amp;", ["markup"]),
]  # fmt: skip


def test_each_fault_is_found_where_it_is(tmp_path: Path) -> None:
    """Each check sees its fault on the right lines, and no other check reports it."""
    pairs, expected = list(GOOD), dict[str, list[int]]()
    for line, source, target, names in FAULTS:
        a, b = pairs[line - 1]
        pairs[line - 1] = source.format(a), target.format(b)
        for name in names:
            expected.setdefault(name, []).append(line)
    pairs += [GOOD[200], GOOD[300]]
    pairs += [(f"{a[:-1]}!", b.upper()) for a, b in GOOD[400:430]]
    pairs += [(f"Page {i}.", f"Pagina {i}.") for i in range(10)]
    expected |= {"duplicate": [801, 802], "near_duplicate": [803, 804, 805]}
    diagnosis = check_corpus(settings(tmp_path, pairs))
    assert {name: lines for name, lines in found(diagnosis).items() if name != "unknown"} == expected
    for finding in [finding for finding in diagnosis.findings if finding.examples]:
        assert finding.split == "train"
        assert 0 < finding.count <= finding.of <= len(pairs)
        assert finding.examples[0].target[:3].rstrip("\ufffd") in pairs[finding.examples[0].line - 1][1]


def test_lowercase_corpus_is_checked_in_lower_case(tmp_path: Path) -> None:
    """Guards against treating duplicates of training as different."""
    written = [(a, b) if i % 2 else (a.upper(), b.upper()) for i, (a, b) in enumerate([*GOOD, GOOD[1]])]
    expected = check_corpus(settings(tmp_path, [(a.lower(), b.lower()) for a, b in written]))
    assert found(expected) == {"duplicate": [801], "lowercased": []}
    diagnosis = check_corpus(settings(tmp_path, written, data__lowercase=True))
    assert diagnosis.findings == [each for each in expected.findings if each.name != "lowercased"]
    assert diagnosis.splits == expected.splits
    assert "duplicate" not in found(check_corpus(settings(tmp_path, written)))


def test_good_corpus_has_no_findings(tmp_path: Path) -> None:
    """Guards against false alarms; the tests below are about the faults they insert."""
    diagnosis = check_corpus(settings(tmp_path, GOOD, training__max_epochs=1000))
    assert (diagnosis.findings, diagnosis.settings) == ([], [])
    assert "no problems found" in diagnosis_lines(diagnosis)
    assert diagnosis.verdict.startswith("No serious problems found. 7")


def test_slip_is_located(tmp_path: Path) -> None:
    """Guards against the worst fault of parallel text: one extra line on one side, after which no pair matches."""
    sides = [list(side) for side in zip(*MANY, strict=True)]
    sides[1].insert(500, "Ecco una riga che non è di troppo.")
    sides[0].insert(700, "Una riga qui mancava finora, ecco.")
    diagnosis = check_corpus(settings(tmp_path, list(zip(*sides, strict=True))))
    slip, misaligned = diagnosis.findings
    assert (slip.name, slip.level, misaligned.name) == ("slipped", "grave", "misaligned")
    assert re.fullmatch(r"slipped: from about line 50\d to 70\d, the translations are elsewhere", slip.text)
    assert slip.examples[0].line == pytest.approx(501, abs=2)
    assert slip.count == pytest.approx(200, abs=3)
    assert diagnosis.clean is not None


def test_random_pairs_are_reported(tmp_path: Path) -> None:
    """Guards against slips by many lines, and sides of two different corpora."""
    sources, targets = map(list, zip(*MANY, strict=True))
    half = targets[:700] + targets[800:] + targets[700:800]
    for mixed, first in ((half, 701), (np.roll(targets, 99).tolist(), 1)):
        [slip, *_] = check_corpus(settings(tmp_path, list(zip(sources, mixed, strict=True)))).findings
        assert slip.name == "slipped"
        assert slip.examples[0].line == pytest.approx(first, abs=2)


def test_bad_bytes_are_shown_and_skip_is_suggested(tmp_path: Path) -> None:
    """Guards against a check that stops at the first bad line, and against raw bytes on the terminal."""
    for side, name in enumerate(("en", "it")):
        text = [pair[side].encode() for pair in GOOD]
        if side:
            text[41] = b"citt\xe0 \x1b[2J"
        (tmp_path / f"corpus.{name}").write_bytes(b"\n".join(text))
    config = settings(tmp_path, GOOD, data__train=tmp_path / "corpus")
    diagnosis = check_corpus(config)
    assert found(diagnosis) == {"unreadable": [42]}
    assert diagnosis.findings[0].level == "grave"
    assert [(setting.key, setting.value) for setting in diagnosis.settings] == [("data.on_bad_line", "skip")]
    assert "⟨U+DCE0⟩" in "\n".join(diagnosis_lines(diagnosis))
    assert check_corpus(replace(config, data=replace(config.data, on_bad_line="skip"))).settings == []


def test_overlap_with_given_files_is_reported(tmp_path: Path) -> None:
    """Guards against scores that are too good. A split by hash never overlaps."""
    rough = [(GOOD[5][0].upper(), GOOD[5][1]), (GOOD[6][0][:-1] + "!", GOOD[6][1])]
    digits = ("Today 7 cats see the dog here and the wine.", "Oggi 7 gatti vedono il cane qui e il vino.")
    test = write_tsv(tmp_path / "test.tsv", [*GOOD[700:], GOOD[3], *rough, digits])
    train = [*GOOD[:700], tuple(text.replace("7", "8") for text in digits)]
    diagnosis = check_corpus(settings(tmp_path, train, data__test=test))
    assert found(diagnosis) == {"overlap": [101, 102, 103]}
    assert diagnosis.findings[0].split == "test"
    assert "whose source is also in training, 2 with other capitals or marks" in diagnosis.findings[0].text
    assert "overlap" not in found(check_corpus(settings(tmp_path, GOOD + GOOD)))


def test_validation_in_the_wrong_direction_is_reported(tmp_path: Path) -> None:
    """Guards against swapped files: their languages are compared with those of training."""
    file = write_tsv(tmp_path / "validation.tsv", [(b, a) for a, b in GOOD[700:]])
    diagnosis = check_corpus(settings(tmp_path, GOOD[:700], data__validation=file))
    assert {(finding.name, finding.split) for finding in diagnosis.findings} >= {("swapped", "validation")}
    assert {finding.split for finding in diagnosis.findings} == {"validation"}


@pytest.mark.parametrize(
    ("changes", "names", "keys"),
    [
        ({"tokenizer__vocab_size": 8}, {"unknown"}, ["tokenizer.kind", "tokenizer.vocab_size"]),
        ({"tokenizer__vocab_size": 300, "tokenizer__kind": "bpe"}, set(), []),
        ({"data__max_length": 8}, {"too_long"}, ["data.max_length"]),
        ({"data__max_ratio": 1.01}, set(), []),
    ],
)
def test_suggested_setting_ends_the_complaint(
    tmp_path: Path, changes: dict[str, object], names: set[str], keys: list[str]
) -> None:
    """Guards against suggestions without a measured reason."""
    config = settings(tmp_path, GOOD, **changes)
    diagnosis = check_corpus(config)
    assert set(found(diagnosis)) == names
    assert [setting.key for setting in diagnosis.settings] == keys
    better = override(config, [word for each in diagnosis.settings for word in (f"--{each.key}", each.value)])
    assert check_corpus(better).settings == []


def test_max_ratio_is_suggested_and_counted(tmp_path: Path) -> None:
    """data.max_ratio is suggested where a few pairs are far beyond the rest, and counted where it is set."""
    pairs = [(a, " ".join([b] * 4)) if number % 300 == 0 else (a, b) for number, (a, b) in enumerate(GOOD)]
    [setting] = check_corpus(settings(tmp_path, pairs)).settings
    assert setting.key == "data.max_ratio"
    assert float(setting.value) < 2
    diagnosis = check_corpus(settings(tmp_path, pairs, data__max_ratio=3))
    assert found(diagnosis)["too_uneven"] == [1, 301, 601]
    assert diagnosis.settings == []


def test_plain_text(tmp_path: Path) -> None:
    """Guards against checks of two sides that complain about the empty one."""
    file = tmp_path / "book.txt"
    texts = [b for _, b in GOOD]
    file.write_text("\n".join(texts), encoding="utf-8")
    config = settings(tmp_path, GOOD, data__source_lang=None, data__train=file, **PLAIN)
    assert found(check_corpus(config)) == {}
    file.write_text("\n".join([*texts[:50], "", "citt\ufffd", "вот что было", *texts, texts[0]]), encoding="utf-8")
    expected = {"mojibake": [52], "script": [53], "empty": [51], "duplicate": [54, 55, 56]}
    diagnosis = check_corpus(config)
    assert found(diagnosis) == expected
    again = check_corpus(settings(tmp_path, GOOD, data__test=file, data__train=file, **PLAIN, data__source_lang=None))
    assert "whose text is also in training" in text_of(again, "overlap")
    assert any(line.startswith("       line 53 ") and " | " not in line for line in diagnosis_lines(diagnosis))


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    """Guards against line numbers off by the header, or by cells of several lines, where the first line counts."""
    pairs = [(f"{a} <b>" if line == 40 else a, b) for line, (a, b) in enumerate(GOOD, 1)]
    config = settings(tmp_path, [("en", "it"), *pairs])
    assert found(check_corpus(config)) == {"markup": [41]}
    assert check_corpus(config).splits == [SplitSummary("train", 800, "line")]
    rows = tmp_path / "pairs.jsonl"
    rows.write_text("".join(json.dumps({"en": a, "it": b}) + "\n" for a, b in pairs), encoding="utf-8")
    assert found(check_corpus(settings(tmp_path, [], data__train=rows))) == {"markup": [40]}
    cells = tmp_path / "pairs.csv"
    cells.write_text(
        "".join(f'"{a}","{b}"\n' for a, b in [("the\ncat sees bread.", "il\ngatto vede pane."), *pairs]),
        encoding="utf-8",
    )
    diagnosis = check_corpus(settings(tmp_path, [], data__train=cells))
    assert (found(diagnosis), diagnosis.splits[0].unit) == ({"markup": [43]}, "line")


def test_sample_is_mentioned_and_representative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against shares of a sample reported as shares of all, and lines of the sample as lines of the file."""
    pairs = [(" ".join(["the cat"] * 20) if line % 8 == 1 else a, b) for line, (a, b) in enumerate(GOOD, 1)]
    config = settings(tmp_path, pairs, data__max_length=30)
    [whole] = [each for each in check_corpus(config).findings if each.name == "too_long"]
    for module in (checked, check):
        monkeypatch.setattr(module, "SAMPLE", 400)
    diagnosis = check_corpus(config)
    [sample] = [each for each in diagnosis.findings if each.name == "too_long"]
    assert (diagnosis.sampled, sample.of) == (400, 400)
    assert sample.count / sample.of == pytest.approx(whole.count / whole.of, abs=0.05)
    assert all(example.line % 8 == 1 for example in sample.examples)
    assert "400" in diagnosis_lines(diagnosis)[0]


def test_auto_preset_is_the_one_for_the_data(tmp_path: Path) -> None:
    """Guards against a diagnosis of a vocabulary that the training will not have."""
    config = settings(tmp_path, GOOD)
    auto = override(config, ["--model.preset", "auto"])
    corpus = checked.CheckedCorpus.read(auto)
    assert corpus.config.tokenizer.vocab_size == presets.PRESETS["tiny"]["tokenizer.vocab_size"]
    assert corpus.config.tokenizer.kind == "bpe"
    assert checked.CheckedCorpus.read(config).config == config


def test_size_of_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a validation that takes longer than training, and against one of a handful of pairs."""
    pairs = [(f"{a} {i}", f"{b} {i}") for i in range(15) for a, b in GOOD]
    large = check_corpus(settings(tmp_path, pairs, data__validation_fraction=0.5)).settings
    assert [(each.key, each.value) for each in large] == [("data.validation_fraction", "0.17")]
    small = check_corpus(settings(tmp_path, pairs, data__validation_fraction=0.002)).settings
    assert [(each.key, each.value) for each in small] == [("data.validation_fraction", "0.043")]


def test_hostile_text(tmp_path: Path) -> None:
    """Guards terminals and JSON against control characters, surrogates, endless lines, and format strings."""
    evil = ["\x1b]0;x\x07", "\u202eabc", "{first} {0} %s", "x" * 3_000_000, "\u2028\u0085\r", "😀" * 500, "\U000e0001"]
    pairs = [(f"{word}{i}", f"{word[:9]} {i}") for i in range(40) for word in evil]
    file = tmp_path / "evil.jsonl"
    pairs = [pair for pair in pairs if len(pair[0]) < 1000] + [("x" * 3_000_000, "y"), ("\ud800 a", "b")]
    file.write_text("".join(json.dumps({"en": a, "it": b}) + "\n" for a, b in pairs), encoding="utf-8")
    diagnosis = check_corpus(settings(tmp_path, [], data__train=file))
    shown = diagnosis_lines(diagnosis)
    assert all(line.isascii() or not set(line) & set("\x1b\x07\u202e\u2028\x85\r") for line in shown)
    assert all(display_width(line) <= 80 for line in shown if not line.startswith(("  --", "python", "dragoman")))
    assert "unreadable" in found(diagnosis)
    assert json.loads(json.dumps(asdict(diagnosis)).encode())["findings"]
    assert len(json.dumps(asdict(diagnosis))) < 100_000


SCHEMA = {
    "": {"format", "source_lang", "target_lang", "splits", "downloads", "sampled", "findings", "settings"}
    | {"verdict", "command", "clean"},
    "splits": {"name", "read", "unit"},
    "downloads": {"url", "sha256", "size", "date", "licence"},
    "findings": {"name", "level", "split", "count", "of", "text", "examples"},
    "settings": {"key", "value", "why"},
}


def test_json_has_these_names(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Guards programs that read it: another name requires another `format`."""
    config = settings(tmp_path, [("<b> cat.", "<b> gatto."), *GOOD], tokenizer__vocab_size=8)
    assert run_command("check", (config, True)) == 0
    out, err = capsysbinary.readouterr()
    values = json.loads(out)
    assert err == b""
    assert values["format"] == 2
    assert set(values) == SCHEMA[""]
    for name, keys in SCHEMA.items():
        for each in values[name] if name else []:
            assert set(each) == keys
    assert set(values["findings"][-1]["examples"][0]) == {"line", "source", "target"}
    assert {each["name"] for each in values["findings"]} <= set(KINDS)
    order = [LEVELS.index(each["level"]) for each in values["findings"]]
    assert order == sorted(order)
    assert values["settings"]


@pytest.mark.parametrize(
    ("arguments", "code", "fragment"),
    [
        (["--data.trian", "x"], 2, "did you mean --data.train?"),
        (["--data.train", "nowhere/at/all.tsv"], 3, "data.train is nowhere/at/all.tsv, but there is no such thing"),
        (
            ["--data.train", "empty.tsv", "--data.source_lang", "en", "--data.target_lang", "it"],
            3,
            "there is no pair for train",
        ),
    ],
)
def test_mistake_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    fragment: str,
) -> None:
    """Guards against tracebacks, and against checking the wrong corpus."""
    (tmp_path / "empty.tsv").write_text("\t\n\t\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    try:
        status = run_command("check", parse_check(arguments))
    except SystemExit as stop:
        status = stop.code
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (code, "", 1)
    assert fragment in err


def test_rows_that_are_no_pairs_are_shown_as_they_are(tmp_path: Path) -> None:
    """Shows the row itself, without internal marks, and for a grave finding the command that fixes it."""
    rows = [f"{a}\t{b}" for a, b in GOOD]
    (tmp_path / "a.tsv").write_text("\n".join(["en\tit", *rows, "only one", "en\tit", *rows]), encoding="utf-8")
    diagnosis = check_corpus(settings(tmp_path, [], data__train=tmp_path / "a.tsv"))
    by_name = {each.name: each for each in diagnosis.findings}
    assert by_name["unreadable"].examples[0].source == "only one"
    assert "but the first row names 2" in by_name["unreadable"].examples[0].target
    assert by_name["no_pair"].examples[0].source == "en | it"
    assert diagnosis.clean is not None
    assert diagnosis.clean in diagnosis_lines(diagnosis)


@pytest.mark.slow
def test_phrasebook_from_the_command_line() -> None:
    """Runs the whole command with its defaults."""
    command = [sys.executable, "-m", "dragoman", "check"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        "en to it: 44,000 train, 500 validation, 500 test pairs no problems found "
        "No serious problems found. 44,000 pairs to train on: expect "
        "good translations of text like this, and gaps in any other. "
        "On this machine, translations become usable after about 3 passes over these data, [a0-9]+ [a-z]+. "
        "train with: python train.py",
        " ".join(done.stdout.split()),
    )


def test_text_that_a_tool_has_changed(tmp_path: Path) -> None:
    """Guards against training text without capitals, or with detached marks, that nobody notices before users type."""
    lower = [(a.lower(), b) for a, b in GOOD]
    assert "(en)" in text_of(check_corpus(settings(tmp_path, lower)), "lowercased")
    apart = [(a, b.replace(".", " .")) for a, b in GOOD]
    assert "(it)" in text_of(check_corpus(settings(tmp_path, apart)), "tokenized")


def test_wrong_labels_are_found(tmp_path: Path) -> None:
    """Guards against a corpus under the name of another language; the suggested command has the right one."""
    pairs = [
        (f"The children are playing in the garden behind house number {i}.", f"Los niños juegan en el jardín {i}.")
        for i in range(60)
    ]
    diagnosis = check_corpus(settings(tmp_path, pairs, data__columns="1,2"))
    assert text_of(diagnosis, "label") == "in Spanish by their text, not in Italian"
    assert [(each.key, each.value) for each in diagnosis.settings if each.key == "data.target_lang"]
    assert "--data.target_lang es" in diagnosis.command
    assert "First fix what is grave above" in diagnosis.verdict


@pytest.mark.parametrize(("count", "words"), [(200, "phrases, not sentences"), (5000, "simple sentences")])
def test_verdict_and_command(count: int, words: str, tmp_path: Path) -> None:
    """The verdict says what to expect, and the command has the settings that the user chose."""
    pairs = [(f"The cat sees the dog, {i}.", f"Il gatto vede il cane, {i}.") for i in range(count)]
    file = write_tsv(tmp_path / "my pairs.tsv", pairs)
    config, _ = parse_check(
        [f"--data.train={file}", "--data.source_lang=en", "--data.target_lang=it", "--model.dropout", "0.2"]
    )
    diagnosis = check_corpus(config)
    assert words in diagnosis.verdict
    again = command_line.parse_train(shlex.split(diagnosis.command.split("train.py ")[-1]))
    assert {each.key for each in changes(config, again)} == {each.key for each in diagnosis.settings}


@pytest.mark.slow
@needs_multi30k
def test_findings_in_multi30k() -> None:
    """Guards against false alarms in a good corpus of free translations."""
    corpus = SHARED / "multi30k"
    places = {"train": corpus / "train", "validation": corpus / "val", "test": corpus / "test_2016_flickr"}
    words = [word for split, place in places.items() for word in (f"--data.{split}", str(place))]
    diagnosis = check_corpus(override(Config(), ["--data.target_lang", "de", *words]))
    reported = {(each.name, each.split): each for each in diagnosis.findings}
    assert set(reported) == {
        ("empty", "train"), ("numbers", "train"), ("length", "train"), ("markup", "train"),
        ("overlap", "validation"), ("unknown", "validation"),
    }  # fmt: skip
    assert [each.line for each in reported["empty", "train"].examples] == [16510, 16664]  # "@@" is no translation
    assert all(each.level != "grave" for each in diagnosis.findings)


@needs_multi30k
def test_two_slips_in_multi30k_are_two_findings(tmp_path: Path) -> None:
    """Guards against stretches that hide one another."""
    files = {side: SHARED / "multi30k" / f"train.{side}" for side in ("en", "de")}
    texts = {side: file.read_text(encoding="utf-8").split("\n") for side, file in files.items()}
    del texts["en"][4000], texts["de"][4400], texts["de"][7999]
    for side, text in texts.items():
        (tmp_path / f"train.{side}").write_text("\n".join(text[:10_000]) + "\n", encoding="utf-8")
    diagnosis = check_corpus(settings(tmp_path, GOOD, data__target_lang="de", data__train=tmp_path / "train"))
    slips = [finding for finding in diagnosis.findings if finding.name == "slipped"]
    assert [slip.examples[0].line for slip in slips] == pytest.approx([8000, 4001], abs=5)
    assert [slip.count for slip in slips] == pytest.approx([2000, 400], abs=10)
