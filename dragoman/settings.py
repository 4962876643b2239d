"""Every setting of a run: its name, type, default, limits and meaning, in one place.

Use:
    config = parse()                                             # the command line of train.py
    config = load(run / "config.yaml")                           # what a run saved with dump()
    config = override(config, ["--decoding.beam_size", "5"])
    config = with_preset(config, "small")                        # what was not chosen by the user, from `presets`
    config.model.d_model                                         # frozen, typed, checked

A setting comes from the command line, else from the YAML file, else from the defaults below, in whatever order the
arguments stand. A preset stands behind those beside which it is named: `--model.preset` overrules the file, and one in
the file leaves alone what the file spells out. A mistake ends in one line that names the setting, its value, the rule
and, where it helps, the remedy. The values in a file are read as text and turned into the types declared here, so that
a file and the command line mean the same, `5e-4` is a number in both, and no file can build an object.

Limits: a file has two levels, section and setting, and no lists. Only what can be judged without looking at data or
devices is checked. This module imports neither torch nor what does, so that `--help` and a typing mistake are answered
at once.
"""

import difflib
import math
import operator
import re
from collections.abc import Collection, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, get_args, get_origin

from dragoman import presets
from dragoman.directions import Direction, parse_directions
from dragoman.errors import ConfigError

# The first ids of every vocabulary. They live here because the tokenizer gives them out, the model and the loss treat
# them specially, and none of these imports another.
PAD, UNK, SOS, EOS = 0, 1, 2, 3
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[SOS]", "[EOS]")
Resume = Literal["free", "warned", "refused"]
# --- What a setting is --------------------------------------------------------------------------------------------

_LIMITS = {"at least": operator.ge, "greater than": operator.gt, "at most": operator.le, "less than": operator.lt}


