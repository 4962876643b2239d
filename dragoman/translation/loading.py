"""Find checkpoints and load them for translation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman import checkpoint, config_file, console, resources, serialization
from dragoman.dataset import BLANK, BYTES, JOINER, Tokenizer
from dragoman.errors import CheckpointError
from dragoman.settings import UNK, Config, ModelConfig
from dragoman.text.conventions import Conventions
from dragoman.text.full_stops import FullStops
from dragoman.text.sentence_splitting import LineStatistics
from dragoman.translation.placeholders import Hider

if TYPE_CHECKING:
    import torch

    from dragoman.architectures.build import Model
    from dragoman.architectures.ensemble import Ensemble

SIDES = ("source", "target")
WEIGHTS = "model.safetensors"
TEXT = ("config.yaml", *(f"{side}.tokenizer.json" for side in SIDES), "trained_on.json")  # what text needs
BUNDLE = (*TEXT, WEIGHTS)
CONVENTIONS = tuple(f"{side}.conventions.json" for side in SIDES)
RESULT = "result.json"  # only a finished run has it
UNFIT = 2.0  # BLEU below which another run is suggested
UNSURE = -0.8  # nats per token, for a model that has not been validated, or does not say
ASCII = "".join(map(chr, range(128)))
SURE = -0.3  # above this no translation is doubtful


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A model, or an ensemble, with all that it needs to translate text.

    The model is loaded when something first asks for it: with CTranslate2, most text never does.
    """

    weights: Callable[[], tuple[Model | Ensemble, torch.dtype]]  # the model, and the dtype of a forward pass
    shapes: Sequence[ModelConfig]  # of the models of the ensemble, or of the one model
    source: Tokenizer
    target: Tokenizer
    config: Config
    trained_on: LineStatistics  # of the source lines
    unsure: float  # mean log-probability of a token, in nats, below which a translation is doubtful
    conventions: tuple[Conventions, Conventions] | None  # of source and target text; None: not known

    @property
    def model(self) -> Model | Ensemble:
        """The model, or the ensemble."""
        return self.weights()[0]

    @property
    def dtype(self) -> torch.dtype:
        """Of a forward pass outside the search, see `autocast`."""
        return self.weights()[1]

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @property
    def writes_at_once(self) -> bool:
        """Whether the model writes all words in one pass, not one after another."""
        return self.config.model.architecture == "encoder-only"

    @cached_property
    def hiders(self) -> tuple[Hider, Hider]:
        """For source and target: they encode text without what the model cannot translate."""
        source, target = self.source, self.target
        if self.config.decoding.unknown != "copy":
            return Hider(source, []), Hider(target, [])
        if self.config.training.placeholders and source.placeholders and target.placeholders:
            return Hider(source, source.placeholders, self.readable), Hider(target, target.placeholders)
        return tuple(Hider(side, [UNK] if side.is_of_words else []) for side in (source, target))  # type: ignore[return-value]

    @property
    def hides_numbers(self) -> bool:
        """Whether numbers can be hidden behind placeholders."""
        return bool(self.target.placeholders) and self.hiders[1].stand_ins == self.target.placeholders

    @cached_property
    def readable(self) -> Conventions | None:
        """The conventions of the source text, as far as the model knows its words."""
        if self.conventions is None or not self.source.is_of_words:
            return self.conventions and self.conventions[0]
        return self.conventions[0].within({token.strip(JOINER) for token in self.source.vocabulary})

    @cached_property
    def characters(self) -> frozenset[str]:
        """The characters of the source vocabulary. Subwords spell all bytes, so every ASCII character is among them."""
        if self.source.is_of_words:
            return frozenset("".join(self.source.vocabulary).replace(JOINER, ""))
        tokens = (part for token in self.source.vocabulary for part in (token, BLANK))
        return frozenset(BYTES.decode([*tokens])) | frozenset(ASCII)


