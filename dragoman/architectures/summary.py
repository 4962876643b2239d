"""`dragoman summary`: the parameters and the shapes of each module of a model, and the operations of a pass.

Limits: only calls of modules are listed; code between modules is visible only in the next input shapes. Operations are
those that torch counts, matrix products and attention: additions, norms, look-ups and memory traffic are not included.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from dragoman import config_file, errors, reading
from dragoman import settings as settings_module
from dragoman.architectures.build import build_model
from dragoman.console import table
from dragoman.dataset import Tokenizer, masks
from dragoman.settings import EOS, SOS, Config

LAYER = re.compile(r"(?<=\blayers)\.(\d+)")  # the number of a layer in a path


def main(config: Config) -> None:
    """Print the summary of the model that a config describes."""
    print("\n".join(describe_model(config)))


def describe_model(config: Config) -> list[str]:
    """The summary of a config's model, with the shapes and operations of one short sentence, as lines."""
    saved = None
    with suppress(OSError, errors.ConfigError):  # there may be no such run
        saved = config_file.load(Path(config.run.dir) / config.run.name / "config.yaml")
        config = settings_module.with_saved_preset(config, saved)
    unknown = config.model.preset == "auto" and (saved is None or saved.model.preset != "auto")
    note = [settings_module.STAND_IN] if unknown else []
    source_size, target_size, origin = vocabulary_sizes(config, saved)
    model = build_model(config.model, source_size, target_size)
    length = min(7, config.data.max_length)
    read = 0 if config.is_language_model else length
    source = torch.tensor([[*range(4, 4 + read), EOS]])  # (1, S)
    target = torch.tensor([[SOS, *range(4, 4 + length)]])  # (1, T)
    tokens = source.shape[1] if config.model.architecture == "encoder-only" else target.shape[1]
    return [
        f"{config.model.architecture}, with a sentence of {length} tokens{' on each side' if read else ''}",
        f"vocabularies of {source_size:,} and {target_size:,} tokens: {origin}",
        *note,
        "",
        *summary_lines(model, (source, target, *masks(source, target)), tokens),
    ]


def vocabulary_sizes(config: Config, saved: Config | None) -> tuple[int, int, str]:
    """The sizes of both vocabularies, and their origin: the run if it has data, otherwise the limit in the config."""
    data = Path(config.run.dir) / config.run.name / "data"
    if saved and (saved.tokenizer, saved.data.source_lang) == (config.tokenizer, config.data.source_lang):
        with suppress(OSError, ValueError):  # the data may not be prepared yet
            files = (data / f"{side}.tokenizer.json" for side in ("source", "target"))
            source, target = (len(Tokenizer.from_json(reading.read(file, reading.TEXT).decode())) for file in files)
            return source, target, f"those of the run {config.run.name}"
    return config.tokenizer.vocab_size, config.tokenizer.vocab_size, "the limit, tokenizer.vocab_size"


def summary_lines(model: nn.Module, inputs: tuple[Tensor, ...], tokens: int) -> list[str]:
    """The table of one call of the model with these inputs. Operations are also divided by `tokens`."""
    model.eval()
    with FlopCounterMode(display=False) as operations:
        calls = trace(model, inputs)
    rows = [
        (call.path or "(the whole)", call.kind, f"{call.parameters:,}", f"{call.inputs} -> {call.output}")
        for call in calls
    ]
    count = operations.get_total_flops()
    return [
        f"parameters: {calls[0].parameters:,}",
        "modules in the order of calls, with their parameters and shapes; * stands for each layer of a stack:",
        *(f"  {line}" for line in table(rows, "<<><")),
        *(f"shared: {name} = {owner}" for name, owner in shared_weights(model)),
        "",
        f"operations: {count:,} in a forward pass of {tokens:,} tokens, {count / tokens:,.0f} per token",
        "  A multiplication and an addition count as two. A training step takes three times as many: one forward pass,",
        "  and two backward, for the gradients of the states and of the weights.",
    ]


def shared_weights(model: nn.Module) -> list[tuple[str, str]]:
    """The names of weights that a module uses but does not own, each with the first name of the same weight."""
    names: dict[int, str] = {}
    pairs = [(name, names.setdefault(id(p), name)) for name, p in model.named_parameters(remove_duplicate=False)]
    return [(name, owner) for name, owner in pairs if name != owner]


class Call(NamedTuple):
    """One call of a module."""

    path: str  # "" is the whole model; * stands for all layer numbers
    kind: str  # the class
    parameters: int  # of the module and everything in it; a shared weight counts in each module that uses it
    inputs: str  # the shapes of all tensors among its arguments, see `shapes_of`
    output: str  # and of those that it returned


def trace(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Call]:
    """Call the model once and list the calls of its modules in the order in which they start. No hook stays behind.

    Layers of a stack are alike, so only the first of each is listed.
    """
    calls: list[Call] = []
    running: list[int] = []  # the numbers of the calls that have not returned, innermost last

    def begin(path: str, module: nn.Module, arguments: Any) -> None:
        running.append(len(calls))
        parameters = sum(p.numel() for p in module.parameters())
        calls.append(Call(path, type(module).__name__, parameters, shapes_of(arguments), ""))

    def end(_: nn.Module, __: Any, output: Any) -> None:
        number = running.pop()
        calls[number] = calls[number]._replace(output=shapes_of(output))

    with ExitStack() as hooks, torch.no_grad():
        for path, module in model.named_modules():
            if all(number == "0" for number in LAYER.findall(path)):
                hooks.callback(module.register_forward_pre_hook(partial(begin, LAYER.sub(".*", path))).remove)
                hooks.callback(module.register_forward_hook(end).remove)
        model(*inputs)
    return calls


def shapes_of(value: object) -> str:
    """The shapes of all tensors in nested tuples and lists. Anything that is not a tensor is left out."""
    counted = [(shape, len(list(same))) for shape, same in groupby(tuple(tensor.shape) for tensor in _tensors(value))]
    return ", ".join(str(shape) if count == 1 else f"{count} x {shape}" for shape, count in counted)


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
