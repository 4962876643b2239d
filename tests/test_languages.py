"""One model for several directions: what is read for which, what the tags do, and that nothing else changes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from conftest import in_child, tiny_config, tiny_pairs, write_tsv
from dragoman import command_line, dataset
from dragoman.__main__ import run as run_command
from dragoman.corpora.cleaning import clean
from dragoman.corpora.mixing import balanced, rows_of
from dragoman.corpora.origin import file_hashes
from dragoman.corpora.preparation import prepare_data
from dragoman.corpora.sources import find_sources
from dragoman.corpora.splitting import read_corpus, read_split
from dragoman.corpora.subword_dropout import SubwordDropout
from dragoman.corpora.subwords import train_tokenizers
from dragoman.dataset import EncodedPairs, Pair, Tokenizer
from dragoman.directions import Direction, parse_directions, split_tag, tagged
from dragoman.errors import ConfigError, DataError
from dragoman.evaluation.pairs import read_pairs
from dragoman.evaluation.per_direction import bleu_by_direction, indices_by_direction, without_tag
from dragoman.presets import ENOUGH
from dragoman.server.application import make_job
from dragoman.server.schemas import ServerInfo, TranslateRequest
from dragoman.settings import UNK, Config, DataConfig, TokenizerConfig
from dragoman.training.starting import amount
from dragoman.translation.translator import Translator

THREE = "en-it, en-fr, it-en"


def french(italian: str) -> str:
    """A third language, of whose words no other one has any."""
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
def test_directions_are_read(text: str, expected: list[object]) -> None:
    """Guards names of languages that have hyphens of their own."""
    pairs = [tuple(each.split("-")) if isinstance(each, str) else each for each in expected]
    assert parse_directions(text) == pairs


@pytest.mark.parametrize("text", ["en", "en-it-fr", "en-en", "en-it, en-it", "en>it", "EN-it", ",", "en-"])
def test_what_is_no_direction_is_refused(text: str) -> None:
    """Guards a mistake that would be taken for a language which nothing is in."""
    with pytest.raises(ConfigError, match=r"data\.directions is"):
        DataConfig(directions=text)


def test_the_usual_direction_must_be_one_of_them() -> None:
    """Guards a model that is asked, by default, for what it never learnt."""
    with pytest.raises(ConfigError, match=r"must be one of data\.directions"):
        DataConfig(directions="en-fr, fr-en")


@given(st.text(max_size=30), st.sampled_from(parse_directions("en-it, pt-BR-zh-Hant, es-419-en, en-es-419")))
@example("hello", Direction("en", "es-419"))
def test_a_tag_comes_off_as_it_was_put_on(text: str, direction: Direction) -> None:
    """Guards texts that lose a letter with their tag, among them those that begin with what looks like one; and a tag
    that is that of another direction, as from es into 419."""
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


def test_a_tag_is_one_token_before_the_text(pair: tuple[Tokenizer, Tokenizer]) -> None:
    """Guards the first token, of which all depends: also after saving, and with the language that is read told."""
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


def test_elsewhere_it_is_text(pair: tuple[Tokenizer, Tokenizer]) -> None:
    """Guards against sentences that could turn the model to another language half-way, and unknown tags that vanish."""
    source, _ = pair
    for text in ("the cat >>it<< sees", ">>it<< >>it<< the", ">>de<< the cat", "x>>it<< the"):
        ids = source.encode(text)
        assert set(ids[1:]).isdisjoint(source.tags.values())
        assert (ids[0] in source.tags.values()) == text.startswith(">>it<<")
        assert len(source.tokens(text)) == len(ids)


def test_words_are_those_of_texts_without_tags(pair: tuple[Tokenizer, Tokenizer]) -> None:
    """Guards vocabularies with places for the marks and the names in tags."""
    source, _ = pair
    assert not [
        word for word in source.vocabulary if (">" in word or "<" in word) and len(word) > 1 and word not in source.tags
    ]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_subword_dropout_leaves_tags_whole(kind: str) -> None:
    """Guards the tag, which was once spelt with the letters of its name in some epochs."""
    pairs = [(tagged(a, Direction("en", "it")), b) for a, b in tiny_pairs(50)]
    vocabulary = TokenizerConfig(kind=kind, vocab_size=320, min_frequency=1, shared=True)  # type: ignore[arg-type]
    source, target = train_tokenizers(*dataset.unzip_pairs(pairs), vocabulary, ["it"])
    encoded = dataset.encode_pairs(pairs, source, target)
    cut: EncodedPairs = SubwordDropout(encoded, source, target, rate=0.5, longest=200, seed=1)(0)
    assert len(cut.source.ids) > len(encoded.source.ids)
    assert set(cut.source.ids[cut.source.offsets[:-1]]) == {source.tags[">>it<<"]}
    restored = [source.decode(cut.source.ids[a:b].tolist()) for a, b in zip(cut.source.offsets, cut.source.offsets[1:])]  # noqa: B905
    assert restored == [split_tag(text)[1] for text, _ in pairs]


# --- Corpora ------------------------------------------------------------------------------------------------------


def test_a_pair_of_columns_serves_both_ways(tmp_path: Path) -> None:
    """Guards the usual case: a table without names, whose columns are those of the usual direction."""
    pairs = tiny_pairs(200)
    found = read(settings(write_tsv(tmp_path / "pairs.tsv", pairs)))
    expected = {(f">>en-it<< {a}", b) for a, b in pairs} | {(f">>it-en<< {b}", a) for a, b in pairs}
    assert set().union(*found.values()) == expected
    one_way = read(settings(tmp_path / "pairs.tsv", None))
    for split, way in one_way.items():
        assert [(f">>en-it<< {a}", b) for a, b in way] == [each for each in found[split] if each[0].startswith(">>en")]


def test_no_translation_of_a_test_sentence_is_trained_on(tmp_path: Path) -> None:
    """Guards scores: were each direction split by its own source, one would learn what the other is tested on."""
    data = settings(write_rows(tmp_path / "rows.jsonl", rows()), "en-it, it-en, fr-en", test_fraction=0.1)
    found = read(data)
    texts = {split: {text for a, b in pairs for text in (split_tag(a)[1], b)} for split, pairs in found.items()}
    assert all(texts.values())
    assert not texts["train"] & texts["test"]
    assert not texts["train"] & texts["validation"]


@pytest.mark.parametrize("form", ["parallel", "folder", "rows", "two corpora", "table"])
def test_each_direction_finds_its_languages(form: str, tmp_path: Path) -> None:
    """Guards every form of corpus: a direction reads the corpora that have its languages, and no others."""
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


def test_what_serves_no_direction_is_refused(tmp_path: Path) -> None:
    """Guards a corpus left out in silence, a direction without pairs, and columns of an unknown language."""
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
    with pytest.raises(DataError, match="the first row names en and fr, but the settings ask for en and it"):
        read(settings(named_otherwise))


def test_rows_may_lack_a_language(tmp_path: Path) -> None:
    """Guards rows of which the first one has fewer languages than others: once, all of the others were lost."""
    some = rows(60)
    for i in range(0, 60, 2):
        del some[i]["fr"]
    data = settings(write_rows(tmp_path / "rows.jsonl", some), THREE, validation_fraction=0.2)
    expected = {(tagged(row[a], Direction(a, b)), row[b]) for row in some for a, b in data.several if b in row}
    assert set().union(*read(data).values()) == expected


def test_a_split_may_lack_a_language(tmp_path: Path) -> None:
    """Guards training text that was left out because validation, in the same folder, had one language less."""
    some = rows(60)
    for split, languages in (("train", ("en", "it", "fr")), ("validation", ("en", "it"))):
        for language in languages:
            (tmp_path / f"{split}.{language}").write_text("".join(row[language] + "\n" for row in some))
    found = read(settings(tmp_path, THREE, test_fraction=0.0))
    ways = {split: {str(split_tag(source)[0]) for source, _ in pairs} for split, pairs in found.items()}
    assert ways["train"] == {"en-it", "en-fr", "it-en"}
    assert len(found["train"]) > 170  # of French alone, a share goes to validation
    assert len([source for source, _ in found["validation"] if ">>en-it<<" in source]) == 60
    (tmp_path / "validation.fr").write_text("X\n" * 60)
    (tmp_path / "train.fr").unlink()
    with pytest.raises(DataError, match="no pair for en-fr"):
        read(settings(tmp_path, THREE, test_fraction=0.0))


def test_folders_of_other_languages_go_together(tmp_path: Path) -> None:
    """Guards two folders of files of which each has one pair of languages."""
    for folder, languages in (("one", ("en", "it")), ("two", ("it", "fr"))):
        (tmp_path / folder).mkdir()
        for language in languages:
            (tmp_path / folder / f"train.{language}").write_text("".join(row[language] + "\n" for row in rows(60)))
    found = read(settings(f"{tmp_path / 'one'} + {tmp_path / 'two'}", "en-it, fr-it"))
    assert {str(split_tag(source)[0]) for source, _ in found["train"]} == {"en-it", "fr-it"}


def test_what_stands_on_both_sides_of_a_split_is_told(tmp_path: Path) -> None:
    """Guards scores where no language is in all directions: then a translation may be trained on, and is counted."""
    said: list[str] = []
    for name, directions, warned in (("star", "en-it, it-en, fr-en", False), ("ring", "en-it, it-fr, fr-en", True)):
        corpus = write_rows(tmp_path / "rows.jsonl", [{k: f"{k} {i}" for k in ("en", "it", "fr")} for i in range(300)])
        config = tiny_config(tmp_path, data__train=corpus, data__directions=directions)
        data = prepare_data(config, tmp_path / name, said.append)
        assert bool(sum(data.report.repeated.values())) == warned


def test_a_run_of_one_direction_knows_no_tags(tmp_path: Path) -> None:
    """Guards text that happens to look like a tag: it once chose the best checkpoint."""
    data = DataConfig()
    assert bleu_by_direction([">>b<< x", "y"], ["z", "y"], ["z", "y"], data) == {}
    assert without_tag(">>b<< x", data) == ">>b<< x"
    several = settings(tmp_path)
    found = indices_by_direction([">>it-en<< x", "y"], several)
    assert found == {Direction("it", "en"): [0], Direction("en", "it"): [1]}


def test_pairs_are_counted_in_each_direction(tmp_path: Path) -> None:
    """Guards model.preset auto, which goes by the number of pairs that there are to learn from."""
    data = settings(write_rows(tmp_path / "rows.jsonl", rows(200)), THREE, test_fraction=0.0)
    assert amount(data, ENOUGH).pairs == round(600 * 0.98)


@given(st.lists(st.integers(1, 400), min_size=2, max_size=5), st.floats(1, 10))
def test_temperature_is_that_of_the_paper(sizes: list[int], temperature: float) -> None:
    """Guards the shares of directions: p to the power of 1 / T, the largest direction seen as often as before."""
    parts = np.repeat(np.arange(len(sizes)), sizes)
    weights = balanced(np.ones(len(parts), np.float32), parts, temperature)
    seen = np.bincount(parts, weights)
    wanted = (np.array(sizes) / sum(sizes)) ** (1 / temperature)
    assert np.allclose(seen / seen.sum(), wanted / wanted.sum(), rtol=1e-4)
    assert np.isclose(seen.max(), max(sizes))
    assert abs(len(rows_of(weights, 1, 0)) - seen.sum()) <= len(sizes)


def test_few_pairs_are_seen_more_often(tmp_path: Path) -> None:
    """Guards the way of data.temperature into the prepared data; without it, nothing is weighed."""
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
    """A run of three directions, two of which have the very same sources."""
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


def test_the_tag_alone_says_which_language_is_written(trained: Path) -> None:
    """Guards all of it: the same words in, and another language out."""
    translator = Translator(trained, "cpu")
    italian, other = (translator.translate(TEXTS, to=language) for language in ("it", "fr"))
    assert all(text and text == text.lower() for text in italian)
    assert all(text and text == text.upper() for text in other)
    assert translator.translate(TEXTS) == italian  # the usual direction
    assert translator.translate([f">>fr<< {text}" for text in TEXTS]) == other
    assert translator.translate([f">>en-fr<< {text}" for text in TEXTS]) == other
    mixed = translator.translate([TEXTS[0], f">>fr<< {TEXTS[1]}", TEXTS[2]])  # in one batch
    assert mixed == [italian[0], other[1], italian[2]]
    [told] = translator.explain([f">>fr<< {TEXTS[0]}"])
    assert told.source == told.sentences[0].source == TEXTS[0]
    assert told.sentences[0].tokens[0] == ">>fr<<"


def test_every_line_and_sentence_of_a_text_has_its_tag(trained: Path) -> None:
    """Guards long texts, of which only the first piece was once asked for in the right language."""
    translator = Translator(trained, "cpu")
    text = "the cat sees the dog. this red wine is here.\nthe dog wants wine."
    translation = translator.translate([text], to="fr")[0]
    assert translation == translation.upper()
    assert translation.count("\n") == 1
    heard: list[str] = []
    translator.speak(">>fr<< the cat sees the dog. this wine.", heard.append)
    assert "".join(heard) == "".join(heard).upper() != ""


def test_languages_that_it_does_not_know_are_refused(trained: Path) -> None:
    """Guards against a translation into whatever the model likes best."""
    translator = Translator(trained, "cpu")
    for to, source, fragment in (("de", "", "not translate to de, but to it, fr, en"), ("", "fr", "from fr, but")):
        with pytest.raises(ConfigError, match=fragment):
            translator.asking("x", to, source)
    with pytest.raises(ConfigError, match="nothing to translate"):
        translator.asking("x", "it", "it")
    assert translator.asking("x", "fr") == ">>fr<< x"
    assert translator.asking("x", "", "it") == ">>it-en<< x"
    assert translator.asking(">>fr<< x", "it") == ">>it<< x"
    translator.translate(["x", ">>de<< x"])
    assert translator.warnings[0] == "text 2: this model does not translate to de."
    for asked in (
        lambda: translator.score([("x", "x"), (">>de<< x", "x")]),
        lambda: translator.embed(["x", ">>de<< x"]),
    ):
        translator.warnings = []
        asked()
        assert translator.warnings == ["text 2: this model does not translate to de."]
    assert translator.asking("x", "fr", "it") == ">>it-fr<< x"  # which no pair had: it may work all the same
    assert translator.translate([">>it-fr<< il gatto vede il cane."])[0]


def test_a_tag_is_never_copied() -> None:
    """Guards decoding.unknown copy: the tag is the token that many words look at most."""
    from echo import echo

    translator = echo()
    source = translator.source
    words = ["", "the", "Ferrari"]
    import torch

    from dragoman.translation.copying import copies

    weights = torch.tensor([[0.9, 0.05, 0.05]])
    assert copies([UNK], [4, 7, UNK], words, weights) == {0: 2}
    assert copies([UNK], [4, 7, 8], ["", "the", "cat"], weights) == {0: 1}
    assert source.tags == {}


def test_scores_are_told_by_direction(trained: Path) -> None:
    """Guards the best checkpoint, which is chosen by the mean of the directions, and what is said of each."""
    events = EventAccumulator(str(trained / "tensorboard"))
    events.Reload()
    each = [[event.value for event in events.Scalars(f"valid/bleu/{name}")] for name in ("en-it", "en-fr", "it-en")]
    mean = [event.value for event in events.Scalars("valid/bleu")]
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
    """Guards evaluate.py --to and --from, on the run's own pairs and on others; the whole report stays what it was."""
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
    plain = tmp_path / "plain.tsv"  # of a translator that knows of no tags
    plain.write_text("".join(f"{split_tag(a)[1]}\t{b}\t{b}\n" for a, b in pairs))
    assert (
        run_command("evaluate", command_line.parse_evaluate([*arguments, "--to", "fr", "--against", str(plain)])) == 0
    )
    assert run_command("evaluate", command_line.parse_evaluate([*arguments, "--from", "it"])) == 0
    assert {"test-to-fr.json", "test-from-it.json"} <= {path.name for path in (trained / "report").iterdir()}


