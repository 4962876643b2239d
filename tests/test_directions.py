"""One model for several directions: its corpora, its tags, and its translations."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from conftest import in_child, tiny_config, tiny_pairs, write_tsv
from dragoman import command_line, dataset
from dragoman.__main__ import run as run_command
from dragoman.corpora.origin import file_hashes
from dragoman.corpora.preparation import prepare_data
from dragoman.corpora.selection import balanced, rows_of
from dragoman.corpora.sources import find_named, find_sources
from dragoman.corpora.splitting import read_split
from dragoman.corpora.subwords import train_tokenizers
from dragoman.dataset import Pair, Tokenizer
from dragoman.directions import Direction, parse_directions, split_tag, tagged
from dragoman.errors import ConfigError, DataError
from dragoman.evaluation.pairs import read_pairs
from dragoman.evaluation.per_direction import bleu_by_direction, indices_by_direction
from dragoman.presets import ENOUGH
from dragoman.server.application import make_job
from dragoman.server.batcher import Batcher
from dragoman.server.limits import Limits
from dragoman.server.models import Models
from dragoman.server.schemas import ServerInfo, TranslateRequest
from dragoman.settings import Config, DataConfig, TokenizerConfig
from dragoman.text.cleaning import clean
from dragoman.training.starting import corpus_size
from dragoman.translation.assembly import make_sentences
from dragoman.translation.pieces import encode_piece
from dragoman.translation.request import Request, parse_request
from dragoman.translation.search import Hypothesis
from dragoman.translation.translator import Translator
from whole_corpus import read_corpus

THREE = "en-it, en-fr, it-en"


def french(italian: str) -> str:
    """A third language, which shares no words with the others."""
    return italian.upper()


def rows(count: int = 300) -> list[dict[str, str]]:
    return [{"en": english, "it": italian, "fr": french(italian)} for english, italian in tiny_pairs(count)]


def write_rows(path: Path, found: Sequence[Mapping[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
    return path


def settings(train: object, directions: str | None = "en-it, it-en", **changes: object) -> DataConfig:
    return DataConfig(**{"train": str(train), "directions": directions} | changes)  # pyright: ignore


def read(data: DataConfig) -> dict[str, list[Pair]]:
    return read_corpus(find_sources(data), data)[0]


# --- Names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("en-it", ["en-it"]),
        ("en-it, it-en", ["en-it", "it-en"]),
        (" en-it  it-en ,fr-en", ["en-it", "it-en", "fr-en"]),
        ("pt-BR-zh-Hant, es-419-en", [("pt-BR", "zh-Hant"), ("es-419", "en")]),
        ("pt_BR-en", [("pt_BR", "en")]),
    ],
)
def test_parse_directions(text: str, expected: list[object]) -> None:
    """Guards language names that contain hyphens."""
    pairs = [tuple(each.split("-")) if isinstance(each, str) else each for each in expected]
    assert parse_directions(text) == pairs


@pytest.mark.parametrize("text", ["en", "en-it-fr", "en-en", "en-it, en-it", "en>it", "EN-it", ",", "en-"])
def test_invalid_directions_are_refused(text: str) -> None:
    """Guards against a typing mistake that is taken for a language."""
    with pytest.raises(ConfigError, match=r"data\.directions is"):
        DataConfig(directions=text)


def test_usual_direction_must_be_one_of_the_directions() -> None:
    """Guards against a default direction that the model was not trained on."""
    with pytest.raises(ConfigError, match=r"must be one of data\.directions"):
        DataConfig(directions="en-fr, fr-en")


@given(st.text(max_size=30), st.sampled_from(parse_directions("en-it, pt-BR-zh-Hant, es-419-en, en-es-419")))
@example("hello", Direction("en", "es-419"))
def test_split_tag_undoes_tagged(text: str, direction: Direction) -> None:
    """Guards texts that start like a tag, which could lose letters, and tags read as another direction (es-419)."""
    text = " ".join(text.split())
    assert split_tag(tagged(text, direction)) == (direction, text)
    assert split_tag(tagged(text, Direction("", direction.target))) == (Direction("", direction.target), text)


# --- Tokens -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["word", "bpe", "unigram"])
def pair(request: pytest.FixtureRequest) -> tuple[Tokenizer, Tokenizer]:
    pairs = [(tagged(a, Direction("en", "it")), b) for a, b in tiny_pairs(60)]
    pairs += [(tagged(b, Direction("it", "en")), a) for a, b in tiny_pairs(60)]
    vocabulary = TokenizerConfig(kind=request.param, vocab_size=320, min_frequency=1)
    return train_tokenizers(*dataset.unzip_pairs(pairs), vocabulary, ["it", "en"])


def test_tag_is_one_token_before_the_text(pair: tuple[Tokenizer, Tokenizer]) -> None:
    """Guards the token that decides the direction, also after saving, and with a source language in the tag."""
    source, target = pair
    again = Tokenizer.from_json(source.to_json())
    assert source.tags == again.tags == {">>it<<": 4, ">>en<<": 5}
    assert not target.tags
    text = "the cat sees the dog."
    ids = source.encode(text)
    for tag, number in ((">>it<<", 4), (">>en-it<<", 4), (">>it-en<<", 5)):
        for tokenizer in (source, again):
            assert tokenizer.encode(f"{tag} {text}") == [number, *ids]
            assert tokenizer.decode([number, *ids]) == text
            assert len(tokenizer.tokens(f"{tag} {text}")) == len(ids) + 1
    assert source.encode_batch([f">>it<< {text}", text]) == [[4, *ids], ids]
    assert source.encode_batch([]) == []
    assert source.pieces([4]) == source.tokens(">>it<<") == [">>it<<"]
    assert source.encode_with_tokens(text, ">>it<<") == ([4, *ids], [">>it<<", *source.tokens(text)])
    assert source.encode_with_tokens(text) == (ids, source.tokens(text))


def test_tag_inside_a_text_is_text(pair: tuple[Tokenizer, Tokenizer]) -> None:
    """Guards against sentences that change the direction half-way, and against unknown tags that vanish."""
    source, _ = pair
    for text in ("the cat >>it<< sees", ">>it<< >>it<< the", ">>de<< the cat", "x>>it<< the"):
        ids = source.encode(text)
        assert set(ids[1:]).isdisjoint(source.tags.values())
        assert (ids[0] in source.tags.values()) == text.startswith(">>it<<")
        assert len(source.tokens(text)) == len(ids)


# --- Corpora ------------------------------------------------------------------------------------------------------


def test_table_without_names_serves_both_directions(tmp_path: Path) -> None:
    """Guards the usual case: a table without column names is in the usual direction."""
    pairs = tiny_pairs(200)
    found = read(settings(write_tsv(tmp_path / "pairs.tsv", pairs)))
    expected = {(f">>en-it<< {a}", b) for a, b in pairs} | {(f">>it-en<< {b}", a) for a, b in pairs}
    assert set().union(*found.values()) == expected
    one_way = read(settings(tmp_path / "pairs.tsv", None))
    for split, way in one_way.items():
        assert [(f">>en-it<< {a}", b) for a, b in way] == [each for each in found[split] if each[0].startswith(">>en")]


def test_no_translation_of_a_test_sentence_is_trained_on(tmp_path: Path) -> None:
    """Guards scores: if each direction were split by its source, one would train on what another is tested on."""
    data = settings(write_rows(tmp_path / "rows.jsonl", rows()), "en-it, it-en, fr-en", test_fraction=0.1)
    found = read(data)
    texts = {split: {text for a, b in pairs for text in (split_tag(a)[1], b)} for split, pairs in found.items()}
    assert all(texts.values())
    assert not texts["train"] & texts["test"]
    assert not texts["train"] & texts["validation"]


@pytest.mark.parametrize("form", ["parallel", "folder", "rows", "two corpora", "table"])
def test_each_direction_reads_its_languages(form: str, tmp_path: Path) -> None:
    """Guards every corpus format: a direction reads only the corpora that have its languages."""
    some = rows(40)
    match form:
        case "parallel":
            for language in ("en", "it", "fr"):
                (tmp_path / f"all.{language}").write_text("".join(row[language] + "\n" for row in some))
            name = f"{tmp_path / 'all'}"
        case "folder":
            for language in ("en", "it", "fr"):
                (tmp_path / f"train.{language}").write_text("".join(row[language] + "\n" for row in some))
            name = str(tmp_path)
        case "rows":
            name = str(write_rows(tmp_path / "rows.jsonl", some))
        case "two corpora":
            one = write_rows(
                tmp_path / "one.jsonl", [{"translation": {k: row[k] for k in ("en", "it")}} for row in some]
            )
            for language in ("en", "fr"):
                (tmp_path / f"other.{language}").write_text("".join(row[language] + "\n" for row in some))
            name = f"{one} + 2 * {tmp_path / 'other'}"
        case _:
            lines = ["it\tfr\ten", *("\t".join(row[k] for k in ("it", "fr", "en")) for row in some)]
            (tmp_path / "table.tsv").write_text("".join(f"{line}\n" for line in lines))
            name = str(tmp_path / "table.tsv")
    data = settings(name, THREE, validation_fraction=0.2)
    sources = find_sources(data)
    pairs, counts, weights = read_corpus(sources, data)
    expected = {(tagged(row[a], Direction(a, b)), row[b]) for row in some for a, b in data.several}
    assert set().union(*pairs.values()) == expected
    assert sum(count.read for count in counts.values()) == 3 * len(some)
    of_second = {weight for (a, _), weight in zip(pairs["train"], weights, strict=True) if a.startswith(">>en-fr")}
    assert of_second == {2.0 if form == "two corpora" else 1.0}
    assert all("(2)" in key or "other" not in key for key in file_hashes(sources))


def test_corpus_without_a_direction_is_refused(tmp_path: Path) -> None:
    """Guards against silently skipped corpora, directions without pairs, and columns of unknown languages."""
    write_tsv(tmp_path / "plain.tsv", tiny_pairs(20))
    rows_of_two = write_rows(tmp_path / "two.jsonl", [{"en": row["en"], "it": row["it"]} for row in rows(20)])
    rows_of_french = write_rows(tmp_path / "fr.jsonl", [{"en": row["en"], "fr": row["fr"]} for row in rows(20)])
    of_other = write_rows(tmp_path / "other.jsonl", [{"de": row["en"], "nl": row["it"]} for row in rows(20)])
    for name, directions, fragment in (
        (f"{rows_of_two} + {of_other}", "en-it, it-en", "there is de, nl, but a row must be like"),
        (tmp_path / "plain.tsv", THREE, "the first row must name the columns"),
        (f"{rows_of_two} + {tmp_path / 'plain.tsv'}", THREE, "the first row must name the columns"),
        (f"{rows_of_two} + {rows_of_french}", "en-it, it-en", "there is en, fr, but a row must be like"),
        (rows_of_two, "en-it, en-fr", "no pair for en-fr"),
        (tmp_path / "none.tsv", THREE, "there is no such thing"),
    ):
        with pytest.raises(DataError, match=re.escape(fragment)):
            read(settings(name, directions))
    broken = rows(20)
    del broken[7]["fr"], broken[7]["it"]
    with pytest.raises(DataError, match=r"rows\.jsonl:8: there is en, but a row must be like"):
        read(settings(write_rows(tmp_path / "rows.jsonl", broken), THREE))
    named_otherwise = write_tsv(tmp_path / "fr.tsv", [("en", "fr"), *tiny_pairs(20)])
    with pytest.raises(DataError, match=r"names en and fr, but .* add --data\.source_lang en --data\.target_lang fr"):
        read(settings(named_otherwise))


def test_rows_may_lack_a_language(tmp_path: Path) -> None:
    """Guards rows with more languages than the first row, which were once all lost."""
    some = rows(60)
    for i in range(0, 60, 2):
        del some[i]["fr"]
    data = settings(write_rows(tmp_path / "rows.jsonl", some), THREE, validation_fraction=0.2)
    expected = {(tagged(row[a], Direction(a, b)), row[b]) for row in some for a, b in data.several if b in row}
    assert set().union(*read(data).values()) == expected


def test_a_split_may_lack_a_language(tmp_path: Path) -> None:
    """Guards training text that was skipped because validation, in the same folder, lacks a language."""
    some = rows(60)
    for split, languages in (("train", ("en", "it", "fr")), ("validation", ("en", "it"))):
        for language in languages:
            (tmp_path / f"{split}.{language}").write_text("".join(row[language] + "\n" for row in some))
    found = read(settings(tmp_path, THREE, test_fraction=0.0))
    ways = {split: {str(split_tag(source)[0]) for source, _ in pairs} for split, pairs in found.items()}
    assert ways["train"] == {"en-it", "en-fr", "it-en"}
    assert len(found["train"]) > 170  # some of the French goes to validation
    assert len([source for source, _ in found["validation"] if ">>en-it<<" in source]) == 60
    (tmp_path / "validation.fr").write_text("X\n" * 60)
    (tmp_path / "train.fr").unlink()
    with pytest.raises(DataError, match="no pair for en-fr"):
        read(settings(tmp_path, THREE, test_fraction=0.0))


def test_folders_of_different_languages(tmp_path: Path) -> None:
    """Guards two folders with different language pairs."""
    for folder, languages in (("one", ("en", "it")), ("two", ("it", "fr"))):
        (tmp_path / folder).mkdir()
        for language in languages:
            (tmp_path / folder / f"train.{language}").write_text("".join(row[language] + "\n" for row in rows(60)))
    found = read(settings(f"{tmp_path / 'one'} + {tmp_path / 'two'}", "en-it, fr-it"))
    assert {str(split_tag(source)[0]) for source, _ in found["train"]} == {"en-it", "fr-it"}


def test_pairs_on_both_sides_of_a_split_are_reported(tmp_path: Path) -> None:
    """Guards scores if no language is in all directions: translations of test sentences are then counted."""
    said: list[str] = []
    for name, directions, warned in (("star", "en-it, it-en, fr-en", False), ("ring", "en-it, it-fr, fr-en", True)):
        corpus = write_rows(tmp_path / "rows.jsonl", [{k: f"{k} {i}" for k in ("en", "it", "fr")} for i in range(300)])
        config = tiny_config(tmp_path, data__train=corpus, data__directions=directions)
        data = prepare_data(config, tmp_path / name, said.append)
        assert bool(sum(data.report.repeated.values())) == warned


def test_run_of_one_direction_knows_no_tags(tmp_path: Path) -> None:
    """Guards text that happens to look like a tag, which once decided the best checkpoint."""
    data = DataConfig()
    assert bleu_by_direction([">>b<< x", "y"], ["z", "y"], ["z", "y"], data) == {}
    several = settings(tmp_path)
    found = indices_by_direction([">>it-en<< x", "y"], several)
    assert found == {Direction("it", "en"): [0], Direction("en", "it"): [1]}


def test_pairs_are_counted_in_each_direction(tmp_path: Path) -> None:
    """Guards model.preset auto, which depends on the number of training pairs."""
    data = settings(write_rows(tmp_path / "rows.jsonl", rows(200)), THREE, test_fraction=0.0)
    assert corpus_size(data, ENOUGH).pairs == round(600 * 0.98)


@given(st.lists(st.integers(1, 400), min_size=2, max_size=5), st.floats(1, 10))
def test_temperature_of_the_paper(sizes: list[int], temperature: float) -> None:
    """Guards the sampling of directions: p ** (1 / T), with the largest direction sampled as often as before."""
    parts = np.repeat(np.arange(len(sizes)), sizes)
    weights = balanced(np.ones(len(parts), np.float32), parts, temperature)
    seen = np.bincount(parts, weights)
    wanted = (np.array(sizes) / sum(sizes)) ** (1 / temperature)
    assert np.allclose(seen / seen.sum(), wanted / wanted.sum(), rtol=1e-4)
    assert np.isclose(seen.max(), max(sizes))
    assert abs(len(rows_of(weights, 1, 0)) - seen.sum()) <= len(sizes)


def test_rare_directions_are_sampled_more_often(tmp_path: Path) -> None:
    """Guards data.temperature in the prepared data; without it there are no weights."""
    few = [row if i % 5 == 0 else {"en": row["en"], "it": row["it"]} for i, row in enumerate(rows(200))]
    one = write_rows(tmp_path / "one.jsonl", [{k: row[k] for k in ("en", "it")} for row in few])
    other = write_rows(tmp_path / "other.jsonl", [row for row in few if "fr" in row])
    for temperature in (1.0, 4.0):
        config = tiny_config(
            tmp_path, data__train=f"{one} + {other}", data__directions="en-it, fr-en", data__temperature=temperature
        )
        data = prepare_data(config, tmp_path / f"data-{temperature}", lambda _: None)
        sources = data.train.source
        firsts = sources.ids[sources.offsets[:-1]]
        if temperature == 1:
            assert data.weights is None
            continue
        assert data.weights is not None
        rare = firsts == data.source.tags[">>en<<"]
        share = rare.mean()
        assert np.allclose(data.weights[~rare], 1)
        assert np.allclose(data.weights[rare], (share / (1 - share)) ** (1 / 4 - 1), rtol=1e-5)


# --- Models -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three directions, two of which have the same sources."""
    folder = tmp_path_factory.mktemp("languages")
    config = three(folder)
    assert in_child(lambda: run_command("train", config)) == 0
    return Path(config.run.dir) / config.run.name


