"""What is inside a model: its parameters part by part, the shape of every tensor on the way, the operations of a pass.

    tokens = source.numel() + target.numel()
    print(*lines(model, lambda: model(source, target), tokens), sep="\\n")

Any model of torch will do, and any call of it. The call is made as it stands, but without gradients, and it leaves no
hook behind.

Limits: a module is seen when it is called as one. What a model computes in methods, between modules, shows in the
shapes that the next module gets. Operations are those that torch counts, products of matrices and attention: what it
takes to add, to normalise or to look up is not among them, nor are the bytes that have to be moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from dragoman import config_file
from dragoman import settings as settings_module
from dragoman.architectures.build import build_model
from dragoman.settings import EOS, SOS, Config

DEPTH = 3  # names in the longest path of a part: encoder.layers.*.attention


def summary_lines(model: nn.Module, call: Callable[[], object], tokens: int) -> list[str]:
    """All three tables, for people.

    Args:
        call: what runs the model once, on a sentence or some
        tokens: of that call, by which its operations are divided
    """
    parts, count = parameters(model), operations(call)
    whole = parts[0].count
    counts = [
        (
            part.path,
            part.kind,
            f"{part.count:,}",
            f"{part.count / max(1, whole):.1%}",
            f"shared: {', '.join(part.shared)}" if part.shared else "",
        )
        for part in parts[1:]
    ]
    return [
        f"parameters: {whole:,}",
        *aligned(counts, right={2, 3}),
        "",
        "shapes, in the order of calls:",
        *told(shapes(model, call)),
        "",
        f"operations: {count:,} in a forward pass of {tokens:,} tokens, {count / tokens:,.0f} a token",
        "  A multiplication and an addition are two. A training step takes three times that: once forward, and twice",
        "  back, for the gradient of the states and for that of the weights.",
    ]


def aligned(rows: list[tuple[str, ...]], right: set[int]) -> list[str]:
    """Rows as lines with columns of equal width; those numbered in right are flush on that side."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


# ---------------------------------------------------------------------------------------------------------- parameters


class Part(NamedTuple):
    """One line of the table of parameters: a module, or all modules that stand at one place in layers of a kind."""

    path: str  # "" is the whole; * stands for the numbers of layers of a kind
    kind: str  # the class, and of how many
    count: int  # numbers in its parameters, but for those that another part has counted before
    shared: tuple[str, ...]  # the parameters that have counted those; told of a part of which no smaller one is listed


def parameters(model: nn.Module) -> list[Part]:
    """The whole and its parts down to DEPTH, each before its own parts; those without parameters are left out.

    The smallest parts listed add up to the whole: a matrix that several share is counted at the first.
    """
    owners: dict[int, str] = {}
    weights = {
        name: _Weight(parameter, owners.setdefault(id(parameter), name))
        for name, parameter in model.named_parameters(remove_duplicate=False)
    }
    modules = dict(model.named_modules(remove_duplicate=False))
    return list(_parts(modules, weights, "", [""], 0))


class _Weight(NamedTuple):
    values: nn.Parameter
    owner: str  # the name under which it is counted


def _parts(
    modules: Mapping[str, nn.Module], weights: Mapping[str, _Weight], place: str, paths: list[str], depth: int
) -> Iterator[Part]:
    """A place and the places below it. It stands at one path, or at the same one in each of several layers."""
    layers = [path for stack in paths for path in _layers(modules, weights, stack)]
    if layers:  # the stack itself would be the same line twice
        place_of_all, paths = _joined(place, "*"), layers
    else:
        place_of_all = place
    names = [name for path in paths for name in weights if _within(name, path)]
    below: list[list[Part]] = []
    if depth < DEPTH and paths[0] in modules and any(modules[paths[0]].children()):
        first = [name[len(paths[0]) :].lstrip(".") for name in names if _within(name, paths[0])]
        children = dict.fromkeys(name.partition(".")[0] for name in first if name)
        below = [
            list(_parts(modules, weights, _joined(place_of_all, child), [_joined(p, child) for p in paths], depth + 1))
            for child in children
        ]
    smaller = [part for parts in below for part in parts] if len(below) > 1 or place == "" else []
    kind = type(modules.get(paths[0]) or weights[paths[0]].values).__name__
    yield Part(
        place,
        kind if len(paths) == 1 else f"{len(paths)} x {kind}",
        sum(weights[name].values.numel() for name in names if weights[name].owner == name),
        () if smaller else tuple(dict.fromkeys(weights[name].owner for name in names if weights[name].owner != name)),
    )
    yield from smaller


def _layers(modules: Mapping[str, nn.Module], weights: Mapping[str, _Weight], path: str) -> list[str]:
    """The layers of the stack at a path; none if there is no stack, or one of layers that differ."""
    stack = modules.get(path)
    if not isinstance(stack, nn.ModuleList | nn.Sequential):
        return []
    layers = [_joined(path, name) for name, _ in stack.named_children()]
    kinds = {
        (
            type(modules[layer]),
            *((name[len(layer) :], each.values.shape) for name, each in weights.items() if _within(name, layer)),
        )
        for layer in layers
    }
    return layers if len(kinds) == 1 else []


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _within(name: str, path: str) -> bool:
    return not path or name == path or name.startswith(f"{path}.")


# -------------------------------------------------------------------------------------------------------------- shapes


class Call(NamedTuple):
    """One call of a module."""

    path: str  # "" is the whole
    kind: str  # the class
    inputs: str  # the shapes of all tensors that it got, as `shown`
    output: str  # and of those that it gave back


