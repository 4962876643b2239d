"""All settings of a run: name, type, default and limits. config.yaml says what each means.

    config = parse_train(["--model.preset", "small"])            # `command_line`: what a user typed
    config = load(run / "config.yaml")                           # `config_file`: what a run saved with dump()
    config = override(config, ["--decoding.beam_size", "5"])     # `command_line`
    config.model.d_model                                         # frozen, typed, checked

A value comes from the command line, else from the config file, else from the defaults below. A preset ranks just below
the place that names it: `--model.preset` overrules the file, while a preset named in the file yields to what the file
spells out. Each mistake is one line that names the setting, its value, the rule and, where it helps, the remedy.

Only what can be judged without data or a device is checked here. Nothing here imports torch, so that `--help` and a
typing mistake are answered at once.
"""

import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from dragoman import presets
from dragoman.directions import Direction, parse_directions
from dragoman.errors import ConfigError
from dragoman.setting_types import Resume, check_value, free, refused, shown, warned

# The first ids of every vocabulary. The tokenizer assigns them, the model and the loss treat them specially, and none
# of these modules imports another, so the ids live here.
PAD, UNK, SOS, EOS = 0, 1, 2, 3
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[SOS]", "[EOS]")
# Stand for what a translation copies. No text is ever split into tokens like these, see `dataset.Tokenizer`.
PLACEHOLDERS = tuple(f"⟦{number}⟧" for number in range(1, 9))


@dataclass(frozen=True)
class Section:
    """A group of settings. Every value is checked whenever a section is made, from a file or in code."""

    def __post_init__(self) -> None:
        section = type(self).__name__.removesuffix("Config").lower()
        for declared in fields(self):
            check_value(f"{section}.{declared.name}", declared, getattr(self, declared.name))
        for name, must in self.mistakes():
            raise ConfigError(f"{section}.{name} is {shown(getattr(self, name))}, but it must {must}.")

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """The settings that do not suit the others of this section, and what each must be or do."""
        return iter(())


@dataclass(frozen=True)
class RunConfig(Section):
    """Where results go, and the seed."""

    name: str = free("phrasebook")
    dir: str = free("runs")
    seed: int = refused(1, at_least=0, at_most=2**32 - 1)

    def mistakes(self) -> Iterator[tuple[str, str]]:
        plain = self.name.isprintable() and self.name == self.name.strip() and not set(self.name) & set("/\\")
        if not plain or self.name in (".", ".."):
            yield "name", "be a plain folder name: put the path in run.dir"


@dataclass(frozen=True)
class DataConfig(Section):
    """The sentence pairs."""

    source_lang: str | None = refused("en")
    target_lang: str = refused("it")
    directions: str | None = refused(None)
    temperature: float = refused(1.0, at_least=1)
    # Free, because a corpus may move. `corpora.origin` compares its content.
    train: str = free("data/phrasebook")
    validation: str | None = free(None)
    test: str | None = free(None)
    columns: str | None = refused(None)
    config: str | None = refused(None)
    revision: str | None = refused(None)
    validation_fraction: float = refused(0.02, above=0, at_most=0.5)
    test_fraction: float = refused(0.02, at_least=0, at_most=0.5)
    on_bad_line: Literal["error", "skip"] = refused("error")
    check_languages: bool = free(True)
    lowercase: bool = refused(False)
    normalize: Literal["nfc", "nfkc"] = refused("nfc")
    max_length: int = refused(128, at_least=1)
    max_ratio: float | None = refused(None, at_least=1)
    bleu_tokenize: Literal["auto", "13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none"] = warned("auto")

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.several and Direction(self.source_lang or "", self.target_lang) not in self.several:
            way = f"with data.source_lang ({self.source_lang})"
            yield "target_lang", f"be one of data.directions {way}: the direction used when a request names none"
        if self.columns is None:
            return
        if self.directions:
            yield "columns", "be null with data.directions, where columns are named after languages: set it to null"
        names = [name.strip() for name in self.columns.split(",")]
        numbers = [name for name in names if name.isdecimal()]
        plain = "" not in names and "0" not in names and len({*names}) == len(names)
        # More than two columns of a translator: further references.
        enough = len(names) > 1 if self.source_lang else len(names) < 3
        if not plain or not enough or len(numbers) not in (0, len(names)):
            count = "two columns" if self.source_lang else "one column or two"
            yield "columns", f"name {count}, by numbers from 1 as in 1,3 or by names as in english,italian"

    @cached_property
    def several(self) -> list[Direction]:
        """The directions in data.directions; empty if the model has just one direction and needs no tags."""
        try:
            return parse_directions(self.directions) if self.directions else []
        except ValueError as error:
            raise ConfigError(f"data.directions is {shown(self.directions)}, but {error}.") from None