def three(folder: Path, **changes: object) -> Config:
    brief = {"training__max_steps": 60, "training__batch_tokens": 400, "training__accumulate": 1}
    corpus = write_rows(folder / "rows.jsonl", rows())
    return tiny_config(
        folder, data__train=corpus, data__directions=THREE, training__validate_every=30, **brief | changes
    )


TEXTS = ["the cat sees the dog.", "this red wine.", "the dog wants bread and wine here."]


def test_tag_decides_the_target_language(trained: Path) -> None:
    """The same source is translated into the language of its tag."""
    translator = Translator(trained, "cpu")
    italian, other = (translator.translate(TEXTS, to=language) for language in ("it", "fr"))
    assert all(text and text == text.lower() for text in italian)
    assert all(text and text == text.upper() for text in other)
    assert translator.translate(TEXTS) == italian  # the usual direction
    assert translator.translate([f">>fr<< {text}" for text in TEXTS]) == other
    assert translator.translate([f">>en-fr<< {text}" for text in TEXTS]) == other
    mixed = translator.translate([TEXTS[0], f">>fr<< {TEXTS[1]}", TEXTS[2]])  # in one batch
    assert mixed == [italian[0], other[1], italian[2]]
    [french] = translator.explain([f">>fr<< {TEXTS[0]}"])
    assert french.source == french.sentences[0].source == TEXTS[0]
    assert french.sentences[0].tokens[0] == ">>fr<<"


