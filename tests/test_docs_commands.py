"""Every command in the README and on the pages of docs is run here, and so is every shipped config, in short versions.

A command in a block marked `sh` is run. A command in a block marked `console` stands there with the output of a long
training: its arguments are parsed, so that an option that was renamed fails the test.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import docx
import openpyxl
import pptx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from torch.distributed.run import get_args_parser as torchrun_parser

from conftest import ROOT, in_child, run_python, tiny_pairs, write_tsv
from dragoman import command_line, config_file, settings
from dragoman.__main__ import parse
from dragoman.__main__ import run as run_command

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(kind: str) -> list[str]:
    """The text of all blocks of code of a kind."""
    pattern = re.compile(rf"^```{kind}\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return [block for page in PAGES for block in pattern.findall(page.read_text(encoding="utf-8"))]


def shown_commands(block: str) -> list[str]:
    """The commands of a console block, each in one line; an open quote or a backslash continues a line."""
    commands, lines = [], iter(block.splitlines())
    for line in lines:
        if not line.startswith("$ "):
            continue
        command = line.removeprefix("$ ")
        while command.endswith("\\") or command.count('"') % 2:
            command = command.removesuffix("\\") + " " + next(lines).strip()
        commands.append(command)
    return commands


RUN = [command.strip() for block in blocks("sh") for line in block.splitlines() for command in line.split(" && ")]
SHOWN = [command for block in blocks("console") for command in shown_commands(block)]
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
    """Guards against a config that uses a renamed key.

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
    short = command_line.parse_settings(["--config", str(path), *SHORT, *data, f"--run.dir={tmp_path / 'runs'}"])
    # The tiny pairs are English and Italian.
    short = command_line.override(short, ["--data.check_languages", "false"])
    assert in_child(lambda: run_command("train", short)) == 0
    assert (tmp_path / "runs" / shipped.run.name / "result.json").exists()


