"""A preparation works in shards and may be killed at any moment; its result is that of one in a single piece."""

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT, in_child, tiny_pairs, write_tsv
from dragoman import dataset, storage
from dragoman.command_line import override
from dragoman.corpora import preparation, prepared_files, selection, splitting
from dragoman.corpora.crew import Share
from dragoman.corpora.preparation import prepare_data
from dragoman.corpora.selection import fits_upsampling
from dragoman.corpora.sources import Source, find_sources
from dragoman.corpora.splitting import read_portions
from dragoman.corpora.subwords import train_tokenizer, train_tokenizers
from dragoman.dataset import EncodedPairs, EncodedSide, encode_pairs
from dragoman.settings import Config
from whole_corpus import read_corpus

Make = Callable[..., Config]


def quiet(_: str) -> None:
    pass


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    shards(monkeypatch, 90)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # takes seconds for many small shards, and no power fails here


def shards(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(splitting, "PORTION", size)


def several(tiny: Make) -> Config:
    """A weighted mixture with capitals to lower, and pairs to drop for every reason."""
    plain = tiny()
    odd = [
        ("A b.", ""),
        ("Long " * 20, "lungo " * 20),
        ("One.", "una " * 11),
        ("The Cat.", "il gatto."),
        ("Hm.", "Eh."),
    ]
    other = write_tsv(Path(plain.data.train).with_name("other.tsv"), odd * 20)
    return tiny(
        data__train=f"{plain.data.train} + 2.5 * {other}", data__lowercase=True, data__max_length=12, data__max_ratio=4
    )


def text_alone(tiny: Make) -> Config:
    words = ["--data.source_lang", "null", "--model.architecture", "decoder-only", "--tokenizer.shared", "true"]
    return override(tiny(data__max_length=7), words)


CORPORA: dict[str, Callable[[Make], Config]] = {
    "pairs": lambda tiny: tiny(data__max_length=9),
    "several": several,
    "text": text_alone,
}


@pytest.mark.parametrize("name", CORPORA)
def test_result_does_not_depend_on_the_size_of_shards(
    tiny: Make, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards pairs, weights and offsets at the ends of shards, figures of the last shard only, and the fingerprint by
    which a checkpoint recognises its data."""
    config = CORPORA[name](tiny)
    shards(monkeypatch, 10**6)
    whole = prepare_data(config, tmp_path / "whole", quiet)
    assert whole.report.counts["train"].too_long, "the test needs dropped pairs"
    assert (whole.weights is not None) == (name == "several")
    for size in (3, 100):
        shards(monkeypatch, size)
        assert prepare_data(config, tmp_path / f"{size}", quiet).fingerprint == whole.fingerprint
        assert files(tmp_path / f"{size}") == files(tmp_path / "whole")


def test_prepared_data_equal_those_made_in_memory(tiny: Make, tmp_path: Path) -> None:
    """Guards against shards that agree with each other but not with the corpus."""
    config = several(tiny)
    data = prepare_data(config, tmp_path / "data", quiet)
    pairs, counts, weights = read_corpus(find_sources(config.data), config.data)
    tokenizers = train_tokenizers(*dataset.unzip_pairs(pairs["train"]), config.tokenizer)
    assert [each.to_json() for each in tokenizers] == [data.source.to_json(), data.target.to_json()]
    encoded = encode_pairs(pairs["train"], *tokenizers)
    source, target = (np.diff(side.offsets) for side in (encoded.source, encoded.target))
    longer, shorter = np.maximum(source, target), np.minimum(source, target)
    keep = (longer <= config.data.max_length) & (longer <= (config.data.max_ratio or 0) * shorter)
    for mine, ours in ((encoded.source, data.train.source), (encoded.target, data.train.target)):
        for one, other in zip(vars(mine.take(np.flatnonzero(keep))).values(), vars(ours).values(), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
    assert data.weights is not None
    np.testing.assert_array_equal(data.weights, np.array(weights)[keep])
    assert (data.validation, data.test) == (pairs["validation"], pairs["test"])
    found = data.report.counts
    assert found["train"].read == counts["train"].read
    assert found["train"].empty == counts["train"].empty > 0
    assert found["train"].too_long == (longer > config.data.max_length).sum() > 0
    assert found["train"].too_long + found["train"].uneven == (~keep).sum()
    assert found["train"].uneven > 0


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_arrays_equal_those_that_numpy_saves(tmp_path: Path, dtype: type) -> None:
    """Guards against ids written with two bytes and read with four, and headers that another numpy cannot read."""
    ids = np.arange(50_000).astype(dtype)
    np.save(tmp_path / "whole.npy", ids)
    prepared_files.save_array(tmp_path / "parts.npy", np.dtype(dtype), len(ids), np.array_split(ids, 3))
    assert (tmp_path / "parts.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


# --- Killed -------------------------------------------------------------------------------------------------------


def killed_at(number: int, config: Config, directory: Path) -> bool:
    """Prepare in a child process that dies during its n-th durable write; return whether there were that many."""

    def work() -> None:
        count = 0

        def counted(owner: object, name: str, act: Callable[..., None]) -> None:
            original = getattr(owner, name)

            def call(*arguments: object, **options: object) -> object:
                nonlocal count
                count += 1
                if count == number:
                    act(*arguments)
                    os._exit(9)
                return original(*arguments, **options)

            setattr(owner, name, call)

        def half(path: Path, data: bytes, _: int) -> None:
            path.write_bytes(data[: len(data) // 2])

        counted(storage, "write_durably", half)
        for name in ("fsync", "replace", "rename", "unlink", "rmdir"):
            counted(os, name, lambda *_: None)
        prepare_data(config, directory, quiet)

    code = in_child(work)
    assert code in (0, 9)
    return code == 9


@pytest.mark.parametrize(
    ("name", "stride"), [("several", 12), *(pytest.param(name, 4, marks=pytest.mark.slow) for name in CORPORA)]
)
def test_killed_preparation_is_resumed(tiny: Make, tmp_path: Path, name: str, stride: int) -> None:
    """Guards against half a shard taken for a whole one, a shard that is there twice, and a report that forgets what
    came before the kill."""
    config = CORPORA[name](tiny)
    expected = prepare_data(config, tmp_path / "undisturbed", quiet)
    number = 1
    # Every fourth moment of three corpora covers each kind of moment; each gets a run of its own.
    while killed_at(number, config, tmp_path / f"{number}" / "data"):
        directory = tmp_path / f"{number}" / "data"
        assert prepare_data(config, directory, quiet).fingerprint == expected.fingerprint
        assert files(directory) == files(tmp_path / "undisturbed")
        assert os.listdir(directory.parent) == ["data"]
        number += stride
    assert number > 30


def test_preparation_survives_repeated_kills(tiny: Make, tmp_path: Path) -> None:
    """Guards against work that restarts after each kill, and so never ends."""
    config, kills = several(tiny), 0
    while killed_at(32, config, tmp_path / "data"):  # enough for three shards, or for the last steps
        kills += 1
        assert kills < 20
    assert kills > 3
    prepare_data(config, tmp_path / "undisturbed", quiet)
    assert files(tmp_path / "data") == files(tmp_path / "undisturbed")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_tokenizers_are_trained_once(tiny: Make, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against ids of two different tokenizers: training BPE twice can give other ids."""
    config = tiny(tokenizer__kind=kind, tokenizer__vocab_size=300, data__validation_fraction=0.01)
    directory = tmp_path / "data"

    def die(count: int) -> Callable[..., EncodedPairs]:
        calls = iter(range(count))

        def encode(*arguments: object) -> EncodedPairs:
            if next(calls, None) is None:
                os._exit(9)
            return encode_pairs(*arguments)  # type: ignore[arg-type]

        return encode

    def killed() -> None:
        preparation.encode_pairs = die(2)
        prepare_data(config, directory, quiet)

    assert in_child(killed) == 9
    left = [(tmp_path / ".data.tmp" / "data" / f"{side}.tokenizer.json").read_bytes() for side in preparation.SIDES]

    def train_again(*_: object) -> None:
        raise AssertionError("a tokenizer is trained a second time")

    monkeypatch.setattr(preparation, "train_tokenizer", train_again)
    data = prepare_data(config, directory, quiet)
    assert [(directory / f"{side}.tokenizer.json").read_bytes() for side in preparation.SIDES] == left
    train = data.train.target
    trained = [train.ids[train.offsets[i] : train.offsets[i + 1]].tolist() for i in range(len(data.train))]
    held_out = {target for _, target in data.validation + data.test}
    assert data.target.decode_batch(trained) == [text for _, text in tiny_pairs(300) if text not in held_out]


def test_ctrl_c_keeps_finished_work(tiny: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against an hour of reading lost because the user wanted another batch size."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(preparation, "train_tokenizer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare_data(tiny(), tmp_path / "data", quiet)
    monkeypatch.setattr(preparation, "train_tokenizer", train_tokenizer)
    monkeypatch.setattr(prepared_files, "read_portions", lambda *_, **__: pytest.fail("the corpus is read again"))
    said: list[str] = []
    prepare_data(tiny(training__batch_tokens=99), tmp_path / "data", said.append)
    assert said[0] == "resuming an interrupted preparation"
    assert said[1].startswith("training the tokenizers")


@pytest.mark.parametrize("change", ["setting", "file", "tokenizers", "library"])
def test_leftovers_of_other_data_are_not_used(
    tiny: Make, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against data half of one corpus or setting and half of another."""
    directory = tmp_path / "data"
    assert killed_at(25, tiny(), directory)
    assert (tmp_path / ".data.tmp" / "text" / "000000.train.tsv").stat().st_size
    config = tiny(data__max_length=6) if change == "setting" else tiny()
    given = train_tokenizers(["the cat"], ["il gatto"], config.tokenizer) if change == "tokenizers" else None
    if change == "file":
        path = Path(config.data.train)
        path.write_bytes(path.read_bytes().replace(b"cat", b"cow"))
    if change == "library":
        monkeypatch.setattr(preparation.importlib.metadata, "version", lambda _: "0.0")
    said: list[str] = []
    prepare_data(config, directory, said.append, given)
    assert "reading" in said[0]
    prepare_data(config, tmp_path / "fresh", quiet, given)
    assert files(directory) == files(tmp_path / "fresh")


def test_data_set_that_can_change_is_read_in_one_go(tmp_path: Path) -> None:
    """Guards against a hub data set half of one revision and half of the next."""
    data = Config().data
    there, pinned = Source("train", "owner/name", "owner/name", {}, ()), override(Config(), ["--data.revision", "a1"])
    place, origin = tmp_path / "work", {"settings": {}, "files": {}}
    for which, whole, kept in ((data, False, False), (data, True, True), (pinned.data, False, True)):
        assert not preparation._set_up(place, origin | {"settings": {str(whole): str(which)}}, [there], which)
        (place / "text").mkdir()
        if whole:
            (place / "text" / prepared_files.COMPLETE).touch()
        again = preparation._set_up(place, origin | {"settings": {str(whole): str(which)}}, [there], which)
        assert again == kept
        assert (place / "text").exists() == kept


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"data__max_length": 1}, "raise it"),
        ({"tokenizer__kind": "bpe", "tokenizer__vocab_size": 50}, "at least 268"),
        ({"data__validation_fraction": 1e-9}, "no pair for validation"),
    ],
)
def test_failed_preparation_leaves_no_files(tiny: Make, tmp_path: Path, changes: dict, error: str) -> None:
    """Guards against gigabytes of text in a hidden folder that no later preparation would use."""
    with pytest.raises(ValueError, match=error):
        prepare_data(tiny(**changes), tmp_path / "run" / "data", quiet)
    assert not list((tmp_path / "run").iterdir())


# --- Memory -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 90, 400])
def test_shares_are_the_corpus(tiny: Make, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a pair read twice or never where one corpus ends and the next begins, or by no process."""
    data = several(tiny).data
    shards(monkeypatch, size)
    everything = list(read_portions(find_sources(data), data))
    assert [portion.number for portion in everything] == list(range(len(everything)))
    assert sum(count.read for portion in everything for count in portion.counts.values()) == 400
    # Two ranks with a different number of cores.
    shares = [Share(rank, 2, process, rank + 2) for rank in (0, 1) for process in range(rank + 2)]
    divided = [portion for share in shares for portion in read_portions(find_sources(data), data, share.__contains__)]
    assert sorted(divided, key=lambda portion: portion.number) == everything


def test_fits_upsampling_equals_a_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a token that counts as repeated because a chunk starts with it."""
    random = np.random.default_rng(0)

    def side() -> EncodedSide:
        lengths = random.integers(0, 6, 200)
        return EncodedSide.of(lengths, random.integers(4, 6, lengths.sum()).astype(np.uint16))

    pairs = EncodedPairs(side(), side())
    expected = []
    for i in range(200):
        ids = pairs.target.ids[pairs.target.offsets[i] : pairs.target.offsets[i + 1]].tolist()
        needed = len(ids) + sum(one == other for one, other in pairwise(ids))
        expected.append(needed <= int(pairs.source.lengths[i]))
    assert 0 < sum(expected) < 200
    for size in (1, 7, 199, 200, 1000):
        monkeypatch.setattr(selection, "CHUNK", size)
        assert fits_upsampling(pairs, 1).tolist() == expected


PEAK = """
import re, sys, threading, time
from pathlib import Path
from dragoman import dataset
from dragoman.command_line import override
from dragoman.corpora import data_report, prepared_files, preparation, splitting
from dragoman.settings import Config
splitting.PORTION = dataset.CHUNK = data_report.SAMPLE = 5000
prepared_files.LARGE, peak = 0, 0

def watch():  # mapped pages do not count
    global peak
    while True:
        status = Path("/proc/self/status").read_text()
        peak = max(peak, int(re.search(r"RssAnon:\\s+(\\d+)", status)[1]))
        time.sleep(0.005)

threading.Thread(target=watch, daemon=True).start()
preparation.prepare_data(override(Config(), sys.argv[2:]), Path(sys.argv[1]), lambda _: None)
print(peak)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not report peak memory")
@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_memory_hardly_grows_with_the_number_of_pairs(tmp_path: Path, kind: str) -> None:
    """Guards against a list of all pairs between the file and the ids; one took 550 bytes per pair."""
    peaks = []
    for count in (50_000, 200_000):
        place = write_tsv(tmp_path / f"{count}.tsv", tiny_pairs(count))
        words = ["--data.train", str(place), "--tokenizer.kind", kind, "--tokenizer.vocab_size", "300"]
        words += ["--data.validation_fraction", "0.001", "--data.test_fraction", "0"]
        command = [sys.executable, "-c", PEAK, str(tmp_path / f"{kind}-{count}"), *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
        peaks.append(1024 * int(done.stdout))
    assert (peaks[1] - peaks[0]) / 150_000 < 60
