"""Glossaries: reading them, finding terms, and putting terms into translations."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from conftest import in_child, tiny_config
from dragoman import command_line
from dragoman.__main__ import run as run_command
from dragoman.errors import ConfigError, DataError
from dragoman.translation.glossary import Glossary
from dragoman.translation.term_placement import find_targets, missing_targets
from dragoman.translation.translator import Translator
from echo import echo, reconfigured

KINDS = ["word", "bpe", "unigram"]
SENTENCE = "My name is Anna, and I live in: number 7! (see my name)"


def file(folder: Path, content: str | bytes, name: str = "terms.tsv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# --- Files ---


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", '# terms\n\ndog\tHund\nhard  hat\t Helm \nZoltan\nC++\t\t\n"x\ty, z'),
        ("a.tsv", '\ufeffdog\tHund\r\nhard hat\tHelm\r\nZoltan\t\r\nC++\r\n"x\ty, z\r\ndog\tHund\r\n'),
        ("a.csv", 'dog,Hund\nhard hat,Helm\nZoltan\nC++,\n"""x","y, z"\n'),
        ("a.csv", 'dog;Hund\nhard hat;Helm\nZoltan\nC++;\n"""x";y, z\n'),
    ],
)
def test_files_are_read(tmp_path: Path, name: str, content: str) -> None:
    """Reads what spreadsheets and editors write: byte order marks, CRLF, empty columns, quotes, semicolons."""
    terms = {"dog": "Hund", "hard hat": "Helm", "Zoltan": "", "C++": "", '"x': "y, z"}
    assert Glossary.read(file(tmp_path, content, name)).terms == terms


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        ("a\tb\n\ndog\tHund\tnoun\n", ":3: a term has a source and a target, but this line has 3 columns"),
        ("a\tb\n\tHund\n", ":2: a term has no source"),
        ("dog\tHund\ncat\tKatze\ndog\tKöter\n", ":3: 'dog' has another target in line 1"),
        ("dog\tHund\ndog\n", ":2: 'dog' has another target in line 1"),
        (b"dog\tK\xf6ter\n", ":1, byte 6: 0xf6 is not UTF-8"),
        ("a\tb\ndog\tHu\x1bnd\n", ":2: a term contains the control character U+001B"),
        ("dog\tHu\x00nd\n", ":1, byte 7: a NUL"),
        ("dog\tHund\n".encode("utf-16"), "is UTF-16"),
    ],
)
def test_faulty_files_are_one_error_with_the_line(tmp_path: Path, content: str | bytes, fragment: str) -> None:
    """Guards against a glossary that is read differently from what its author meant."""
    path = file(tmp_path, content)
    with pytest.raises(DataError) as caught:
        Glossary.read(path)
    assert fragment in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_faulty_terms_from_python() -> None:
    """Guards the same errors for terms that have no line."""
    with pytest.raises(DataError, match=r"nowhere\.tsv: cannot be opened: No such file"):
        Glossary.read("nowhere.tsv")
    for terms in ({" ": "x"}, {"x": "\x07"}, {"\ud800": ""}):
        with pytest.raises(DataError, match="glossary: a term"):
            Glossary(terms)


# --- Terms in a text ---


TERMS = Glossary(
    {"dog": "Hund", "hard hat": "Helm", "hat": "Hut", "Apple": "Apfel AG", "apple": "Apfel", "Zoltan": "", "pizza": ""}
    | {"C++": "C++", "猫": "cat", "黒い猫": "black cat", "किताब": "book"}
)


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("The dogs, the Dog's bowl and a DOG-house.", ["Hund", "Hund"]),
        ("hard hat hat Hard Hat hard-hat hardhat", ["Helm", "Hut", "Helm", "Hut"]),
        ("apple Apple APPLE", ["Apfel", "Apfel AG", "Apfel"]),
        ("zoltan Zoltan ZOLTAN Zoltan-Maria", ["Zoltan", "Zoltan"]),
        ("Pizza, pizza and PIZZA!", ["Pizza", "pizza", "PIZZA"]),
        ("C and C++, not C + +", ["C++", "C++"]),
        ("黒い猫と猫がいる", ["black cat", "cat"]),
        ("किताबें किताब", ["book"]),  # a vowel sign belongs to its word
        ("www.dog.com me@dog.com dog", ["Hund"]),
        ("", []),
    ],
)
def test_terms_are_found(text: str, targets: list[str]) -> None:
    """Guards whole words, the longest term first, case, scripts without spaces, and web and mail addresses."""
    found = TERMS.find(text)
    assert [term.target for term in found] == targets
    assert all(a.end <= b.start for a, b in pairwise(found))


# --- Terms in a translation ---