def setting(
    default: Any,
    meaning: str,
    *,
    resume: Resume,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> Any:
    """A field of a section, with its meaning, its limits and whether a resumed run may change it beside it."""
    bounds = zip(_LIMITS, (at_least, above, at_most, below), strict=True)
    limits = {words: bound for words, bound in bounds if bound is not None}
    return field(default=default, metadata={"meaning": meaning, "resume": resume, "limits": limits})


# May a run that goes on from a checkpoint change the setting?
_free = partial(setting, resume="free")  # yes: it decides only how long, how closely watched and where
_warned = partial(setting, resume="warned")  # yes, but the curves bend or the numbers cannot be compared
_refused = partial(setting, resume="refused")  # no: the weights would not fit, or the data would not be the same


class Kind(NamedTuple):
    """A declared type taken apart: `int | None` is (int, optional), a Literal is (str, its choices).

    `int | Literal["auto"]` is (int, its choices): a number, or one of these words. `Literal["auto"] | None` is
    (str, its choices, optional).
    """

    base: type
    choices: tuple[str, ...]
    optional: bool


def kind_of(declared: Field) -> Kind:
    parts = get_args(declared.type)
    if get_origin(declared.type) is Literal:
        return Kind(str, parts, False)
    base = parts[0] if parts else declared.type
    choices = next((get_args(part) for part in parts if get_origin(part) is Literal), ())
    base = str if get_origin(base) is Literal else base
    assert isinstance(base, type)
    return Kind(base, choices, type(None) in parts)


def shown(value: Any) -> str:
    """A value for a message: as it was written where that is clear, quoted or shortened where it is not."""
    text = str(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    if not text:
        return "empty"
    return text if text.isprintable() and " " not in text else repr(text)


def _check(key: str, declared: Field, value: Any) -> None:
    """Hold a value against the choices and limits of its setting."""
    choices, limits = kind_of(declared).choices, declared.metadata["limits"]
    if value in choices:
        return
    if choices and isinstance(value, str):
        near = difflib.get_close_matches(value.lower(), choices, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ConfigError(f"{key} is {shown(value)}, but it must be one of {', '.join(choices)}{hint}.")
    if value == "":
        raise ConfigError(f"{key} is empty, but it must be some text.")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{key} is {value}, but it must be a finite number.")
    if value is not None and not all(_LIMITS[words](value, bound) for words, bound in limits.items()):
        rule = " and ".join(f"{words} {bound}" for words, bound in limits.items())
        raise ConfigError(f"{key} is {shown(value)}, but it must be {rule}.")


# --- The sections -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Section:
    """Settings that belong together, checked whenever a section is made, by a file or in code."""

    def __post_init__(self) -> None:
        section = type(self).__name__.removesuffix("Config").lower()
        for declared in fields(self):
            _check(f"{section}.{declared.name}", declared, getattr(self, declared.name))


@dataclass(frozen=True)
class RunConfig(Section):
    """Where the results go, and the seed."""

    name: str = _free("phrasebook", "name of the run; its results go to the folder <run.dir>/<run.name>")
    dir: str = _free("runs", "folder of all runs")
    seed: int = _refused(1, "the same seed gives the same run on the same machine", at_least=0, at_most=2**32 - 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        plain = self.name.isprintable() and self.name == self.name.strip() and not set(self.name) & set("/\\")
        if not plain or self.name in (".", ".."):
            raise ConfigError(
                f"run.name is {shown(self.name)}, but it must be a plain folder name: the path to it is run.dir."
            )


@dataclass(frozen=True)
class DataConfig(Section):
    """The sentence pairs."""

    source_lang: str | None = _refused(
        "en", "language to translate from; null: none, a language model learns text in target_lang"
    )
    target_lang: str = _refused("it", "language to translate into")
    directions: str | None = _refused(
        None, "several for one model, such as en-it, it-en; the two languages above are then the usual one"
    )
    temperature: float = _refused(
        1.0,
        "of several directions; 1: each is seen as often as it has pairs; 5: those with few, more often",
        at_least=1,
    )
    # Free as places: a corpus may move. That it is still the same one, `preparing` makes sure by its content.
    train: str = _free(
        "data/phrasebook", "training pairs: a folder, a file, or a data set on the hub; several, as a + 2.5 * b"
    )
    validation: str | None = _free(None, "validation pairs; null: those of the data set, or a share of train")
    test: str | None = _free(None, "test pairs; null: those of the data set, or a share of train")
    config: str | None = _refused(None, "configuration of a data set on the hub, such as en-it")
    revision: str | None = _refused(None, "commit or tag of a data set on the hub; null: the newest")
    validation_fraction: float = _refused(0.02, "share of train kept for validation if need be", above=0, at_most=0.5)
    test_fraction: float = _refused(0.02, "share of train kept for the test if need be", at_least=0, at_most=0.5)
    on_bad_line: Literal["error", "skip"] = _refused(
        "error", "what to do about a line that is not UTF-8: end, or drop its pair and count it"
    )
    lowercase: bool = _refused(False, "whether all text is lower-cased, in training and in translating")
    normalize: Literal["nfc", "nfkc"] = _refused(
        "nfc", "form of Unicode: letters composed with their accents; nfkc: and without variants such as ﬁ, ２, ²"
    )
    max_length: int = _refused(128, "tokens a side: longer training pairs are dropped, longer input split", at_least=1)
    max_ratio: float | None = _refused(
        None, "training pairs with a side of more than so many times the other's tokens are dropped", at_least=1
    )
    bleu_tokenize: Literal["13a", "intl", "char", "zh", "none"] = _warned(
        "13a", "how sacreBLEU tokenises; none: the text is already tokenised"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source_lang == self.target_lang:
            raise ConfigError(
                f"data.target_lang is {shown(self.target_lang)}, but it must differ from data.source_lang."
            )
        try:
            several = self.several
        except ValueError as error:
            raise ConfigError(f"data.directions is {shown(self.directions)}, but {error}.") from None
        usual = Direction(self.source_lang or "", self.target_lang)
        if several and usual not in several:
            raise ConfigError(
                f"data.source_lang and data.target_lang are {self.source_lang} and {self.target_lang}, but must be one "
                f"of data.directions ({self.directions}): the one that is taken if none is asked for."
            )

    @cached_property
    def several(self) -> list[Direction]:
        """The directions of data.directions; none where there is but one, which needs no tag."""
        return parse_directions(self.directions) if self.directions else []


@dataclass(frozen=True)
class TokenizerConfig(Section):
    """How text is cut into tokens."""

    kind: Literal["word", "bpe", "unigram"] = _refused("word", "whole words, or one of two ways to cut words in pieces")
    vocab_size: int = _refused(16000, "tokens in a vocabulary at most", at_least=8)
    min_frequency: int = _refused(2, "times a token must be seen to be kept", at_least=1)
    shared: bool = _refused(False, "one vocabulary for both languages")


@dataclass(frozen=True)
class ModelConfig(Section):
    """The shape of the Transformer."""

    preset: Literal["auto", "tiny", "small", "base", "big"] | None = _refused(
        None,
        "size, dropout, vocabulary, batches and schedule by the amount of data; auto: by pairs and time",
    )
    architecture: Literal["encoder-decoder", "decoder-only", "encoder-only"] = _refused(
        "encoder-decoder", "two stacks; one that goes on writing; or one that writes all words at once"
    )
    d_model: int = _refused(128, "width of the vectors between the layers; even", at_least=2)
    n_heads: int = _refused(4, "attention heads; must divide d_model", at_least=1)
    kv_heads: int | None = _refused(
        None, "heads of keys and values, each for several attention heads; null: as many", at_least=1
    )
    encoder_layers: int = _refused(3, "layers that read the source; a decoder-only model has none", at_least=1)
    decoder_layers: int = _refused(3, "layers that write the target", at_least=1)
    d_ff: int = _refused(512, "width inside the feed-forward blocks", at_least=1)
    activation: Literal["relu", "gelu", "swiglu"] = _refused("relu", "what the feed-forward blocks do at that width")
    dropout: float = _warned(0.1, "share of values that are zeroed in training", at_least=0, below=1)
    attention_dropout: float = _warned(0.0, "likewise, of the attention weights", at_least=0, below=1)
    activation_dropout: float = _warned(0.0, "likewise, inside the feed-forward blocks", at_least=0, below=1)
    attention_bias: bool = _refused(True, "whether the projections of attention have a bias")
    norm: Literal["pre", "post"] = _refused("pre", "normalise before each block, or after it")
    norm_kind: Literal["layer", "rms"] = _refused("layer", "with mean and standard deviation, or by root mean square")
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = _refused(
        "sinusoidal", "how the model sees the order of words"
    )
    max_positions: int = _refused(512, "positions that a model with learned ones knows", at_least=2)
    upsampling: int = _refused(2, "encoder-only: places for target tokens that a source token gives", at_least=1)
    tie: Literal["none", "output", "all"] = _refused(
        "output", "output: target embedding and projection share one matrix; all: the source embedding, too"
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
                f"model.positions is rotary, but a head has {self.d_model // self.n_heads} features, which do not come "
                "in pairs: choose another model.n_heads."
            )

    def positions_of(self, source: int, target: int) -> int:
        """The positions that a pair of so many tokens takes, the end tokens included."""
        match self.architecture:
            case "encoder-decoder":
                return max(source, target)
            case "decoder-only":
                return source + target
            case "encoder-only":
                return source * self.upsampling


@dataclass(frozen=True)
class TrainingConfig(Section):
    """How the weights are learnt, how long, and how closely it is watched. A step is one update of the weights."""

    init_from: str | None = _refused(
        None, "run or checkpoint whose weights and tokenizers it begins with; null: fresh weights"
    )
    max_steps: int | None = _free(None, "stop after so many steps", at_least=1)
    max_epochs: int | None = _free(9, "stop after so many passes over the data", at_least=1)
    max_minutes: float | None = _free(None, "stop after so many minutes, in which linear and cosine come down", above=0)
    batch_tokens: int | Literal["auto"] = _refused(
        1024, "padded positions of the longer side in a batch, at most; auto: found when a run begins", at_least=1
    )
    accumulate: int = _refused(1, "batches whose gradients are summed for one step", at_least=1)
    optimizer: Literal["adamw", "muon"] = _refused(
        "adamw", "what moves the weights; muon: the matrices inside the layers by Muon, the rest by AdamW"
    )
    lr: float = _warned(0.003, "learning rate at its peak", above=0)
    warmup_steps: int = _warned(
        200, "steps in which the learning rate rises to its peak; a tenth of max_minutes if that is sooner", at_least=0
    )
    schedule: Literal["inverse_sqrt", "linear", "cosine", "constant"] = _warned(
        "linear", "how the learning rate goes on from its peak"
    )
    decay_share: float = _warned(
        1.0,
        "share of the way after the warm-up in which linear and cosine fall; before it, the rate stays",
        above=0,
        at_most=1,
    )
    label_smoothing: float = _warned(
        0.1, "share of probability that other tokens should get; encoder-only: none", at_least=0, below=1
    )
    copy_dropout: float = _warned(
        0.1, "share of names, numbers and the like, equal on both sides, that are shown as [UNK]", at_least=0, below=1
    )
    ema: float = _refused(
        0.0,
        "how much of their running mean each update keeps, which is used in place of the weights; 0: no mean",
        at_least=0,
        below=1,
    )
    clip_norm: float = _warned(1.0, "a longer gradient is scaled down to this length", above=0)
    weight_decay: float = _warned(0.0, "pull of the weights towards zero", at_least=0)
    precision: Literal["auto", "float32", "bfloat16", "float16"] = _warned("auto", "number format of the arithmetic")
    compile: bool = _warned(False, "compile the model: a slow start, then faster steps")
    device: str = _warned("auto", "auto, cpu, cuda, cuda:1 (the second GPU) or mps")
    fsdp: bool = _free(False, "under torchrun: each rank keeps a part of every weight, for models larger than a GPU")
    log_every: int = _free(10, "steps between two points of the training curves", at_least=1)
    validate_every: int = _free(500, "steps between two validations", at_least=1)
    save_every: int = _free(500, "steps between two checkpoints", at_least=1)
    keep_last: int = _free(3, "newest checkpoints that are kept, beside the best one", at_least=1)
    patience: int | None = _free(None, "stop after so many validations without a better BLEU", at_least=1)
    health_every: int = _free(100, "steps between two looks inside the layers, for TensorBoard; 0: none", at_least=0)
    profile: int = _free(0, "updates of which a trace is written, near the start; 0: none", at_least=0)

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
            for key, other in (("batch_tokens", "auto"), ("optimizer", "muon"), ("precision", "float16")):
                if getattr(self, key) == other:
                    raise ConfigError(f"training.fsdp is true, but does not go with training.{key}: {other}.")
            if self.ema:
                raise ConfigError("training.fsdp is true, but does not go with training.ema: set that to 0.")
        if not re.fullmatch(r"auto|cpu|mps|cuda(:[0-9]+)?", self.device):
            raise ConfigError(
                f"training.device is {shown(self.device)}, but it must be one of auto, cpu, cuda, cuda:1, mps."
            )


@dataclass(frozen=True)
class DecodingConfig(Section):
    """How a translation is searched for."""

    beam_size: int = _warned(1, "translations followed at a time; 1: greedy search", at_least=1)
    length_penalty: float = _warned(
        1.0, "alpha in length_formula; 0: none, more favours longer translations", at_least=-10, at_most=10
    )
    length_formula: Literal["power", "paper"] = _warned(
        "power", "a score is log-probability / length**alpha, or ((5 + length) / 6)**alpha as in the first paper"
    )
    max_length: int = _warned(256, "tokens in a translation at most", at_least=1)
    max_ratio: float = _warned(2.0, "a translation has at most max_ratio x source tokens + 10 tokens", above=0)
    min_ratio: float = _warned(0.0, "a translation has at least min_ratio x source tokens", at_least=0)
    no_repeat_ngram: int | None = _warned(None, "no run of so many tokens occurs twice in a translation", at_least=1)
    precision: Literal["auto", "float32", "bfloat16", "int8"] = _warned("auto", "number format of the weights")
    unknown: Literal["copy", "keep", "drop"] = _warned(
        "copy", "an unknown word becomes the source word that the model looks at, or [UNK], or nothing"
    )
    split_sentences: bool = _warned(True, "translate long texts sentence by sentence")
    n_best: int = _warned(1, "different translations of a sentence that are found", at_least=1)
    diversity_groups: int = _warned(1, "groups in the beam that avoid one another's words", at_least=1)
    diversity_penalty: float = _warned(0.5, "what a word costs that another group has just taken", at_least=0)
    sample: bool = _warned(False, "draw translations by their probability instead of searching for the best")
    temperature: float = _warned(1.0, "sampling: below 1 nearer to the likeliest words, above 1 wilder", above=0)
    top_k: int | None = _warned(None, "sampling: only from the so many likeliest words", at_least=1)
    top_p: float = _warned(
        1.0, "sampling: only from the likeliest words of that probability together", above=0, at_most=1
    )
    seed: int = _warned(1, "sampling: the same seed draws the same for the same sentence", at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sample:
            if self.beam_size > 1 or self.diversity_groups > 1:
                raise ConfigError(
                    "decoding.sample is true, but a beam does not sample: set decoding.beam_size and "
                    "decoding.diversity_groups to 1; decoding.n_best is the number of samples."
                )
        elif self.n_best > self.beam_size:
            raise ConfigError(
                f"decoding.n_best is {self.n_best}, but decoding.beam_size must be as large ({self.beam_size})."
            )
        if self.beam_size % self.diversity_groups:
            raise ConfigError(
                f"decoding.diversity_groups is {self.diversity_groups}, but it must divide decoding.beam_size "
                f"({self.beam_size})."
            )


@dataclass(frozen=True)
class Config:
    """All settings of a run. `Config()` is the default run, which config.yaml writes out."""

    run: RunConfig = RunConfig()
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()
    # Not a section, and never written down: where a preset is named, the settings that it has to leave alone.
    chosen: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    # Likewise: what of the user's file it sets aside.
    overruled: tuple[tuple[str, Any], ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.model.tie == "all" and not self.tokenizer.shared:
            raise ConfigError(
                "model.tie is all, but one matrix for both languages needs one vocabulary: "
                "set tokenizer.shared to true, or model.tie to output."
            )
        if self.data.source_lang is None:
            if self.model.architecture != "decoder-only":
                raise ConfigError(
                    f"data.source_lang is null, but a model of that architecture ({self.model.architecture}) reads a "
                    "source: a language model is decoder-only."
                )
            if not self.tokenizer.shared:
                raise ConfigError("data.source_lang is null, which leaves one language: set tokenizer.shared to true.")
        longest = self.data.max_length + 1
        most = self.model.positions_of(1 if self.is_language_model else longest, longest)
        if self.model.positions == "learned" and self.model.max_positions < most:
            raise ConfigError(
                f"model.max_positions is {self.model.max_positions}, but sentences of up to data.max_length "
                f"({self.data.max_length}) tokens need {most}: raise the former, or lower the latter."
            )
        search = self.decoding
        if self.model.architecture == "encoder-only" and (
            search.beam_size > 1 or search.sample or search.min_ratio or search.no_repeat_ngram
        ):
            raise ConfigError(
                "model.architecture is encoder-only, which writes all words at once and leaves nothing to search: "
                "decoding.beam_size must be 1, sample false, min_ratio 0 and no_repeat_ngram null."
            )

    @property
    def is_language_model(self) -> bool:
        """Whether there is no source, but text alone."""
        return self.data.source_lang is None


SECTIONS: dict[str, type[Section]] = {
    section.name: type(section.default) for section in fields(Config) if isinstance(section.default, Section)
}
SETTINGS = {f"{name}.{declared.name}": declared for name, section in SECTIONS.items() for declared in fields(section)}
# Settings of earlier versions. They lost BLEU in every measurement and were taken out; files that name them still load.
RETIRED = frozenset({"model.word_dropout", "model.depth_dropout", "training.r_drop", "training.subword_dropout"})

STAND_IN = f"model.preset auto looks at the data when a run begins; here it stands for {presets.STAND_IN}."


# --- What other modules call --------------------------------------------------------------------------------------


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


def changes(old: Config, new: Config) -> list[Change]:
    """What differs between two configs, in the order of the sections."""
    before, after = values(old), values(new)
    return [
        Change(key, before[key], after[key], declared.metadata["resume"])
        for key, declared in SETTINGS.items()
        if before[key] != after[key]
    ]


def with_preset(config: Config, name: str, plan: presets.Plan | None = None) -> Config:
    """What the preset makes of the config, of which only the chosen settings stay as they are. Raises ConfigError."""
    return beside_preset({}, presets.settings(name, values(config), config.chosen, plan or presets.Plan()), config)


def as_begun(config: Config, begun: Config) -> Config:
    """With the preset of a run that has begun: what was not chosen is what it is there, whatever would be set today.

    The corpus may have grown since, and the tables of `presets` have changed. Raises ConfigError.
    """
    if config.model.preset is None or config.model.preset != begun.model.preset:
        return config
    return beside_preset({}, presets.beside(values(begun), values(config), config.chosen), config)


# --- From text to a config ----------------------------------------------------------------------------------------

NULLS = ("", "~", "null", "none")
_NOUNS = {bool: "true or false", int: "a whole number", float: "a number"}


def parse_value(key: str, text: str, quoted: bool = False) -> Any:
    """Turn text into the type that its setting declares, and check it. Text in quotes is never null."""
    kind = kind_of(SETTINGS[key])
    if kind.optional and not quoted and text.lower() in NULLS:
        return None
    if text in kind.choices:
        return text
    try:
        # bool("false") is True, so the two words are looked up.
        value = {"true": True, "false": False}[text.lower()] if kind.base is bool else kind.base(text)
    except (KeyError, ValueError):
        number = kind.base is int and re.fullmatch(r"[+-]?[0-9]+(\.[0-9]*)?(e\+?[0-9]+)?", text.lower())
        whole = float(text) if number else math.nan
        remedy = f": write {whole:.0f}" if whole.is_integer() and abs(whole) < 1e15 else ""
        noun = " or ".join([_NOUNS[kind.base], *kind.choices, *["null"] * kind.optional])
        raise ConfigError(f"{key} is {shown(text)}, but it must be {noun}{remedy}.") from None
    _check(key, SETTINGS[key], value)
    return value


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """The config with the settings that `values` holds by their dotted names."""
    sections = {}
    for name in SECTIONS:
        changed = {key.removeprefix(f"{name}."): value for key, value in values.items() if key.startswith(f"{name}.")}
        sections[name] = replace(getattr(config, name), **changed)
    return replace(config, **sections)


def beside_preset(given: Mapping[str, Any], of_preset: Mapping[str, Any], config: Config) -> Config:
    """The config with what was given and what a preset sets beside it."""
    try:
        return with_values(config, {**given, **of_preset})
    except ConfigError as error:
        raise ConfigError(f"{error} (What was not given is that of model.preset.)") from None


def did_you_mean(wrong: str, valid: Collection[str], dashes: str = "") -> str:
    """The end of a message: the valid key that is most like a wrong one, in its last part and in the whole."""

    def alike(a: str, b: str) -> float:
        return difflib.SequenceMatcher(None, a, b).ratio()

    wrong = wrong.lower()
    last = wrong.rpartition(".")[2]
    scores = {key: (alike(key.rpartition(".")[2], last), alike(key, wrong)) for key in valid}
    near = [key for key, (in_last, _) in scores.items() if in_last >= 0.6]
    if not near:
        return "; --help lists them all."
    return f": did you mean {dashes}{max(near, key=lambda key: sum(scores[key]))}?"
