"""Reports and their alarms are right, intervals equal those of sacreBLEU, and the command line works."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from torchmetrics.functional.text import (
    char_error_rate,
    word_error_rate,
)

from conftest import ROOT, SHARED, in_child, tiny_config, tiny_pairs, write_tsv
from dragoman import checkpoint, command_line, dataset
from dragoman.__main__ import run as run_command
from dragoman.architectures.build import build_model
from dragoman.console import shorten
from dragoman.corpora import preparation
from dragoman.dataset import Pair
from dragoman.errors import DataError
from dragoman.evaluation import metrics as metrics_module
from dragoman.evaluation.alarms import judged
from dragoman.evaluation.evaluate import evaluate
from dragoman.evaluation.metrics import Measurements
from dragoman.evaluation.pairs import EarlierTranslations, read_earlier
from dragoman.evaluation.report import EvaluationReport, report_lines, write_report
from dragoman.evaluation.validation_loss import mean_loss
from dragoman.settings import PAD, Config, with_values
from dragoman.translation.doubts import has_loop
from dragoman.translation.results import Candidate, Sentence, Translation
from dragoman.translation.translator import Translator

needs_multi30k = pytest.mark.skipif(not (SHARED / "multi30k").is_dir(), reason="needs Multi30k in ../shared/data")


def test_mean_loss_does_not_depend_on_the_batches(tiny: Callable[..., Config]) -> None:
    """Guards against a mean of means, and dropout left on: single sentences give the same loss."""
    config = tiny()
    directory = Path(config.run.dir) / config.run.name
    data = preparation.prepare_data(config, directory / "data", lambda _: None)
    torch.manual_seed(1)
    model = build_model(config.model, len(data.source), len(data.target))
    pairs = dataset.encode_pairs(data.validation, data.source, data.target)
    total, tokens = 0.0, 0
    model.eval().requires_grad_(False)
    for i in range(len(pairs)):
        batch = dataset.make_batch(pairs, torch.tensor([i]).numpy())
        logits = model(batch.source, batch.target_in, batch.source_mask, batch.target_mask)
        total += float(F.cross_entropy(logits[0], batch.target_out[0], reduction="sum"))
        tokens += int((batch.target_out != PAD).sum())
    model.train()
    for budget in (1, 60, 10_000):
        assert mean_loss(model, pairs, budget) == pytest.approx(total / tokens, rel=1e-5)


# --- The report ---


def fake_translator(rows: Sequence[tuple[str, str, str]], cut: bool = False, beam_size: int = 1) -> Translator:
    """A translator that returns the translations in `rows`; words with a z are unknown to it."""
    known = {source: translation for source, _, translation in rows}

    def explain(texts: Sequence[str], **_: object) -> list[Translation]:
        found = []
        for text in texts:
            words = text.split()
            candidate = Candidate(known[text], [], [], [], 0.0, not cut, {})
            unknown = [i for i, word in enumerate(words) if "z" in word]
            sentence = Sentence(text, text, [], [0] * len(words), [*words, "[EOS]"], unknown, [candidate])
            found.append(Translation(text, known[text], [sentence], []))
        return found

    config = with_values(Config(), {"decoding.beam_size": beam_size})
    known_to_it = {"config": config, "step": 70_000, "path": Path("runs/fake"), "target": range(5000)}
    return cast(Translator, SimpleNamespace(**known_to_it, explain=explain))


def report_on(
    rows: Sequence[tuple[str, str, str]],
    *earlier: EarlierTranslations,
    cut: bool = False,
    beam_size: int = 1,
) -> EvaluationReport:
    return evaluate(fake_translator(rows, cut, beam_size), pairs_of(rows), earlier=earlier)


def pairs_of(rows: Sequence[tuple[str, str, str]]) -> list[Pair]:
    return [(source, reference) for source, reference, _ in rows]


def damaged(text: str, share: float, draw: random.Random) -> str:
    """Remove some words of a text, and perhaps move one."""
    words = [word for word in text.split() if draw.random() > share]
    if len(words) > 3 and draw.random() < 0.5:
        words.append(words.pop(1))
    return " ".join(words)


def real_rows(share: float, count: int = 64) -> list[tuple[str, str, str]]:
    """Rows of real sentences; each translation is its reference without a share of its words."""
    sides = [(SHARED / "multi30k" / f"val.{side}").read_text(encoding="utf-8").split("\n") for side in ("en", "de")]
    pairs = list(dict(zip(*sides, strict=True)).items())[:count]
    draw = random.Random(share)
    return [(source, reference, damaged(reference, share, draw)) for source, reference in pairs]


@pytest.fixture(scope="module", autouse=True)
def fewer_draws() -> Iterator[None]:
    """Fewer bootstrap samples; the tests set the same number for sacreBLEU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics_module, "RESAMPLES", 200)
        yield