def test_the_command_line_asks_for_a_language(trained: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Guards translate.py --to and --from."""
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


def test_the_page_asks_for_a_language(trained: Path) -> None:
    """Guards the API: languages in what is asked, the directions in what the server says of itself."""
    translator = Translator(trained, "cpu")
    info = ServerInfo.of(translator)
    assert [(each.source_lang, each.target_lang) for each in info.directions] == [
        ("en", "it"),
        ("en", "fr"),
        ("it", "en"),
    ]
    asked = TranslateRequest(text="x", target_lang="fr", source_lang="en")
    assert list(make_job(asked, translator).texts) == [">>en-fr<< x"]
    assert list(make_job(TranslateRequest(text="x"), translator).texts) == ["x"]
    with pytest.raises(ConfigError):
        make_job(TranslateRequest(text="x", target_lang="de"), translator)


def test_other_engines_are_given_the_tag(trained: Path, tmp_path: Path) -> None:
    """Guards --engine ctranslate2 and the code in an export's card; who cannot give a tag is refused."""
    pytest.importorskip("ctranslate2", reason="needs ctranslate2: pip install -e '.[export]'")
    from dragoman.export import card, ctranslate2_engine, export, verification

    translator = Translator(trained, "cpu", ["--decoding.precision", "float32"])
    other = ctranslate2_engine.with_ctranslate2(translator, trained)
    for language in ("it", "fr"):
        assert other.translate(TEXTS, to=language) == translator.translate(TEXTS, to=language)
    sample = verification.translate_sample(translator, trained)
    text_of_card = card.card(translator, trained, "ctranslate2", sample, None)
    direction, text = split_tag(sample.sources[0])
    assert direction
    assert f"words = ['>>{direction.target}<<'] + source.normalizer.normalize_str({text!r})" in text_of_card
    with pytest.raises(ConfigError, match="no place for the tag"):
        export.export(translator, trained, "huggingface", tmp_path / "out")


def test_names_keep_their_capitals_in_a_lowered_run(tmp_path: Path) -> None:
    """Guards tags with capitals, as of pt-BR, where data.lowercase changes all other text."""
    data = settings(tmp_path, "en-pt-BR", target_lang="pt-BR", lowercase=True)
    path = tmp_path / "test.tsv"
    path.write_text(">>en-pt-BR<< The Cat\tO Gato\n")
    assert read_pairs(path, data) == [(">>en-pt-BR<< the cat", "o gato")]


def test_prepared_pairs_are_those_of_other_files(tmp_path: Path) -> None:
    """Guards evaluate.py --data, which reads pairs as training does."""
    data = settings(write_rows(tmp_path / "rows.jsonl", rows(30)), THREE)
    found = read_split("train", find_sources(data), data)
    assert sorted(found) == sorted(pair for pairs in read(data).values() for pair in pairs)
    assert all(clean(source) == source for source, _ in found)