@dataclass(frozen=True)
class TokenizerConfig(Section):
    """How text is split into tokens."""

    kind: Literal["word", "bpe", "unigram"] = refused("word")
    vocab_size: int = refused(16000, at_least=8)
    min_frequency: int = refused(2, at_least=1)
    shared: bool = refused(False)


@dataclass(frozen=True)
class ModelConfig(Section):
    """The shape of the Transformer."""

    preset: Literal["auto", "tiny", "small", "base", "big"] | None = refused(None)
    architecture: Literal["encoder-decoder", "decoder-only", "encoder-only"] = refused("encoder-decoder")
    d_model: int = refused(128, at_least=2)
    n_heads: int = refused(4, at_least=1)
    kv_heads: int | None = refused(None, at_least=1)
    encoder_layers: int = refused(2, at_least=1)
    decoder_layers: int = refused(2, at_least=1)
    d_ff: int = refused(256, at_least=1)
    activation: Literal["relu", "gelu", "swiglu"] = refused("relu")
    dropout: float = warned(0.0, at_least=0, below=1)
    attention_dropout: float = warned(0.0, at_least=0, below=1)
    activation_dropout: float = warned(0.0, at_least=0, below=1)
    attention_bias: bool = refused(True)
    norm: Literal["pre", "post"] = refused("pre")
    norm_kind: Literal["layer", "rms"] = refused("layer")
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = refused("sinusoidal")
    max_positions: int = refused(512, at_least=2)
    upsampling: int = refused(2, at_least=1)
    tie: Literal["none", "output", "all"] = refused("output")

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.d_model % 2:
            yield "d_model", "be even: sine and cosine come in pairs"
        if self.d_model % self.n_heads:
            choices = [str(heads) for heads in range(1, min(self.d_model, 32) + 1) if self.d_model % heads == 0]
            yield "n_heads", f"divide model.d_model ({self.d_model}): choose one of {', '.join(choices)}"
        if self.kv_heads is not None and self.n_heads % self.kv_heads:
            yield "kv_heads", f"divide model.n_heads ({self.n_heads})"
        features = self.d_model // self.n_heads
        if self.positions == "rotary" and features % 2:
            yield "positions", f"have an even number of features per head, not {features}: choose another model.n_heads"

    def positions_of(self, source: int, target: int) -> int:
        """How many positions a pair with `source` and `target` tokens takes, end tokens included."""
        match self.architecture:
            case "encoder-decoder":
                return max(source, target)
            case "decoder-only":
                return source + target
            case "encoder-only":
                return source * self.upsampling