@pytest.fixture(scope="module")
def real(fewer_draws: None) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]], EvaluationReport]:
    """Rows of a better and of a worse translator, and a report that compares them."""
    better, worse = real_rows(0.15), real_rows(0.2)
    return better, worse, report_on(better, EarlierTranslations("worse", worse))


@needs_multi30k
def test_figures_equal_sacrebleu_on_real_text(real: Any) -> None:
    """Guards our own sums: scores, intervals and signatures equal those of `sacrebleu --confidence`."""
    rows, _, report = real
    hypotheses, references = [row[2] for row in rows], [row[1] for row in rows]
    for figure, metric in zip(report.figures, (BLEU(), CHRF(), TER()), strict=False):
        expected = metric.corpus_score(hypotheses, [references], n_bootstrap=metrics_module.RESAMPLES)
        assert figure.score == pytest.approx(expected.score, rel=1e-12)
        assert (figure.high - figure.low) / 2 == pytest.approx(expected._ci, rel=1e-5)  # theirs are float32
        assert figure.signature == str(metric.get_signature())
    assert report.figures[3].score == pytest.approx(100 * word_error_rate(hypotheses, references).item())
    assert report.figures[4].score == pytest.approx(100 * char_error_rate(hypotheses, references).item())
    assert report.length_ratio == pytest.approx(BLEU().corpus_score(hypotheses, [references]).ratio)
    for row in report.sentences[:20]:
        assert row.chrf == pytest.approx(CHRF().sentence_score(row.translation, [row.reference]).score)
    copied = BLEU().corpus_score([row[0] for row in rows], [references]).score
    assert report.copied[0].score == pytest.approx(copied)


@needs_multi30k
def test_p_is_small_only_where_translators_differ(real: Any) -> None:
    """Guards the significance test: a few words more that are missing may be chance, many are not."""
    rows, _, report = real
    much_worse = report_on(rows, EarlierTranslations("much worse", real_rows(0.35))).against[0]
    assert much_worse
    for against, significant in (report.against[0], False), (much_worse, True):
        for figure, ours, each in zip(against.figures, report.figures, against.differences, strict=False):
            assert each.difference == pytest.approx(ours.score - figure.score)
            assert each.low < each.difference < each.high
            assert (each.p < 0.05) == significant == (each.low > 0 or each.high < 0)


@needs_multi30k
def test_buckets_sum_to_the_whole(real: Any) -> None:
    """Guards bucket bounds: every sentence is in one bucket, and a bucket is scored as a corpus."""
    rows, _, report = real
    assert sum(bucket.pairs for bucket in report.lengths) == len(rows)
    assert all(bucket.pairs for bucket in report.lengths)
    middle = next(bucket for bucket in report.lengths if bucket.name == "11-15")
    members = [row for row in rows if 11 <= len(row[0].split()) <= 15]
    assert middle.pairs == len(members)
    parts = [row[2] for row in members], [[row[1] for row in members]]
    assert middle.bleu == pytest.approx(BLEU().corpus_score(*parts).score)
    assert middle.chrf == pytest.approx(CHRF().corpus_score(*parts).score)


def test_every_length_has_a_bucket() -> None:
    """Guards the first and last buckets."""
    rows = [(" ".join(["z"] * n), f"r {n}", f"r {n}") for n in (1, 5, 6, 31, 200)]
    report = report_on(rows)
    assert [(bucket.name, bucket.pairs) for bucket in report.lengths] == [("1-5", 2), ("6-10", 1), ("31+", 2)]


@needs_multi30k
def test_a_translator_does_not_differ_from_itself(real: Any) -> None:
    """Guards p against the sign of a difference that is 0."""
    rows, _, _ = real
    shuffled = random.Random(1).sample(rows, len(rows))
    [against] = report_on(rows, EarlierTranslations("itself", shuffled)).against
    assert [(each.difference, each.low, each.high, each.p) for each in against.differences] == [(0, 0, 0, 1)] * 3