def test_every_line_and_sentence_has_the_tag(trained: Path) -> None:
    """Guards long texts, of which only the first piece once went into the right language."""
    translator = Translator(trained, "cpu")
    text = "the cat sees the dog. this red cat wants wine.\nthe dog wants wine."
    translation = translator.translate([text], to="fr")[0]
    assert translation == translation.upper()
    assert translation.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("x", {}, Request("x", Direction("en", "it"))),
        (">>fr<< x", {}, Request("x", Direction("en", "fr"))),
        (">>it-fr<< x", {}, Request("x", Direction("it", "fr"))),
        (">>fr<< >>it<< x", {}, Request(">>it<< x", Direction("en", "fr"))),
        (">>de<< x", {}, Request(">>de<< x", Direction("en", "it"), unknown_target="de")),
        ("x", {"to": "fr"}, Request("x", Direction("en", "fr"))),
        ("x", {"source": "it"}, Request("x", Direction("it", "en"))),
        ("x", {"to": "fr", "source": "it"}, Request("x", Direction("it", "fr"))),
        (">>fr<< x", {"to": "it", "prefix": "y"}, Request("x", Direction("en", "it"), "y")),
    ],
)
def test_requests_are_parsed_from_tags_and_options(text: str, options: dict[str, str], expected: Request) -> None:
    """Guards the direction: an option wins over a tag, only one tag is read, and an unknown one stays text."""
    data = settings("x", THREE)
    assert parse_request(text, data, [">>it<<", ">>fr<<", ">>en<<"], **options) == expected


