"""All settings of a run: name, type, default, limits and meaning, in one place.

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
from collections.abc import Mapping
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


@dataclass(frozen=True)
class RunConfig(Section):
    """Where results go, and the seed."""

    name: str = free("phrasebook", "name of the run; its results go to the folder <run.dir>/<run.name>")
    dir: str = free("runs", "folder that holds all runs")
    seed: int = refused(
        1, "random seed; the same seed gives the same run on the same machine", at_least=0, at_most=2**32 - 1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        plain = self.name.isprintable() and self.name == self.name.strip() and not set(self.name) & set("/\\")
        if not plain or self.name in (".", ".."):
            raise ConfigError(
                f"run.name is {shown(self.name)}, but it must be a plain folder name: put the path in run.dir."
            )


@dataclass(frozen=True)
class DataConfig(Section):
    """The sentence pairs."""

    source_lang: str | None = refused(
        "en", "language to translate from; null: train a language model on text in target_lang"
    )
    target_lang: str = refused("it", "language to translate into")
    directions: str | None = refused(
        None, "directions of one multilingual model, such as en-it, it-en; the two languages above name the default"
    )
    temperature: float = refused(
        1.0, "several directions: 1 uses each in proportion to its pairs, 5 uses small ones more often", at_least=1
    )
    # Free, because a corpus may move. `corpora.origin` compares its content.
    train: str = free(
        "data/phrasebook",
        "training pairs: a folder, a file, a data set on the hub or opus:NAME; several as a + 2.5 * b",
    )
    validation: str | None = free(None, "validation pairs; null: the data set's own, or a share of train")
    test: str | None = free(None, "test pairs; null: the data set's own, or a share of train")
    columns: str | None = refused(
        None, "columns of source and target in a table, as 1,3 or english,italian; null: by their names and contents"
    )
    config: str | None = refused(None, "configuration of a data set on the hub, such as en-it")
    revision: str | None = refused(None, "commit or tag of a data set on the hub; null: the newest")
    validation_fraction: float = refused(
        0.02, "share of train held out for validation, if there are no validation pairs", above=0, at_most=0.5
    )
    test_fraction: float = refused(
        0.02, "share of train held out for testing, if there are no test pairs", at_least=0, at_most=0.5
    )
    on_bad_line: Literal["error", "skip"] = refused(
        "error", "at a line that is not UTF-8, or a broken row: stop with an error, or skip its pair and count it"
    )
    check_languages: bool = free(
        True, "stop if the text is plainly in other languages than source_lang and target_lang"
    )
    lowercase: bool = refused(False, "lower-case all text, in training and in translation")
    normalize: Literal["nfc", "nfkc"] = refused(
        "nfc", "Unicode form; nfkc also replaces variants such as ﬁ, ２ and ² with plain characters"
    )
    max_length: int = refused(
        128, "most tokens per side: longer training pairs are dropped, longer input is split", at_least=1
    )
    max_ratio: float | None = refused(
        None, "drop a training pair if one side has more than this many times the other's tokens", at_least=1
    )
    bleu_tokenize: Literal["auto", "13a", "intl", "char", "zh", "ja-mecab", "ko-mecab", "none"] = warned(
        "auto", "sacreBLEU's tokenization for BLEU; auto: by the target language; none: the text is tokenized already"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns is not None:
            self._check_columns(self.columns)
        try:
            several = self.several
        except ValueError as error:
            raise ConfigError(f"data.directions is {shown(self.directions)}, but {error}.") from None
        default = Direction(self.source_lang or "", self.target_lang)
        if several and default not in several:
            raise ConfigError(
                f"data.source_lang and data.target_lang are {self.source_lang} and {self.target_lang}, but they must "
                f"be one of data.directions ({self.directions}): the direction used when a request names none."
            )

    def _check_columns(self, columns: str) -> None:
        names = [name.strip() for name in columns.split(",")]
        numbers = [name.isdecimal() for name in names]
        counts = range(2, len(names) + 1) if self.source_lang else (1, 2)  # more than two: further references
        if len(names) not in counts or len({*names}) < len(names) or "" in names or any(numbers) != all(numbers):
            count = "two columns" if self.source_lang else "one column or two"
            raise ConfigError(
                f"data.columns is {shown(columns)}, but it must name {count}, by numbers from 1 as in 1,3 or by names "
                "as in english,italian."
            )
        if all(numbers) and min(map(int, names)) < 1:
            raise ConfigError(f"data.columns is {shown(columns)}, but columns are counted from 1.")
        if self.directions:
            raise ConfigError(
                f"data.columns is {shown(columns)}, but with data.directions columns must be named after languages: "
                "set it to null."
            )

    @cached_property
    def several(self) -> list[Direction]:
        """The directions in data.directions; empty if the model has just one direction and needs no tags."""
        return parse_directions(self.directions) if self.directions else []


@dataclass(frozen=True)
class TokenizerConfig(Section):
    """How text is split into tokens."""

    kind: Literal["word", "bpe", "unigram"] = refused("word", "whole words, or subwords by BPE or a unigram model")
    vocab_size: int = refused(16000, "most tokens in a vocabulary", at_least=8)
    min_frequency: int = refused(2, "how often a token must occur to be kept", at_least=1)
    shared: bool = refused(False, "one vocabulary for both languages")


@dataclass(frozen=True)
class ModelConfig(Section):
    """The shape of the Transformer."""

    preset: Literal["auto", "tiny", "small", "base", "big"] | None = refused(
        None, "size, dropout, vocabulary, batches and schedule as one choice; auto: by number of pairs and time limit"
    )
    architecture: Literal["encoder-decoder", "decoder-only", "encoder-only"] = refused(
        "encoder-decoder", "two stacks; one stack that continues the source; or one that writes all words at once"
    )
    d_model: int = refused(128, "width of the vectors between layers; must be even", at_least=2)
    n_heads: int = refused(4, "attention heads; must divide d_model", at_least=1)
    kv_heads: int | None = refused(
        None, "key and value heads, each shared by several attention heads; null: n_heads", at_least=1
    )
    encoder_layers: int = refused(2, "layers that read the source; not used by decoder-only", at_least=1)
    decoder_layers: int = refused(2, "layers that write the target", at_least=1)
    d_ff: int = refused(256, "width inside the feed-forward blocks", at_least=1)
    activation: Literal["relu", "gelu", "swiglu"] = refused("relu", "activation function of the feed-forward blocks")
    dropout: float = warned(0.0, "share of values set to zero in training", at_least=0, below=1)
    attention_dropout: float = warned(0.0, "the same for attention weights", at_least=0, below=1)
    activation_dropout: float = warned(0.0, "the same inside the feed-forward blocks", at_least=0, below=1)
    attention_bias: bool = refused(True, "use a bias in the projections of attention")
    norm: Literal["pre", "post"] = refused("pre", "normalize before or after each block")
    norm_kind: Literal["layer", "rms"] = refused("layer", "LayerNorm or RMSNorm")
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = refused(
        "sinusoidal", "how the model knows the order of words"
    )
    max_positions: int = refused(512, "number of positions, if positions are learned", at_least=2)
    upsampling: int = refused(2, "encoder-only: target positions per source token", at_least=1)
    tie: Literal["none", "output", "all"] = refused(
        "output", "matrices shared: target embedding and output projection; all: the source embedding too"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model % 2:
            raise ConfigError(f"model.d_model is {self.d_model}, but it must be even: sine and cosine come in pairs.")
        if self.d_model % self.n_heads:
            choices = [heads for heads in range(1, min(self.d_model, 32) + 1) if self.d_model % heads == 0]
            raise ConfigError(
                f"model.n_heads is {self.n_heads}, but it must divide model.d_model ({self.d_model}): "
                f"choose one of {', '.join(map(str, choices))}."
            )
        if self.kv_heads is not None and self.n_heads % self.kv_heads:
            raise ConfigError(f"model.kv_heads is {self.kv_heads}, but it must divide model.n_heads ({self.n_heads}).")
        if self.positions == "rotary" and (self.d_model // self.n_heads) % 2:
            raise ConfigError(
                f"model.positions is rotary, but a head has {self.d_model // self.n_heads} features, an odd number: "
                "choose another model.n_heads."
            )

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
    """Optimization, limits and logging. A step is one update of the weights."""

    init_from: str | None = refused(
        None, "run or checkpoint whose weights and tokenizers to start from; null: random weights"
    )
    max_steps: int | None = free(None, "stop after this many steps", at_least=1)
    max_epochs: int | None = free(8, "stop after this many passes over the data", at_least=1)
    max_minutes: float | None = free(
        None, "stop after this many minutes; linear and cosine schedules fall within them", above=0
    )
    plan_minutes: float | None = free(
        5.0,
        "on a slow machine, make fewer steps, so that the run takes about this many minutes; only if no limit is set",
        above=0,
    )
    batch_tokens: int | Literal["auto"] = refused(
        1024, "most padded positions on the longer side of a batch; auto: chosen when the run starts", at_least=1
    )
    accumulate: int = refused(1, "batches whose gradients are summed for one step", at_least=1)
    optimizer: Literal["adamw", "muon"] = refused(
        "muon", "Muon for the matrices inside the layers and AdamW for the rest; or AdamW for all"
    )
    lr: float = warned(0.007, "peak learning rate", above=0)
    warmup_steps: int = warned(
        100, "steps until the learning rate peaks, or a tenth of max_minutes if that is sooner", at_least=0
    )
    schedule: Literal["inverse_sqrt", "linear", "cosine", "constant"] = warned(
        "linear", "how the learning rate changes after its peak"
    )
    decay_share: float = warned(
        1.0,
        "last share of the steps after warm-up, in which linear and cosine fall; until then the rate is constant",
        above=0,
        at_most=1,
    )
    label_smoothing: float = warned(
        0.1,
        "share of the target probability spread over the other tokens; not used by encoder-only",
        at_least=0,
        below=1,
    )
    placeholders: float = warned(
        0.1, "share of the batches in which placeholders hide words, to teach copying; 0: none", at_least=0, at_most=1
    )
    ema: float = refused(
        0.0, "decay per step of a running mean of the weights, used in their place; 0: no mean", at_least=0, below=1
    )
    clip_norm: float = warned(1.0, "largest gradient norm; a longer gradient is scaled down to it", above=0)
    weight_decay: float = warned(0.1, "pull of the weights towards zero", at_least=0)
    precision: Literal["auto", "float32", "bfloat16", "float16"] = warned("auto", "number format of matrix products")
    compile: bool = warned(False, "compile the model: a slow start, then faster steps")
    device: str = warned("auto", "auto, cpu, cuda, cuda:1 (the second GPU) or mps")
    ranks: int = free(1, "processes of this machine that train together, each on a GPU of its own", at_least=1)
    fsdp: bool = free(False, "with several ranks: shard the weights over the GPUs, for a model too large for one")
    log_every: int = free(10, "steps between points of the training curves", at_least=1)
    validate_every: int = free(500, "steps between validations", at_least=1)
    save_every: int = free(500, "steps between checkpoints", at_least=1)
    keep_last: int = free(3, "how many of the newest checkpoints to keep, besides the best", at_least=1)
    patience: int | None = free(None, "stop after this many validations without a better BLEU", at_least=1)
    health_every: int = free(100, "steps between layer statistics in TensorBoard; 0: none", at_least=0)
    profile: int = free(0, "number of updates to trace, near the start; 0: none", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_steps is None and self.max_epochs is None and self.max_minutes is None:
            raise ConfigError(
                "training.max_steps, training.max_epochs and training.max_minutes are all null, "
                "but training must end: set at least one."
            )
        if self.schedule == "inverse_sqrt" and self.warmup_steps < 1:
            raise ConfigError("training.warmup_steps is 0, but it must be at least 1 for the schedule inverse_sqrt.")
        if self.fsdp:
            for key, other, remedy in (
                ("batch_tokens", "auto", "a number"),
                ("optimizer", "muon", "adamw"),
                ("precision", "float16", "bfloat16"),
            ):
                if getattr(self, key) == other:
                    raise ConfigError(
                        f"training.fsdp is true, but it cannot be combined with training.{key} {other}: "
                        f"set that to {remedy}."
                    )
            if self.ema:
                raise ConfigError("training.fsdp is true, but it cannot be combined with training.ema: set that to 0.")
        if not re.fullmatch(r"auto|cpu|mps|cuda(:[0-9]+)?", self.device):
            raise ConfigError(
                f"training.device is {shown(self.device)}, but it must be one of auto, cpu, cuda, cuda:1, mps."
            )


@dataclass(frozen=True)
class DecodingConfig(Section):
    """How to search for a translation."""

    beam_size: int = warned(1, "hypotheses followed at a time; 1: greedy search", at_least=1)
    length_penalty: float = warned(
        1.0, "alpha in length_formula; 0: none, higher favours longer translations", at_least=-10, at_most=10
    )
    length_formula: Literal["power", "paper"] = warned(
        "power", "divide log-probability by length**alpha, or by ((5 + length) / 6)**alpha as in the paper"
    )
    max_length: int = warned(256, "most tokens in a translation", at_least=1)
    max_ratio: float = warned(2.0, "a translation has at most max_ratio x source tokens + 10 tokens", above=0)
    min_ratio: float = warned(0.0, "a translation has at least min_ratio x source tokens", at_least=0)
    no_repeat_ngram: int | None = warned(
        None, "never repeat a run of this many tokens within a translation", at_least=1
    )
    precision: Literal["auto", "float32", "bfloat16", "int8"] = warned("auto", "number format of the weights")
    unknown: Literal["copy", "keep", "drop"] = warned(
        "copy", "replace an unknown word with the source word it attends to, show [UNK], or leave it out"
    )
    split_sentences: bool = warned(True, "translate long texts sentence by sentence")
    tolerant: bool = warned(True, "read capitals, missing final marks and typos as the training text is written")
    n_best: int = warned(1, "number of different translations of a sentence", at_least=1)
    diversity_groups: int = warned(1, "groups in the beam that avoid each other's words", at_least=1)
    diversity_penalty: float = warned(0.5, "cost of a word that another group has just chosen", at_least=0)
    sample: bool = warned(False, "sample translations at random instead of searching for the best")
    temperature: float = warned(1.0, "sampling: below 1 favours likely words, above 1 is more random", above=0)
    top_k: int | None = warned(None, "sampling: choose from this many most likely words only", at_least=1)
    top_p: float = warned(
        1.0, "sampling: choose from the most likely words with this total probability only", above=0, at_most=1
    )
    seed: int = warned(1, "sampling: the same seed gives the same samples for a sentence", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sample:
            if self.beam_size > 1 or self.diversity_groups > 1:
                raise ConfigError(
                    "decoding.sample is true, but beam search does not sample: set decoding.beam_size and "
                    "decoding.diversity_groups to 1; decoding.n_best sets the number of samples."
                )
        elif self.n_best > self.beam_size:
            raise ConfigError(
                f"decoding.n_best is {self.n_best}, but it must be at most decoding.beam_size ({self.beam_size})."
            )
        if self.beam_size % self.diversity_groups:
            raise ConfigError(
                f"decoding.diversity_groups is {self.diversity_groups}, but it must divide decoding.beam_size "
                f"({self.beam_size})."
            )


@dataclass(frozen=True)
class Config:
    """All settings of a run. `Config()` is the default run, which config.yaml spells out."""

    run: RunConfig = RunConfig()
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()
    # Not sections, and never saved. If a preset is named: the settings it must leave alone, ...
    chosen: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    # ... and the settings of the user's file, with their values, that it overrules.
    overruled: tuple[tuple[str, Any], ...] = field(default=(), compare=False, repr=False)
    # Settings to find out from the user's own data, or from the run that is resumed.
    unsaid: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __post_init__(self) -> None:
        model, search = self.model, self.decoding
        if model.tie == "all" and not self.tokenizer.shared:
            raise ConfigError(
                "model.tie is all, but one matrix for both languages needs one vocabulary: "
                "set tokenizer.shared to true, or model.tie to output."
            )
        if self.is_language_model:
            if model.architecture != "decoder-only":
                raise ConfigError(
                    f"data.source_lang is null, but model.architecture is {model.architecture}, which reads a source: "
                    "set it to decoder-only for a language model."
                )
            if not self.tokenizer.shared:
                raise ConfigError("data.source_lang is null, which leaves one language: set tokenizer.shared to true.")
        longest = self.data.max_length + 1
        needed = model.positions_of(1 if self.is_language_model else longest, longest)
        if model.positions == "learned" and model.max_positions < needed:
            raise ConfigError(
                f"model.max_positions is {model.max_positions}, but sentences of up to data.max_length "
                f"({self.data.max_length}) tokens need {needed}: raise max_positions or lower max_length."
            )
        searches = search.beam_size > 1 or search.sample or search.min_ratio or search.no_repeat_ngram
        if model.architecture == "encoder-only" and searches:
            raise ConfigError(
                "model.architecture is encoder-only, which writes all words at once and does not search: "
                "decoding.beam_size must be 1, sample false, min_ratio 0 and no_repeat_ngram null."
            )

    @property
    def is_language_model(self) -> bool:
        """Whether the model reads no source and continues text."""
        return self.data.source_lang is None


SECTIONS: dict[str, type[Section]] = {
    section.name: type(section.default) for section in fields(Config) if isinstance(section.default, Section)
}
SETTINGS = {f"{name}.{declared.name}": declared for name, section in SECTIONS.items() for declared in fields(section)}
# Settings of earlier versions; files that name them still load. Placeholders replaced copy dropout; the others of
# version 0.1 lost BLEU in every measurement.
RETIRED = frozenset(
    {
        "training.copy_dropout",
        "model.word_dropout",
        "model.depth_dropout",
        "training.r_drop",
        "training.subword_dropout",
        "decoding.shortlist",
    }
)
# What a file that names one of them means by the settings that it leaves out: the defaults of version 0.1.
DEFAULTS_BEFORE: dict[str, Any] = {
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

STAND_IN = f"model.preset auto looks at the data when a run starts; until then it stands for {presets.STAND_IN}."


class Change(NamedTuple):
    """A setting that differs between two configs, and whether a resumed run may change it."""

    key: str
    old: Any
    new: Any
    resume: Resume


def keys() -> list[str]:
    """The dotted names of all settings, in the order of the sections."""
    return list(SETTINGS)


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


def with_preset(config: Config, name: str, plan: presets.Plan | None = None) -> Config:
    """Apply a preset to all settings but the chosen ones. Raises ConfigError."""
    return with_preset_values(config, presets.values_of(name, values(config), config.chosen, plan or presets.Plan()))


def with_saved_preset(config: Config, saved: Config) -> Config:
    """Keep what the preset set when the run started, whatever it would set today. Raises ConfigError.

    The corpus may have grown since, and the tables in `presets` may have changed.
    """
    if "model.preset" in config.unsaid:
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