def test_differences_have_the_right_sign() -> None:
    """Guards the sign: a plus means a higher score than the other."""
    rows = [(source, reference, reference) for source, reference in tiny_pairs(40)]
    worse = [(source, reference, "il gatto") for source, reference, _ in rows]
    for ours, theirs, sign in ((rows, worse, 1), (worse, rows, -1)):
        [against] = report_on(ours, EarlierTranslations("other", theirs)).against
        bleu, chrf, ter = against.differences
        assert bleu.difference * sign > 0
        assert chrf.low * sign > 0
        assert ter.difference * sign < 0
        assert bleu.p < 0.01


def test_translations_of_other_pairs_are_refused() -> None:
    """Guards against comparing scores of two test sets."""
    rows = [("a", "b", "c"), ("d", "e", "f"), ("d", "e", "g")]
    assert EarlierTranslations("x", rows[::-1]).for_pairs(pairs_of(rows)) == ["c", "g", "f"]
    for others in (rows[:2], [*rows, rows[0]], [("a", "other", "c"), *rows[1:]]):
        with pytest.raises(DataError, match="x cannot be compared"):
            report_on(rows, EarlierTranslations("x", others))
    with pytest.raises(DataError, match="no test pairs"):
        report_on([])


def test_worst_sentences_are_sorted_stably() -> None:
    """Guards the list of worst sentences: with a stable order, two reports can be compared."""
    rows = [(f"s {i}", "il gatto vede il cane", "il gatto" if i % 2 else "altro") for i in range(60)]
    report = report_on(rows)
    assert report.worst == list(range(1, 40, 2))
    assert all(report.sentences[i - 1].translation == "altro" for i in report.worst)


GOOD = [(source, reference, reference) for source, reference in dict(tiny_pairs(120)).items()]


def worsened(number: int, change: Callable[[str, str], str]) -> list[tuple[str, str, str]]:
    """The good rows, with the first `number` translations changed."""
    return [
        (source, reference, change(source, reference) if i < number else translation)
        for i, (source, reference, translation) in enumerate(GOOD)
    ]


@pytest.mark.parametrize(
    ("rows", "alarms"),
    [
        (GOOD, set()),
        (worsened(1, lambda source, reference: ""), set()),
        (worsened(3, lambda source, reference: ""), {"empty"}),
        (worsened(5, lambda source, reference: f"{reference} e il vino, e il vino, e il vino,"), {"repeated"}),
        (worsened(5, lambda source, reference: f"{reference} ! ! !"), set()),
        (worsened(5, lambda source, reference: source), {"untranslated"}),
        (worsened(5, lambda source, reference: f"[UNK] {reference}"), {"unknown"}),
        (worsened(5, lambda source, reference: f"[UNK] [UNK] [UNK] {reference}"), {"unknown"}),
        (worsened(6, lambda source, reference: "il gatto vede il cane."), {"same"}),
        (worsened(200, lambda source, reference: "gatto."), {"same", "length", "useless"}),
        (worsened(200, lambda source, reference: f"{reference} {reference} qui"), {"length"}),
        (worsened(200, lambda source, reference: " ".join(source[::-1])), {"length", "useless"}),
        ([("no", "no no no no", "no no no no")] * 30, set()),
        ([("ja", "same", "same")] * 30, set()),
        ([(str(i), str(i), str(i)) for i in range(100)], {"useless"}),
    ],
)
def test_alarms_name_what_is_wrong(rows: list[tuple[str, str, str]], alarms: set[str]) -> None:
    """Guards against missed failures and against false alarms."""
    assert {alarm.name for alarm in report_on(rows).alarms} == alarms


def test_truncated_translations_raise_an_alarm() -> None:
    """Guards against truncation that goes unnoticed."""
    [alarm] = report_on(GOOD, cut=True).alarms
    assert alarm.name == "cut"
    assert alarm.sentences == list(range(1, 21))
    assert alarm.text.startswith(f"{len(GOOD)} of {len(GOOD)} translations (100.0%)")


@pytest.mark.parametrize(("step", "undertrained"), [(9, True), (10**6, False), (0, False)])
def test_one_verdict_for_a_model_that_has_learnt_too_little(step: int, undertrained: bool) -> None:
    """Guards five alarms, with advice that makes things worse, after a training of three minutes. Others stay."""
    rows = worsened(5, lambda source, reference: source)
    rows[5:] = [(source, reference, "gatto gatto gatto.") for source, reference, _ in rows[5:]]
    limits = {"training.max_epochs": 3, "training.max_minutes": 4.0, "run.dir": "my runs"}
    alarms = judged(report_on(rows).alarms, with_values(Config(), limits), step, 5000)
    names = {alarm.name for alarm in alarms}
    assert names == ({"undertrained"} if undertrained else {"repeated", "same", "length"}) | {"untranslated"}
    options = r"--config '(.*)' --training.max_epochs (\d+) --training.max_minutes (\d+)"
    command = re.search(f"Continue with: .* {options}$", alarms[0].text)
    assert bool(command) == undertrained
    if command:
        assert command[1] == "my runs/phrasebook/config.yaml"
        assert int(command[2]) > 3
        assert int(command[3]) > 4


