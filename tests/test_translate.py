"""The translator and its command line: the same translations everywhere, one line out per line in, and warnings."""

from __future__ import annotations

import json
import math
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import HANG, ROOT, in_child, run_python, tiny_config
from dragoman import checkpoint, errors
from dragoman.__main__ import run as run_command
from dragoman.dataset import UNSEEN
from dragoman.documents.markup import translate_markup
from dragoman.errors import DataError
from dragoman.text.cleaning import clean
from dragoman.translation.output import MOST_WARNINGS, as_json, printable
from dragoman.translation.pieces import encode_request
from dragoman.translation.request import Request
from dragoman.translation.translator import Translator
from echo import complaints, echo, reconfigured, until

TEXTS = ["the cat sees the dog.", "this red wine.", "", "and here.", "the dog wants the black bread here today."]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run after ten steps: its translations are nonsense, but always the same."""
    config = tiny_config(tmp_path_factory.mktemp("trained"), training__max_steps=10, data__max_length=12)
    assert in_child(lambda: run_command("train", config)) == 0
    return Path(config.run.dir) / config.run.name


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run that a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "runs" / "tiny"))


def command(
    *arguments: object, stdin: bytes | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    return run_python([ROOT / "translate.py", *arguments], cwd or Path(), stdin or b"")


def test_a_string_is_one_text(run: Path) -> None:
    """Guards against a string taken for a list of letters, with one translation for each."""
    translator = Translator(run)
    assert translator.translate(TEXTS[0]) == translator.translate([TEXTS[0]])[0]
    with pytest.raises(TypeError, match="list of texts"):
        translator.explain(TEXTS[0])


def test_n_best_as_text(run: Path) -> None:
    """Guards the alternatives, which only JSON used to show: as many lines for each text."""
    options = ["--decoding.beam_size", 4, "--decoding.n_best", 3]
    done = command("--run", run, "--engine", "torch", *options, *TEXTS)
    assert done.returncode == 0, done.stderr
    found = done.stdout.decode().split("\n")[:-1]
    assert len(found) == 3 * len(TEXTS)
    beam = Translator(run).with_decoding(beam_size=4, n_best=3)
    assert found[::3] == beam.translate(TEXTS)
    [sentence] = beam.explain([TEXTS[0]])[0].sentences
    assert found[:3] == [candidate.text for candidate in sentence.candidates]


def test_an_argument_is_a_file_only_if_it_looks_like_one(run: Path, tmp_path: Path) -> None:
    """Guards a document that would be translated as the words of its name, and a word that happens to name a file."""
    for name in ("letter.txt", "cat"):
        (tmp_path / name).write_text("the cat.\n", encoding="utf-8")
    done = command("--run", run, "letter.txt", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"wrote letter." in done.stderr
    assert len([*tmp_path.glob("letter.*.txt")]) == 1
    done = command("--run", run, "cat", cwd=tmp_path)
    assert b"use --input cat" in done.stderr
    assert done.stdout.count(b"\n") == 1


def test_a_finished_run_goes_before_a_newer_one(run: Path, tmp_path: Path) -> None:
    """Guards against translating with a run that has only started, and not saying so."""
    newer = Path(shutil.copytree(run, run.with_name("started")))
    (newer / "result.json").unlink()
    for path in newer.glob("checkpoints/step-*"):
        os.utime(path, (2e9, 2e9))
    assert (run / "result.json").exists()
    done = command(TEXTS[0], cwd=tmp_path)
    assert b"using runs/tiny, en to it; to use another run, name it with --run" in done.stderr
    assert b"using" not in command("--run", newer, TEXTS[0]).stderr
    shutil.rmtree(newer)
    assert b"using runs/tiny, en to it\n" in command(TEXTS[0], cwd=tmp_path).stderr


def test_arguments_files_pipes_and_python_give_the_same(run: Path, tmp_path: Path) -> None:
    """Guards against interfaces that differ: arguments, files, standard input and Python."""
    expected = Translator(run).translate(TEXTS)
    assert len(expected) == len(TEXTS)
    assert expected[2] == ""
    assert len(set(expected)) > 2
    text = "".join(f"{line}\n" for line in expected).encode()
    assert command("--run", run, *TEXTS).stdout == text
    file, output = tmp_path / "in put.txt", tmp_path / "out.txt"
    file.write_text("\n".join(TEXTS), encoding="utf-8")  # no line feed after the last line
    assert command("--run", run, "--input", file, "--output", output).stdout == b""
    assert output.read_bytes() == text
    assert command("--checkpoint", checkpoint.steps(run / "checkpoints")[0], stdin=file.read_bytes()).stdout == text
    newest = command(stdin=file.read_bytes(), cwd=run.parent.parent)  # where `runs` is
    assert newest.stdout == text, newest.stderr


def requests(translator: Translator, texts: Sequence[str], prefixes: Sequence[str]) -> list[Request]:
    return [translator.request(text, prefix=prefix) for text, prefix in zip(texts, prefixes, strict=True)]


def test_each_line_is_answered_at_once(run: Path) -> None:
    """Guards pipes: a program that waits for each answer must not wait for ever."""
    arguments = [sys.executable, str(ROOT / "translate.py"), "--run", str(run)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text in TEXTS:
            process.stdin.write(text.encode() + b"\n")
            process.stdin.flush()
            assert process.stdout.readline().endswith(b"\n")
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


def test_too_long_text_is_split_with_a_warning(run: Path) -> None:
    """Guards long sentences against a crash, and against losing their end silently."""
    translator = Translator(run)
    assert translator.translate(["the cat " * 1700])
    assert "a sentence of 3,401 tokens is translated in parts" in translator.warnings[0][1]
    assert len(translator.translate(["x" * 20_000, "the cat"])) == 2


def test_warnings_count_from_the_first_line(run: Path) -> None:
    """Guards the number by which a user finds the line."""
    translator = Translator(run)
    translator.translate(["the cat.", "the cat " * 50])
    assert translator.warnings[0][0] == 1
    assert b"text 2: a sentence of" in command("--run", run, "the cat.", "the cat " * 50).stderr


def test_paragraph_is_translated_sentence_by_sentence(run: Path) -> None:
    """Guards the second sentence, which a model of single sentences forgets, and the order of sentences."""
    translator = Translator(run)
    parts = ["the cat sees the dog.", "this red wine.", "the dog wants the black bread here today."]
    assert translator.translate([" ".join(parts)]) == [" ".join(translator.translate(parts))]
    assert not any("in parts" in warning for _, warning in translator.warnings)
    whole = Translator(run, overrides=["--decoding.split_sentences", "false"])
    assert len(whole.explain([" ".join(parts[:2])])[0].sentences) == 1


LOWERED = ["--data.lowercase", "true", "--data.normalize", "nfkc"]
AS_WRITTEN = ["--decoding.tolerant", "false"]


def test_lowercase_run_never_sees_capitals(run: Path) -> None:
    """Lower-cases every kind of input, since the model has never seen capitals."""
    plain, lowered = (Translator(run, overrides=[*more, *AS_WRITTEN]) for more in ((), LOWERED))
    texts = ["ＴＨＥ Cat sees the DOG.", "This\u3000red WINE.", "", "And HERE."]
    lower = ["the cat sees the dog.", "this red wine.", "", "and here."]
    targets, low = ["Il GATTO.", "ＩＬ vino", "il", "Qui."], ["il gatto.", "il vino", "il", "qui."]
    found, expected = (
        each.explain(requests(each, *given)) for each, *given in ((lowered, texts, targets), (plain, lower, low))
    )
    assert [each.sentences for each in found] == [each.sentences for each in expected]
    assert [each.sentences for each in found] != [
        each.sentences for each in plain.explain(requests(plain, texts, targets))
    ]
    assert [each.source for each in found] == texts
    assert lowered.score([*zip(texts, targets, strict=True)]) == plain.score([*zip(lower, low, strict=True)])
    torch.testing.assert_close(lowered.embed(texts), plain.embed(lower))


def test_capitals_still_separate_sentences(run: Path) -> None:
    """Guards against lower-casing before splitting: an abbreviation ends a sentence only before a capital."""
    text = "It is 5 p.m. We go."
    found = Translator(run, overrides=[*LOWERED, *AS_WRITTEN]).explain([text, text.lower()])
    assert [each.source for each in found[0].sentences] == ["it is 5 p.m.", "we go."]
    assert [each.source for each in found[1].sentences] == [text.lower()]


def test_lowercase_language_model(run: Path) -> None:
    """Guards a language model, whose text is not encoded as a source."""
    arguments = ["--model.architecture", "decoder-only", "--tokenizer.shared", "true", "--data.source_lang", "null"]
    lowered = reconfigured(Translator(run), *LOWERED, *arguments)
    [[piece]] = encode_request(lowered.trained, lowered.request("Il GATTO"), pytest.fail)
    assert (piece.text, piece.prefix) == ("il gatto", lowered.target.encode("il gatto"))


def test_lines_and_blank_lines_are_kept(run: Path) -> None:
    """Guards documents: each line is translated on its own, and no text moves to another line."""
    translator = Translator(run)
    text = "\n".join(TEXTS) + "\n\n" + TEXTS[0] + "\n"
    assert translator.translate([text])[0].split("\n") == [*translator.translate(TEXTS), "", expected_first(run), ""]


def expected_first(run: Path) -> str:
    return Translator(run).translate(TEXTS[:1])[0]


@pytest.mark.parametrize(
    ("arguments", "code", "fragment"),
    [
        (["--run", "runs/nothing", "x"], 4, "holds no checkpoint"),
        (["--checkpoint", "nowhere", "x"], 4, "holds no checkpoint"),
        (["--decoding.beam_size", "0", "x"], 2, "decoding.beam_size is 0"),
        (["--beam", "3", "x"], 2, "--beam"),
        (["--input", "a", "x"], 2, "only one of"),
        (["--input", "nowhere.txt"], 3, "nowhere.txt"),
        (["--checkpoint", "/nowhere", "x"], 4, "holds no checkpoint"),
        (["--output", "/nowhere/there.txt", "x"], 7, "cannot be written: /nowhere/there.txt: No such"),
        (["--output", "/", "x"], 7, "cannot be written: /: Is a directory"),
        (["--attention", "/nowhere/there.html", "x"], 7, "cannot be written: /nowhere/there.html: No such"),
        (["--device", "cuda:99", "x"], 2, "device"),
    ],
)
def test_mistake_is_one_line(run: Path, arguments: list[str], code: int, fragment: str) -> None:
    """Guards against tracebacks, and against errors without a message."""
    where = [] if {"--run", "--checkpoint"} & set(arguments) else ["--run", run]
    result = command(*where, *arguments)
    assert result.returncode == code, result.stderr
    assert fragment in result.stderr.decode()
    assert result.stderr.count(b"\n") == 1
    assert result.stdout == b""


def test_file_may_be_its_own_output(run: Path, tmp_path: Path) -> None:
    """Guards a user's only copy, which was emptied before it was read."""
    file = tmp_path / "letter.txt"
    file.write_text("\n".join(TEXTS), encoding="utf-8")
    assert command("--run", run, "--input", file, "--output", file).returncode == 0
    assert file.read_text(encoding="utf-8").splitlines() == Translator(run).translate(TEXTS)
    file.write_bytes(b"the cat.\n" * 3 + b"\xff\n")
    assert command("--run", run, "--input", file, "--output", file).returncode == 3
    assert file.read_bytes().startswith(b"the cat.\n"), "a failed translation must keep the old file"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["letter.txt", "runs"]


