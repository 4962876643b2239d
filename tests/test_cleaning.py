"""Cleaning drops dirty pairs, keeps good ones, and loses none."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT, SHARED, write_tsv
from dragoman.command_line import parse_clean
from dragoman.console import display_width
from dragoman.corpora.readers import read_units
from dragoman.corpora.sources import find_sources
from dragoman.errors import ConfigError, DataError
from dragoman.filtering import fitting, rules
from dragoman.filtering.advice import check_pairs
from dragoman.filtering.checked import CheckedCorpus, Finding
from dragoman.filtering.clean import WIDTH, Outcome, clean_corpus, main, train_command
from dragoman.filtering.duplicates import Repeats, SeenKeys, keys_of
from dragoman.filtering.judge import Judge, Sample
from dragoman.filtering.numbers import numbers_differ
from dragoman.filtering.words import Encoder, digest, words_of
from dragoman.filtering.workers import CHUNK
from dragoman.settings import DataConfig

_SPEC = importlib.util.spec_from_file_location("benchmark_cleaning", ROOT / "benchmarks" / "cleaning.py")
assert _SPEC is not None
assert _SPEC.loader is not None
benchmark = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(benchmark)

needs_data = pytest.mark.skipif(not (SHARED / "multi30k").is_dir(), reason="needs Multi30k in ../shared/data")
Pair = tuple[str, str]
SCRIPTS = frozenset(["", "LATIN"]), frozenset(["", "LATIN"])
GOOD: list[Pair] = [
    ("A man is riding a red bicycle.", "Ein Mann fährt auf einem roten Fahrrad."),
    ("OK!", "OK!"),
    ("New York", "New York"),
    ("Café Müller", "Café Müller"),
    ("It costs 1,000.50 dollars.", "Es kostet 1.000,5 Dollar."),
    ("It is 2:30 pm.", "Es ist 14 Uhr 30."),
    ("There were twelve of them.", "Es waren 12."),
    ("On 12/05/1999 it rained.", "Am 12.05.1999 regnete es."),
    ("SÃO PAULO IS LARGE.", "SÃO PAULO IST GROSS."),
    ("The letter π is Greek.", "Der Buchstabe π ist griechisch."),
]
BAD: list[tuple[str, Pair]] = [
    ("unreadable", ("Hello.", "Gr\udcfc\udcdf Gott.")),
    ("unreadable", ("\udcff", "\udcff")),
    ("empty", ("", "Hallo.")),
    ("empty", ("Hello.", " ?! ")),
    ("mojibake", ("The doors are open.", "Die TÃ¼ren sind offen.")),
    ("mojibake", ("Itâ€™s late.", "Es ist spät.")),
    ("mojibake", ("The doors are open.", "Die T\ufffdren sind offen.")),
    ("script", ("The doors are open.", "Двери открыты.")),
    ("long", ("word " * 250, "Wort " * 250)),
    ("copied", ("Where is the old station?", "Where is the old station?")),
    ("copied", ("Where is the old station?", "where is the old station?")),
    ("copied", ("Where is the very old station of this town?", "Where is the very old station of this Stadt?")),
    ("numbers", ("He was born in 1950.", "Er wurde 1960 geboren.")),
    ("numbers", ("It weighs 25 kilos.", "Es wiegt 36 Kilo.")),
]


@pytest.mark.parametrize("pair", GOOD)
def test_good_pairs_pass_all_rules(pair: Pair) -> None:
    """Guards names, numbers written in another way, and letters that look like mojibake."""
    assert rules.first_reason(*pair, SCRIPTS) == ""


@pytest.mark.parametrize(("reason", "pair"), BAD)
def test_bad_pairs_go_for_their_reason(reason: str, pair: Pair) -> None:
    """Guards each rule, and --keep."""
    assert rules.first_reason(*pair, SCRIPTS) == reason
    assert rules.first_reason(*pair, SCRIPTS, keep=[reason]) != reason


def test_good_text_is_not_mojibake() -> None:
    """Guards letters before marks that look like traces of two bytes: quotes, capitals, degrees."""
    good = "„Spaß“ und «É», à 20 °C|a MANHÃ” É» Ä“ på Åse|CAFÉ…” ñandú ¿Qué? ½|Ĉu ŝi Żółć|Ça “où” — l’été…"
    assert not any(map(rules.is_mojibake, good.split("|")))


def test_rules_have_meanings_that_fit_a_terminal() -> None:
    """Guards the width of the summary, with the largest numbers."""
    outcome = Outcome("corpus", "en", "de", "line", 999_999_999, 1, dict.fromkeys(rules.REASONS, 99_999_999))
    assert max(map(display_width, outcome.lines())) <= WIDTH
    assert set(rules.RULES) < set(rules.REASONS)


@given(st.lists(st.sampled_from(["1", "25", "300", "4.000", "12,5", "x", "."]), max_size=6))
def test_numbers_never_differ_from_themselves(parts: list[str]) -> None:
    """Guards the comparison against dropping a pair whose numbers only change place."""
    assert not numbers_differ(" ".join(parts), " ".join(reversed(parts)))


# ------------------------------------------------------------------------------------------- repeated pairs


def repeats(pairs: list[Pair]) -> list[str]:
    """The reason of each pair that occurred before."""
    source, target = (Encoder([]).encode([pair[side] for pair in pairs]) for side in (0, 1))
    reasons = [""] * len(pairs)
    Repeats().mark(reasons, keys_of(pairs, source, target))
    return reasons


def test_near_duplicates_are_found_and_others_are_not() -> None:
    """Guards case, marks and numbers, pairs that share only one side, and words in another order."""
    first, other = ("one two three four", "eins zwei drei vier"), ("quite another sentence", "ein ganz anderer Satz")
    same = [
        first, (first[0].upper(), first[1].title() + "!"), other, first,
        ("Room 12, please", "Zimmer 12, bitte"), ("room 47 please", "zimmer 47 bitte"),
    ]  # fmt: skip
    assert repeats(same) == ["", "near_duplicate", "", "duplicate", "", "near_duplicate"]
    different = [first, (first[0], "etwas ganz anderes"), ("four three two one", first[1]), ("one two", "three four")]
    assert repeats([*different, ("one two three", "four")]) == [""] * 5


@given(st.lists(st.integers(0, 12), max_size=30), st.integers(1, 30))
def test_repeated_keys_are_found_as_in_a_set(numbers: list[int], size: int) -> None:
    """Guards keys of 0, and the first of several keys that are the same."""
    seen, known, wanted = SeenKeys(), set(), []
    for number in numbers:
        wanted.append(number in known)
        known |= {number} - {0}
    keys = np.array(numbers, np.uint64)
    found = [seen.find_repeated(keys[start : start + size]).tolist() for start in range(0, len(keys), size)]
    assert [again for part in found for again in part] == wanted


# ------------------------------------------------------------------------------------------------ statistics


def test_threshold_separates_a_mixture_and_leaves_a_clean_corpus_alone() -> None:
    """Guards a clean corpus against losing its worst part, and a dirty one against keeping it."""
    draw = np.random.default_rng(1)
    good, dirt = draw.normal(2, 0.5, 9000), draw.normal(-1, 0.5, 9000)
    limit = fitting.threshold(np.concatenate([good, draw.normal(-1, 0.5, 3000)]), dirt)
    assert 0 < limit < 1
    assert np.mean(good < fitting.threshold(good, dirt)) < 0.001
    assert fitting.threshold(good[:10], dirt) == -np.inf


@given(st.lists(st.text("aΣσς1٢²_ -.ไทยพบ\u0301"), min_size=1, max_size=6))
def test_words_of_many_texts_are_those_of_each(texts: list[str]) -> None:
    """Guards the search in joined texts: letters whose lower case depends on their neighbours, and empty texts."""
    found = Encoder([]).encode(texts)
    alone = [words_of(text) for text in texts]
    assert found.sizes.tolist() == [len(words) for words in alone]
    assert found.hashes.tolist() == [digest(word) for words in alone for word in words]


def test_sample_is_bounded() -> None:
    """Guards the memory of a large corpus, and of one that repeats a line forever."""
    sample = Sample(size=100)
    for i in range(10_000):
        sample.add(f"source {i % 5000}", f"target {i % 5000}")
        sample.add("the same", "il medesimo")
    assert 50 < len(sample.pairs()) < 200
    assert len({*sample.pairs()}) == len(sample.pairs())


def test_judge_learns_nothing_from_nothing() -> None:
    """Guards a corpus without a single good pair."""
    judge = Judge.learn([("", "")], DataConfig(source_lang="en", target_lang="de"))
    assert judge.judge([("", ""), ("Hello.", "Hallo.")]).reasons == ["empty", ""]


# --------------------------------------------------------------------------------------------- whole corpora

SUBJECTS = {
    "The dog": "Der Hund", "The woman": "Die Frau", "A child": "Ein Kind", "My brother": "Mein Bruder",
    "The teacher": "Der Lehrer", "Our neighbour": "Unser Nachbar", "The old man": "Der alte Mann",
    "Her friend": "Ihre Freundin", "The doctor": "Der Arzt", "A student": "Ein Student",
}  # fmt: skip
VERBS = {
    "sees": "sieht", "wants": "will", "finds": "findet", "brings": "bringt", "buys": "kauft", "sells": "verkauft",
    "carries": "trägt", "loses": "verliert", "paints": "malt", "washes": "wäscht",
}  # fmt: skip
OBJECTS = {
    "the bread": "das Brot", "a car": "ein Auto", "the book": "das Buch", "some flowers": "einige Blumen",
    "the table": "den Tisch", "two apples": "zwei Äpfel", "a letter": "einen Brief", "the window": "das Fenster",
    "the picture": "das Bild", "his shoes": "seine Schuhe",
}  # fmt: skip
PLACES = {
    "in the garden": "im Garten", "at the station": "am Bahnhof", "behind the house": "hinter dem Haus",
    "near the church": "bei der Kirche", "on the street": "auf der Straße", "in the kitchen": "in der Küche",
    "after the lesson": "nach dem Unterricht", "before the dinner": "vor dem Abendessen",
}  # fmt: skip


def made_pairs(count: int, seed: int = 1) -> list[Pair]:
    """Different English sentences of seven to nine words, with German ones; there are 8,000 of them."""
    draw = random.Random(seed)
    found: dict[str, str] = {}
    while len(found) < count:
        chosen_words = [draw.choice(list(part.items())) for part in (SUBJECTS, VERBS, OBJECTS, PLACES)]
        found[" ".join(a for a, _ in chosen_words) + "."] = " ".join(b for _, b in chosen_words) + "."
    return list(found.items())


def options(folder: Path, pairs: list[Pair], *words: str) -> argparse.Namespace:
    """Write a corpus and parse a command line that cleans it."""
    table = write_tsv(folder / "pairs.tsv", [("en", "de"), *pairs])
    languages = ["--data.source_lang", "en", "--data.target_lang", "de"]
    return parse_clean(["--data.train", str(table), *languages, "--output", str(folder / "clean"), *words])


def rows(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_bytes().decode().split("\n")[1:-1]]


def folder_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_nothing_is_lost(tmp_path: Path) -> None:
    """Guards the promise: every pair that is read is kept or dropped, unchanged, and train.tsv can be read back."""
    pairs = made_pairs(600)
    pairs[5:5] = [pair for _, pair in BAD if "\udcdf" not in pair[1] and "\udcff" not in pair[0]]
    pairs += [("a\rcarriage return", "ein\u2028Trennzeichen"), ('"quoted', "it's #tags:x"), *pairs[300:320]]
    table = tmp_path / "pairs.tsv"
    outcome = clean_corpus(options(tmp_path, pairs))
    with open(table, "ab") as file:
        file.write(b"gr\xfc\xdfe\tgr\xfc\xdfe\nthree\tcells\there\n")
    parsed = parse_clean(
        ["--data.train", str(table), "--data.source_lang=en", "--data.target_lang=de", f"--output={tmp_path / 'clean'}"]
    )
    outcome = clean_corpus(parsed)
    data = DataConfig(train=str(tmp_path / "clean" / "train.tsv"), source_lang="en", target_lang="de")
    kept = [unit[1:] for unit in read_units(find_sources(data)[0], data)["train"].units]
    dropped = rows(tmp_path / "clean" / "dropped.tsv")
    assert outcome.read == len(pairs) + 2 == len(kept) + len(dropped)
    assert outcome.kept == len(kept)
    assert Counter(reason for reason, *_ in dropped) == outcome.dropped
    expected = Counter((a.replace("\r", " "), b) for a, b in pairs)
    found = Counter([*kept, *((a, b) for reason, _, a, b in dropped if reason != "unreadable")])
    assert found == expected
    by_line = dict(enumerate(pairs, 2))
    for reason, position, *texts in dropped:
        if reason != "unreadable":
            assert tuple(texts) == by_line[int(position)]
    assert [position for reason, position, *_ in dropped if reason == "unreadable"] == [
        str(len(pairs) + 2), str(len(pairs) + 3),
    ]  # fmt: skip


def soiled(count: int = 2600) -> list[tuple[str, Pair]]:
    """Made pairs with dirt, each with its kind."""
    french = [(f"the cat number {i} sleeps", f"le chat qui dort dans la maison avec le chien {i}") for i in range(50)]
    return benchmark.soil(made_pairs(count), french, 3)


def test_clean_removes_dirt_and_keeps_good_pairs(tmp_path: Path) -> None:
    """Guards the whole chain in miniature; the table of kinds is that of the benchmark."""
    dirty = soiled()
    clean_corpus(options(tmp_path, [pair for _, pair in dirty], "--processes", "1", "--keep", "near_duplicate"))
    reasons = {int(position): reason for reason, position, *_ in rows(tmp_path / "clean" / "dropped.tsv")}
    by_kind = benchmark.count([kind for kind, _ in dirty], reasons)
    gone = {kind: 1 - found[""] / found.total() for kind, found in by_kind.items()}
    assert gone["good"] <= 0.03
    for kind in ("shifted", "language", "copied", "cut", "mojibake", "duplicate"):
        assert gone[kind] >= 0.95, kind


def test_check_reports_what_clean_drops(tmp_path: Path) -> None:
    """Guards two commands with one list of reasons, also where cleaning a text makes two pairs the same."""
    parsed = options(tmp_path, [pair for _, pair in soiled(1200)] + [(f" {a}", b) for a, b in made_pairs(9)])
    results = list(check_pairs(CheckedCorpus.read(parsed.config)))
    reported = {each.name: each.count for each in results if isinstance(each, Finding) and each.name in rules.REASONS}
    assert len(reported) > 5
    assert reported.items() <= clean_corpus(parsed).dropped.items()


def test_result_does_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    """Guards the order of chunks, and hashes that differ between processes."""
    pairs = [pair for _, pair in soiled(CHUNK)]
    assert len(pairs) > CHUNK
    for processes in ("1", "3"):
        (tmp_path / processes).mkdir()
        clean_corpus(options(tmp_path / processes, pairs, "--processes", processes))
    for name in ("train.tsv", "dropped.tsv"):
        assert (tmp_path / "1" / "clean" / name).read_bytes() == (tmp_path / "3" / "clean" / name).read_bytes()


def working(children: list[str]) -> bool:
    """Whether both workers, and the process that tracks their resources, have started: they ignore Ctrl-C then."""
    masks = [re.search(r"SigIgn:\s*(\w+)", Path(f"/proc/{child}/status").read_text()) for child in children]
    ignoring = [mask for mask in masks if mask and int(mask[1], 16) & 1 << signal.SIGINT - 1]
    return len(ignoring) == 3


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks for child processes in /proc")
@pytest.mark.parametrize(("stop", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_stopped_cleaning_leaves_no_folder(tmp_path: Path, stop: signal.Signals, code: int) -> None:
    """Guards half a table under its final name, workers that wait forever, and their tracebacks after Ctrl-C."""
    parsed = options(tmp_path, [pair for _, pair in soiled(CHUNK)])
    command = [sys.executable, "-m", "dragoman", "clean", *parsed.settings, "--output", str(tmp_path / "clean")]
    command += ["--processes", "2"]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell starts what runs in the background with SIGINT ignored, and so would this program be.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while process.poll() is None and not working(children.read_text().split()):
            time.sleep(0.01)
        (os.killpg if stop == signal.SIGINT else os.kill)(process.pid, stop)  # a terminal signals the whole group
        _, errors = process.communicate()  # ends when no worker holds standard error any more
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert not (tmp_path / "clean").exists()


def test_only_an_earlier_result_is_replaced(tmp_path: Path) -> None:
    """Guards other files of the user, since the whole folder is replaced."""
    parsed = options(tmp_path, made_pairs(50))
    parsed.output.mkdir()
    assert clean_corpus(parsed).read == 50  # an empty folder
    before = folder_bytes(parsed.output)
    assert set(before) == {"train.tsv", "dropped.tsv", "cleaning.json"}
    assert clean_corpus(options(tmp_path, made_pairs(40))).read == 40
    assert folder_bytes(parsed.output) != before
    (parsed.output / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"has a notes\.txt that clean has not written: choose another --output"):
        clean_corpus(parsed)
    parsed.output /= "notes.txt"
    with pytest.raises(ConfigError, match="is a file: choose another --output"):
        clean_corpus(parsed)


def test_kept_reasons_come_back(tmp_path: Path) -> None:
    """Guards --keep for a rule of single pairs, and for one that looks at many."""
    pairs = made_pairs(100)
    pairs += [("He was born in 1950.", "Er wurde 1960 geboren."), *pairs[:3]]
    assert clean_corpus(options(tmp_path, pairs)).dropped == {"numbers": 1, "duplicate": 3}
    kept = options(tmp_path, pairs, "--keep", "numbers,duplicate", "--keep", "near_duplicate")
    assert clean_corpus(kept).dropped == {}
    assert [(a, b) for a, b in rows(tmp_path / "clean" / "train.tsv")] == pairs


def test_summary_shows_what_was_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards the counts for programs, and the command that trains on the rest."""
    pairs = [*made_pairs(100), ("Hello.", "?"), ("cost 100", "kosten 200")]
    parsed = options(tmp_path, pairs, "--data.columns", "1,2")
    main(parsed)
    content = json.loads((tmp_path / "clean" / "cleaning.json").read_bytes())
    assert content["dropped"] == {"empty": 1, "numbers": 1}
    output = capsys.readouterr().out
    assert output.rstrip().endswith(train_command(parsed))
    command = train_command(parsed).split()
    assert command[:2] == ["python", "train.py"]
    assert command[command.index("--data.train") + 1] == str(tmp_path / "clean" / "train.tsv")
    assert "1,2" not in command


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["--keep", "number"], ConfigError, "did you mean numbers"),
        (["--keep", "unreadable"], ConfigError, "cannot be read"),
        (["--data.train", "nowhere.tsv"], DataError, "nowhere.tsv"),
    ],
)
def test_mistakes_are_explained(tmp_path: Path, words: list[str], error: type[Exception], message: str) -> None:
    """Guards messages that name the option and the remedy."""
    with pytest.raises(error, match=message):
        clean_corpus(options(tmp_path, made_pairs(20), *words))