@dataclass(frozen=True)
class TrainingConfig(Section):
    """Optimization, limits and logging. A step updates the weights once."""

    init_from: str | None = refused(None)
    max_steps: int | None = free(None, at_least=1)
    max_epochs: int | None = free(8, at_least=1)
    max_minutes: float | None = free(None, above=0)
    plan_minutes: float | None = free(5.0, above=0)
    batch_tokens: int = refused(1024, at_least=1)
    accumulate: int = refused(1, at_least=1)
    optimizer: Literal["adamw", "muon"] = refused("muon")
    lr: float = warned(0.007, above=0)
    warmup_steps: int = warned(100, at_least=0)
    schedule: Literal["inverse_sqrt", "linear", "cosine", "constant"] = warned("linear")
    decay_share: float = warned(1.0, above=0, at_most=1)
    label_smoothing: float = warned(0.1, at_least=0, below=1)
    placeholders: float = warned(0.1, at_least=0, at_most=1)
    clip_norm: float = warned(1.0, above=0)
    weight_decay: float = warned(0.1, at_least=0)
    precision: Literal["auto", "float32", "bfloat16", "float16"] = warned("auto")
    compile: bool = warned(False)
    device: str = warned("auto")
    ranks: int = free(1, at_least=1)
    fsdp: bool = free(False)
    timeout: float = free(30.0, above=0)
    tracker: Literal["tensorboard", "trackio", "mlflow", "wandb"] = free("tensorboard")
    log_every: int = free(10, at_least=1)
    validate_every: int = free(500, at_least=1)
    save_every: int = free(500, at_least=1)
    keep_last: int = free(3, at_least=1)
    patience: int | None = free(None, at_least=1)

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.max_steps is None and self.max_epochs is None and self.max_minutes is None:
            yield "max_epochs", "be set, or training.max_steps or training.max_minutes: set at least one"
        if self.schedule == "inverse_sqrt" and self.warmup_steps < 1:
            yield "warmup_steps", "be at least 1 for the schedule inverse_sqrt"
        if not re.fullmatch(r"auto|cpu|mps|cuda(:[0-9]+)?", self.device):
            yield "device", "be one of auto, cpu, cuda, cuda:1, mps"
        for name, other, remedy in (
            ("optimizer", "muon", "adamw"),
            ("precision", "float16", "bfloat16"),
        ):
            if self.fsdp and getattr(self, name) == other:
                yield name, f"be {remedy} with training.fsdp"


@dataclass(frozen=True)
class DecodingConfig(Section):
    """How to search for a translation."""

    beam_size: int = warned(1, at_least=1)
    length_penalty: float = warned(1.0, at_least=-10, at_most=10)
    length_formula: Literal["power", "paper"] = warned("power")
    max_length: int = warned(256, at_least=1)
    max_ratio: float = warned(2.0, above=0)
    no_repeat_ngram: int | None = warned(None, at_least=1)
    precision: Literal["auto", "float32", "bfloat16", "int8"] = warned("auto")
    unknown: Literal["copy", "keep", "drop"] = warned("copy")
    split_sentences: bool = warned(True)
    tolerant: bool = warned(True)
    n_best: int = warned(1, at_least=1)
    sample: bool = warned(False)
    temperature: float = warned(1.0, above=0)
    top_k: int | None = warned(None, at_least=1)
    top_p: float = warned(1.0, above=0, at_most=1)
    seed: int = warned(1, at_least=0)

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.sample and self.beam_size > 1:
            one = "set decoding.beam_size to 1"
            yield "sample", f"be false with beam search: {one}; decoding.n_best sets the number of samples"
        if not self.sample and self.n_best > self.beam_size:
            yield "n_best", f"be at most decoding.beam_size ({self.beam_size})"


@dataclass(frozen=True)
class Config:
    """All settings of a run. `Config()` is the default run, which config.yaml spells out."""

    run: RunConfig = RunConfig()
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()
    # The rest are not sections, and never saved. The settings that a named preset must leave alone:
    chosen: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    # The settings of the user's file, with their values, that a named preset overrules:
    overruled: tuple[tuple[str, Any], ...] = field(default=(), compare=False, repr=False)
    # Settings to take from the user's own data, or from the run that is resumed:
    left_open: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __post_init__(self) -> None:
        for key, must in self.mistakes():
            raise ConfigError(f"{key} is {shown(operator.attrgetter(key)(self))}, but it must {must}.")

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """The settings that do not suit those of other sections, and what each must be or do."""
        model, search, plain = self.model, self.decoding, self.is_language_model
        if model.tie == "all" and not self.tokenizer.shared:
            yield "model.tie", "not be all without one vocabulary: set tokenizer.shared to true, or model.tie to output"
        if plain and model.architecture != "decoder-only":
            yield "model.architecture", "be decoder-only without data.source_lang: set it to decoder-only"
        if plain and not self.tokenizer.shared:
            yield "tokenizer.shared", "be true without data.source_lang: set tokenizer.shared to true"
        longest = self.data.max_length + 1
        needed = model.positions_of(1 if plain else longest, longest)
        if model.positions == "learned" and model.max_positions < needed:
            most = f"data.max_length ({self.data.max_length})"
            yield "model.max_positions", f"be raised, or {most} lowered: sentences of that length need {needed}"
        searches = search.beam_size > 1 or search.sample or search.no_repeat_ngram
        if model.architecture == "encoder-only" and searches:
            usual = "decoding.beam_size to 1, sample to false and no_repeat_ngram to null"
            yield "model.architecture", f"be another, as this one does not search; or set {usual}"

    @property
    def is_language_model(self) -> bool:
        """Whether the model reads no source and continues text."""
        return self.data.source_lang is None


