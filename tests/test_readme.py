"""What the README says is run here, and so is every config that ships, each shortened to a few steps."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import ROOT, in_child, tiny_pairs, write_tsv
from dragoman import command_line as command_line_module
from dragoman import config_file, settings, train
from dragoman.__main__ import run as run_command
from test_layout import LAYOUT

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    command.strip()
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    for command in line.partition("  #")[0].split(" && ")
]
SHORT = [
    "--training.max_steps=2", "--training.validate_every=2", "--training.batch_tokens=100", "--training.device=cpu",
    "--model.d_model=16", "--model.d_ff=16", "--model.n_heads=2", "--model.encoder_layers=1",
    "--model.decoder_layers=1", "--tokenizer.min_frequency=1",
]  # fmt: skip


def hub_folder(folder: Path, languages: tuple[str, str], name: str) -> Path:
    """A data set laid out like a repository of the Hugging Face hub: one configuration, one split, Parquet."""
    rows = [dict(zip(languages, pair, strict=True)) for pair in tiny_pairs(60)]
    (folder / name).mkdir(parents=True)
    table = pa.table({"id": [str(i) for i in range(60)], "translation": rows})
    pq.write_table(table, folder / name / "train-00000-of-00001.parquet")
    card = f"---\nconfigs:\n- config_name: {name}\n  data_files:\n  - split: train\n    path: {name}/train-*\n---\n"
    (folder / "README.md").write_text(card, encoding="utf-8")
    return folder


@pytest.mark.parametrize("path", sorted((ROOT / "configs").rglob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_config_trains(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a config that nobody has run since the key it uses was renamed.

    The data are those of the config in kind, not in content: a folder like the hub's, or parallel text.
    """
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    shipped = config_file.load(path)
    languages = shipped.data.source_lang or "", shipped.data.target_lang
    data = []
    if shipped.data.config:
        data = [f"--data.train={hub_folder(tmp_path / 'hub', languages, shipped.data.config)}"]
    else:
        for split in ("train", "validation", "test"):
            for language, side in zip(languages, zip(*tiny_pairs(60), strict=True), strict=True):
                (tmp_path / f"{split}.{language}").write_text("\n".join(side) + "\n", encoding="utf-8")
            if getattr(shipped.data, split):
                data.append(f"--data.{split}={tmp_path / split}")
    short = command_line_module.parse(["--config", str(path), *SHORT, *data, f"--run.dir={tmp_path / 'runs'}"])
    assert in_child(lambda: run_command("train", short)) == 0
    assert (tmp_path / "runs" / shipped.run.name / "result.json").exists()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default run after two steps, with an average of its two checkpoints."""
    folder = tmp_path_factory.mktemp("trained")
    short = [*SHORT, "--training.save_every=1", "--decoding.max_length=5", f"--run.dir={folder}"]
    assert in_child(lambda: run_command("train", command_line_module.override(settings.Config(), short))) == 0
    average = command_line_module.parse_average(["average", "--run", str(folder / "phrasebook")])
    assert in_child(lambda: run_command("average", average)) == 0
    both = ["--run.name=both-ways", "--data.directions=en-it, it-en"]
    assert in_child(lambda: run_command("train", command_line_module.override(settings.Config(), [*short, *both]))) == 0
    return folder / "phrasebook"


@pytest.fixture(scope="module")
def of_pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run after two steps whose tokens are pieces of words."""
    folder = tmp_path_factory.mktemp("of_pieces")
    pieces = ["--tokenizer.kind=bpe", "--tokenizer.vocab_size=2000", "--decoding.max_length=5"]
    short = [*SHORT, *pieces, f"--run.dir={folder}", "--run.name=pieces"]
    assert in_child(lambda: run_command("train", command_line_module.override(settings.Config(), short))) == 0
    return folder / "pieces"


# Peers and other engines, whose imports take half a minute.
SLOW = {
    "torchrun --nproc-per-node 2 train.py --config config.yaml",
    "python benchmarks/ranks.py",
    "python benchmarks/training.py",
    *(f"python export.py --run runs/phrasebook --to {engine}" for engine in ("huggingface", "onnx")),
}


