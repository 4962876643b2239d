"""The advice in messages: following it, as taken from the text of the message, resolves the error."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

from conftest import in_child, tiny_config, tiny_pairs, write_tsv
from dragoman import check
from dragoman.__main__ import COMMANDS, main
from dragoman.command_line import parse_check, parse_clean, parse_train, read_settings
from dragoman.config_file import loads
from dragoman.corpora.language_choice import with_languages
from dragoman.corpora.preparation import prepare_data
from dragoman.corpora.sources import find_sources
from dragoman.corpora.splitting import read_portions
from dragoman.errors import ConfigError, DataError
from dragoman.filtering.checked import CheckedCorpus
from dragoman.filtering.clean import clean_corpus
from dragoman.setting_types import as_word
from dragoman.settings import DEFAULTS, Config, values

PAIRS = list(dict(tiny_pairs(300)).items())
ENGLISH_TO_ITALIAN = ["--data.source_lang", "en", "--data.target_lang", "it"]


def follow(message: str, remedy: str, words: list[str]) -> list[str]:
    """Do what a message says, and return the command line to try again.

    The groups of the pattern `remedy` say what it names: `options` to add; a `key` and its `value`; what to write
    `instead` of the first word of the message; a `command` that converts the file of data.train; or the `language` that
    gets another `value`. Behind -> are the options with which a person does what a pattern without groups finds.
    """
    pattern, _, chosen = remedy.partition(" -> ")
    matched = re.search(pattern, message)
    assert matched, message
    if chosen:
        return with_options(words, shlex.split(chosen))
    match matched.groupdict():
        case {"options": options}:
            return [*words, *shlex.split(options)]
        case {"key": key, "value": value}:
            return with_options(words, [f"--{key}", value])
        case {"language": language, "value": value}:
            return [value if word == language else word for word in words]
        case {"instead": instead}:
            i = words.index(message.split()[0])
            return [*words[:i], *shlex.split(instead), *words[i + 1 :]]
        case {"command": command}:
            if not shutil.which("iconv"):
                pytest.skip("needs iconv")
            file = Path(read_settings(words).data.train)
            converted = subprocess.run(
                shlex.split(command), input=file.read_bytes(), stdout=subprocess.PIPE, check=True
            )
            file.write_bytes(converted.stdout)
            return words
        case _:
            raise AssertionError(remedy)


def with_options(words: list[str], options: list[str]) -> list[str]:
    """Give options that replace those of the same names."""
    for name in options[::2]:
        words = [each for before, each in pairwise(["", *words]) if name not in (each.partition("=")[0], before)]
    return [*words, *options]


# --- Settings -------------------------------------------------------------------------------------------------------

SETTINGS: list[tuple[str, list[str]]] = [
    ("--training.schedule inverse_sqrt --training.warmup_steps 0", [r"(?P<key>\S+) is 0, .* at least (?P<value>\d+)"]),
    ("--model.d_model 64 --model.n_heads 5", [r"(?P<key>model\.n_heads) is .* choose one of (?P<value>\d+)"]),
    ("--model.tie all", [r"set (?P<key>tokenizer\.shared) to (?P<value>\w+)"]),
    ("--model.tie all", [r"or (?P<key>model\.tie) to (?P<value>\w+)\."]),
    (
        "--data.source_lang null",
        [r"(?P<key>model\.architecture) is .* set it to (?P<value>[\w-]+)", r"set (?P<key>\S+) to (?P<value>\w+)"],
    ),
    ("--model.positions learned --model.max_positions 99", [r"(?P<key>\S+) is 99.* need (?P<value>\d+)\."]),
    ("--decoding.sample true --decoding.beam_size 2", [r"set (?P<key>decoding\.beam_size) to (?P<value>1)"]),
    ("--decoding.n_best 9", [r"(?P<key>decoding\.n_best) is .* at most decoding\.beam_size \((?P<value>\d)\)"]),
    ("--training.fsdp true", [r"(?P<key>training\.optimizer) is muon, but it must be (?P<value>\w+)"]),
    (
        "--training.fsdp true --training.optimizer adamw --training.precision float16",
        [r"(?P<key>\S+) is float16, but it must be (?P<value>\w+)"],
    ),
    (
        "--data.directions en-it,it-en,en-fr --data.columns 1,2",
        [r"(?P<key>data\.columns) is .* set it to (?P<value>\w+)"],
    ),
    ("--training.max_steps 1e3", [r"(?P<key>\S+) is 1e3, .*: write (?P<value>\d+)\."]),
    ("--model.dropout 1", [r"(?P<key>\S+) is 1.0, but it must be at least (?P<value>\d) "]),
    ("--data.columns 1", [r"(?P<key>\S+) is 1, but it must .* as in (?P<value>\d,\d) or"]),
    ("--data.columns 1", [r"(?P<key>\S+) is 1, but it must .* by names as in (?P<value>\w+,\w+)\."]),
    ("--data.directions english", [r"(?P<key>\S+) is english, but directions are named as in (?P<value>.*), or"]),
    ("--run.name=", [r"(?P<key>\S+) is empty, but it must be (?P<value>some) text"]),
    ("--training.epochs 3", [r"did you mean (?P<instead>--\S+)\?"]),
    ("--learning_rate 0.1", [r"did you mean (?P<instead>--\S+)\?"]),
]


@pytest.mark.parametrize(("line", "remedies"), SETTINGS, ids=[line for line, _ in SETTINGS])
def test_settings(
    line: str,
    remedies: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Guards against remedies that name no value, or a value that is refused."""
    write_tsv(tmp_path / "pairs.tsv", PAIRS)
    monkeypatch.chdir(tmp_path)
    words = line.split()
    for remedy in remedies:
        with pytest.raises((ConfigError, SystemExit)) as refused:
            read_settings(words)
        words = follow(capsys.readouterr().err or str(refused.value), remedy, words)
    read_settings(words)