@pytest.mark.parametrize(
    ("text", "targets", "found"),
    [
        ("Der Hund und Hunde, Hundehütte", ["Hund"], ["Hund"]),
        ("Kleine Hunde. Kleine Hunde, Kleine", ["kleine Hunde"], ["Kleine Hunde", "Kleine Hunde"]),
        ("„Kleine Hunde“", ["kleine Hunde", "kleine hunde"], ["Kleine Hunde"]),
        ("schwarzer Hund, Hund", ["Hund", "schwarzer Hund"], ["schwarzer Hund", "Hund"]),
        ("ein iPhone", ["iphone"], []),
    ],
)
def test_targets_are_found(text: str, targets: list[str], found: list[str]) -> None:
    """Guards whole words, the first letter of a sentence, and a target inside another one."""
    places = find_targets(text, targets)
    assert [text[start:end] for _, start, end in sorted(places, key=lambda place: place[1])] == found


@pytest.mark.parametrize("kind", KINDS)
def test_terms_replace_the_aligned_words(kind: str) -> None:
    """Guards placement with any tokenizer: a model that repeats its source changes exactly the terms."""
    terms = {"name": "Vor- und Nachname", "is": "ist", "anna": "Ännchen 猫", "live": "LEBE", "number": "", "see": "s."}
    plain = echo(kind=kind)
    plain.trained = replace(plain.trained, target=plain.source)  # training two unigram models gives different ids
    translator = plain.with_glossary(terms)
    draw = random.Random(1)
    texts = [SENTENCE, *(" ".join(draw.choices(re.findall(r"[\w:!,()]+", SENTENCE), k=9)) for _ in range(20))]
    for text, found in zip(texts, translator.translate(texts), strict=True):
        assert found == re.sub(r"\w+", lambda match: terms.get(match[0].lower()) or match[0], text)
    assert translator.warnings == []
    assert plain.translate([SENTENCE]) == [SENTENCE]


def test_capitals_at_the_start_of_a_sentence() -> None:
    """Guards the first letter: a term in lower case gets a capital there, but not one that is to be copied."""
    translator = echo().with_glossary({"my": "mio", "name": "iPhone", "live": ""})
    assert translator.translate(["My name is my name"]) == ["Mio iPhone is mio iPhone"]
    assert translator.translate(["Name is my"]) == ["iPhone is mio"]
    assert translator.translate(["live is my"]) == ["live is mio"]


def test_terms_that_are_there_already_change_nothing() -> None:
    """Guards translations that the model gets right, with their scores and copied words."""
    plain, translator = echo(), echo().with_glossary({"Zoltán": "", "name": "name", "is": "live"})
    [expected], [found] = (
        plain.explain(["My name is Zoltán, I live in: live"]),
        translator.explain(["My name is Zoltán, I live in: live"]),
    )
    assert found == expected


def test_a_term_without_a_place_is_a_warning() -> None:
    """Guards against terms that vanish silently; the warning has the number of the text."""
    translator = echo("max_length=2").with_glossary({"live": "wohne", "in": "im"})
    assert translator.translate(["My name", "My in live"]) == ["My name", "My im"]
    assert translator.warnings[-1] == (1, "glossary: 'wohne' could not be placed in the translation.")
    assert sum("glossary" in warning for _, warning in translator.warnings) == 1


def test_prefixes_and_addresses_stay_as_they_are() -> None:
    """Guards text that a user has fixed: the prefix, web and mail addresses."""
    translator = echo().with_glossary({"name": "nome", "is": "è"})
    [found] = translator.translate([translator.request("My name is Anna", prefix="Name name")])
    assert found == "Name name è Anna"
    assert len(translator.warnings) == 1
    text = "My name is www.name.is, see"
    assert translator.translate([text]) == ["My nome è www.name.is, see"]


def test_a_changed_candidate_is_described_by_its_own_tokens() -> None:
    """Guards --json and --align, which would show the words that were replaced."""
    translator = echo().with_glossary({"name": "Zuname", "My": "Mein"})
    [sentence] = translator.explain(["My name is"])[0].sentences
    [best] = sentence.candidates
    assert best.tokens == ["Mein", "Zuname", "is", "[EOS]"]
    assert len(best.log_probs) == 4
    assert best.score == translator.score([("My name is", best.text)])[0].score
    [cut] = echo("max_length=2").with_glossary({"name": "Zuname"}).explain(["My name is"])[0].sentences[0].candidates
    assert (cut.tokens, len(cut.log_probs), cut.complete) == (["My", "Zuname"], 2, False)


# --- Trained models ---

