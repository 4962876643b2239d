"""`dragoman summary`: the parameters of a model part by part, the shape of every tensor, and the operations of a pass.

Limits: a module shows when it is called. What a model computes between modules shows only in the shapes that the next
module gets. Operations are those that torch counts, matrix products and attention: additions, norms, look-ups and
memory traffic are not included.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
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
from dragoman.dataset import Tokenizer, masks
from dragoman.settings import EOS, SOS, Config

DEPTH = 3  # names in the longest path in the table of parameters: encoder.layers.*.attention
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
    of_source, of_target, origin = vocabulary_sizes(config, saved)
    model = build_model(config.model, of_source, of_target)
    length = min(7, config.data.max_length)
    read = 0 if config.is_language_model else length
    source = torch.tensor([[*range(4, 4 + read), EOS]])  # (1, S)
    target = torch.tensor([[SOS, *range(4, 4 + length)]])  # (1, T)
    tokens = source.shape[1] if config.model.architecture == "encoder-only" else target.shape[1]
    return [
        f"{config.model.architecture}, with a sentence of {length} tokens{' on each side' if read else ''}",
        f"vocabularies of {of_source:,} and {of_target:,} tokens: {origin}",
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
    """All three tables for one call of the model with these inputs. Operations are also divided by `tokens`."""
    model.eval()
    with FlopCounterMode(display=False) as operations, torch.no_grad():
        model(*inputs)
    parts, count = parameters(model), operations.get_total_flops()
    whole = parts[0].count
    rows = [
        (path, kind, f"{count:,}", f"{count / whole:.1%}", f"shared: {', '.join(shared)}" if shared else "")
        for path, kind, count, shared in parts[1:]
    ]
    return [
        f"parameters: {whole:,}",
        *aligned(rows, right={2, 3}),
        "",
        "shapes, in the order of calls; * stands for every layer of a stack:",
        *shape_lines(shapes(model, inputs)),
        "",
        f"operations: {count:,} in a forward pass of {tokens:,} tokens, {count / tokens:,.0f} per token",
        "  A multiplication and an addition count as two. A training step takes three times as many: one forward pass,",
        "  and two backward, for the gradients of the states and of the weights.",
    ]


def aligned(rows: list[tuple[str, ...]], right: set[int]) -> list[str]:
    """Rows as lines with columns of equal width. The columns numbered in `right` are aligned on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


# --- Parameters ---------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """One line of the table of parameters: a module, or the same module in every layer of a stack."""

    path: str  # "" is the whole model; * stands for all layer numbers
    kind: str  # the class, and how many modules of it
    count: int  # parameters, without those counted in an earlier part
    shared: tuple[str, ...]  # where those were counted; empty if smaller parts are listed, which name it


def parameters(model: nn.Module) -> list[Part]:
    """The whole model and its parts down to DEPTH, in the order of the modules. Parts without parameters are left out.

    The smallest parts add up to the whole: a shared matrix is counted where it comes first.
    """
    owners: dict[int, str] = {}
    counts: Counter[str] = Counter()
    modules: dict[str, set[str]] = defaultdict(set)  # by path of a part
    shared: dict[str, dict[str, None]] = defaultdict(dict)  # likewise, as ordered sets
    for name, weight in model.named_parameters(remove_duplicate=False):
        owner = owners.setdefault(id(weight), name)
        names = name.split(".")[:-1]
        for path in (".".join(names[:end]) for end in range(len(names) + 1)):
            part = LAYER.sub(".*", path).removesuffix(".*")
            if part.replace(".*", "").count(".") >= DEPTH or path.endswith("layers"):
                continue
            modules[part].add(path)
            counts[part] += weight.numel() if owner == name else 0
            shared[part] |= {} if owner == name else {owner: None}
    children = Counter(map(_parent, modules))
    # A part that is all of its parent would only repeat its line.
    listed = [part for part in modules if _parent(part) == "" or children[_parent(part)] > 1]
    parents = set(map(_parent, listed))
    return [
        Part(part, _kind(model, modules[part]), counts[part], () if part in parents else tuple(shared[part]))
        for part in listed
    ]


def _parent(part: str) -> str:
    return part.rpartition(".")[0].removesuffix(".*")


def _kind(model: nn.Module, paths: set[str]) -> str:
    kind = type(model.get_submodule(min(paths))).__name__
    return kind if len(paths) == 1 else f"{len(paths)} x {kind}"


# --- Shapes -------------------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """One call of a module."""

    path: str  # "" is the whole model; * stands for all layer numbers
    kind: str  # the class
    inputs: str  # the shapes of all tensors among its arguments, see `shown`
    output: str  # and of those that it returned


def shapes(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Call]:
    """The calls of modules while the model is called once, in the order in which they start. No hook stays behind.

    Layers of a stack are alike, so only the first of each is listed.
    """
    calls: list[Call] = []
    running: list[int] = []  # the numbers of the calls that have not returned, innermost last

    def begin(path: str, module: nn.Module, given: Any) -> None:
        running.append(len(calls))
        calls.append(Call(path, type(module).__name__, shown(given), ""))

    def end(_: nn.Module, __: Any, output: Any) -> None:
        number = running.pop()
        calls[number] = calls[number]._replace(output=shown(output))

    with ExitStack() as hooks, torch.no_grad():
        for path, module in model.named_modules():
            if all(number == "0" for number in LAYER.findall(path)):
                hooks.callback(module.register_forward_pre_hook(partial(begin, LAYER.sub(".*", path))).remove)
                hooks.callback(module.register_forward_hook(end).remove)
        model(*inputs)
    return calls


def shown(value: object) -> str:
    """The shapes of all tensors in nested tuples and lists. Anything that is not a tensor is left out."""
    counted = [(shape, len(list(same))) for shape, same in groupby(tuple(tensor.shape) for tensor in _tensors(value))]
    return ", ".join(str(shape) if count == 1 else f"{count} x {shape}" for shape, count in counted)


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


def shape_lines(calls: list[Call]) -> list[str]:
    """One line per call."""
    rows = [(call.path or "(the whole)", call.kind, f"{call.inputs} -> {call.output}") for call in calls]
    return aligned(rows, right=set())