# --- Config files ---------------------------------------------------------------------------------------------------

# The file, what its message says, and the file that follows: \1 is the first group of what is said.
FILES: list[tuple[str, str, str]] = [
    ("", r"must contain sections such as (\S+:) with settings", "\\1\n  d_model: 64"),
    ("model.d_model: 64", r"two levels: (model:) and under it (d_model)\.", "\\1\n  \\2: 64"),
    ("model:\n  n_head: 2", r"did you mean model\.(\w+)\?", "model:\n  \\1: 2"),
    ("modle:\n  n_heads: 2", r"did you mean (model)\?", "\\1:\n  n_heads: 2"),
    ("model: 64", r"settings, each on an indented line", "model:\n  d_model: 64"),
    ("- model", r"must contain sections such as (\S+:)", "\\1\n  d_model: 64"),
    ("run:\n  ? [name]\n  : tiny", r"a name in run must be a plain word", "run:\n  name: tiny"),
    ("data:\n  directions: [en-it, it-en]", r"must be a single value", "data:\n  directions: en-it, it-en"),
    ("data:\n  train: [a.tsv, b.tsv]", r"must be a single value", "data:\n  train: a.tsv"),
    ("data:\n  source_lang: no", r'quote it, as ("\w+")\.', "data:\n  source_lang: \\1"),
    ("run:\n  seed: 1\n  seed: 2", r"appears twice, first on line (2)", "run:\n  seed: 2"),
]


@pytest.mark.parametrize(("wrong", "remedy", "right"), FILES, ids=[wrong for wrong, _, _ in FILES])
def test_config_file(wrong: str, remedy: str, right: str) -> None:
    """Guards against messages after which the next try also fails."""
    with pytest.raises(ConfigError) as refused:
        loads(wrong.encode(), Path("a.yaml"))
    matched = re.search(remedy, str(refused.value))
    assert matched, refused.value
    loads(matched.expand(right).encode(), Path("a.yaml"))


# --- Corpora --------------------------------------------------------------------------------------------------------


def tsv(*rows: tuple[str, ...], separator: str = "\t") -> str:
    return "".join(separator.join(row) + "\n" for row in rows)