@pytest.mark.parametrize(
    "words",
    [[], ["--output=x", "--forward=y"], ["--output=x", "--processes=0"]],
)
def test_wrong_options_exit_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Guards options that are missing, unknown or out of range."""
    with pytest.raises(SystemExit) as stop:
        parse_clean(words)
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_speed_is_measured_of_every_step(tmp_path: Path) -> None:
    """Guards the table of the docs: each step runs, and a reader gives every pair or the benchmark stops."""
    rows = list(benchmark.speed(made_pairs(300), tmp_path, "--processes", "1"))
    steps = [row.split("|")[1].strip() for row in rows[2:]]
    assert steps == ["read .tsv", "read .tsv.gz", "read .csv", "read .tmx", "check", "clean"]
    assert all(re.fullmatch(r"\| [^|]+ \| [\d.]+ \| [\d.]+ \| [\d.]+ GiB \|", row) for row in rows[2:])


@needs_data
@pytest.mark.slow
def test_multi30k_with_dirt_is_cleaned(tmp_path: Path) -> None:
    """Guards the figures of the documentation, with some room."""
    pairs, french = (benchmark.read_corpus(SHARED, name) for name in ("multi30k", "tatoeba-en-fr"))
    dirty = benchmark.soil(pairs, french, 2)
    reasons = benchmark.clean([pair for _, pair in dirty], ("en", "de"), tmp_path)
    counts = benchmark.count([kind for kind, _ in dirty], reasons)
    good = counts.pop("good")
    dirt = sum(counts.values(), Counter())
    assert 1 - good[""] / good.total() <= 0.03
    assert 1 - dirt[""] / dirt.total() >= 0.95
