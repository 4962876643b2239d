"""Config files: read strictly from YAML, with file and line in every error, and written back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from dragoman import reading, resources
from dragoman.errors import ConfigError
from dragoman.setting_types import NULLS, did_you_mean, kind_of, parse_value, shown
from dragoman.settings import DEFAULTS_OF_0_1, OF_VERSION_0_1, RETIRED, SECTIONS, SETTINGS, Config, with_values

DEFAULT = resources.HOME / "config.yaml"  # the default run; its comments are the meanings of the settings


def load(path: Path) -> Config:
    """Read a config file; settings it leaves out keep their defaults. Raises ConfigError, which names the file."""
    return loads(read_config_file(path), path)


def loads(data: bytes, name: Path) -> Config:
    """Read a config from bytes. Raises ConfigError, which calls the file `name`."""
    values = settings_in_file(data, name)
    try:
        return with_values(Config(), values)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def dump(config: Config) -> str:
    """Write all settings as YAML, which `load` reads back to an equal config.

    Non-ASCII characters are escaped, so that no terminal or locale can damage the output when it is redirected.
    """
    sections = {name: asdict(getattr(config, name)) for name in SECTIONS}
    return yaml.dump(sections, Dumper=_Dumper, sort_keys=False)


class _Dumper(yaml.SafeDumper):
    """Quotes text such as "none", which would otherwise be read back as null."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'" if text.lower() in NULLS else None)


_Dumper.add_representer(str, _represent_text)


def meanings() -> dict[str, str]:
    """What each setting means, by its dotted name: the comment beside it in the config.yaml of the program."""
    comments, section = {}, ""
    for line in DEFAULT.read_text(encoding="utf-8").splitlines():
        name, colon, rest = line.partition(":")
        if line.endswith(":") and name in SECTIONS:
            section = name
        elif colon and (key := f"{section}.{name.strip()}") in SETTINGS:
            comments[key] = rest.partition("# ")[2]
    return comments


def read_config_file(path: Path) -> bytes:
    """Read a config file as bytes. Raises ConfigError."""
    try:
        return reading.read(path, reading.CONFIG)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read this config file: {error.strerror}.") from None


def settings_in_file(data: bytes, path: Path) -> dict[str, Any]:
    """The settings in a file by dotted name, converted and checked. Raises ConfigError, which names file and line."""
    root = _compose(data, path)
    if root is None:
        raise ConfigError(
            f"{path}: the file is empty, but it must contain sections such as model: with settings under them."
        )
    values: dict[str, Any] = {}
    older = False
    for section, line, content in _items(path, root, "the file"):
        if section in SETTINGS:
            raise ConfigError(
                f"{path}:{line}: write {section} on two levels: {section.replace('.', ': and under it ')}."
            )
        if section not in SECTIONS:
            hint = did_you_mean(section, [*SECTIONS, *SETTINGS])
            raise ConfigError(f"{path}:{line}: {shown(section)} is not a section{hint}")
        for name, line, node in _items(path, content, section):
            key = f"{section}.{name}"
            if key in RETIRED:
                older |= key in OF_VERSION_0_1
                continue
            if key not in SETTINGS:
                raise ConfigError(f"{path}:{line}: {shown(key)} is not a setting{did_you_mean(key, SETTINGS)}")
            try:
                values[key] = _scalar(key, node)
            except ConfigError as error:
                raise ConfigError(f"{path}:{line}: {error}") from None
    return (DEFAULTS_OF_0_1 if older else {}) | values


def _compose(data: bytes, path: Path) -> yaml.Node | None:
    """The syntax tree of a YAML file; None if it is empty. No object is made, and no alias is copied."""
    if len(data) > reading.CONFIG:  # it would take the parser seconds for each hundred thousand lines
        raise ConfigError(f"{path}: larger than {reading.shown(reading.CONFIG)}, but a config file has 10,000 bytes.")
    try:
        return yaml.compose(data.decode("utf-8"), Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        line, byte = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
        raise ConfigError(f"{path}:{line}: byte 0x{byte:02x} is not valid UTF-8: save the file as UTF-8.") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply, but a config file has two levels.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)  # a forbidden character has a reason but no mark
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", "unreadable")
        raise ConfigError(f"{path}{line}: not valid YAML: {problem}.") from None


def _items(path: Path, node: yaml.Node, name: str) -> Iterator[tuple[str, int, yaml.Node]]:
    """The keys of a mapping, each with its line and value. Refuses duplicate keys, of which YAML keeps the last."""
    if not isinstance(node, yaml.MappingNode):
        kind = "a list" if isinstance(node, yaml.SequenceNode) else shown(node.value)
        things = "sections such as model:" if name == "the file" else "settings, each on an indented line of its own"
        raise ConfigError(f"{path}:{node.start_mark.line + 1}: {name} is {kind}, but it must contain {things}.")
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(f"{path}:{line}: a name in {name} must be a plain word.")
        if key.value in lines:
            full = key.value if name == "the file" else f"{name}.{key.value}"
            raise ConfigError(f"{path}:{line}: {shown(full)} appears twice, first on line {lines[key.value]}.")
        lines[key.value] = line
        yield key.value, line, value


def _scalar(key: str, node: yaml.Node) -> Any:
    """The checked value of one setting in a file."""
    if not isinstance(node, yaml.ScalarNode):
        kind = "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"
        raise ConfigError(f"{key} is {kind}, but it must be a single value.")
    value = parse_value(key, SETTINGS[key], node.value, quoted=node.style is not None)
    # We could accept `no` as Norwegian, but every other program that reads the file would see False.
    if isinstance(value, str) and not kind_of(SETTINGS[key]).choices and node.tag != "tag:yaml.org,2002:str":
        raise ConfigError(
            f'{key} is {shown(node.value)}, which YAML does not read as text: quote it, as "{node.value}".'
        )
    return value
