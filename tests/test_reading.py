"""Files that are too large, state a wrong size, or are replaced while they are read take neither memory nor time."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import stat
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import ROOT, in_child, tiny_config, tiny_pairs, write_tsv
from dragoman import checkpoint, config_file, reading, run_lock, storage, tensors
from dragoman.corpora.preparation import load, prepare_data
from dragoman.dataset import Tokenizer
from dragoman.errors import CheckpointError, ConfigError, DataError
from dragoman.evaluation.pairs import read_tsv
from dragoman.serialization import sealed
from dragoman.translation import input
from dragoman.translation.glossary import Glossary
from dragoman.translation.translator import Translator
from faults import untrained

SPARSE = 50 * 10**9  # bytes that a file says it has; the disk holds none of them
PAIRS = tiny_pairs(120)


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained run; do not change it."""
    return untrained.run(tmp_path_factory.mktemp("untrained"))


@pytest.fixture
def run(pattern: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(pattern, tmp_path / "runs" / "tiny"))


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """A file larger than any memory here."""
    return grown(tmp_path / "sparse")


def grown(path: Path) -> Path:
    path.touch()
    os.truncate(path, SPARSE)
    return path


# --- The one reader -----------------------------------------------------------------------------------------------


def test_nothing_is_read_beyond_the_limit(tmp_path: Path, sparse: Path) -> None:
    """Guards against memory as large as a file says it is, and against a device or a pipe, which has no size."""
    (tmp_path / "whole").write_bytes(b"x" * 100)
    assert reading.read(tmp_path / "whole", 100) == b"x" * 100
    tracemalloc.start()
    try:
        for path, most in ((tmp_path / "whole", 99), (sparse, 10**6), (Path("/dev/zero"), 10**6)):
            with pytest.raises(OSError, match="larger than"):
                reading.read(path, most)
        assert tracemalloc.get_traced_memory()[1] < 3 * 10**6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "device", "exchanged"])
def test_only_plain_files_are_read_from_a_folder_of_ours(tmp_path: Path, kind: str, monkeypatch: Any) -> None:
    """Guards against private files behind a link, and a pipe, at which the program would wait for ever."""
    path = tmp_path / "file"
    match kind:
        case "link" | "exchanged":
            path.symlink_to(ROOT / "README.md")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path = Path("/dev/zero")
    if kind == "exchanged":  # between the look at the file and its opening
        plain = (ROOT / "README.md").stat()
        monkeypatch.setattr(Path, "lstat", lambda _: plain)
    with pytest.raises(OSError):  # the system's own, or ours
        reading.read(path, 10**6, plain=True)


# --- Settings and manifests ---------------------------------------------------------------------------------------


def test_config_file_of_any_size_is_refused_at_once(tmp_path: Path, sparse: Path) -> None:
    """Guards against a parser that takes 21 seconds for 300,000 settings, and a name that stands for a thousand."""
    many = tmp_path / "many.yaml"
    many.write_text("".join(f"key{number}: 1\n" for number in range(300_000)))
    for path in (many, sparse):
        with pytest.raises(ConfigError, match="larger than 64 KiB"):
            config_file.load(path)
    with pytest.raises(ConfigError, match="larger than 64 KiB"):
        config_file.loads(many.read_bytes(), many)
    levels = "".join(f"s{n}: &s{n} [{', '.join([f'*s{n - 1}'] * 9)}]\n" for n in range(1, 9))
    with pytest.raises(ConfigError, match=":1: s0 is not a section"):
        config_file.loads(f"s0: &s0 x\n{levels}".encode(), many)


@pytest.mark.parametrize("name", [checkpoint.MANIFEST, "config.yaml", "model.safetensors"])
def test_a_file_of_a_checkpoint_that_is_far_too_large_is_refused(run: Path, name: str) -> None:
    """Guards against a MemoryError, or a killed process, from a file that takes no room on a disk."""
    step = untrained.newest(run)
    if name != checkpoint.MANIFEST:
        manifest = json.loads((step / checkpoint.MANIFEST).read_bytes())
        manifest.pop("sha256")
        manifest["files"][name]["size"] = 10**15 if name == "model.safetensors" else SPARSE
        (step / checkpoint.MANIFEST).write_bytes(sealed(manifest))
    grown(step / name)
    with pytest.raises(CheckpointError, match=r"larger than|more than|fit into memory"):
        checkpoint.read(step)


# --- What a checkpoint holds --------------------------------------------------------------------------------------

SHAPES = {
    "model.d_model": ("d_model: 32", f"d_model: {2**20}"),
    "model.d_ff": ("d_ff: 64", f"d_ff: {2**62}"),
    "model.encoder_layers": ("encoder_layers: 1", f"encoder_layers: {10**9}"),
    "model.max_positions": (
        "positions: sinusoidal\n  max_positions: 512",
        f"positions: learned\n  max_positions: {2**40}",
    ),
}


