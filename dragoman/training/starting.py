"""Start or resume a run: its settings, its preset, another run's model, the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import islice
from pathlib import Path

import torch

from dragoman import config_file, presets, resources, settings
from dragoman.checkpoint import Checkpoint
from dragoman.console import say
from dragoman.corpora import preparation
from dragoman.corpora.origin import check_unchanged
from dragoman.corpora.readers import for_directions
from dragoman.corpora.sources import Source, find_sources, unit_name
from dragoman.corpora.splitting import given_splits
from dragoman.device import choose_precision, matmul_rates, processor, total_memory
from dragoman.errors import ConfigError
from dragoman.presets import CorpusSize
from dragoman.serialization import load_json
from dragoman.setting_types import shown
from dragoman.settings import Config, DataConfig
from dragoman.training.outlook import Speed
from dragoman.translation.translator import Translator

# Settings that must agree with training.init_from: else the weights would not fit or the tokenizers not know the text.
SAME = ("model.", "data.source_lang", "data.target_lang", "data.directions", "data.lowercase", "data.normalize")
USABLE_MEMORY = 0.8  # share of the memory that a training may use; the rest is lost to fragmentation


def check_resume(config: Config, saved: Checkpoint) -> None:
    """Compare the settings with those of a checkpoint. Raises ConfigError for a change that a resume cannot take."""
    old = _saved_config(saved)
    # The preset first, since it explains the others.
    for change in sorted(settings.changes(old, config), key=lambda change: change.key != "model.preset"):
        what = f"{change.key} was {shown(change.old)} and is {shown(change.new)}"
        match change.resume:
            case "refused":
                raise ConfigError(
                    f"{what}, but the run {config.run.name} was started with the former: set it back, or choose "
                    "another run.name to start anew."
                )
            case "warned":
                say(f"warning: {what}: the run continues with the new value")
            case "free":
                pass


def with_saved_settings(config: Config, saved: Checkpoint) -> Config:
    """Keep what was decided when the run started: languages, tokenization, preset, planned steps.

    The data may have grown or changed since, and so may the machine. The position in an epoch depends on the number of
    tokens, and the learning rate on the number of steps.
    """
    started = _saved_config(saved)
    then = settings.values(started)
    config = settings.with_values(config, {key: then[key] for key in config.left_open if key.startswith("data.")})
    config = settings.with_saved_preset(config, started)
    if config.training.plan_minutes and not decides_steps_again(config, saved) and config.training.max_steps is None:
        config = settings.with_values(config, {"training.max_steps": started.training.max_steps})
    if config.data.bleu_tokenize == "auto":
        config = settings.with_values(config, {"data.bleu_tokenize": started.data.bleu_tokenize})
    return config


def decides_steps_again(config: Config, saved: Checkpoint | None) -> bool:
    """Whether training.plan_minutes decides how many steps the run makes: in a new run, and where it has changed."""
    return saved is None or config.training.plan_minutes not in (None, _saved_config(saved).training.plan_minutes)


def _saved_config(saved: Checkpoint) -> Config:
    return config_file.loads(saved.files["config.yaml"], saved.path / "config.yaml")


def corpus_size(data: DataConfig, enough: int, sources: Sequence[Source] | None = None) -> CorpusSize:
    """About how many training pairs there are and how long they are. Counting stops soon after `enough`.

    The pairs are read as `preparation.prepare_data` will read them, empty ones included, and the shares for validation
    and test are subtracted. Raises DataError.
    """
    splits = given_splits(find_sources(data) if sources is None else sources, data)
    share = 1.0
    for split, fraction in (("validation", data.validation_fraction), ("test", data.test_fraction)):
        share -= 0 if any(split == other for other, _ in splits) else fraction
    pairs = (
        directed
        for (split, languages), parts in splits.items()
        for raw, _ in (parts if split == "train" else ())
        for pair in raw
        for directed in for_directions(pair, languages, data)
    )
    read = length = 0
    # Read no further than it takes for the share to exceed `enough`.
    for _, target in islice(pairs, math.ceil((enough + 1) / max(share, 0.01)) + 1):
        read += 1
        length += len(target.encode(errors="replace"))
    return CorpusSize(round(share * read), length / max(1, read))


def with_preset(
    config: Config,
    device: torch.device,
    speed: Speed = lambda config, length: math.inf,
    sources: Sequence[Source] | None = None,
    prepared: str | None = None,
) -> Config:
    """Replace model.preset auto of a new run by the preset for its data, its time and this device, and print it.

    If the data are `prepared` for a preset, it is that one. Raises ConfigError if the preset contradicts a setting that
    the user chose, and DataError for data that cannot be read.
    """
    name, kept = config.model.preset, [key for key in presets.KEYS if key in config.chosen]
    if name is None:
        if config.data.train != settings.DEFAULTS["data.train"] and not _is_adapted(config):
            say(
                "warning: these are the settings for the bundled phrasebook, which seldom suit other data: "
                "--model.preset auto chooses them by the number of pairs and the speed of this machine"
            )
        return config
    if len(kept) == len(presets.KEYS):
        say(
            f"warning: model.preset is {name}, but it has no effect: the file sets every setting that the preset would "
            f"set. Remove them from the file, or use --model.preset {name}, which overrules it."
        )
        return config
    reason = ""
    if name == "auto":
        config, _, reason = automatic_preset(config, device, speed, sources, prepared)
    say(f"model.preset {config.model.preset}{reason}: {presets.settings_line(settings.values(config))}")
    if kept:
        say(f"kept as given: {', '.join(kept)}")
    now = settings.values(config)
    overruled = [f"{key} {shown(old)}, now {shown(now[key])}" for key, old in config.overruled if old != now[key]]
    if overruled:
        say(f"not as in the file, since the preset overrules it: {'; '.join(overruled)}")
    return config


def _is_adapted(config: Config) -> bool:
    """Whether a setting that presets set differs from the default run, besides the limits of a training."""
    return any(key in presets.KEYS and key not in presets.LIMITS for key, *_ in settings.changes(Config(), config))


def automatic_preset(
    config: Config,
    device: torch.device,
    speed: Speed,
    sources: Sequence[Source] | None = None,
    prepared: str | None = None,
) -> tuple[Config, str, str]:
    """The config with the preset for its data, its time and this device; the name of the preset; and the reason."""
    data = corpus_size(config.data, presets.ENOUGH, sources)
    unit = f"{unit_name(config.data)}s to train on"
    count = f"more than {presets.ENOUGH:,}" if data.pairs > presets.ENOUGH else f"about {data.pairs:,}"
    room = USABLE_MEMORY * total_memory(device)
    minutes = config.training.max_minutes

    @cache
    def speed_of(name: str) -> float:
        return speed(settings.with_preset(config, name), data.bytes / presets.BYTES_PER_TOKEN)

    def tokens_in_time(name: str) -> float:
        """Target tokens that the preset learns from in the time there is."""
        return math.inf if minutes is None else 60 * minutes * speed_of(name)

    def objection(name: str) -> str:
        values = settings.values(settings.with_preset(config, name))
        needed, weights = presets.memory(values), presets.parameters(values)
        if needed > room:
            return f"needs about {needed / 2**30:.1f} GiB of memory, but {device} has {room / 2**30:.1f} GiB"
        if name not in presets.QUICK and (tokens := tokens_in_time(name)) < presets.PER_WEIGHT * weights:
            return f"learns from about {tokens:,.0f} tokens in {minutes:g} minutes, too few for {weights:,} weights"
        return ""

    ideal, name = presets.choose(data.pairs), prepared or presets.choose(data.pairs, lambda name: not objection(name))
    why = "for which the data are prepared" if prepared else f"for {ideal} {objection(ideal)}"
    reason = f": {count} {unit} -> {name}" + (f", {why}" if name != ideal else "")
    by_table = settings.with_preset(config, name)
    extent = _extent(by_table, data, tokens_in_time(name))
    planned = settings.with_preset(config, name, extent)
    if planned.model.dropout != by_table.model.dropout:
        reason += f"; each is seen only about {extent.passes:.0f} times, so dropout is {planned.model.dropout:g}"
    return planned, name, reason


def _extent(config: Config, data: CorpusSize, tokens: float) -> presets.Extent:
    """The passes and updates of this training, by the nearest of its limits.

    Beyond ENOUGH pairs their number is unknown, except that with a time limit none is seen often.

    Args:
        tokens: target tokens that it can learn from in its time
    """
    training, known = config.training, data.pairs <= presets.ENOUGH
    update = training.batch_tokens * training.accumulate
    tokens = min((training.max_steps or math.inf) * update, tokens)
    if known:
        tokens = min(tokens, (training.max_epochs or math.inf) * data.tokens)
        return presets.Extent(tokens / data.tokens, tokens / update)
    passes = 0.0 if tokens < math.inf else training.max_epochs or math.inf
    return presets.Extent(passes, tokens / update)


def precision(config: Config, device: torch.device, saved: Checkpoint | None) -> str:
    """The number format of matrix products, see `choose_precision`. A resumed run keeps what auto chose before.

    A new measurement might differ, and then the run would not continue bit for bit. On another processor it does not
    anyway, so there it is measured again.
    """
    name = config.training.precision
    if name == "auto" and saved:
        state = load_json(saved.files["state.json"])
        if state.get("processor") == processor(device):
            name = state.get("precision", "auto")
    rates = matmul_rates(device) if name == "auto" and device.type == "cpu" else None
    return str(choose_precision(name, device, rates)).removeprefix("torch.")


def other_model(config: Config, saved: Checkpoint | None) -> Translator | None:
    """The model that training.init_from names. A resumed run loads its own: the other may be gone by now.

    Raises CheckpointError if it cannot be used, and ConfigError if the settings do not fit it.
    """
    place = config.training.init_from
    if place is None:
        return None
    other = Translator(saved.path if saved else place, config.training.device)
    same = SAME
    if other.config.model.tie == "all" or other.config.is_language_model:  # these need one vocabulary
        same += ("tokenizer.shared",)
    unused, different = [], []
    for key, old, new, resume in settings.changes(other.config, config):
        if resume == "refused" and key.startswith(same) and key != "model.preset":  # the preset's name does not matter
            different.append((key, old, new))
        unused += [key] if key.startswith("tokenizer.") else []
    if different:
        listed = ", ".join(f"{key} is {shown(new)}, but {shown(old)}" for key, old, new in different)
        remedy = f"set it to {shown(different[0][1])}" if len(different) == 1 else "set them as in that model"
        raise ConfigError(
            f"{listed} in the model that training.init_from names ({place}): {remedy}, or training.init_from to null "
            "for new weights."
        )
    if unused:
        verb = "has" if len(unused) == 1 else "have"
        say(f"warning: {', '.join(unused)} {verb} no effect: the tokenizers are those of {place}")
    return other


def say_finished(config: Config, reason: str, step: int) -> None:
    """Say that the run has ended already, and what can be done with it."""
    say(
        f"the run {config.run.name} is finished at step {step}: {reason}. To continue it, raise the limit; to start "
        f"anew, choose another run.name; to use it, run: {resources.command('translate')} --run "
        f'{Path(config.run.dir) / config.run.name} "your sentence"'
    )


def refuse_other_data(config: Config, directory: Path) -> None:
    """Raise DataChangedError if a finished run is given other data than it has learnt from."""
    if not directory.exists():
        return
    then = preparation.load(directory)
    tokenizers = (then.source, then.target) if config.training.init_from else None
    check_unchanged(then.origin, config, say, tokenizers)
