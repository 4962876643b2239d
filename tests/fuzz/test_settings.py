"""Config files and settings on the command line: a config comes out, or a ConfigError."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dragoman import command_line, config_file
from dragoman.errors import ConfigError
from dragoman.settings import SETTINGS, Config
from fuzz.harness import survive
from fuzz.mutations import SCALARS, any_text, damaged, forged_settings, scalar, spliced

pytestmark = pytest.mark.slow
PLACE = Path("mutated.yaml")
WHOLE = config_file.dump(Config())
MARKS = (
    *":-?,[]{}#&*!|>'\"%@`\n\t \0\x85\u2028\ufeff", "\n  ", "\n---\n", "\n...\n", "<<: *a", "&a ", "*a", "!!map ",
    "? ", "- ", "[" * 30, "{a: " * 30, "model:", "training:\n", "%YAML 9.9\n", "model.d_model: 8", "\\x41",
)  # fmt: skip


def bomb(draw: random.Random) -> str:
    """Aliases of aliases, deep nesting, or very many keys."""
    size = draw.choice([10, 19, 21, 100, 3000])
    match draw.randrange(4):
        case 0:
            return "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join(9 * [f'*a{i - 1}'])}]\n" for i in range(1, size))
        case 1:
            return draw.choice(["[", "{", "- ", "? ", "{a: ", "a:\n "]) * size
        case 2:
            return "".join(f"{' ' * i}k{i}:\n" for i in range(size))
        case _:
            return "model:\n" + "".join(f"  k{i}: {i}\n" for i in range(size))


def test_config_files() -> None:
    """Guards against YAML that raises anything but one of our errors, or takes minutes."""

    def attempt(draw: random.Random) -> None:
        kind = draw.randrange(10)
        text = bomb(draw) if kind == 0 else forged_settings(WHOLE, draw)
        if kind >= 6:
            text = spliced(text, draw, [*MARKS, *SCALARS])
        data = text.encode(errors="surrogatepass")
        found = config_file.loads(damaged(data, draw) if kind == 5 else data, PLACE)
        assert config_file.loads(config_file.dump(found).encode(), PLACE) == found

    worked, refused = survive("config files", 1000, attempt, ConfigError)
    assert worked > 50
    assert refused > 500


def test_settings_on_the_command_line() -> None:
    """Guards `--key value` and `--key=value`: what is accepted is a config that can be written and read again."""

    def attempt(draw: random.Random) -> None:
        words = []
        for _ in range(draw.choice([1, 1, 2, 5])):
            key = draw.choice(list(SETTINGS)) if draw.random() < 0.9 else any_text(draw, 20)
            value = scalar(draw)
            words += draw.choice([[f"--{key}={value}"], [f"--{key}", value], [f"--{key}"], [value]])
        found = command_line.override(Config(), words)
        assert config_file.loads(config_file.dump(found).encode(), PLACE) == found

    worked, refused = survive("command line", 4000, attempt, ConfigError)
    assert worked > 150
    assert refused > 2000