def test_start_imports_only_what_it_needs(run: Path) -> None:
    """Guards the start-up time: torch is not imported, nor anything for training or reports, and imports are frozen."""
    Translator(run, engine="ctranslate2")  # writes the files of the engine
    code = (
        "import gc, json, runpy, sys\n"
        f"sys.argv = ['translate.py', '--run', {str(run)!r}, {TEXTS[0]!r}]\n"
        "try:\n"
        "    runpy.run_path('translate.py', run_name='__main__')\n"
        "except SystemExit as stop:\n"
        "    assert not stop.code, stop.code\n"
        "print(json.dumps([gc.isenabled(), gc.get_freeze_count(), list(sys.modules), len(gc.get_objects())]))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    *translation, report = result.stdout.splitlines()
    assert translation == [expected_first(run)]
    enabled, frozen, modules, others = json.loads(report)
    assert enabled
    assert frozen > 2 * others, "what the imports have made is not frozen"
    libraries = {"torch", "datasets", "filelock", "jinja2", "matplotlib", "pandas", "pyarrow", "sacrebleu", "sympy"}
    libraries |= {"numpy", "rapidfuzz", "tqdm"}
    libraries |= {"tensorboard", "torchmetrics", "torch._dynamo", "torch._inductor", "torch.utils.tensorboard"}
    ours = {f"dragoman.{name}" for name in ("train", "training", "evaluation", "export", "server")}
    assert not (libraries | ours) & set(modules)


@pytest.mark.parametrize("half", ["\ud800", "the cat \udcff."])
def test_half_of_a_character_is_refused(half: str) -> None:
    """Guards callers from Python against a library's error for text that is not Unicode."""
    translator = echo(kind="bpe")
    with pytest.raises(DataError, match="half of a character"):
        translator.translate(["My name", half])
    with pytest.raises(DataError, match="half of a character"):
        translator.request("My name", prefix=half)
    with pytest.raises(DataError, match="half of a character"):
        translate_markup(translator, f"<p title='{half}'/>", "html")


# --- Other output -------------------------------------------------------------------------------------------------


def test_json(run: Path) -> None:
    """Guards --json: one object per line, consistent in itself and with the plain translation."""
    settings = ["--decoding.beam_size", "3", "--decoding.n_best", "3"]
    output = command("--run", run, "--json", *settings, *TEXTS).stdout.decode()
    objects = [json.loads(line) for line in output.splitlines()]
    assert [each["source"] for each in objects] == TEXTS
    translator = Translator(run, overrides=settings, engine="auto")
    assert [each["translation"] for each in objects] == translator.translate(TEXTS)
    for each in objects:
        assert bool(each["sentences"]) == bool(each["source"])
        for sentence in each["sentences"]:
            for candidate in sentence["candidates"]:
                assert len(candidate["tokens"]) == len(candidate["log_probs"])
                assert len(candidate["alignment"]) == len(candidate["tokens"]) - candidate["complete"]
                assert all(0 <= s < len(sentence["tokens"]) for s in candidate["alignment"])
                mean = sum(candidate["log_probs"]) / len(candidate["log_probs"])
                assert candidate["score"] == pytest.approx(mean, abs=1e-3)


def test_alignments_of_a_batch_equal_one_by_one(run: Path) -> None:
    """Guards against alignment with padding, and the order of the pairs."""
    translator = Translator(run).with_decoding(beam_size=3, n_best=3)
    translations = translator.explain(TEXTS)
    for whole, translation in zip(translator.with_alignments(translations), translations, strict=True):
        [alone] = translator.with_alignments([translation])
        for one, other in zip(whole.sentences, alone.sentences, strict=True):
            for candidate, expected in zip(one.candidates, other.candidates, strict=True):
                assert candidate.weights is not None
                assert expected.weights is not None
                np.testing.assert_allclose(candidate.weights, expected.weights, rtol=1e-3, atol=1e-5)
                assert candidate.weights.shape == (len(candidate.ids), len(one.ids))
                assert candidate.alignment == expected.alignment


def test_score_equals_that_of_the_search(run: Path, tmp_path: Path) -> None:
    """Guards --score: it gives a translation the same score as the search that found it."""
    translator = Translator(run)
    texts = [text for text in TEXTS if text]
    found = [t.sentences[0].candidates[0] for t in translator.explain(texts)]
    pairs = [(text, best.text) for text, best in zip(texts, found, strict=True) if best.complete]
    scored = translator.score(pairs)
    for best, scored_again in zip([best for best in found if best.complete], scored, strict=True):
        if best.ids == scored_again.ids:  # the tokenizer splits the text in the same way
            assert scored_again.log_probs == pytest.approx(best.log_probs, abs=1e-4)
            assert scored_again.score == pytest.approx(best.score, abs=1e-4)
    pairs = [("the cat.", "il gatto."), ("the dog sees the red wine.", "il cane vede il rosso vino."), ("here", "")]
    lines = "".join(f"{a}\t{b}\n" for a, b in pairs)
    expected = "".join(f"{each.score:.4f}\n" for each in translator.score(pairs))
    assert command("--run", run, "--score", stdin=lines.encode()).stdout.decode() == expected
    assert command("--run", run, "--score", *[text for pair in pairs for text in pair]).stdout.decode() == expected
    wrong = command("--run", run, "--score", stdin=b"the cat.\til gatto.\nthe dog.\n")
    assert wrong.returncode == 3
    assert b"stdin:2" in wrong.stderr


def test_attention_page_and_alignment_table(run: Path, tmp_path: Path) -> None:
    """Guards --attention and --align: they show the sentences, whatever those contain."""
    page = tmp_path / "attention.html"
    result = command("--run", run, "--attention", page, "--align", "the <b>cat</b> sees.", "")
    assert result.returncode == 0, result.stderr
    assert "[EOS]" in result.stdout.decode() or "cut off" in result.stderr.decode()
    text = page.read_text(encoding="utf-8")
    assert text.lower().startswith("<!doctype html>")
    assert "<b>cat</b>" not in text


def test_ensemble_needs_the_same_vocabularies(run: Path, tmp_path: Path) -> None:
    """Guards against averaging the probabilities of different words."""
    config = tiny_config(tmp_path / "other", training__max_steps=2, tokenizer__vocab_size=12, run__name="other")
    assert in_child(lambda: run_command("train", config)) == 0
    with pytest.raises(errors.CheckpointError, match="same tokenizers"):
        Translator([run, Path(config.run.dir) / "other"])


def test_ensemble_needs_the_same_casing(run: Path, tmp_path: Path) -> None:
    """Guards a model against lower-case text that only another member was trained on, even with the same vocabulary."""
    settings = {"training__max_steps": 2, "data__max_length": 12, "data__lowercase": True}
    config = tiny_config(tmp_path / "other", run__name="other", **settings)  # a corpus without capitals
    assert in_child(lambda: run_command("train", config)) == 0
    with pytest.raises(errors.CheckpointError, match=r"data\.lowercase or data\.normalize differs"):
        Translator([run, Path(config.run.dir) / "other"])


@pytest.mark.parametrize("end", [b"\x04", b":quit\n"])
def test_prompt(run: Path, tmp_path: Path, end: bytes) -> None:
    """Guards the prompt on a terminal: an answer per line, the line before by the up key, and the end."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"HOME": str(tmp_path), "TERM": "dumb"}
    arguments = [sys.executable, str(ROOT / "translate.py"), "--run", str(run)]
    expected = Translator(run).translate([TEXTS[0]])[0]
    with subprocess.Popen(
        arguments, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment, start_new_session=True
    ) as process:
        os.close(theirs)
        said = until(ours, b"en > ")
        os.write(ours, TEXTS[0].encode() + b"\n")
        said += until(ours, b"en > ")
        os.write(ours, b"\x1b[A\n")
        said += until(ours, b"en > ")
        os.write(ours, end)
        assert process.wait(HANG) == 0
        assert process.stderr
        assert process.stderr.read().count(b":quit or Ctrl-D ends") == 1
    os.close(ours)
    assert said.count(expected.encode()) == 2


def test_search_that_finds_nothing(run: Path) -> None:
    """Guards JSON, which has no -Infinity, and a translation that lacks even its prefix."""
    translator = Translator(run, engine="torch")
    for weights in translator.model.parameters():
        weights.data.fill_(math.nan)
    request = translator.request("the cat zork.", prefix="Zoltan")
    [translation] = translator.with_alignments(translator.explain([request]))
    assert translation.sentences[0].candidates[0].ids == []
    assert "no translation was found" in translator.warnings[0][1]
    found = json.loads(as_json(translation), parse_constant=pytest.fail)
    assert found["sentences"][0]["candidates"][0]["score"] is None


def test_printable() -> None:
    """Guards a terminal against the control characters of a hostile file."""
    assert printable("a\x1b[2Jb\x9bc\nd\te") == "a⟨U+001B⟩[2Jb⟨U+009B⟩c\nd⟨U+0009⟩e"
    assert printable("più 🙂 日本語") == "più 🙂 日本語"


# --- Unknown words ------------------------------------------------------------------------------------------------


NAMES = "My name is Zoltán-Maria O'Hara, and I live in København: number 17½, see https://x.org/a.b?c=1 (me@x.org) 🙂!"


@pytest.mark.parametrize("beam", [1, 3])
def test_unknown_words_are_copied_unchanged(beam: int) -> None:
    """Guards names, numbers, addresses and emoji: casing, accents and adjacent punctuation stay the same."""
    translator = echo(f"beam_size={beam}")
    assert translator.translate([NAMES]) == [NAMES]
    assert complaints(translator) == []
    [sentence] = translator.explain([NAMES])[0].sentences
    best = sentence.candidates[0]
    assert {best.tokens[t] for t in best.copied} >= {"Zoltán-Maria O'Hara", "København", "🙂", "(me@x.org)"}
    assert sentence.unknown == sorted(best.copied.values())


@pytest.mark.parametrize("beam", [1, 3])
def test_prefix(beam: int) -> None:
    """Guards prefixes: their words stay as given, unknown ones included, and the translation continues from there."""
    translator = echo(f"beam_size={beam}")
    texts, prefixes = ["My name is Zoltán.", "", "name is Anna, see"], ["Priya lives", "Priya", ""]
    found = translator.explain(requests(translator, texts, prefixes))
    assert [each.text for each in found] == ["Priya lives is Zoltán.", "", "name is Anna, see"]
    assert found[0].sentences[0].candidates[0].copied == {3: 3, 4: 4}  # "." is unknown
    assert translator.translate(texts[:1]) == texts[:1]


def test_unknown_words_may_be_kept_or_dropped() -> None:
    """Guards decoding.unknown keep and drop, and the warning about a lost address."""
    text = "My name is Zoltán, see www.x.org!"
    keep, drop = echo("unknown=keep"), echo("unknown=drop")
    assert keep.translate([text]) == ["My name is [UNK], see [UNK] [UNK] [UNK] [UNK] [UNK]!"]  # "." is unknown
    assert "lost in translation: www.x.org" in keep.warnings[-1][1]
    assert drop.translate(["My name is Zoltán, see"]) == ["My name is, see"]
    [prefixed] = drop.explain([drop.request("My name is Zoltán, see Zoltán", prefix="Anna name")])
    assert prefixed.text == "Anna name is, see"


def test_placeholder_of_literals_may_occur_in_a_text() -> None:
    """Guards the placeholder for addresses against a text that contains it."""
    text = f"My {UNSEEN} is {UNSEEN}, see https://a.b/c {UNSEEN}!"
    assert echo().translate([text]) == [text]


def test_subwords_need_no_copies() -> None:
    """Guards subwords, for which no word is unknown, against being treated as words."""
    translator = echo(kind="bpe")
    assert translator.translate([NAMES]) == [clean(NAMES)]
    [sentence] = translator.explain([NAMES])[0].sentences
    assert [sentence.tokens[s] for s in sentence.unknown] == ["https://x.org/a.b?c=1", "me@x.org", "🙂"]


# --- Documents ----------------------------------------------------------------------------------------------------

PARAGRAPH = " ".join(
    f"On day {i} my friend Zoltán No. {i} met Dr. O'Hara at {i % 12}.{i % 60:02} p.m. in København, and said: hello 🙂!"
    for i in range(30)
)


def document() -> list[str]:
    """200 lines: a title, blank lines, short and long lines, a paragraph of 600 words, addresses, emoji."""
    lines = ["# Title", "", PARAGRAPH, "", "", "https://x.org/a?b=c#d", "me@x.org", "🙂 🙂🙂", "17,5 % – 3.000 €"]
    return lines + [["My name is Anna.", "", "  two  blanks", "- item: see www.x.org!"][i % 4] for i in range(191)]


def test_document_is_translated_whole() -> None:
    """Guards paragraphs against translating only the first sentence, and everything that is not an ordinary word."""
    lines = document()
    assert len(lines) == 200
    assert len(PARAGRAPH.split()) >= 600
    translator = echo()
    assert translator.translate(lines) == [clean(line) for line in lines]
    assert translator.translate(["\n".join(lines)]) == ["\n".join(map(clean, lines))]
    assert complaints(translator) == []
    assert len(translator.explain([PARAGRAPH])[0].sentences) == 30


def test_many_warnings_are_counted(run: Path) -> None:
    """Guards a terminal against thousands of warnings, as from a limit that is too low."""
    result = command("--run", run, "--decoding.max_length", "1", stdin=b"the cat sees the dog.\n" * 50)
    assert result.stderr.count(b"cut off") == MOST_WARNINGS
    assert b"and 30 more warnings" in result.stderr