@pytest.fixture(scope="module")
def phrasebook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first lines of the phrasebook: a path in the folder of a user comes before one in that of the program."""
    folder = tmp_path_factory.mktemp("data") / "phrasebook"
    folder.mkdir()
    for split, count in {"train": 2000, "validation": 50, "test": 50}.items():
        lines = (ROOT / "data" / "phrasebook" / f"{split}.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / f"{split}.tsv").write_text("".join(lines[: 1 + count]), encoding="utf-8", newline="\n")
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, phrasebook: Path) -> Path:
    """The default run after two steps, with an average of its two checkpoints."""
    folder = tmp_path_factory.mktemp("trained")
    short = [
        *SHORT,
        "--training.save_every=1",
        "--decoding.max_length=5",
        f"--data.train={phrasebook}",
        f"--run.dir={folder}",
    ]
    assert in_child(lambda: run_command("train", command_line.override(settings.Config(), short))) == 0
    average = command_line.parse_average(["--run", str(folder / "phrasebook")])
    assert in_child(lambda: run_command("average", average)) == 0
    both = ["--run.name=both-ways", "--data.directions=en-it, it-en"]
    assert in_child(lambda: run_command("train", command_line.override(settings.Config(), [*short, *both]))) == 0
    return folder / "phrasebook"


@pytest.fixture(scope="module")
def of_pieces(tmp_path_factory: pytest.TempPathFactory, phrasebook: Path) -> Path:
    """A run after two steps whose tokens are pieces of words."""
    folder = tmp_path_factory.mktemp("of_pieces")
    pieces = ["--tokenizer.kind=bpe", "--tokenizer.vocab_size=2000", "--decoding.max_length=5"]
    short = [*SHORT, *pieces, f"--data.train={phrasebook}", f"--run.dir={folder}", "--run.name=pieces"]
    assert in_child(lambda: run_command("train", command_line.override(settings.Config(), short))) == 0
    return folder / "pieces"


# Peers and other engines, whose imports take half a minute; and what does nearly the same as another test.
SLOW = {
    "python train.py",
    "python train.py --model.d_model 512 --run.name wide",
    "python data/phrasebook/make_phrasebook.py",
    "python benchmarks/startup.py --run runs/phrasebook",
    "python benchmarks/corpus_size.py",
    "python train.py --config config.yaml --training.ranks 2",
    "python benchmarks/training.py",
    *(f"dragoman export --run runs/phrasebook --to {engine}" for engine in ("huggingface", "onnx")),
}
# What makes a program quick.
QUICK = {
    "train": SHORT,
    "make_phrasebook.py": ["--check"],
    "startup.py": ["--turns=1"],
    "files.py": ["--turns=1", "--precisions=int8"],
    "decoding.py": ["--pairs=9", "--batches=9", "--shapes=tiny"],
    "training.py": ["--shape=tiny", "--rounds=1", "--seconds=0.1", "--contenders=ours", "--batch_tokens=500"],
    "corpus_size.py": ["--sizes=3000", "--updates=1"],
    "serving.py": ["--texts=4", "--clients=2", "--rounds=1", "--decoding.max_length=5"],
}
ENGINES = ("ctranslate2", "transformers", "onnx", "onnxscript", "onnxruntime", "sentencepiece")


def test_ci_runs_the_command_of_the_readme() -> None:
    """Guards the two commands at the top of the README: CI tests with the second one, letter by letter."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    trains, tests = re.findall(r"^```sh\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)[0].splitlines()
    assert trains.endswith("python train.py --config config.yaml")
    assert f"\n{tests} || exit" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "command", [pytest.param(each, marks=[pytest.mark.slow] * (each in SLOW)) for each in dict.fromkeys(RUN)]
)
def test_command_runs(command: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Guards the first thing that a new user types. A command that this test does not know fails it."""
    words = shlex.split(re.sub(r"^(?:echo|printf) .* \| ", "", command))
    match words:
        case ["python", "train.py" | "translate.py" as script, *arguments]:
            run_program(script.removesuffix(".py"), [str(ROOT / script)], arguments, tmp_path, request)
        case ["dragoman", name, *arguments] if name == "push" or " hf:" in command or command.count("--run") > 1:
            parse(name, arguments, name)  # test_hub.py and test_libretranslate.py have a hub and two models
        case ["dragoman", name, *arguments]:
            run_program(name, ["-m", "dragoman", name], arguments, tmp_path, request)
        case ["python", script, *arguments] if script.endswith(".py"):
            run_program(Path(script).name, [str(ROOT / script)], arguments, tmp_path, request)
        case ["pip", "install", "--require-hashes", "-r", name]:
            assert (ROOT / name).is_file() or name == "without-torch.txt"  # that of the next case
        case ["awk", *_, "requirements.txt", ">", name]:
            shutil.copy(ROOT / "requirements.txt", tmp_path)
            subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
            left = re.findall(r"^([\w.-]+)==", (tmp_path / name).read_text(encoding="utf-8"), re.MULTILINE)
            assert "numpy" in left
            assert not [each for each in left if each == "torch" or each.startswith("nvidia")]
        case ["uv", "pip", "compile", *_] | ["pip-audit", *_] | ["pip", "install", "uv", "pip-audit"]:
            pass  # needs a network
        case ["pip", "install", *_, "-e", what]:
            project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            assert what == "." or what.strip(".[]") in project["optional-dependencies"]
        case ["tensorboard" | "ruff" | "pyright" | "mkdocs" as tool, *_]:
            assert shutil.which(tool, path=str(Path(sys.executable).parent)), f"{tool} is not installed"
        case ["bash", script] | ["python", "docs/generate.py" as script]:
            assert (ROOT / script).is_file()
        case ["python", "-m", "pytest", *_] | ["python", "-m", "venv", _] | ["source" | "export", *_]:
            pass  # that is what runs this very test
        case ["git", "clone", *_]:
            pass  # needs a network
        case _:
            pytest.fail(f"no test runs this command of the documentation: {command}")


def run_program(
    name: str, program: list[str], arguments: list[str], folder: Path, request: pytest.FixtureRequest
) -> None:
    """Run a program in a folder that has the files and runs its arguments name, and expect success."""
    if name in ("serve", "serving.py"):
        pytest.importorskip("fastapi", reason="the server has libraries of its own: pip install -e '.[serve]'")
    missing = [library for library in ENGINES if not find_spec(library)]
    if missing and (name == "export" or "--engine" in arguments):
        pytest.skip(f"needs {', '.join(missing)}: pip install -e '.[export]'")
    (folder / "letters").mkdir()
    for text in ("letter.en", "report.txt", "letters/first.md", "keys.txt"):
        (folder / text).write_text("Good morning!\n", encoding="utf-8")
    (folder / "film.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nGood morning!\n", encoding="utf-8")
    docx.Document().save(str(folder / "report.docx"))
    pptx.Presentation().save(str(folder / "slides.pptx"))
    openpyxl.Workbook().save(folder / "prices.xlsx")
    write_tsv(folder / "letters.tsv", tiny_pairs(9))
    shutil.copytree(request.getfixturevalue("phrasebook"), folder / "data" / "phrasebook")
    if name not in ("train", "prepare", "check", "summary", "make_phrasebook.py"):
        trained: Path = request.getfixturevalue("trained")
        for run in ("phrasebook", "wide"):
            shutil.copytree(trained, folder / "runs" / run)
        shutil.copytree(trained.with_name("both-ways"), folder / "runs" / "both-ways")
    if "runs/pieces" in arguments:
        shutil.copytree(request.getfixturevalue("of_pieces"), folder / "runs" / "pieces")
    extra = QUICK.get(name, [])
    if name == "train" and any("configs/" in word for word in arguments):  # see test_shipped_config_trains
        extra = [*SHORT, f"--data.train={write_tsv(folder / 'pairs.tsv', tiny_pairs(60))}", "--print_config"]
    arguments = [str(ROOT / word) if word.endswith(".yaml") else word for word in arguments]
    call = [*program, *arguments, *extra]
    if name == "serve":
        call, environment = [sys.executable, *call], {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen([*call, "--port=0"], cwd=folder, env=environment, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            assert b"http://127.0.0.1:" in process.stderr.readline()  # the tests of the server ask it for more
            process.terminate()
    else:
        result = run_python(call, folder, b"Good morning!\n", PYTHONPATH=str(ROOT))
        assert result.returncode == 0, result.stderr.decode()


@pytest.mark.parametrize("command", dict.fromkeys(SHOWN))
def test_shown_command_has_valid_arguments(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards commands that take too long for a test against options and settings that were renamed."""
    monkeypatch.chdir(ROOT)
    words = shlex.split(re.sub(r"^(?:echo|printf) .* \| ", "", command))
    match words:
        case ["python", "train.py" | "translate.py" as script, *arguments]:
            parse(script.removesuffix(".py"), arguments, script)
        case ["dragoman", name, *arguments]:
            parse(name, arguments, name)
        case ["torchrun", *options] if "dragoman" in options:
            name, *arguments = options[options.index("dragoman") + 1 :]
            parse(name, arguments, name)
        case ["python", script, *arguments]:
            source = (ROOT / script).read_text(encoding="utf-8")
            for option in re.findall(r"--[\w.]+", " ".join(arguments)):
                assert option.removeprefix("--") in settings.SETTINGS or f'"{option}"' in source, option
        case ["torchrun", *_, "translate.py", "--run", run, "--input", name, "--output", output]:
            parse("translate", ["--run", run, "--input", name, "--output", output], "translate.py")
        case ["torchrun" | "curl" | "export" | "cat", *_]:
            pass  # programs of others; the next test looks at the first
        case _:
            pytest.fail(f"no test knows this command of the documentation: {command}")


def test_every_cluster_starts_the_same_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the files on the page about clusters: their syntax, torchrun's options, and the same ones in each file."""
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    files = re.findall(r"^```(yaml|json)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert [bool({"yaml": yaml.safe_load, "json": json.loads}[kind](text)) for kind, text in files] == [True] * 3
    commands = re.findall(
        r"torchrun (--nnodes .*?config\.yaml(?: --run\.dir [\w/]+)?)", page.replace("\\\n", " "), re.DOTALL
    )
    assert len(commands) == 5
    seen = set()
    for command in commands:
        words = shlex.split(re.sub(r"\$\(\(\w+ == 0\)\)", "1", command).replace("/shared/config.yaml", "config.yaml"))
        options = torchrun_parser().parse_args(words)
        assert options.rdzv_endpoint.endswith(":29500")
        seen.add((options.nproc_per_node, options.max_restarts, options.rdzv_backend, options.rdzv_conf))
        assert options.module
        name, *arguments = options.training_script_args
        assert (options.training_script, name) == ("dragoman", "train")
        parse("train", arguments, "train")
    assert seen == {("gpu", 3, "c10d", "is_host=1,read_timeout=600")}


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "transformer.md"], ids=lambda page: page.name)
def test_named_settings_exist(page: Path) -> None:
    """Guards against a page that tells users to set something that was renamed or taken out.

    `model.Attention` and the like in transformer.md are names of the code; test_docs.py looks them up.
    """
    sections = "|".join(settings.SECTIONS)
    for code in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")):
        for key in re.findall(rf"(?<![\w./])(?:{sections})\.[a-z][a-z_]*\b(?![./(])", code):
            assert key in settings.SETTINGS or key.endswith((".py", ".yaml", ".json", ".pt")), key
