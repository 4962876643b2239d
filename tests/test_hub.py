"""A run on the Hugging Face hub: pushed, pulled bit for bit, and nothing hostile in it runs or lands elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import HANG, ROOT, in_child, tiny_config
from dragoman import checkpoint
from dragoman.__main__ import run as run_command
from dragoman.translation.translator import Translator
from fake_hub import FakeHub, running

NAME = "anna/cats"
TEXT = "the cat sees the dog."


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_config(tmp_path_factory.mktemp("trained"), training__max_steps=10, data__max_length=12)
    assert in_child(lambda: run_command("train", config)) == 0
    return Path(config.run.dir) / config.run.name


@pytest.fixture(scope="module")
def hub() -> Iterator[FakeHub]:
    with running() as started:
        yield started


def dragoman(hub: FakeHub, home: Path, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose hub is the stand-in, with its own caches. huggingface_hub reads its variables at import."""
    own = {
        "HF_ENDPOINT": hub.address, "HF_HOME": str(home / "hf"), "XDG_CACHE_HOME": str(home), "HF_TOKEN": "write",
        "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": "0", "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    command = [sys.executable, "-m", "dragoman", *map(str, words)]
    return subprocess.run(command, env={**os.environ, **own, **variables}, capture_output=True, text=True, timeout=HANG)


@pytest.fixture(scope="module")
def files(hub: FakeHub, run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What `push` puts into a repository."""
    done = dragoman(hub, tmp_path_factory.mktemp("home"), "push", NAME, "--run", run, "--license", "cc0-1.0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith(NAME)
    return hub.repositories[NAME]


@pytest.fixture
def pushed(hub: FakeHub, files: dict[str, bytes]) -> FakeHub:
    """A hub with the run as it was pushed."""
    hub.repositories, hub.sizes = {NAME: dict(files)}, {}
    return hub


def test_push_and_pull(pushed: FakeHub, run: Path, tmp_path: Path) -> None:
    """The weights are the same bytes; what was downloaded once works without a network."""
    files = pushed.repositories[NAME]
    [best] = [path for path in files if path.startswith("dragoman/") and path.endswith("model.safetensors")]
    step = best.split("/")[2]
    translator = Translator(run)
    assert step == translator.path.name
    assert files[best] == (translator.path / "model.safetensors").read_bytes()
    assert not [path for path in files if "training.pt" in path or path.endswith((".tsv", ".py", ".bin.py"))]
    assert {"README.md", "config.json", "ctranslate2/model.bin"} <= {*files}
    card = files["README.md"].decode()
    for part in ("license: cc0-1.0", "pipeline_tag: translation", f"--run hf:{NAME}", "## Limitations", "## Scores"):
        assert part in card
    translated = dragoman(pushed, tmp_path, "translate", "--run", f"hf:{NAME}", TEXT)
    assert (translated.returncode, translated.stdout.strip()) == (0, translator.translate(TEXT)), translated.stderr
    offline = dragoman(pushed, tmp_path, "translate", "--run", f"hf:{NAME}", TEXT, HF_HUB_OFFLINE="1")
    assert (offline.returncode, offline.stdout) == (0, translated.stdout), offline.stderr
    unreachable = dragoman(pushed, tmp_path / "other", "translate", "--run", f"hf:{NAME}", TEXT, HF_HUB_OFFLINE="1")
    assert (unreachable.returncode, unreachable.stderr.count("\n")) == (4, 1)
    assert "was not downloaded before" in unreachable.stderr


@pytest.mark.slow
def test_a_second_push_replaces_the_first(pushed: FakeHub, run: Path, tmp_path: Path) -> None:
    """Files of others stay."""
    files = pushed.repositories[NAME]
    files |= {"dragoman/checkpoints/step-00000001/config.yaml": b"old", "notes.txt": b"mine"}
    done = dragoman(pushed, tmp_path, "push", NAME, "--run", run, "--license", "mit")
    assert done.returncode == 0, done.stderr
    assert not [path for path in files if "step-00000001" in path]
    assert files["notes.txt"] == b"mine"
    assert "license: mit" in files["README.md"].decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "variables", "code", "fragment"),
    [
        ((NAME, "--license", "cc0-1.0"), {"HF_TOKEN": "read"}, 7, "hf auth login"),
        ((NAME, "--license", "cc0-1.0"), {"HF_ENDPOINT": "http://127.0.0.1:9"}, 7, "cannot be reached"),
        ((NAME, "--license", "My Licence"), {}, 2, "is not an id of the hub"),
        (("a b/c", "--license", "mit"), {}, 2, "is not a name"),
        ((NAME,), {}, 2, "--license"),
    ],
)
def test_a_push_that_fails(
    hub: FakeHub, run: Path, tmp_path: Path, words: tuple[str, ...], variables: dict[str, str], code: int, fragment: str
) -> None:
    """One line that says what to do."""
    done = dragoman(hub, tmp_path, "push", *words, "--run", run, **variables)
    assert (done.returncode, fragment in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def hostile(files: dict[str, bytes], how: str) -> None:
    """Change a repository as an attacker would."""
    folder = next(path for path in files if path.endswith("manifest.json")).rpartition("/")[0]
    match how:
        case "other weights":
            files[f"{folder}/model.safetensors"] = files[f"{folder}/model.safetensors"][:-1] + b"\0"
        case "pickle":
            pickle = b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93\x94."
            manifest = checkpoint.unsealed(files[f"{folder}/manifest.json"])
            manifest["files"]["model.safetensors"] = {"size": len(pickle), "sha256": checkpoint.sha256_of(pickle)}
            files[f"{folder}/model.safetensors"] = pickle
            files[f"{folder}/manifest.json"] = checkpoint.sealed(manifest)
        case "config":
            files[f"{folder}/config.yaml"] = b"a: &a [*a]"
        case "no run":
            for path in [*files]:
                if path.startswith("dragoman/"):
                    del files[path]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["other weights", "pickle", "config", "no run", "huge"])
def test_a_hostile_repository_is_refused(pushed: FakeHub, tmp_path: Path, how: str) -> None:
    """In one line, before anything of it is used."""
    hostile(pushed.repositories[NAME], how)
    if how == "huge":
        pushed.sizes = dict.fromkeys(pushed.repositories[NAME], 2**40)
    done = dragoman(pushed, tmp_path, "translate", "--run", f"hf:{NAME}", TEXT)
    assert (done.returncode, done.stdout) == (4, ""), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_names_that_lead_elsewhere_are_not_downloaded(pushed: FakeHub, tmp_path: Path) -> None:
    """Nor is anything that is not part of a checkpoint."""
    names = [
        "dragoman/checkpoints/step-00000001/../../../../evil.json", "/evil.json", "dragoman/evil.py", "evil.bin",
        "dragoman/checkpoints/step-00000001/training.pt", "dragoman/../evil.json",
    ]  # fmt: skip
    evil = dict.fromkeys(names, b"evil")
    pushed.repositories[NAME] |= evil
    assert dragoman(pushed, tmp_path, "translate", "--run", f"hf:{NAME}", TEXT).returncode == 0
    written = [path for path in tmp_path.rglob("*") if path.is_file() and b"evil" in path.read_bytes()[:10]]
    assert written == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hf:cats", "hf:a/b/c", "hf:../x", "hf:a b/c", "hf:nobody/nothing"])
def test_names_that_do_not_exist(hub: FakeHub, tmp_path: Path, name: str) -> None:
    done = dragoman(hub, tmp_path, "translate", "--run", name, TEXT)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1), done.stderr
    assert json.dumps(name)[1:-1] in done.stderr