OLD = tsv(("Is it café?", "È un caffè?"), *PAIRS)
CORPORA: dict[str, str | bytes] = {
    "a.tsv": tsv(*PAIRS[:60]), "b.tsv": tsv(*PAIRS[60:]), "named.tsv": tsv(("en", "it"), *PAIRS),
    "one.tsv": tsv(*PAIRS[:1]), "few.tsv": tsv(*PAIRS[:4]), "empty.tsv": "\t\n",
    "mine/train.tsv": tsv(*PAIRS[:60]), "split/test.tsv": tsv(*PAIRS), "pickled/train.pkl": b"",
    "cp1252.tsv": OLD.encode("cp1252"), "utf32.tsv": OLD.encode("utf-32"), "utf16.tsv": OLD.encode("utf-16-le"),
    "texts/one.txt": tsv(*((a,) for a, _ in PAIRS)), "texts/two.txt": tsv(*((b,) for _, b in PAIRS)),
    "tables/mine.tsv": tsv(*PAIRS), "four.tsv": tsv(*((a, b, a + "x", b + "x") for a, b in PAIRS)),
    "spanish.csv": tsv(("Spanish", "English"), *((b, a) for a, b in PAIRS), separator=","),
    "twice.tsv": tsv(("en-US", "en-GB", "it"), *((a, a, b) for a, b in PAIRS)),
    "short.csv": tsv(*PAIRS[:50], ("only one",), *PAIRS[50:], separator=";"),
}  # fmt: skip
ICONV = r"(?P<command>iconv -f \S+ -t UTF-8)"
# A command, its settings, and what its messages say to do, one after the other.
CASES: list[tuple[str, str, list[str]]] = [
    ("train", "--data.train cp1252.tsv", [ICONV]),
    ("train", "--data.train utf32.tsv", [ICONV]),
    ("train", "--data.train utf16.tsv", [ICONV]),
    (
        "train",
        "--data.train utf16.tsv --data.on_bad_line skip",
        [r"set (?P<key>data\.on_bad_line) to (?P<value>error)", ICONV],
    ),
    ("train", "--data.train texts", [r'as in (?P<options>--data\.train ".*")$']),
    ("train", "--data.train tables", [r"as in (?P<key>data\.train): (?P<value>\S+)$"]),
    ("train", "--data.train four.tsv", [r"as in (?P<options>--data\.columns \S+);"]),
    ("train", "--data.train spanish.csv", [r"add (?P<options>--data\.source_lang \S+ --data\.target_lang \S+)"]),
    ("train", "--data.train twice.tsv", [r"(?P<value>en-US) and \S+ are both (?P<language>en): name one of them"]),
    ("train", "--data.train twice.tsv", [r"set data\.columns -> --data.columns en-GB,it"]),
    ("train", "--data.train short.csv", [r"with (?P<options>--data\.on_bad_line skip)$"]),
    (
        "train",
        "--data.train a.tsv --data.directions en-it,en-fr",
        [r"must name the columns, en and -> --data.train named.tsv --data.directions en-it"],
    ),
    ("train", "--data.max_length 1", [r"longer than data\.max_length \(1\): raise it\. -> --data.max_length 100"]),
    (
        "train",
        "--data.max_length 1 --data.max_ratio 1",
        [r"longer than .* or more uneven than .*: raise them -> --data.max_length 100 --data.max_ratio 3"],
    ),
    ("train", "--tokenizer.kind bpe --tokenizer.vocab_size 100", [r"(?P<key>\S+) is 100, .* at least (?P<value>\d+)"]),
    ("train", "--tokenizer.kind unigram --tokenizer.vocab_size 99", [r"(?P<key>\S+) is 99, .* least (?P<value>\d+)"]),
    ("train", "--data.validation_fraction 1e-9", [r"or a larger data\.valid -> --data.validation_fraction 0.1"]),
    ("train", "--data.validation_fraction 1e-9", [r"pairs of your own as data\.valid -> --data.validation b.tsv"]),
    (
        "train",
        "--data.train few.tsv --data.validation_fraction 0.5 --data.test_fraction 0.5",
        [r"or a smaller \S+ and \S+\.$ -> --data.validation_fraction 0.3 --data.test_fraction 0"],
    ),
    (
        "train",
        "--data.train '0.0001 * a.tsv + 0.0001 * b.tsv'",
        [r"the weights in .* leave .*: raise them\. -> --data.train 'a.tsv + 0.5 * b.tsv'"],
    ),
    ("train", "--data.train split", [r"has no split train, only test: name another -> --data.train a.tsv"]),
    ("train", "--data.train pickled", [r"convert it to \.jsonl or \.tsv -> --data.train a.tsv"]),
    ("check", "--data.train 'a.tsv + b.tsv'", [r"check reads one at a time: set it to one\. -> --data.train a.tsv"]),
    (
        "check",
        "--data.train named.tsv --data.directions en-it,it-en",
        [r"(?P<key>data\.directions) is set, but the check .* set it to (?P<value>null)"],
    ),
    ("check", "--data.train one.tsv", [r"no pair for validation.*: use more pairs -> --data.train a.tsv"]),
    ("clean", "--data.train 'a.tsv + b.tsv'", [r"clean takes one at a time: set it to one\. -> --data.train a.tsv"]),
    (
        "clean",
        "--data.train named.tsv --data.directions en-it,it-en",
        [r"(?P<key>data\.directions) is set, but clean .* set it to (?P<value>null)"],
    ),
    (
        "clean",
        "--data.train a.tsv --data.source_lang null --model.architecture decoder-only --tokenizer.shared true",
        [r"compares two sides: set it\. -> --data.source_lang en"],
    ),
    ("clean", "--data.train mine/train.tsv --output mine", [r"choose another folder\. -> --output other"]),
    ("clean", "--data.train a.tsv --output mine", [r"choose another --output\. -> --output other"]),
]