def test_lengths_are_blamed_on_a_beam_only_where_one_was_searched() -> None:
    """Guards advice without effect: greedy search does not know decoding.length_penalty."""
    rows = worsened(200, lambda source, reference: f"{reference} {reference} qui")
    [greedy], [beam] = (report_on(rows, beam_size=size).alarms for size in (1, 4))
    assert "length_penalty" not in greedy.text
    assert "length_penalty" in beam.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a a a", True), ("a a", False), ("a b a b a b", True), ("a b a b a", False), ("x a b c a b c a b c y", True),
        ("! ! !", False), ("- - - a", False), ("a , a , a ,", True), ("", False), ("a b b a b b c", False),
        ("very-very-very-small", True), ("1,000,000,000,000", False), ("l'amico, l'altro, l'uomo", False),
    ],
)  # fmt: skip
def test_a_loop_is_three_repetitions_in_a_row(text: str, expected: bool) -> None:
    """Guards the counting of repetitions."""
    assert has_loop(text) == expected


NASTY = "\u202e<script>alert(1)</script>\x1b[31m & \"'\U0001f642 漢字漢字 שלום\x07 {{ 7 * 7 }}"


def test_a_report_fits_a_terminal_whatever_the_text() -> None:
    """Guards the terminal against escape sequences, bells and direction marks in translations."""
    rows = [(f"{NASTY} {i}", NASTY * 3, NASTY * 2) for i in range(40)]
    text = report_lines(report_on(rows, EarlierTranslations(NASTY * 4, rows)))
    assert all(line.replace("漢字漢字", "漢字漢字" * 2).isprintable() for line in text)
    assert [line for line in text if len(line) > 80 and "version:" not in line] == []
    assert shorten("漢字漢字", 8) == "漢字漢字"
    assert shorten("漢字漢字", 7) == "漢字漢…"
    assert shorten("a" * 101, 100) == "a" * 99 + "…"


def test_a_written_report_can_be_read(tmp_path: Path) -> None:
    """Guards the files: JSON loses nothing, and a later report can be compared with JSON and TSV."""
    rows = [*worsened(30, lambda source, reference: f"{NASTY} {reference}"), ("a\tb", "c", "d")]
    report = report_on(rows, EarlierTranslations("x", rows))
    write_report(report, tmp_path / "new" / "folder", "test")
    folder = tmp_path / "new" / "folder"
    assert sorted(path.name for path in folder.iterdir()) == ["test.html", "test.json", "test.tsv"]
    values = json.loads((folder / "test.json").read_bytes())
    assert values == asdict(report)
    read = read_earlier(folder / "test.json", "test")
    assert read.rows == rows
    assert read.name == "phrasebook, step 70000"
    again = read_earlier(folder / "test.tsv", "test")
    assert again.rows[:-1] == [(a, b, " ".join(c.split())) for a, b, c in rows[:-1]]
    assert again.rows[-1] == ("a b", "c", "d")