@pytest.mark.parametrize("setting", SHAPES)
def test_settings_that_do_not_fit_the_weights_take_no_memory(run: Path, setting: str) -> None:
    """Guards against a model that is built as large as its settings say, before the weights are looked at."""
    step = untrained.newest(run)
    config = (step / "config.yaml").read_text()
    assert SHAPES[setting][0] in config
    untrained.forge(step, {"config.yaml": config.replace(*SHAPES[setting]).encode()})
    with pytest.raises(CheckpointError, match="cannot be used"):
        Translator(run, "cpu", engine="torch")


def hostile(tokenizer: dict[str, Any], kind: str) -> str:
    """A tokenizer.json with a part that this program never writes."""
    regex = {"type": "Replace", "pattern": {"Regex": "(a+)+$|(?:(x+x+)+y)"}, "content": ""}
    match kind:
        case "pattern":
            tokenizer["normalizer"] = regex
        case "growth":
            tokenizer["normalizer"] = {
                "type": "Sequence",
                "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 20}] * 7,
            }
        case "pre-tokenizer":
            tokenizer["pre_tokenizer"] = {
                "type": "Split",
                "pattern": regex["pattern"],
                "behavior": "Removed",
                "invert": False,
            }
        case "decoder":
            tokenizer["decoder"] = regex
        case "padding":
            tokenizer["padding"] = {
                "strategy": {"Fixed": 2**40}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                "pad_type_id": 0, "pad_token": "[PAD]",
            }  # fmt: skip
        case "special":
            tokenizer["added_tokens"][4]["normalized"] = True
        case "unknown":
            del tokenizer["model"]["vocab"]["[UNK]"]
        case "twice":
            return json.dumps(tokenizer).replace(
                '"normalizer":', f'"normalizer": {json.dumps(regex)}, "normalizer":', 1
            )
    return json.dumps(tokenizer)