def line_statistics(sides: Sequence[Mapping[str, Any]]) -> LineStatistics:
    """The line statistics in the report on both sides of the training pairs.

    Raises ValueError, LookupError or TypeError if the report does not hold them.
    """
    side, target = sides
    usual, longest, sentences = map(math.ceil, (side["percentile_99"], side["longest"], side.get("usual_sentences", 1)))
    ratio = target["mean"] / max(1.0, side["mean"])
    if min(usual, longest, sentences, ratio) < 0:
        raise ValueError("no line of text has fewer than 0 tokens")
    stops = {language: FullStops.from_json(words) for language, words in dict(side.get("full_stops", {})).items()}
    return LineStatistics(usual, longest, sentences, ratio, stops)


def open_all(paths: Sequence[Path], names: Sequence[str] = BUNDLE) -> tuple[TrainedModel, list[checkpoint.Checkpoint]]:
    """Open a run or a checkpoint, or several as an ensemble. The caller adds the weights.

    Raises CheckpointError if a checkpoint cannot be used, or if they do not fit together.
    """
    checkpoints = [find_checkpoint(path, names) for path in paths]
    first = checkpoints[0]
    tokenizers = [[opened.files[f"{side}.tokenizer.json"] for side in SIDES] for opened in checkpoints]
    for opened, texts in zip(checkpoints, tokenizers, strict=True):
        if texts != tokenizers[0]:
            raise CheckpointError(
                f"{opened.path} and {first.path} do not have the same tokenizers: the models of an ensemble must be "
                "trained on the same prepared data."
            )
    members = [unpack(opened) for opened in checkpoints]
    shapes = [member.config.model for member in members]
    if len({shape.architecture == "encoder-only" and shape.upsampling for shape in shapes}) > 1:
        raise CheckpointError(
            "the models of an ensemble must all write word by word, or all be encoder-only with the same "
            "model.upsampling."
        )
    if len({(member.config.data.lowercase, member.config.data.normalize) for member in members}) > 1:
        raise CheckpointError(
            "the models of an ensemble must read the same text, but data.lowercase or data.normalize differs."
        )
    config = members[0].config
    # Use placeholders only if all members were trained with them.
    placeholders = min(member.config.training.placeholders for member in members)
    config = replace(config, training=replace(config.training, placeholders=placeholders))
    return replace(members[0], shapes=shapes, config=config), checkpoints


def unpack(opened: checkpoint.Checkpoint) -> TrainedModel:
    """Unpack a checkpoint without its weights, which the caller adds. Raises CheckpointError if a part is damaged."""
    try:
        source, target = (Tokenizer.from_json(opened.files[f"{side}.tokenizer.json"].decode()) for side in SIDES)
        config = config_file.loads(opened.files["config.yaml"], opened.path / "config.yaml")
        conventions = _conventions(opened, source, target)
        report = serialization.load_json(opened.files["trained_on.json"])
        trained_on, unsure = line_statistics(report["sides"]), float(report.get("unsure", UNSURE))
    except (CheckpointError, ValueError, LookupError, TypeError, OverflowError) as error:  # ConfigError is a ValueError
        raise CheckpointError(f"{opened.path} cannot be used: {error}") from error
    return TrainedModel(_no_weights, [config.model], source, target, config, trained_on, min(unsure, SURE), conventions)


def _no_weights() -> tuple[Model | Ensemble, torch.dtype]:
    raise AssertionError("only the text of this checkpoint was unpacked")


def _conventions(
    opened: checkpoint.Checkpoint, source: Tokenizer, target: Tokenizer
) -> tuple[Conventions, Conventions] | None:
    """Those saved with a checkpoint; for an older one those of its run's data, if they are still there."""
    texts = [opened.files.get(name) for name in CONVENTIONS]
    if all(texts):
        one, other = (Conventions.from_json((text or b"").decode()) for text in texts)
        return one, other
    data = opened.path.absolute().parent.parent / "data"
    if opened.path.parent.name != "checkpoints" or not data.is_dir():
        return None
    from dragoman.corpora.preparation import conventions_of_data  # slow to import

    try:
        return conventions_of_data(data, source, target)
    except (OSError, EOFError, ValueError, IndexError):  # the data were removed or are being replaced
        return None


