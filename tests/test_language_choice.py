"""Languages of the user's own data: taken from names, asked for, or refused if the text is clearly in others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import ROOT, SHARED, in_child, tiny_pairs, write_tsv
from dragoman.__main__ import main
from dragoman.command_line import parse_settings
from dragoman.config_file import load
from dragoman.corpora.language_choice import check_languages, spoken, with_languages
from dragoman.errors import ConfigError, DataError
from dragoman.settings import Config, DataConfig

ENGLISH = "The children are playing in the garden behind the old house of their grandmother, number {}."
SPANISH = "Los niños juegan en el jardín detrás de la vieja casa de su abuela, número {}."
GERMAN = "Die Kinder spielen im Garten hinter dem alten Haus ihrer Großmutter, Nummer {}."


def write(path: Path, *sides: str, header: Sequence[str] = ()) -> str:
    lines = ["\t".join(header)] * bool(header) + ["\t".join(side.format(i) for side in sides) for i in range(60)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def parsed(*words: str) -> Config:
    return parse_settings(words, default_file=ROOT / "config.yaml")


def settled(*words: str) -> tuple[tuple[str | None, str], list[str]]:
    said: list[str] = []
    data = with_languages(parsed(*words), said.append).data
    return (data.source_lang, data.target_lang), said


@pytest.mark.parametrize(
    ("header", "name", "expected"),
    [
        (("Spanish", "English"), "own.tsv", ("es", "en")),
        (("en", "es"), "own.tsv", ("en", "es")),
        ((), "own.es-en.tsv", ("es", "en")),
        ((), "eng-spa.tsv", ("en", "es")),
    ],
)
def test_names_say_the_languages(header: Sequence[str], name: str, expected: tuple[str, str], tmp_path: Path) -> None:
    """Guards a Spanish file against being trained on as English to Italian."""
    sides = (SPANISH, ENGLISH) if expected == ("es", "en") else (ENGLISH, SPANISH)
    found, said = settled("--data.train", write(tmp_path / name, *sides, header=header))
    assert found == expected
    names = {"en": "English", "es": "Spanish"}
    assert f"{names[expected[0]]} to {names[expected[1]]}; for the other direction add --data.source_lang" in said[0]
    for words in (["--data.source_lang", "en"], ["--data.target_lang", "es"]):
        assert settled("--data.train", str(tmp_path / name), *words)[0] == ("en", "es")


@pytest.mark.parametrize("names", [("es", "en"), ("spa", "eng"), ("Spanish", "English"), ("es_ES", "en_US")])
def test_parallel_files_say_the_languages(names: tuple[str, str], tmp_path: Path) -> None:
    """Guards the two files that most corpora come in, named by codes of either length or in words."""
    for language, text in zip(names, (SPANISH, ENGLISH), strict=True):
        write(tmp_path / f"train.{language}", text)
    assert {code[:2] for code in map(str, settled("--data.train", str(tmp_path / "train"))[0])} == {"en", "es"}
    found, _ = settled("--data.train", str(tmp_path / "train"), "--data.source_lang", "es")
    assert found == ("es", "en-US" if "en_US" in names else "en")
    check_languages(DataConfig(train=str(tmp_path / "train"), source_lang="es", target_lang="en"))  # they are read
    with pytest.raises(
        ConfigError, match=r"en(-US)? and es(-ES)? .*, and the settings say de: add --data.source_lang CODE"
    ):
        settled("--data.train", str(tmp_path / "train"), "--data.target_lang", "de")


def test_languages_are_asked_for_where_nothing_says_them(tmp_path: Path) -> None:
    """Guards against a guess: the text only proposes."""
    own = write(tmp_path / "own.tsv", SPANISH, ENGLISH)
    with pytest.raises(ConfigError) as asked:
        settled("--data.train", own)
    assert str(asked.value) == (
        f"data.train ({own}) does not name its languages: add --data.source_lang es --data.target_lang en "
        "(by the text: Spanish to English)"
    )
    with pytest.raises(ConfigError, match=r"add --data.target_lang en \(by the text: English\)"):
        settled("--data.train", own, "--data.source_lang", "es")
    tiny = write_tsv(tmp_path / "few.tsv", [("a", "b"), ("c", "d")])
    with pytest.raises(ConfigError, match=r"add --data.source_lang CODE --data.target_lang CODE, such as en and it"):
        settled("--data.train", str(tiny))
    with pytest.raises(DataError, match="there is no such thing"):
        settled("--data.train", str(tmp_path / "absent.tsv"))


def test_plain_text_names_its_language_or_is_asked_for_it(tmp_path: Path) -> None:
    """Guards the text of a language model, which has one side."""
    plain = ["--data.source_lang", "null", "--model.architecture", "decoder-only"]
    for name in ("book.de", "letters.deu", "book.txt"):
        write(tmp_path / name, GERMAN)
    for name in ("book.de", "letters.deu"):
        assert settled("--data.train", str(tmp_path / name), *plain)[0] == (None, "de")
    for name in ("book.de", "letters.deu", "letters"):
        assert spoken(DataConfig(train=str(tmp_path / name), source_lang=None, target_lang="de"))[1]
    with pytest.raises(ConfigError, match=r"add --data\.target_lang de \(by the text: German\)"):
        settled("--data.train", str(tmp_path / "book.txt"), *plain)


def test_a_download_is_not_started_to_find_its_languages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a download of the default languages, which nobody wants."""
    monkeypatch.setenv("DRAGOMAN_OPUS_API", "http://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"does not name its languages: add --data\.source_lang CODE"):
        settled("--data.train", "opus:Tatoeba")
    own = write(tmp_path / "own.tsv", SPANISH, ENGLISH, header=("es", "en"))
    assert settled("--data.train", f"opus:Tatoeba + 2 * {own}")[0] == ("es", "en")


def test_settings_that_say_the_languages_are_not_questioned(tmp_path: Path) -> None:
    """Guards a file of settings, a multilingual model and the default run against questions."""
    own = write(tmp_path / "own.tsv", SPANISH, ENGLISH)
    file = tmp_path / "mine.yaml"
    file.write_text(f"data:\n  train: {own}\n  source_lang: es\n  target_lang: en\n", encoding="utf-8")
    assert not parsed("--config", str(file)).left_open & {"data.source_lang", "data.target_lang"}
    several = parsed("--data.train", own, "--data.directions", "en-it, it-en")
    assert not several.left_open & {"data.source_lang", "data.target_lang"}
    assert parsed().left_open == frozenset()


@pytest.mark.parametrize(
    ("sides", "languages", "remedy"),
    [
        ((SPANISH, ENGLISH), ("en", "it"), "--data.source_lang es --data.target_lang en"),
        ((SPANISH, ENGLISH), ("en", "es"), "--data.source_lang es --data.target_lang en"),
        ((SPANISH, GERMAN), ("es", "fr"), "--data.source_lang es --data.target_lang de"),
        ((SPANISH, ENGLISH), ("es", "en"), None),
        ((SPANISH, ENGLISH), ("pt", "en"), None),  # too alike to be sure
        ((SPANISH, ENGLISH), ("qaa", "en"), None),  # a language that cannot be identified
        (("{} 12 + 3", "{} x y z"), ("en", "it"), None),
    ],
)
def test_text_that_is_plainly_in_another_language(
    sides: tuple[str, str], languages: tuple[str, str], remedy: str | None, tmp_path: Path
) -> None:
    """Guards against wrong labels, and refusals of text that proves nothing."""
    data = DataConfig(
        train=write(tmp_path / "own.tsv", *sides), source_lang=languages[0], target_lang=languages[1], columns="1,2"
    )
    if remedy is None:
        check_languages(data)
        return
    with pytest.raises(DataError, match=r"100% of the lines that should be .* are .*") as stopped:
        check_languages(data)
    assert f"add {remedy}, or train on them as they are with --data.check_languages false" in str(stopped.value)
    check_languages(replace(data, check_languages=False))


@pytest.mark.parametrize(("folder", "languages"), [("multi30k", ("en", "de")), ("tatoeba-en-fr", ("en", "fr"))])
def test_languages_of_real_text(folder: str, languages: tuple[str, str]) -> None:
    """Guards the judgement on whole corpora."""
    if not (SHARED / folder).is_dir():
        pytest.skip(f"needs the real text in {SHARED / folder}")
    data = DataConfig(train=str(SHARED / folder / "train"), source_lang=languages[0], target_lang=languages[1])
    found = spoken(data)
    assert tuple(side.language for side in found if side) == languages
    assert all(side.share > 0.98 for side in found if side)


def test_dialogue_of_a_beginner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    """Guards the way from a file without labels to its first translation, each step as the one before proposes."""
    monkeypatch.chdir(tmp_path)
    write_tsv(tmp_path / "lessons.tsv", tiny_pairs(200))

    def run(*words: str) -> tuple[int, str, str]:
        code = in_child(lambda: main([*words]))
        printed = capfd.readouterr()
        return code, printed.out, printed.err

    code, _, asked = run("train", "--data.train", "lessons.tsv")
    assert code == 2
    languages = asked.partition("add ")[2].partition(" (by")[0].split()
    assert languages == ["--data.source_lang", "en", "--data.target_lang", "it"]

    code, told, _ = run("check", "--data.train", "lessons.tsv", *languages)
    assert code == 0
    assert "expect phrases, not sentences" in " ".join(told.split())
    command = told.strip().splitlines()[-1].split()
    assert command[:2] == ["python", "train.py"] or command[:2] == ["dragoman", "train"]

    short = ["--training.max_steps", "3", "--training.precision", "float32", "--training.device", "cpu"]
    code, told, said = run("train", *command[2:], *short)
    assert code == 0, said
    assert "model.preset auto: about 192 pairs to train on -> tiny" in told
    assert load(tmp_path / "runs" / "lessons" / "config.yaml").data.target_lang == "it"
    code, again, said = run("train", "--data.train", "lessons.tsv", *short)  # the run knows its languages
    assert code == 0, said
    assert "is finished" in again

    code, _, said = run("translate", "the cat sees the dog.")
    assert code == 0
    assert "lessons" in said
    assert "en to it" in said