ENTRIES = {"cat": "Zorvax", "red wine": "Chianti Classico", "bread": "", "today": "heute"}
TEXTS = [
    "the cat sees the dog.",
    "this red wine and this bread.",
    "",
    "the cat and the cat.\n\nthe bread is here today.",
]
VARIANTS: dict[str, dict[str, Any]] = {
    "encoder-decoder": {"model__positions": "learned", "model__max_positions": 40, "training__max_steps": 60},
    "decoder-only": {"model__architecture": "decoder-only", "tokenizer__shared": True},
    "encoder-only": {"model__architecture": "encoder-only"},
}


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Train a variant once, for a few steps: most of its words are wrong."""
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            config = tiny_config(folder, **{"training__max_steps": 10, "data__max_length": 12} | VARIANTS[name])
            assert in_child(lambda: run_command("train", config)) == 0
            made[name] = Path(config.run.dir) / config.run.name
        return made[name]

    return get


@pytest.mark.parametrize("name", VARIANTS)
def test_every_architecture_takes_a_glossary(name: str, run_of: Callable[[str], Path]) -> None:
    """Guards placement by every kind of alignment: each term is in the translation, or a warning names it."""
    translator = Translator(run_of(name), "cpu").with_glossary(ENTRIES)
    found = translator.translate(TEXTS)
    for i, (text, translation) in enumerate(zip(TEXTS, found, strict=True)):
        for target in missing_targets(Glossary(ENTRIES).find(text), translation):
            assert (i, f"glossary: '{target}' could not be placed in the translation.") in translator.warnings
    if name == "encoder-decoder":  # so early, the others write hardly a word
        assert "Zorvax" in found[0]
    assert found == [translator.translate([text])[0] for text in TEXTS]


def test_searches_and_interfaces_agree(run_of: Callable[[str], Path], capfdbinary: Any, tmp_path: Path) -> None:
    """Guards beams, alternatives, ensembles, the prompt and the command line."""
    run = run_of("encoder-decoder")
    translator = Translator(run, "cpu").with_glossary(ENTRIES)
    beam = translator.with_decoding(beam_size=4, n_best=4)
    for translation in beam.explain(TEXTS):
        for sentence in translation.sentences:
            texts = [candidate.text for candidate in sentence.candidates]
            assert len(set(texts)) == len(texts)
            assert [each.score for each in sentence.candidates] == sorted(
                (each.score for each in sentence.candidates), reverse=True
            )
            targets = Glossary(ENTRIES).find(sentence.source)
            assert list(missing_targets(targets, texts[0])) == sentence.lost_terms
    assert Translator([run, run], "cpu").with_glossary(ENTRIES).translate(TEXTS) == translator.translate(TEXTS)
    path = file(tmp_path, "".join(f"{source}\t{target}\n" for source, target in ENTRIES.items()))
    words = ["--run", str(run), "--device", "cpu", "--glossary", str(path), TEXTS[0], TEXTS[1]]
    capfdbinary.readouterr()  # what training has printed
    assert run_command("translate", command_line.parse_translate(words)) == 0
    assert capfdbinary.readouterr().out.decode().splitlines() == translator.translate(TEXTS[:2])


def test_language_models_refuse_a_glossary() -> None:
    """Guards against a glossary that is silently ignored."""
    model = reconfigured(echo(), "--data.source_lang", "null", "--model.architecture", "decoder-only",
                         "--tokenizer.shared", "true")  # fmt: skip
    with pytest.raises(ConfigError, match="takes no glossary"):
        model.with_glossary({"a": "b"})
    for option in ("--score", "--embed"):
        with pytest.raises(SystemExit):
            command_line.parse_translate([option, "--glossary", "terms.tsv", "a\tb"])


# --- The server ---


def test_the_api_takes_terms() -> None:
    """Guards the field of the API: terms of the request over those of the server, in a batch with other requests."""
    pytest.importorskip("fastapi", reason="the server needs more libraries: pip install -e '.[serve]'")
    from test_serve import serving

    with serving(echo().with_glossary({"name": "nome", "is": "è"})) as server:

        def ask(terms: dict[str, object]) -> Any:
            return server.post({"text": "My name is Anna, see", "glossary": terms})

        def text(terms: dict[str, object]) -> str:
            return ask(terms).json["translations"][0]["translation"]

        assert text({}) == "My nome è Anna, see"
        assert text({"Name": "x", "name": "Name", "Anna": "", "see": "s. u."}) == "My Name è Anna, s. u."
        assert text({}) == "My nome è Anna, see"
        for terms, fragment in (
            ({" ": "x"}, "glossary: a term has no source"),
            ({"a": "\x00"}, "control character U+0000"),
            ({str(i): "" for i in range(201)}, "glossary: Dictionary should have at most 200 items"),
            ({"a": "x" * 101}, "at most 100 characters"),
            ({"a": None}, "glossary.a"),
            ([], "glossary"),
        ):
            reply = ask(terms)  # type: ignore[arg-type]
            assert reply.status == 422
            assert fragment in reply.json["detail"]
        assert server.get("/info").json["terms"] == 200


def test_a_server_of_several_directions_takes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards against terms of one direction in the translations of another, and a faulty file found too late."""
    pytest.importorskip("fastapi", reason="the server needs more libraries: pip install -e '.[serve]'")
    from dragoman.server import serve

    def start(translator: Translator, content: str) -> tuple[int, str]:
        monkeypatch.setattr(serve, "tune_device", lambda device: None)
        monkeypatch.setattr(serve, "Translator", lambda *_, **__: translator)
        words = ["--port", "0", "--run", "x", "--glossary", str(file(tmp_path, content))]
        return run_command("serve", command_line.parse_serve(words)), capsys.readouterr().err

    code, said = start(reconfigured(echo(), "--data.directions", "en-it, it-en"), "dog\tcane\n")
    assert (code, said.count("\n")) == (2, 1)
    assert "send the terms with each request" in said
    code, said = start(echo(), "dog\tcane\ndog\tx\n")
    assert (code, said.count("\n")) == (3, 1)
    assert "terms.tsv:2" in said
