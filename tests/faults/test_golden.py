"""Case 32: checkpoints of earlier versions still load, translate, resume, average and export.

`golden/format-1` is the first format. `golden/format-1-2026-11` was written by the last version with its modules at the
root of the repository; its config names the four settings that have since been retired, all of them in use.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import in_child, tiny_config, tiny_pairs, write_tsv
from dragoman import checkpoint, command_line, config_file
from dragoman.__main__ import run as run_command
from dragoman.architectures.ensemble import Ensemble
from dragoman.corpora import preparation
from dragoman.dataset import encode_pairs
from dragoman.evaluation.validation_loss import mean_loss
from dragoman.settings import RETIRED, SETTINGS, Config
from dragoman.translation.translator import Translator
from faults.harness import after_step, die, run

GOLDEN = Path(__file__).parent / "golden"
OLD = GOLDEN / "format-1-2026-11"
VERSIONS = sorted(path.name for path in GOLDEN.glob("format-*"))


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run of November 2026, with its corpus, in the working folder."""
    monkeypatch.chdir(tmp_path)
    write_tsv(Path("corpus/pairs.tsv"), tiny_pairs(300))
    return Path(shutil.copytree(OLD, "runs/golden"))


def config_of(folder: Path) -> Config:
    """The settings with which a golden run was trained, as its newest checkpoint has saved them."""
    return config_file.load(checkpoint.steps(folder / "checkpoints")[0] / "config.yaml")


def make_golden() -> None:
    """Write tests/faults/golden/format-N with the present program. When the format changes, keep the old ones.

    cd tests && python -c "from faults.test_golden import make_golden; make_golden()"
    """
    place = GOLDEN / f"format-{checkpoint.FORMAT_VERSION}"
    os.makedirs(place)
    os.chdir(place)
    config = tiny_config(
        Path(), model__d_model=8, model__d_ff=8, model__n_heads=1, data__test_fraction=0, run__name="golden",
        training__max_epochs=None, training__max_steps=6, training__save_every=6, training__validate_every=100,
    )  # fmt: skip
    assert run(config, after_step(7, die)) == 0
    expected = {"validation_loss": validation_loss(Path("runs/golden")), "translations": []}
    shutil.move("runs/golden/data", "data")
    shutil.move("runs/golden/checkpoints", "checkpoints")
    shutil.rmtree("runs")
    shutil.rmtree("corpus")
    Path("expected.json").write_text(json.dumps(expected, indent=2) + "\n")


def validation_loss(folder: Path) -> float:
    """The validation loss of the newest checkpoint of a run."""
    model = Translator(folder, "cpu").model
    assert not isinstance(model, Ensemble)
    data = preparation.load(folder / "data")
    return mean_loss(model, encode_pairs(data.validation, data.source, data.target), 1000)


def test_32_there_is_a_golden_checkpoint_of_the_current_format() -> None:
    """Guards against a new format without a sample."""
    assert f"format-{checkpoint.FORMAT_VERSION}" in VERSIONS


def test_32_old_config_names_every_retired_setting() -> None:
    """Guards against a sample that proves nothing."""
    text = next(OLD.glob("checkpoints/*/config.yaml")).read_text(encoding="utf-8")
    names = {key.partition(".")[2] for key in RETIRED if key != "decoding.shortlist"}  # which is of a later version
    assert {line.split(":")[0].strip() for line in text.splitlines()} >= names
    assert not RETIRED & set(SETTINGS)


@pytest.mark.parametrize("version", VERSIONS)
def test_32_old_checkpoint_translates_as_recorded(version: str) -> None:
    """Guards the runs of users: renamed weights, settings or files would make them untranslatable, or worse."""
    expected = json.loads((GOLDEN / version / "expected.json").read_text(encoding="utf-8"))
    assert validation_loss(GOLDEN / version) == pytest.approx(expected["validation_loss"], rel=1e-3)
    texts, translations = zip(*expected["translations"], strict=True) if expected["translations"] else ((), ())
    # Recorded only where random changes of the weights by 0.3 % make no difference.
    assert tuple(Translator(GOLDEN / version, "cpu").translate(list(texts))) == translations


@pytest.mark.faults
@pytest.mark.parametrize("version", VERSIONS)
def test_32_old_checkpoint_resumes(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    """Guards against a new version that cannot continue a run, or starts it again from zero."""
    monkeypatch.chdir(tmp_path)
    write_tsv(Path("corpus/pairs.tsv"), tiny_pairs(300))
    folder = Path(shutil.copytree(GOLDEN / version, "runs/golden"))
    config = config_of(folder)
    before = checkpoint.step_of(checkpoint.steps(folder / "checkpoints")[0])
    assert run(replace(config, training=replace(config.training, max_steps=before + 3))) == 0
    assert f"resumed from step {before}" in capfd.readouterr().out
    assert checkpoint.step_of(checkpoint.steps(folder / "checkpoints")[0]) == before + 3


def test_32_old_and_new_checkpoint_are_averaged(run_folder: Path, capfd: pytest.CaptureFixture) -> None:
    """Guards against an average that finds a difference in settings which only an old config names."""
    config = config_of(run_folder)
    training = replace(config.training, max_steps=config.training.max_steps + 2)  # type: ignore[operator]
    assert run(replace(config, training=training)) == 0
    assert in_child(lambda: run_command("average", command_line.parse_average(["--run", str(run_folder)]))) == 0
    assert "averages the checkpoints of steps 1605, 1607" in capfd.readouterr().out
    assert len(Translator(run_folder / "averaged", "cpu").translate(["the cat."])) == 1


def test_32_old_config_is_written_back_without_the_retired_settings(tmp_path: Path) -> None:
    """Guards against a config that a resumed run or an export saves differently from what it has read."""
    config = config_of(OLD)
    text = config_file.dump(config)
    assert not [key for key in RETIRED if f"{key.partition('.')[2]}:" in text]
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    assert config_file.load(tmp_path / "config.yaml") == config
    assert (config.model.d_model, config.tokenizer.kind, config.training.max_steps) == (12, "bpe", 1605)


@pytest.mark.faults
def test_32_old_checkpoint_exports(run_folder: Path, capfd: pytest.CaptureFixture) -> None:
    """Guards against an export that knows only configs and weights of the present version."""
    pytest.importorskip("ctranslate2")
    options = command_line.parse_export(["--run", str(run_folder), "--to", "ctranslate2"])
    assert in_child(lambda: run_command("export", options)) == 0, capfd.readouterr().err
    assert (options.output / command_line.EXPORT_MARK).is_file()
