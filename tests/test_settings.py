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


def test_every_setting_says_whether_a_resumed_run_may_change_it() -> None:
    """Guards against a new setting not considered for resumed runs; docs/settings.md shows the class of each."""
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