@pytest.mark.parametrize(
    "command", [pytest.param(each, marks=[pytest.mark.slow] * (each in SLOW)) for each in dict.fromkeys(COMMANDS)]
)
def test_command_of_the_readme(command: str, tmp_path: Path, trained: Path, request: pytest.FixtureRequest) -> None:
    """Guards the first thing that a new user types. A command that this test does not know fails it."""
    words = shlex.split(command.partition(" | ")[2] or command)
    scripts = {
        "train.py": SHORT, "make_phrasebook.py": ["--check"], "startup.py": ["--turns=1"],
        "architectures.py": ["--turns=1", "--pairs=9"],
        "decoding.py": ["--pairs=9", "--batches=9", "--shapes=tiny"],
        "training.py": ["--shape=tiny", "--rounds=1", "--seconds=0.1", "--contenders=ours", "--batch_tokens=500"],
        "ranks.py": ["--turns=1", "--steps=1", "--counts=2", *SHORT],
        "scaling.py": ["--sizes=500", "--rounds=1", "--seconds=0.1"],
        "serving.py": ["--texts=4", "--clients=2", "--rounds=1", "--decoding.max_length=5"],
    }  # fmt: skip
    if "serv" in command and words[0] == "python":
        pytest.importorskip("fastapi", reason="serve.py needs libraries of its own: pip install -e '.[serve]'")
    match words:
        case ["python", "-m", "pytest", *_]:
            pass  # that is what runs this very test
        case ["torchrun", *options, "train.py", "--config", "config.yaml"]:
            train_py = [str(ROOT / "train.py"), "--config", str(ROOT / "config.yaml")]
            command_line = [sys.executable, "-m", "torch.distributed.run", *options, *train_py, *SHORT]
            subprocess.run(command_line, cwd=tmp_path, check=True)
        case ["python", "serve.py", *arguments]:
            shutil.copytree(trained, tmp_path / "runs" / "phrasebook")
            arguments = [sys.executable, ROOT / "serve.py", *arguments, "--port=0"]
            with subprocess.Popen(arguments, cwd=tmp_path, stderr=subprocess.PIPE) as process:
                assert process.stderr is not None
                assert b"http://127.0.0.1:" in process.stderr.readline()  # see test_serve.py for what is there
                process.terminate()
        case ["python", script, *arguments]:
            extra = scripts.get(Path(script).name, [])
            (tmp_path / "letter.en").write_text("Good morning!\n", encoding="utf-8")
            write_tsv(tmp_path / "letters.tsv", tiny_pairs(9))
            if script == "export.py" or "--engine" in arguments:
                needed = {"ctranslate2", "transformers", "onnx", "onnxscript", "onnxruntime", "sentencepiece"}
                if missing := [name for name in sorted(needed) if not find_spec(name)]:
                    pytest.skip(f"needs {', '.join(missing)}: pip install -e '.[export]'")
            if script in ("translate.py", "evaluate.py", "export.py", "checkpoint.py") or "benchmarks" in script:
                shutil.copytree(trained, tmp_path / "runs" / "phrasebook")
                shutil.copytree(trained, tmp_path / "runs" / "wide")
                shutil.copytree(trained.with_name("both-ways"), tmp_path / "runs" / "both-ways")
            if "runs/pieces" in command:
                shutil.copytree(request.getfixturevalue("of_pieces"), tmp_path / "runs" / "pieces")
            if "configs/" in command:  # see the test above
                assert (ROOT / arguments[1]).is_file()
                extra = [*SHORT, f"--data.train={write_tsv(tmp_path / 'pairs.tsv', tiny_pairs(60))}", "--print_config"]
            arguments = [str(ROOT / word) if word.endswith(".yaml") else word for word in arguments]
            result = subprocess.run(
                [sys.executable, ROOT / script, *arguments, *extra], cwd=tmp_path, input=b"Good morning!\n",
                capture_output=True,
            )  # fmt: skip
            assert result.returncode == 0, result.stderr.decode()
        case ["pip", "install", "-e", what]:
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            assert what == "." or what.strip(".[]") in extras["optional-dependencies"]
        case ["tensorboard" | "ruff" | "pyright" as tool, *_]:
            assert shutil.which(tool, path=str(Path(sys.executable).parent)), f"{tool} is not installed"
        case ["git", "clone", *_]:
            pass  # needs a network
        case _:
            pytest.fail(f"the README has a command that no test runs: {command}")


def test_the_readme_names_every_exit_code_and_module() -> None:
    """Guards the two tables that scripts and readers rely on; the layout is that of test_layout.py."""
    for code in {*train.EXIT_CODES.values(), 130, 143}:
        assert re.search(rf"^\| (\d+, )?{code}\b", README, re.MULTILINE), code
    rows = re.findall(r"^\| (\d) \| `(\w+)\.py`", README, re.MULTILINE)
    assert {name: int(level) for level, name in rows} == {name: level for name, (level, _) in LAYOUT.items()}
    assert [level for level, _ in rows] == sorted((level for level, _ in rows), reverse=True)


def test_links_lead_somewhere() -> None:
    """Guards the links from one page to another."""
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_promise_names_tests_that_exist() -> None:
    """Guards the table of what happens when something breaks: its numbers are those of tests, in the file it names."""
    numbers = set()
    for listed, file in re.findall(r"\[([\d, –]+)\]\((tests/faults/\w+\.py)\)", README):
        found = set(re.findall(r"def test_(\d\d)_", (ROOT / file).read_text(encoding="utf-8")))
        for part in listed.split(", "):
            first, _, last = part.partition("–")
            wanted = {f"{number:02}" for number in range(int(first), int(last or first) + 1)}
            assert wanted <= found, (listed, file)
            numbers |= wanted
    assert numbers >= {f"{number:02}" for number in range(1, 41)} - {"18", "28"}
