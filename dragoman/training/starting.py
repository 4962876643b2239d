"""What a run begins with, or goes on with: its settings, the preset, another run's model, the data."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch

from dragoman import checkpoint, config_file, errors, presets, serialization, settings
from dragoman import device as device_module
from dragoman.console import say
from dragoman.corpora import preparation
from dragoman.corpora.preparation import PreparedData
from dragoman.corpora.readers import for_directions
from dragoman.corpora.sources import find_sources, unit_name
from dragoman.corpora.splitting import given_splits
from dragoman.errors import ConfigError
from dragoman.presets import Amount
from dragoman.settings import Config, DataConfig
from dragoman.translation.translator import Translator

# What training.init_from cannot change: the weights would not fit, or the tokenizers would not know the text.
SAME = ("model.", "data.source_lang", "data.target_lang", "data.directions", "data.lowercase", "data.normalize")
OF_MEMORY = 0.8  # that a training may take; the rest is for what falls to pieces


def resumable(config: Config, saved: checkpoint.Checkpoint) -> None:
    """Compare with the settings that a checkpoint was made with. Raises ConfigError if they may not differ so."""
    old = config_file.loads(saved.files["config.yaml"], saved.path / "config.yaml")
    # First what explains the others.
    for change in sorted(settings.changes(old, config), key=lambda change: change.key != "model.preset"):
        what = f"{change.key} was {change.old} and is {change.new}"
        match change.resume:
            case "refused":
                raise ConfigError(
                    f"{what}, but the run {config.run.name} has begun with the former: "
                    "set it back, or choose another run.name to begin anew."
                )
            case "warned":
                say(f"warning: {what}: the run goes on with the latter")
            case "free":
                pass


def settled(config: Config, saved: checkpoint.Checkpoint) -> Config:
    """A run that has begun keeps what its preset set, and what training.batch_tokens auto was found to be.

    The former depends on data that may have grown since, and with the latter the data go on amid an epoch.
    """
    begun = config_file.loads(saved.files["config.yaml"], saved.path / "config.yaml")
    config = settings.with_saved_preset(config, begun)
    if config.training.batch_tokens != "auto":
        return config
    return replace(config, training=replace(config.training, batch_tokens=begun.training.batch_tokens))


def amount(data: DataConfig, enough: int) -> Amount:
    """About how many pairs there are to train on, and how long they are; beyond `enough`, some number above it.

    They are read as `preparing.prepare` will read them, up to there. Those that are empty count, too, and what is told
    off for validation and test is taken for its share. Raises DataError.
    """
    given = given_splits(find_sources(data), data)
    share = 1.0
    for split, fraction in (("validation", data.validation_fraction), ("test", data.test_fraction)):
        share -= 0 if any(split == other for other, _ in given) else fraction
    # No further than it takes to leave more than enough.
    pairs = (
        each
        for (split, languages), parts in given.items()
        for raw, _ in (parts if split == "train" else ())
        for pair in raw
        for each in for_directions(pair, languages, data)
    )
    read = length = 0
    for _, target in islice(pairs, math.ceil((enough + 1) / max(share, 0.01)) + 1):
        read += 1
        length += len(target.encode(errors="replace"))
    return Amount(round(share * read), length / max(1, read))


def with_preset(config: Config, device: torch.device, rate: float = math.inf) -> Config:
    """The config of a new run, whose model.preset auto becomes the one for its data, its time and this device; says
    what it is. rate: at which the device multiplies matrices, FLOP/s.

    Raises ConfigError if that does not go with what was chosen, and DataError for data that cannot be read.
    """
    name, kept = config.model.preset, [key for key in presets.KEYS if key in config.chosen]
    if name is None:
        return config
    if len(kept) == len(presets.KEYS):
        say(
            f"warning: model.preset is {name}, but of no effect: the file spells out every setting that it would set. "
            f"Take them out, or write --model.preset {name}, which overrules the file."
        )
        return config
    why = ""
    if name == "auto":
        config, why = _automatic(config, device, rate)
    say(f"model.preset {config.model.preset}{why}: {presets.summary(settings.values(config))}")
    if kept:
        say(f"kept as given: {', '.join(kept)}")
    now = settings.values(config)
    set_aside = [f"{key} {old}, now {now[key]}" for key, old in config.overruled if old != now[key]]
    if set_aside:
        say(f"not as in the file, for the preset overrules it: {'; '.join(set_aside)}")
    return config


def _automatic(config: Config, device: torch.device, rate: float) -> tuple[Config, str]:
    """The config with the preset for its data, its time and this device, and why it is that one."""
    data = amount(config.data, presets.ENOUGH)
    things = f"{unit_name(config.data)}s to train on"
    much = f"more than {presets.ENOUGH:,}" if data.pairs > presets.ENOUGH else f"about {data.pairs:,}"
    room = OF_MEMORY * device_module.total_memory(device)
    minutes = config.training.max_minutes
    time = presets.Time(math.inf if minutes is None else 60 * minutes, rate)

    def against(name: str) -> str:
        values = settings.values(settings.with_preset(config, name))
        needed, tokens, weights = presets.memory(values), time.tokens(values), presets.parameters(values)
        if needed > room:
            return f"needs about {needed / 2**30:.1f} GiB of memory, and {device} has {room / 2**30:.1f} to take"
        if tokens < presets.PER_WEIGHT * weights and name not in presets.QUICK:
            return f"learns from about {tokens:,.0f} tokens in {minutes:g} minutes, too few for {weights:,} weights"
        return ""

    wanted, name = presets.choose(data.pairs), presets.choose(data.pairs, lambda name: not against(name))
    why = f": {much} {things} -> {name}" + (f", for {wanted} {against(wanted)}" if name != wanted else "")
    found = settings.with_preset(config, name)
    plan = _plan(found, data, time)
    planned = settings.with_preset(config, name, plan)
    if planned.model.dropout != found.model.dropout:
        why += f"; each is seen but about {plan.passes:.0f} times, so dropout is {planned.model.dropout:g}"
    return planned, why


def _plan(config: Config, data: Amount, time: presets.Time) -> presets.Plan:
    """How much this training will come to, by whichever of its limits is nearest.

    Of more than ENOUGH pairs nobody knows how many there are, but that a limit of time lets none be seen often; and of
    batch_tokens auto how many it will be.
    """
    training, known = config.training, data.pairs <= presets.ENOUGH
    update = math.inf if training.batch_tokens == "auto" else training.batch_tokens * training.accumulate
    tokens = min((training.max_steps or math.inf) * update, time.tokens(settings.values(config)))
    if known:
        tokens = min(tokens, (training.max_epochs or math.inf) * data.tokens)
        return presets.Plan(tokens / data.tokens, math.inf if update == math.inf else tokens / update)
    passes = 0.0 if tokens < math.inf else training.max_epochs or math.inf
    return presets.Plan(passes, math.inf if update == math.inf else tokens / update)


def precision(config: Config, device: torch.device, saved: checkpoint.Checkpoint | None) -> str:
    """The setting; but a run that has begun keeps what auto was found to be, on the same processor: the next
    measurement may be disturbed, and the run would not go on bit for bit."""
    if config.training.precision == "auto" and saved:
        state = serialization.load_json(saved.files["state.json"])
        if state.get("processor") == device_module.processor(device):
            return state.get("precision", "auto")
    return config.training.precision


def other_model(config: Config, saved: checkpoint.Checkpoint | None) -> Translator | None:
    """The model that training.init_from names; of a run that has begun its own, since the other may be gone by then.

    Raises CheckpointError if it cannot be used, and ConfigError if the settings are not for such a model.
    """
    place = config.training.init_from
    if place is None:
        return None
    other = Translator(saved.path if saved else place, config.training.device)
    idle, against = [], []
    for key, old, new, resume in settings.changes(other.config, config):
        if resume == "refused" and key.startswith(SAME) and key != "model.preset":  # by which name does not matter
            against.append((key, old, new))
        idle += [key] if key.startswith("tokenizer.") else []
    if against:
        found = ", ".join(f"{key} is {new}, but {old}" for key, old, new in against)
        remedy = f"set it to {against[0][1]}" if len(against) == 1 else "set them to these"
        raise ConfigError(
            f"{found} in the model that training.init_from names ({place}): {remedy}, or training.init_from to null "
            "for fresh weights."
        )
    if idle:
        say(f"{', '.join(idle)}: of no effect, for the tokenizers are those of {place}")
    return other


def prepare(config: Config, directory: Path, begun: bool, other: Translator | None = None) -> PreparedData:
    """The data of this run, with a report when they are new. A run that has saved nothing yet may change its mind.

    other is the model whose tokenizers it takes, if any.
    """
    fresh = not directory.exists()
    tokenizers = (other.source, other.target) if other else None
    try:
        data = preparation.prepare_data(config, directory, say, tokenizers)
    except errors.DataChangedError as error:
        if begun:
            raise
        say(f"{error} No step has been saved yet, so the data are prepared again.")
        shutil.rmtree(directory)
        fresh = True
        data = preparation.prepare_data(config, directory, say, tokenizers)
    if fresh:
        for line in data.report.lines():
            say(line)
    return data