@pytest.mark.parametrize(
    "kind", ["pattern", "growth", "pre-tokenizer", "decoder", "padding", "special", "unknown", "twice"]
)
def test_only_tokenizers_that_this_program_writes_are_loaded(run: Path, kind: str) -> None:
    """Guards against a pattern that panics in the library, which no `except Exception` catches, and a normalizer that
    makes a billion letters of one."""
    step = untrained.newest(run)
    name = "source.tokenizer.json"
    text = (step / name).read_text(encoding="utf-8")
    assert Tokenizer.from_json(json.dumps(json.loads(text))).to_json() == text
    untrained.forge(step, {name: hostile(json.loads(text), kind).encode()})
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        Translator(run, "cpu", engine="torch")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests/faults/golden").glob("*/checkpoints/*/*.tokenizer.json")), ids=str
)
def test_tokenizers_of_older_versions_are_loaded(path: Path) -> None:
    """Guards old runs against a list of allowed parts that only knows today's."""
    text = path.read_text(encoding="utf-8")
    assert Tokenizer.from_json(text).to_json() == text


def archive(value: Any, method: int = zipfile.ZIP_STORED) -> bytes:
    """A file of `torch.save`, packed again by this method."""
    saved, packed = io.BytesIO(), io.BytesIO()
    torch.save(value, saved)
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(packed, "w", method) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return packed.getvalue()


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_training_state_takes_no_more_memory_than_its_size() -> None:
    """Guards against a megabyte that unpacks to a gigabyte, and a tensor of one number, repeated 2**40 times."""
    zeros = {"optimizer": torch.zeros(10**6)}
    assert tensors.load_tensors(archive(zeros))["optimizer"].shape == (10**6,)
    with pytest.raises(CheckpointError, match="it is packed"):
        tensors.load_tensors(archive(zeros, zipfile.ZIP_DEFLATED))
    many = [torch.zeros(10**6)[start:] for start in range(3)]
    views = torch.zeros(10**6)
    for value in (torch.zeros(1).expand(2**40), {"a": [torch.zeros(2).as_strided((2**20, 2), (0, 1))]}):
        with pytest.raises(CheckpointError, match="larger than its file"):
            tensors.load_tensors(archive(value))
    with pytest.raises(CheckpointError, match="larger than its file"):
        tensors.load_tensors(archive([views[start:] for start in range(100)]))
    assert len(tensors.load_tensors(archive(many))) == 3
    with pytest.raises(CheckpointError, match="not a plain one"):
        tensors.load_tensors(archive(torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1), (2**40,))))


def test_array_that_says_it_is_larger_than_its_file_is_refused(run: Path) -> None:
    """Guards prepared data against a header that asks for terabytes."""
    path = run / "data" / "train.source.npy"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<u2", "fortran_order": False, "shape": (2**42,)})
    path.write_bytes(header.getvalue() + bytes(10))
    with pytest.raises(DataError, match="is damaged"):
        load(run / "data")


# --- Corpora ------------------------------------------------------------------------------------------------------


def as_gz(path: Path, pairs: list[tuple[str, str]]) -> Path:
    plain = write_tsv(path.with_name("plain.tsv"), pairs)
    path.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    return path


def as_zip(path: Path, pairs: list[tuple[str, str]]) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        for side, language in enumerate(("en", "it")):
            packed.writestr(f"corpus.{language}", "".join(f"{pair[side]}\n" for pair in pairs))
    return path


def as_parquet(path: Path, pairs: list[tuple[str, str]]) -> Path:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"en": [a for a, _ in pairs], "it": [b for _, b in pairs]}), path)
    return path


WRITERS: dict[str, Callable[[Path, list[tuple[str, str]]], Path]] = {
    "pairs.tsv": write_tsv, "pairs.tsv.gz": as_gz, "pairs.zip": as_zip, "pairs.parquet": as_parquet,
}  # fmt: skip


@pytest.mark.parametrize("how", ["replaced", "overwritten"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_corpus_that_changes_while_it_is_read_is_refused(tmp_path: Path, name: str, how: str) -> None:
    """Guards against data from a new text under the hash of the old one: the right file would be refused later."""
    path = WRITERS[name](tmp_path / name, PAIRS)
    other = WRITERS[name](tmp_path / f"other-{name}", [(a.replace("cat", "dog"), b) for a, b in PAIRS])
    config = tiny_config(tmp_path / "run", data__train=path, data__validation_fraction=0.2)
    whole = prepare_data(config, tmp_path / "whole", lambda _: None)

    def exchange(message: str) -> None:
        if message.startswith("reading"):
            if how == "replaced":
                os.replace(other, path)
            else:
                path.write_bytes(other.read_bytes())

    content = path.read_bytes()
    with pytest.raises(DataError, match=rf"{name}.* was changed or replaced while it was being read"):
        prepare_data(config, tmp_path / "data", exchange)
    assert not (tmp_path / "data").exists()
    path.write_bytes(content)
    assert prepare_data(config, tmp_path / "data", lambda _: None).fingerprint == whole.fingerprint


def endless(folder: Path, name: str) -> Path:
    """A good line, and one that is three limits long and does not end."""
    path = folder / name
    path.write_bytes(b"dog\tHund\n" + b"x" * 3 * reading.LONGEST_LINE)
    return path


@pytest.fixture
def _short_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(reading, "LONGEST_LINE", 2**20)
    monkeypatch.setattr(reading, "TEXT", 2**20)
    monkeypatch.setattr(reading, "TABLE", 2**20)
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("_short_lines")
def test_a_line_without_end_is_refused_where_it_is(tmp_path: Path) -> None:
    """Guards the memory of every reader of text against six gigabytes without a line end."""
    path = endless(tmp_path, "text.tsv")
    with path.open("rb") as stream:
        blocks = input._blocks(stream.read, "stdin")
        assert next(blocks) == ["dog\tHund"], "the lines before it are translated"
        with pytest.raises(DataError, match="stdin: line 2 is longer than 1 MiB"):
            next(blocks)
    for read in (lambda: Glossary.read(str(path)), lambda: read_tsv(path, 2)):
        with pytest.raises(DataError, match=r"text\.tsv.*larger than 1 MiB"):
            read()
    assert tracemalloc.get_traced_memory()[1] < 10 * 2**20


# --- Temporary files and locks ------------------------------------------------------------------------------------


def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the user's files in a run folder that others can write: whoever foresees a name can put a link there."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    run = tmp_path / "run"
    run.mkdir()
    for name in (".tmp-run.json", "run.json"):
        (run / name).symlink_to(victim)
    with run_lock.lock(run):
        assert stat.S_ISREG((run / "run.json").lstat().st_mode)
    assert victim.read_bytes() == b"precious"
    monkeypatch.setattr(os, "urandom", bytes)  # even a name that was foreseen
    (run / f".tmp-note-{'00' * 8}").symlink_to(victim)
    with pytest.raises(FileExistsError):
        storage.replace_durably(run / "note", b"new")
    assert victim.read_bytes() == b"precious"


def test_what_killed_processes_leave_is_removed(tmp_path: Path) -> None:
    """Guards against leftovers that accumulate, since no two temporary files have the same name."""

    def killed() -> None:
        with storage.replacing(tmp_path / "note") as temporary:
            temporary.write_bytes(b"half")
            os._exit(1)

    for _ in range(2):
        assert in_child(killed) == 1
    assert len(list(tmp_path.iterdir())) == 2
    storage.replace_durably(tmp_path / "note", b"whole")
    assert len(list(tmp_path.iterdir())) == 3, "they may belong to a process that still writes"
    for path in tmp_path.glob(".tmp-*"):
        os.utime(path, (0, 0))
    storage.replace_durably(tmp_path / "note", b"whole")
    assert [path.name for path in tmp_path.iterdir()] == ["note"]
    assert in_child(killed) == 1
    with run_lock.lock(tmp_path):
        assert not list(tmp_path.glob(".tmp-*")), "only the holder of the lock writes there"