def shapes(model: nn.Module, call: Callable[[], object]) -> list[Call]:
    """Every call of a module of model while call is made, in the order in which they begin."""
    calls: list[Call] = []
    running: list[int] = []  # numbers of the calls that have begun and not ended, the innermost last

    def begin(path: str, module: nn.Module, inputs: Any, named: Any) -> None:
        running.append(len(calls))
        calls.append(Call(path, type(module).__name__, shown((inputs, named)), ""))

    def end(_: nn.Module, __: Any, output: Any) -> None:
        number = running.pop()
        calls[number] = calls[number]._replace(output=shown(output))

    hooks = []
    try:
        for path, module in model.named_modules():
            hooks.append(module.register_forward_pre_hook(partial(begin, path), with_kwargs=True))
            hooks.append(module.register_forward_hook(end))
        with torch.no_grad():
            call()
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def shown(value: object) -> str:
    """The shapes of all tensors in a value, however deep in tuples, lists and dictionaries; what is no tensor is left
    out."""
    found = groupby(tuple(tensor.shape) for tensor in _tensors(value))
    counted = [(shape, len(list(same))) for shape, same in found]
    return ", ".join(str(shape) if count == 1 else f"{count} x {shape}" for shape, count in counted)


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _tensors(each)


def told(calls: list[Call]) -> list[str]:
    """A line a call; of layers that do the same one after another, the first alone is shown."""
    rows = [
        (each.path or "(the whole)", each.kind, f"{each.inputs} -> {each.output}")
        if isinstance(each, Call)
        else (each, "", "")
        for each in _folded(calls, 0)
    ]
    return aligned(rows, right=set())


def _folded(calls: list[Call], start: int) -> Iterator[Call | str]:
    """Calls with what is likewise in a line of words. Numbers in paths count from the name number `start` on."""
    before: tuple[str, list[Call]] | None = None  # the stack of the layer shown last, and what it did
    alike: list[str] = []  # numbers of the layers that did the same
    for layer, group in groupby(calls, lambda call: _layer(call.path, start)):
        done = list(group)
        stack, _, number = layer.rpartition(".")
        relative = [call._replace(path=call.path[len(layer) :]) for call in done]
        if layer and before == (stack, relative):
            alike.append(number)
            continue
        yield from _likewise(before, alike)
        before, alike = (stack, relative), []
        yield from _folded(done, layer.count(".") + 1) if layer else done
    yield from _likewise(before, alike)


def _likewise(before: tuple[str, list[Call]] | None, alike: list[str]) -> Iterator[str]:
    if before and alike:
        numbers = alike[0] if len(alike) == 1 else f"{alike[0]} to {alike[-1]}"
        yield f"{_joined(before[0], numbers)}: likewise"


def _layer(path: str, start: int) -> str:
    """A path up to its first number, in its names from number `start` on; "" if it has none."""
    names = path.split(".")
    end = next((i for i in range(start, len(names)) if names[i].isdecimal()), None)
    return "" if end is None else ".".join(names[: end + 1])


# ---------------------------------------------------------------------------------------------------------- operations


def operations(call: Callable[[], object]) -> int:
    """The floating-point operations of a call, as `FlopCounterMode` counts them."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        call()
    return counter.get_total_flops()


# ------------------------------------------------------------------------------------------------------- a look inside


def vocabularies(config: Config) -> tuple[int, int, str]:
    """How large they are, and how that is known: before a run's data are prepared, they may become so large at most."""
    from tokenizers import Tokenizer

    run = Path(config.run.dir) / config.run.name
    with suppress(Exception):  # no such run, or one of other data: then nothing is known
        begun = config_file.load(run / "config.yaml")
        if (begun.tokenizer, begun.data.source_lang) == (config.tokenizer, config.data.source_lang):
            files = (run / "data" / f"{side}.tokenizer.json" for side in ("source", "target"))
            source, target = (Tokenizer.from_file(str(file)).get_vocab_size() for file in files)
            return source, target, f"those of the run {config.run.name}"
    return config.tokenizer.vocab_size, config.tokenizer.vocab_size, "tokenizer.vocab_size, the most they may have"


def describe_model(config: Config) -> list[str]:
    """Parameters, shapes and operations of a model, and of the way of one short sentence through it."""
    begun = None
    with suppress(Exception):  # no such run
        begun = config_file.load(Path(config.run.dir) / config.run.name / "config.yaml")
        config = settings_module.with_saved_preset(config, begun)
    unknown = config.model.preset == "auto" and (begun is None or begun.model.preset != "auto")
    note = [settings_module.STAND_IN] if unknown else []
    of_source, of_target, why = vocabularies(config)
    model = build_model(config.model, of_source, of_target).eval()
    length = min(7, config.data.max_length)
    read = 0 if config.is_language_model else length
    source = torch.tensor([[*range(4, 4 + read), EOS]])  # (1, S)
    target = torch.tensor([[SOS, *range(4, 4 + length)]])  # (1, T)
    at_once = config.model.architecture == "encoder-only"
    with torch.no_grad():
        lines = summary_lines(model, lambda: model(source, target), source.shape[1] if at_once else target.shape[1])
    head = f"{config.model.architecture}; a sentence of {length} tokens{' a side' if read else ''}"
    return [head, f"vocabularies of {of_source:,} and {of_target:,} tokens: {why}", *note, "", *lines]


def main(config: Config) -> None:
    """Print the summary of a config's model."""
    print("\n".join(describe_model(config)))