@pytest.mark.parametrize(("command", "line", "remedies"), CASES)
def test_corpora(command: str, line: str, remedies: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against remedies that lead to the next error, or need what the message does not say."""
    monkeypatch.chdir(tmp_path)
    for name, content in CORPORA.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    words = [*ENGLISH_TO_ITALIAN, "--data.check_languages", "false", *shlex.split(line)]
    words = words if "--data.train" in words else [*words, "--data.train", "a.tsv"]

    def attempt() -> None:
        match command:
            case "train":
                assert len(prepare_data(read_settings(words), tmp_path / "data", print).train)
            case "check":
                assert CheckedCorpus.read(parse_check(words)[0]).used
            case "clean":
                output = [] if "--output" in words else ["--output", "cleaned"]
                clean_corpus(parse_clean([*output, "--processes", "1", *words]))

    for remedy in remedies:
        with pytest.raises((ConfigError, DataError)) as refused:
            attempt()
        words = follow(str(refused.value), remedy, words)
    attempt()


PO = 'msgid ""\nmsgstr ""\n"Language: it\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
# A file, what its message says, and what to replace in it: \\1 is the first group of the message.
MENDED: list[tuple[str, str, str, tuple[str, str]]] = [
    (
        "a.csv",
        'Hi,Ciao\nNo,No\n"open,aperto\nBye,Ciao\n',
        r"write a quote inside a cell twice, and one around",
        ('"open', '"""open"'),
    ),
    (
        "a.po",
        f'{PO}msgid "Open"\nmsgstr "Apri\n\nmsgid "Shut"\nmsgstr "Chiudi"\n',
        r"but this is (msgstr .*?);",
        ('msgstr "Apri\n', '\\1"\n'),
    ),
    ("a.jsonl", '["Hi", "Ciao"]', r"must be an object such as (\{.*?\})", ('["Hi", "Ciao"]', "\\1")),
    ("a.jsonl", '{"a": "Hi", "b": "Ciao"}', r"a row must be like (\{.*?\})", ('{"a": "Hi", "b": "Ciao"}', "\\1")),
]


@pytest.mark.parametrize(("name", "content", "remedy", "change"), MENDED)
def test_file_mended_by_hand(name: str, content: str, remedy: str, change: tuple[str, str], tmp_path: Path) -> None:
    """Guards against remedies that lead to the next error, or that cannot be carried out."""
    file = tmp_path / name
    file.write_text(content, encoding="utf-8")
    data = read_settings([*ENGLISH_TO_ITALIAN, "--data.train", str(file)]).data
    with pytest.raises(DataError) as refused:
        list(read_portions(find_sources(data), data))
    matched = re.search(remedy, str(refused.value))
    assert matched, refused.value
    file.write_text(content.replace(change[0], matched.expand(change[1])), encoding="utf-8")
    assert list(read_portions(find_sources(data), data))


def test_languages_of_several_columns(tmp_path: Path) -> None:
    """Guards a command line with two codes to fill in."""
    file = tmp_path / "pairs.tsv"
    file.write_text(tsv(("de", "en", "it"), *((b, a, b) for a, b in PAIRS)), encoding="utf-8")
    words = ["--data.train", str(file)]
    with pytest.raises(ConfigError) as refused:
        with_languages(read_settings(words), print)
    add = found(r"add (.*), with the two to use\.$", str(refused.value))
    words += shlex.split(add.replace("CODE", "en", 1).replace("CODE", "it", 1))
    assert len(prepare_data(with_languages(read_settings(words), print), tmp_path / "data", print).train)


# --- Commands -------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(capfd: pytest.CaptureFixture) -> Callable[..., str]:
    """Run a command as a message prints it, and return what it says. Fails if it ends with another code."""

    def call(line: str | list[str], code: int = 0) -> str:
        words = shlex.split(line) if isinstance(line, str) else line
        words = words[words.index("dragoman") + 1 :] if "dragoman" in words else words
        if words[0] == "python":
            words = [words[1].removesuffix(".py"), *words[2:]]
        import_module(COMMANDS[words[0]].module)  # once, not in every child
        capfd.readouterr()
        assert in_child(lambda: main(words)) == code, words
        printed = capfd.readouterr()
        return " ".join(f"{printed.out}\n{printed.err}".split())

    return call


def arguments_of(config: Config) -> list[str]:
    """The command line that makes a config."""
    given = {key: value for key, value in values(config).items() if value != DEFAULTS[key]}
    return [*ENGLISH_TO_ITALIAN, *(f"--{key}={as_word(value)}" for key, value in given.items())]


