"""Settings: limits, what a resumed run may change, and what changed."""

import dataclasses
from typing import get_args

import pytest

from dragoman import setting_types
from dragoman import settings as settings_module
from dragoman.command_line import override
from dragoman.errors import ConfigError
from dragoman.settings import SECTIONS, SETTINGS, Config, changes


def test_special_tokens_are_in_the_order_of_their_ids() -> None:
    """Guards against a reordering of one list without the other: every id in a saved model would change its meaning."""
    ids = settings_module.PAD, settings_module.UNK, settings_module.SOS, settings_module.EOS
    assert [settings_module.SPECIAL_TOKENS[i] for i in ids] == ["[PAD]", "[UNK]", "[SOS]", "[EOS]"]


def test_sections_are_frozen() -> None:
    """Guards against a setting that changes after it was checked and saved."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().model.d_model = 64  # pyright: ignore[reportAttributeAccessIssue]


def test_every_limit_is_enforced() -> None:
    """Guards against a limit that is declared but never checked: just beyond it, the section must refuse."""
    beyond = {"at least": -1, "greater than": 0, "at most": 1, "less than": 0}
    tried = 0
    for key, declared in SETTINGS.items():
        section, _, name = key.partition(".")
        for words, bound in declared.metadata["limits"].items():
            with pytest.raises(ConfigError, match=rf"{key} is .* {words} {bound}"):
                SECTIONS[section](**{name: bound + beyond[words]})
            tried += 1
    assert tried >= 30


def test_every_number_has_a_limit() -> None:
    """Guards against a new setting without one: a count of -3 must not get as far as torch."""
    numbers = {key: each for key, each in SETTINGS.items() if {int, float} & {each.type, *get_args(each.type)}}
    assert [key for key, each in numbers.items() if not each.metadata["limits"]] == []


RESUME = {
    "refused": """
        run.seed
        data.source_lang data.target_lang data.directions data.temperature data.columns data.config data.revision
        data.validation_fraction data.test_fraction data.on_bad_line data.lowercase data.normalize
        data.max_length data.max_ratio
        tokenizer.kind tokenizer.vocab_size tokenizer.min_frequency tokenizer.shared
        model.preset model.architecture model.d_model model.n_heads model.kv_heads model.encoder_layers
        model.decoder_layers model.d_ff model.activation model.attention_bias model.norm model.norm_kind
        model.positions model.max_positions model.upsampling model.tie
        training.init_from training.batch_tokens training.accumulate training.optimizer training.ema
    """,
    "warned": """
        data.bleu_tokenize model.dropout model.attention_dropout model.activation_dropout
        training.decay_share
        training.lr training.warmup_steps training.schedule training.label_smoothing training.clip_norm
        training.placeholders training.weight_decay training.precision training.compile training.device
        decoding.beam_size decoding.length_penalty decoding.length_formula decoding.max_length decoding.max_ratio
        decoding.min_ratio decoding.no_repeat_ngram decoding.precision decoding.n_best decoding.diversity_groups
        decoding.diversity_penalty decoding.sample decoding.temperature decoding.top_k decoding.top_p decoding.seed
        decoding.unknown decoding.split_sentences decoding.tolerant
    """,
    "free": """
        run.name run.dir data.train data.validation data.test data.check_languages
        training.max_steps training.max_epochs training.max_minutes training.plan_minutes
        training.log_every training.validate_every training.save_every training.keep_last training.patience
        training.ranks training.fsdp
    """,
}


def test_every_setting_says_whether_a_resumed_run_may_change_it() -> None:
    """Guards against a new setting not considered for resumed runs, and a class that changes by accident."""
    classes = {key: declared.metadata.get("resume") for key, declared in SETTINGS.items()}
    assert classes == {key: resume for resume, names in RESUME.items() for key in names.split()}
    with pytest.raises(TypeError, match="resume"):
        setting_types.setting(1)  # pyright: ignore[reportCallIssue]


def test_changes_are_listed_with_their_class() -> None:
    """Guards against a changed setting that a resumed run does not notice."""
    new = override(Config(), ["--training.max_epochs", "30", "--model.d_model", "64", "--training.lr", "5e-4"])
    assert changes(Config(), new) == [
        ("model.d_model", 128, 64, "refused"),
        ("training.max_epochs", 8, 30, "free"),
        ("training.lr", 0.007, 0.0005, "warned"),
    ]
    assert changes(new, new) == []