SECTIONS: dict[str, type[Section]] = {
    section.name: type(section.default) for section in fields(Config) if isinstance(section.default, Section)
}
SETTINGS = {f"{name}.{declared.name}": declared for name, section in SECTIONS.items() for declared in fields(section)}
# Settings of version 0.1, without which a saved model is the same. Files that name them still load.
OF_VERSION_0_1 = frozenset({
    "model.depth_dropout", "model.word_dropout", "training.copy_dropout", "training.r_drop", "training.subword_dropout",
})  # fmt: skip
# The same, and settings of later versions.
RETIRED = OF_VERSION_0_1 | {
    "decoding.diversity_groups", "decoding.diversity_penalty", "decoding.min_ratio", "decoding.shortlist",
    "training.ema", "training.health_every", "training.profile",
}  # fmt: skip
# What a file of version 0.1 means by the settings that it leaves out: the defaults of then.
DEFAULTS_OF_0_1: dict[str, Any] = {
    "model.encoder_layers": 3,
    "model.decoder_layers": 3,
    "model.d_ff": 512,
    "model.dropout": 0.1,
    "training.optimizer": "adamw",
    "training.weight_decay": 0.0,
    "training.max_epochs": 9,
    "training.batch_tokens": 1024,
    "training.lr": 0.003,
    "training.warmup_steps": 200,
    "training.validate_every": 500,
    "training.save_every": 500,
}
STAND_IN = f"model.preset auto is decided when a run starts; this shows the values of {presets.STAND_IN}."


class Change(NamedTuple):
    """A setting that differs between two configs, and whether a resumed run may change it."""

    key: str
    old: Any
    new: Any
    resume: Resume


def values(config: Config) -> dict[str, Any]:
    """Every setting by its dotted name."""
    return {key: operator.attrgetter(key)(config) for key in SETTINGS}


DEFAULTS = values(Config())


def changes(old: Config, new: Config) -> list[Change]:
    """The settings that differ between two configs, in the order of the sections."""
    before, after = values(old), values(new)
    return [
        Change(key, before[key], after[key], declared.metadata["resume"])
        for key, declared in SETTINGS.items()
        if before[key] != after[key]
    ]


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """Replace the settings that `values` names by their dotted names."""
    sections = {}
    for name in SECTIONS:
        changed = {key.removeprefix(f"{name}."): value for key, value in values.items() if key.startswith(f"{name}.")}
        sections[name] = replace(getattr(config, name), **changed)
    return replace(config, **sections)


def with_preset(config: Config, name: str, extent: presets.Extent | None = None) -> Config:
    """Apply a preset to all settings but the chosen ones. Raises ConfigError."""
    extent = extent or presets.Extent()
    return with_preset_values(config, presets.values_of(name, values(config), config.chosen, extent))


def with_saved_preset(config: Config, saved: Config) -> Config:
    """Keep what the preset set when the run started, whatever it would set today. Raises ConfigError.

    The corpus may have grown since, and the tables in `presets` may have changed.
    """
    if "model.preset" in config.left_open:
        config = with_values(config, {"model.preset": saved.model.preset})
    elif config.model.preset is None or config.model.preset != saved.model.preset:
        return config
    return with_preset_values(config, presets.adapted(values(saved), values(config), config.chosen))


def with_preset_values(config: Config, of_preset: Mapping[str, Any]) -> Config:
    """Replace settings by those of a preset. An error about one of them says where its value comes from."""
    try:
        return with_values(config, of_preset)
    except ConfigError as error:
        if not any(key in str(error) for key in {*presets.KEYS} - config.chosen):
            raise
        raise ConfigError(f"{error} (model.preset sets what you did not.)") from None