def test_requests_of_one_direction_read_no_tags() -> None:
    """Guards a text that happens to look like a tag."""
    assert parse_request(">>it<< x", DataConfig(), []) == Request(">>it<< x", Direction("en", "it"))


def test_unknown_languages_are_refused(trained: Path) -> None:
    """Guards against a silent translation into another language."""
    translator = Translator(trained, "cpu")
    for to, source, fragment in (("de", "", "not translate to de, only to it, fr, en"), ("", "fr", "from fr, only")):
        with pytest.raises(ConfigError, match=fragment):
            translator.request("x", to, source)
    with pytest.raises(ConfigError, match="nothing to translate"):
        translator.request("x", "it", "it")
    translator.translate(["x", ">>de<< x"])
    assert translator.warnings[0] == (1, "this model does not translate to de.")
    for asked in (
        lambda: translator.score([("x", "x"), (">>de<< x", "x")]),
        lambda: translator.embed(["x", ">>de<< x"]),
    ):
        translator.warnings = []
        asked()
        assert translator.warnings == [(1, "this model does not translate to de.")]
    assert translator.translate([">>it-fr<< il gatto vede il cane."])[0]


def test_tag_is_never_copied(trained: Path) -> None:
    """Guards decoding.unknown copy, because many words attend to the tag most."""
    translator = Translator(trained, "cpu")
    piece = encode_piece(translator.trained, "the Ferrari", Direction("en", "fr"))
    assert piece.words == [">>fr<<", "the", "Ferrari"]
    [[sentence]] = [
        make_sentences(
            translator.trained, [piece], [[Hypothesis(translator.target.placeholders[:1], [0.0], 0.0, False)]]
        )
    ]
    assert sentence.candidates[0].text == "Ferrari"