# --- The command line ---


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ten updates: its translations are nonsense, but always the same."""
    config = tiny_config(tmp_path_factory.mktemp("trained"), training__max_steps=10)
    assert in_child(lambda: run_command("train", config)) == 0
    return Path(config.run.dir) / config.run.name


def call(*arguments: object) -> int:
    """Run the command in this process."""
    return run_command("evaluate", command_line.parse_evaluate([str(argument) for argument in arguments]))


def test_the_command_reports_on_a_run(trained: Path, tmp_path: Path) -> None:
    """Guards the whole command, as a process: the scores in the report are those of its translations."""
    words = [sys.executable, "-m", "dragoman", "evaluate", "--run", trained, "--output", tmp_path, "--json"]
    result = subprocess.run(words, cwd=ROOT, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert result.returncode == 0, result.stderr
    values = json.loads(result.stdout)
    assert values == json.loads((tmp_path / "test.json").read_bytes())
    rows = [line.split("\t") for line in (tmp_path / "test.tsv").read_text(encoding="utf-8").split("\n")[:-1]]
    expected = Measurements([row[2] for row in rows], [row[1] for row in rows])
    assert values["figures"][0]["score"] == pytest.approx(expected.bleu.score())
    assert values["figures"][3]["score"] == pytest.approx(100 * expected.wer)
    pairs = (trained / "data" / "test.tsv").read_text(encoding="utf-8").split("\n")[:-1]
    assert ["\t".join(row[:2]) for row in rows] == pairs
    assert [row[2] for row in rows] == Translator(trained, "cpu").translate([row[0] for row in rows])
    assert (values["name"], values["run"], values["pairs"]) == ("test", "tiny", len(pairs))
    assert values["decoding"]["beam_size"] == 1


def test_against_takes_a_run_json_or_tsv(
    trained: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Guards the three forms of --against, and where reports are written."""
    assert call("--run", trained) == 0
    folder = trained / "report"
    assert sorted(path.name for path in folder.iterdir()) == ["test.html", "test.json", "test.tsv"]
    first = json.loads((folder / "test.json").read_bytes())
    assert first["against"] == []
    capsysbinary.readouterr()
    for other in (trained, folder / "test.json", folder / "test.tsv"):
        assert call("--run", trained, "--against", other, "--output", tmp_path) == 0
        text = capsysbinary.readouterr().out.decode()
        assert re.search(r"BLEU +[\d.]+ +\+0.00 +\+0.00 to \+0.00 +1.000", text), text
    assert json.loads((tmp_path / "test.json").read_bytes())["sentences"] == first["sentences"]
    best, rows = (
        tmp_path / "best.tsv",
        [(row["source"], row["reference"], row["reference"]) for row in first["sentences"]],
    )
    best.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    assert call("--run", trained, "--against", trained, "--against", best, "--output", tmp_path) == 0
    text = capsysbinary.readouterr().out.decode()
    assert text.count("compared with") == 2
    values = json.loads((tmp_path / "test.json").read_bytes())
    assert [other["name"] for other in values["against"]] == [f"tiny, step {first['step']}", str(best)]
    assert [other["differences"][1]["difference"] < 0 for other in values["against"]] == [False, True]
    page = (tmp_path / "test.html").read_text(encoding="utf-8")
    assert page.count("Compared with <bdi>") == 2
    assert call("--run", trained, "--split", "validation", "--decoding.beam_size", "2") == 0
    values = json.loads((folder / "validation.json").read_bytes())
    assert values["decoding"]["beam_size"] == 2
    assert values["pairs"] == len((trained / "data" / "validation.tsv").read_bytes().splitlines())