def find_checkpoint(path: Path, names: Sequence[str] = BUNDLE) -> checkpoint.Checkpoint:
    """Read these files of the checkpoint at path, or from the best or else newest one of the run there.

    Raises CheckpointError, which lists the runs that do exist.
    """
    if (path / checkpoint.MANIFEST).exists():
        return checkpoint.read(path, names, CONVENTIONS)
    root = path / "checkpoints"
    best = checkpoint.get_best(root)
    while best is not None:
        try:
            return checkpoint.read(checkpoint.step_directory(root, best["step"]), names, CONVENTIONS)
        except CheckpointError as error:
            tried, best = best, checkpoint.get_best(root)
            if best == tried:
                console.warn(str(error))
                break
            # Else a training has saved a better one, and pruned this one while it was being read.
    opened = checkpoint.newest(root, quarantine=False, warn=console.warn, only=names, optional=CONVENTIONS)
    if opened is None:
        raise CheckpointError(f"{path} holds no checkpoint: {suggest_runs(path)}")
    return opened


def usual_run(folder: Path = Path("runs")) -> Path:
    """The run to use if none is named: of those that are finished, or else of all, the one that saved last.

    Looks in `place_of_runs`. Warns if the run is too bad to use, and suggests a better one. Raises CheckpointError if
    there is no run.
    """
    saved = last_saved(place_of_runs(folder))
    if not saved:
        train = resources.command("train")
        raise CheckpointError(
            f"there is no trained model in {folder.absolute()}: run {train}, or name a run with --run."
        )
    run = max(saved, key=lambda run: ((run / RESULT).exists(), saved[run]))
    scores = {each: bleu for each in saved if (bleu := bleu_of(each)) is not None}
    if scores.get(run, UNFIT) < UNFIT:
        better = max(scores, key=lambda each: scores[each])
        other = f"; {better} has {scores[better]:.2f}, choose it with --run {better}" if scores[better] >= UNFIT else ""
        console.warn(f"warning: {run} has a BLEU of {scores[run]:.2f}, so its translations are of no use{other}")
    return run


def place_of_runs(folder: Path = Path("runs")) -> Path:
    """Where every command looks for runs: in `folder`, or if it has none, in that folder next to the program."""
    return next((place for place in (folder, resources.HOME / folder) if last_saved(place)), folder)


def bleu_of(run: Path) -> float | None:
    """BLEU on the test set of a run, or else its best on the validation set. None if unknown."""
    best = checkpoint.get_best(run / "checkpoints") or {}
    try:
        test = serialization.load_json(checkpoint.read_plain(run / RESULT)).get("test") or {}
    except CheckpointError:
        test = {}
    bleu = test.get("bleu", best.get("bleu"))
    return float(bleu) if isinstance(bleu, int | float) else None


def last_saved(folder: Path) -> dict[Path, float]:
    """The runs in a folder that have checkpoints, and when each saved last."""
    times: dict[Path, float] = {}
    for path in folder.glob("*/checkpoints/step-*"):
        if path.is_dir():
            run = path.parents[1]
            times[run] = max(times.get(run, 0.0), path.stat().st_mtime)
    return times


def suggest_runs(path: Path) -> str:
    """What to do about a folder without a checkpoint: the runs that it may have been mistaken for."""
    place = path.parent if path.parent.is_dir() else Path("runs")
    names = sorted(str(other) for other in place.glob("*") if (other / "checkpoints").is_dir() or "step-" in other.name)
    return f"choose one of {', '.join(names)}." if names else f"train one first, with {resources.command('train')}."