def test_scores_per_direction(trained: Path) -> None:
    """Guards the choice of the best checkpoint, by the mean over directions, and the score of each."""
    events = EventAccumulator(str(trained))
    events.Reload()
    each = [[event.value for event in events.Scalars(f"score/bleu/{name}")] for name in ("en-it", "en-fr", "it-en")]
    mean = [event.value for event in events.Scalars("score/bleu")]
    assert len(mean) == 2
    assert np.allclose(np.mean(each, axis=0), mean, rtol=1e-5)
    assert len({tuple(values) for values in each}) == 3
    result = json.loads((trained / "result.json").read_text())
    assert np.isclose(result["validation"]["bleu"], max(mean), rtol=1e-5)
    assert sorted(result["test"]["directions"]) == ["en-fr", "en-it", "it-en"]
    report = json.loads((trained / "report" / "test.json").read_text())
    assert sorted(bucket["name"] for bucket in report["directions"]) == ["en-fr", "en-it", "it-en"]
    assert sum(bucket["pairs"] for bucket in report["directions"]) == report["pairs"]
    assert "By direction" in (trained / "report" / "test.html").read_text()


def test_one_direction_can_be_evaluated(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards `evaluate --to` and `--from`, on the run's own pairs and on others; the full report stays unchanged."""
    before = (trained / "report" / "test.json").read_text()
    arguments = ["--run", str(trained), "--device", "cpu", "--json"]
    assert run_command("evaluate", command_line.parse_evaluate([*arguments, "--to", "fr"])) == 0
    of_run = json.loads(capsys.readouterr().out)
    pairs = [pair for pair in read_pairs(trained / "data" / "test.tsv", DataConfig()) if ">>en-fr<<" in pair[0]]
    assert [row["source"] for row in of_run["sentences"]] == [source for source, _ in pairs]
    assert (of_run["name"], of_run["source_lang"], of_run["target_lang"]) == ("test-to-fr", "en", "fr")
    assert (trained / "report" / "test.json").read_text() == before
    given = write_rows(tmp_path / "given.jsonl", [{"en": split_tag(a)[1], "fr": b} for a, b in pairs])
    assert (
        run_command(
            "evaluate", command_line.parse_evaluate([*arguments, "--data", str(given), "--output", str(tmp_path)])
        )
        == 0
    )
    of_data = json.loads(capsys.readouterr().out)
    assert of_data["figures"] == of_run["figures"]
    assert run_command("evaluate", command_line.parse_evaluate([*arguments, "--to", "de"])) == 2
    plain = tmp_path / "plain.tsv"  # from a translator without tags
    plain.write_text("".join(f"{split_tag(a)[1]}\t{b}\t{b}\n" for a, b in pairs))
    assert (
        run_command("evaluate", command_line.parse_evaluate([*arguments, "--to", "fr", "--against", str(plain)])) == 0
    )
    assert run_command("evaluate", command_line.parse_evaluate([*arguments, "--from", "it"])) == 0
    assert {"test-to-fr.json", "test-from-it.json"} <= {path.name for path in (trained / "report").iterdir()}


def test_languages_on_the_command_line(trained: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Guards `translate --to` and `--from`."""
    expected = Translator(trained, "cpu").translate(TEXTS, to="fr")
    arguments = ["--run", str(trained), "--device", "cpu"]
    assert run_command("translate", command_line.parse_translate([*arguments, "--to", "fr", *TEXTS])) == 0
    assert capfdbinary.readouterr().out.decode().splitlines() == expected
    assert (
        run_command("translate", command_line.parse_translate([*arguments, "--to", "fr", "--from", "en", *TEXTS])) == 0
    )
    assert capfdbinary.readouterr().out.decode().splitlines() == expected
    pair = [TEXTS[0], "il gatto"]
    assert run_command("translate", command_line.parse_translate([*arguments, "--to", "fr", "--score", *pair])) == 0
    assert (
        run_command("translate", command_line.parse_translate([*arguments, "--to", "fr", "--score", "\t".join(pair)]))
        == 0
    )
    assert (
        run_command("translate", command_line.parse_translate([*arguments, "--score", f">>fr<< {pair[0]}", pair[1]]))
        == 0
    )
    assert len(set(capfdbinary.readouterr().out.decode().splitlines())) == 1
    assert run_command("translate", command_line.parse_translate([*arguments, "--to", "de", *TEXTS])) == 2
    assert b"does not translate to de" in capfdbinary.readouterr().err


def test_languages_in_the_api(trained: Path) -> None:
    """Guards the API: languages in a request, and the directions in the description of the server."""
    translator = Translator(trained, "cpu")
    with closing(Batcher(translator)) as batcher:
        info = ServerInfo.of(translator, Models([batcher]).directions(), Limits())
    assert [(each.source_lang, each.target_lang) for each in info.directions] == [
        ("en", "it"),
        ("en", "fr"),
        ("it", "en"),
    ]
    asked = TranslateRequest(text="x", target_lang="fr", source_lang="en")
    for request, direction in ((asked, Direction("en", "fr")), (TranslateRequest(text="x"), Direction("en", "it"))):
        _, job = make_job(request, translator)
        assert list(job.texts) == [Request("x", direction)]
    with pytest.raises(ConfigError):
        make_job(TranslateRequest(text="x", target_lang="de"), translator)


def test_other_engines_get_the_tag(trained: Path, tmp_path: Path) -> None:
    """Guards --engine ctranslate2 and the code in an export's card; a format without tags is refused."""
    from dragoman.export import card, export, verification

    translator = Translator(trained, "cpu", ["--decoding.precision", "float32"])
    other = Translator(trained, "cpu", ["--decoding.precision", "float32"], "ctranslate2")
    for language in ("it", "fr"):
        assert other.translate(TEXTS, to=language) == translator.translate(TEXTS, to=language)
    sample = verification.translate_sample(translator, trained)
    text_of_card = card.card(translator, trained, "ctranslate2", sample, None)
    direction, text = split_tag(sample.sources[0])
    assert direction
    assert f"words = ['>>{direction.target}<<'] + source.normalizer.normalize_str({text!r})" in text_of_card
    with pytest.raises(ConfigError, match="no place for the tag"):
        export.export(translator, trained, "huggingface", tmp_path / "out")


def test_tags_keep_capitals_in_a_lowercase_run(tmp_path: Path) -> None:
    """data.lowercase does not change tags with capitals (pt-BR)."""
    data = settings(tmp_path, "en-pt-BR", target_lang="pt-BR", lowercase=True)
    path = tmp_path / "test.tsv"
    path.write_text(">>en-pt-BR<< The Cat\tO Gato\n")
    assert read_pairs(path, data) == [(">>en-pt-BR<< the cat", "o gato")]


def test_other_files_are_read_like_prepared_pairs(tmp_path: Path) -> None:
    """Guards `evaluate --data`, which must read pairs as training does."""
    data = settings(write_rows(tmp_path / "rows.jsonl", rows(30)), THREE)
    found = read_split("test", find_named("test", data, data.train), data)
    assert sorted(found) == sorted(pair for pairs in read(data).values() for pair in pairs)
    assert all(clean(source) == source for source, _ in found)