def test_other_pairs_are_read_and_cleaned(
    trained: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Guards --data: pairs are cleaned as in training, and never overwrite the report on the test set."""
    file = write_tsv(tmp_path / "test.tsv", [("  the   cat sees ", "il gatto  vede"), ("", "vuoto"), ("here.", "qui.")])
    assert call("--run", trained, "--data", file) == 0
    values = json.loads((trained / "report" / "data-test.json").read_bytes())
    assert [(row["source"], row["reference"]) for row in values["sentences"]] == [
        ("the cat sees", "il gatto vede"),
        ("here.", "qui."),
    ]
    for side, text in (("en", "the cat\nhere."), ("it", "il gatto\nqui.")):
        (tmp_path / f"letter.{side}").write_text(text, encoding="utf-8")
    capsysbinary.readouterr()
    [place] = checkpoint.steps(trained / "checkpoints")[-1:]
    before = sorted(trained.rglob("*"))
    assert call("--checkpoint", place, "--data", tmp_path / "letter", "--json") == 0
    values = json.loads(capsysbinary.readouterr().out)
    assert (values["name"], values["pairs"], values["checkpoint"]) == ("data-letter", 2, str(place))
    assert sorted(trained.rglob("*")) == before, "with --checkpoint, nothing is written into the run"


def test_reports_on_other_pairs_keep_their_names(trained: Path, tmp_path: Path) -> None:
    """Guards file names with dots: a report on newstest.2015 once replaced that on newstest.2014."""
    for year in (2014, 2015):
        for side, text in (("en", "the cat"), ("it", "il gatto")):
            (tmp_path / f"newstest.{year}.{side}").write_text(text, encoding="utf-8")
        assert call("--run", trained, "--data", tmp_path / f"newstest.{year}", "--output", tmp_path / "reports") == 0
    assert {path.name for path in (tmp_path / "reports").glob("*.json")} == {
        "data-newstest.2014.json",
        "data-newstest.2015.json",
    }


def test_a_lower_cased_run_is_scored_in_lower_case(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Guards lower-casing of references and other translations, and its mention in the report."""
    written = [(source.capitalize(), target.upper()) for source, target in tiny_pairs(200)]
    lower = [(source.lower(), target.lower()) for source, target in written]
    corpus = write_tsv(tmp_path / "corpus.tsv", written)
    config = tiny_config(tmp_path, data__train=corpus, data__lowercase=True, training__max_steps=10)
    assert in_child(lambda: run_command("train", config)) == 0
    run = Path(config.run.dir) / config.run.name
    files = [write_tsv(tmp_path / f"{name}.tsv", pairs[:9]) for name, pairs in (("new", written), ("low", lower))]
    reports = []
    for file in files:
        capsysbinary.readouterr()
        assert call("--run", run, "--data", file) == 0
        assert "lowercase true" in " ".join(capsysbinary.readouterr().out.decode().split())
        reports.append(json.loads((run / "report" / f"data-{file.stem}.json").read_bytes()))
    assert reports[0]["sentences"] == reports[1]["sentences"]
    assert reports[0]["figures"] == reports[1]["figures"]
    assert reports[0]["cleaning"] == {"lowercase": True, "normalize": "nfc"}
    # The same for translations of another translator, and for the test set of another run.
    other = tmp_path / "other.tsv"
    other.write_text("".join(f"{a}\t{b}\t{b.title()}\n" for a, b in written[:9]), encoding="utf-8")
    assert call("--run", run, "--data", files[1], "--against", other) == 0
    found = json.loads((run / "report" / "data-low.json").read_bytes())
    assert found["against"][0]["figures"][0]["score"] == pytest.approx(100)
    write_tsv(tmp_path / "mixed" / "data" / "test.tsv", written[:9])
    weights = ("--run", tmp_path / "mixed", "--checkpoint", reports[0]["checkpoint"])
    assert call(*weights, "--output", tmp_path / "report") == 0
    assert json.loads((tmp_path / "report" / "test.json").read_bytes())["sentences"] == reports[0]["sentences"]


@pytest.mark.parametrize(
    ("arguments", "code", "fragment"),
    [
        (["--run", "runs/nothing"], 4, "holds no checkpoint"),
        (["--run", "RUN", "--decoding.beam_size", "0"], 2, "decoding.beam_size is 0"),
        (["--run", "RUN", "--split", "train"], 2, "--split"),
        (["--run", "RUN", "--beam", "3"], 2, "--beam"),
        (["--run", "RUN", "--device", "cuda:99"], 2, "device"),
        (["--run", "RUN", "--data", "nowhere.tsv"], 3, "--data is nowhere.tsv, but there is no such thing"),
        (["--run", "RUN", "--data", "TMP/bad.tsv"], 3, "bad.tsv:2"),
        (["--run", "RUN", "--against", "TMP"], 3, "dragoman evaluate --run"),
        (["--run", "RUN", "--against", "TMP/nowhere.tsv"], 3, "nowhere.tsv cannot be read"),
        (["--run", "RUN", "--against", "TMP/bad.tsv"], 3, "bad.tsv:1: found 2 columns"),
        (["--run", "RUN", "--against", "TMP/other.tsv"], 3, "its pairs are different"),
        (["--run", "RUN", "--against", "RUN/result.json"], 3, "is not a report of"),
        (["--run", "RUN", "--output", "TMP/bad.tsv"], 7, "cannot be written"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, fragment: str
) -> None:
    """Guards against tracebacks, silent failures, and files left behind."""
    (tmp_path / "bad.tsv").write_text("a\tb\nc\n", encoding="utf-8")
    (tmp_path / "other.tsv").write_text("a\tb\tc\n", encoding="utf-8")
    words = [word.replace("RUN", str(trained)).replace("TMP", str(tmp_path)) for word in arguments]
    before = sorted([*trained.rglob("*"), *tmp_path.rglob("*")])
    try:
        found = call(*words)
    except SystemExit as stop:  # from argparse
        found = stop.code
    out, err = capsys.readouterr()
    assert (found, out) == (code, "")
    assert fragment in err
    assert err.count("\n") == 1
    assert sorted([*trained.rglob("*"), *tmp_path.rglob("*")]) == before, "a mistake must not leave files"