@pytest.fixture
def brief(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., str]) -> list[str]:
    """The command that trained the run runs/tiny for eight steps, and the folder of both is the current one."""
    monkeypatch.chdir(tmp_path)
    tiny_config(tmp_path)
    config = tiny_config(
        Path(), training__max_epochs=None, training__max_steps=8, training__validate_every=40,
        training__save_every=40, decoding__max_length=12, data__check_languages=False,
    )  # fmt: skip
    command = ["train", *arguments_of(config)]
    run(command)
    return command


def test_what_is_said_of_a_run(brief: list[str], run: Callable[..., str]) -> None:
    """Guards against commands with other pairs, another folder or an option that does not exist."""
    said = run(brief)
    run(found(r'to use it, run: (.*? "your sentence")', said))
    said = run("evaluate --run runs/tiny")
    more = run(found(r"Continue with: (.*? --training\.max_steps \d+)", said))
    assert "resumed from step 8" in more
    said = run("average --run runs/tiny")
    for command in re.findall(r"to (?:measure|use) it: (.*? --checkpoint \S+?)(?:;|$| )", said):
        assert run([*shlex.split(command), *(["the cat"] if "translate" in command else [])])
    assert "test pairs" in run("evaluate --checkpoint runs/tiny")

    write_tsv(Path("corpus/other.tsv"), tiny_pairs(80, seed=5))
    other = [*brief, "--data.train", "corpus/other.tsv"]
    said = run(other, 2)
    run([*other, "--data.test_fraction", "0", *shlex.split(found(r"such as (--run\.name \S+)\.$", said))])
    write_tsv(Path("corpus/few.tsv"), tiny_pairs(5, seed=6))
    against = "evaluate --run runs/tiny --data corpus/few.tsv --against runs/other"
    run(found(r"create it with (.*)$", run(against, 3)))
    assert "wrote the report" in run(against)

    said = run("evaluate --run runs/other", 3)
    choice = found(r"there are no test pairs: choose others with (--split) or --data\.$", said)
    assert "wrote the report" in run(f"evaluate --run runs/other {choice} validation")
    said = run("evaluate --run runs/tiny --decoding.max_length 1 --decoding.max_ratio 0.1")
    raised = re.findall(r"decoding\.\w+", found(r"If they do not repeat themselves, raise (.*?)\.(?: |$)", said))
    longer = run(["evaluate", "--run", "runs/tiny", *(f"--{key}=30" for key in raised)])
    assert float(found(CUT, longer)) < float(found(CUT, said))  # it has learnt too little to end most of them
    assert "name the folder that does" in run("runs corpus", 4)
    assert "tiny" in run("runs runs")


CUT = r"\(([\d.]+) ?%\) were cut off"


def found(pattern: str, said: str) -> str:
    matched = re.search(pattern, said)
    assert matched, said
    return matched[1]


def test_advice_of_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., str]) -> None:
    """The printed commands lead from a dirty corpus to one without grave findings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(check, "_measured_speed", lambda *_: 2000)
    good = [(a.capitalize(), b.capitalize()) for a, b in PAIRS]
    write_tsv(tmp_path / "dirty.tsv", [*good, *((a, a) for a, _ in good[:30])])
    said = run(["check", "dirty.tsv", *ENGLISH_TO_ITALIAN])
    assert "grave" in said
    said = run(found(r"clean with: (.*?--output cleaned)", said))
    train = found(r"Train on the rest with: (.*)$", said)
    words = shlex.split(train)
    options = words[words.index("train" if "train" in words else "train.py") + 1 :]
    assert parse_train(options).data.train == "cleaned/train.tsv"
    assert "grave" not in run(["check", *options])


def test_training_that_is_too_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against advising a number of epochs or minutes that is still too small."""
    monkeypatch.setattr(check, "_measured_speed", lambda *_: 2000)
    table = write_tsv(tmp_path / "pairs.tsv", [(a.capitalize(), b.capitalize()) for a, b in PAIRS])
    words = ["--data.train", str(table), *ENGLISH_TO_ITALIAN, "--training.max_epochs", "1"]
    words += ["--training.max_minutes", "0.001"]
    for setting in ("max_minutes", "max_epochs"):
        verdict = check.check_corpus(parse_check(words)[0]).verdict
        assert verdict.startswith("Too little training")
        words = follow(verdict, rf"(?P<key>training\.{setting}) is [^:]*: raise it to (?P<value>\d+) or more", words)
    assert "Too little training" not in check.check_corpus(parse_check(words)[0]).verdict
