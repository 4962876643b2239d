"""Statistics of each layer during training, as curves for TensorBoard.

    statistics = LayerStatistics(model, source, target)  # a few sentences, always the same: the probe
    statistics.before_step()                             # once the gradients of an update are there
    optimizer.step()
    figures = statistics.after_step()                    # {"under the hood/dead_relu/encoder 1": 0.02, …}

A loss that stops falling does not say where the problem is. These figures do: a layer whose gradient vanishes or whose
states keep growing, units that never fire, a head that attends to everything equally. The figures:

    dead_relu          share of a feed-forward block's hidden units that are zero at every token of the probe, and so
                       learn nothing from it. Some are normal, half a block is lost width. Only with ReLU
    norm_gain,         mean absolute gain and bias of a layer's norms, and of the norm at the end of a stack
    norm_bias
    activation         root mean square of the layer's output. With pre-norm it grows from layer to layer, with
                       post-norm it is near the gain; growth without end, update by update, precedes a crash
    gradient           norm of the layer's gradient in this update, after clipping
    attention_entropy  mean entropy of the attention weights over heads and queries, in nats: 0 for attention to a
                       single token, ln 10 = 2.3 for uniform attention to 10 tokens. It is not normalised, so e to the
                       entropy is the number of tokens that a head attends to. As the probe stays the same, only the
                       model moves the curve
    update_to_weight   norm of the layer's change in this update, divided by the norm of its parameters: 1e-3 is
                       healthy, 1e-2 hints at too high a learning rate, 1e-5 at a layer that hardly moves

The statistics do not change a bit of the training: the probe runs in evaluation mode, without random numbers or
gradients, and its hooks are removed afterwards. It uses the precision of the weights, whatever that of training is, and
synchronises with the device once.

Padding is left out. Shapes: B batch, H heads, L positions of a layer, N keys, D model width.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from dragoman.architectures.decoder_only import DecoderOnly
from dragoman.architectures.encoder_only import EncoderOnly
from dragoman.dataset import masks
from dragoman.model import Attention, DecoderLayer, EncoderLayer
from dragoman.settings import PAD

GROUP = "under the hood"  # TensorBoard sorts groups by name and unfolds the first, so this one is last
MEASURES = {
    "dead_relu": "dead ReLU",
    "norm_gain": "gain of the norms",
    "norm_bias": "bias of the norms",
    "activation": "size of the states",
    "gradient": "gradient norm",
    "attention_entropy": "entropy of attention",
    "update_to_weight": "update to weight",
}


def charts() -> dict[str, dict[str, list[str | list[str]]]]:
    """One chart per measure with a line for each part, for `SummaryWriter.add_custom_scalars`."""
    return {GROUP: {title: ["Multiline", [f"{GROUP}/{measure}/.*"]] for measure, title in MEASURES.items()}}


def mean_of_real(values: Tensor, real: Tensor) -> Tensor:
    """The mean of values (B, L) where real (B, L) is true; padding may hold anything, even NaN."""
    return values.masked_fill(~real, 0).sum() / real.sum()


def dead_units(hidden: Tensor, real: Tensor) -> Tensor:
    """Share of the hidden units (B, L, F) that are zero at all real (B, L) positions."""
    fires = ((hidden != 0) & real[:, :, None]).any(0).any(0)  # (F,)
    return 1 - fires.float().mean()


def entropy(weights: Tensor, real: Tensor) -> Tensor:
    """Mean entropy in nats of attention weights (B, H, L, N) over heads and real (B, L) queries."""
    return mean_of_real(torch.special.entr(weights.float()).sum(-1).mean(1), real)


def root_mean_square(states: Tensor, real: Tensor) -> Tensor:
    """Of states (B, L, D) at real (B, L) positions."""
    return mean_of_real(states.float().square().mean(-1), real).sqrt()


class LayerStatistics:
    """Measures the layers of a model at single updates, always with the same probe."""

    def __init__(self, model: nn.Module, source: Tensor, target: Tensor) -> None:
        """Measure this model with these sentences.

        Args:
            model: one of `build_model`, not compiled, on the device of the ids
            source: ids (B, S), padded with PAD
            target: ids (B, T) from [SOS] on, padded with PAD
        """
        self.model, self.source, self.target = model, source, target
        of_source, of_target = source != PAD, target != PAD
        # Which positions of each stack hold tokens: (B, L).
        match model:
            case DecoderOnly():  # source and target are one sequence
                self.real = {"decoder": torch.cat((of_source, of_target), 1)}
            case EncoderOnly():  # each source token has several places
                places = of_source.repeat_interleave(model.settings.upsampling, 1)
                self.real = {"encoder": of_source, "decoder": places}
            case _:
                self.real = {"encoder": of_source, "decoder": of_target}
        self.layers = {
            path: module for path, module in model.named_modules() if isinstance(module, EncoderLayer | DecoderLayer)
        }
        self.gradients: dict[str, Tensor] = {}  # by layer
        self.weights: dict[str, list[Tensor]] = {}  # by layer: copies of its parameters

    @torch.no_grad()
    def before_step(self) -> None:
        """Remember gradients and weights. Call this just before the optimizer's step."""
        for path, layer in self.layers.items():
            weights = list(layer.parameters())
            self.gradients[path] = nn.utils.get_total_norm([p.grad for p in weights if p.grad is not None])
            self.weights[path] = [p.clone() for p in weights]

    @torch.no_grad()
    def after_step(self) -> dict[str, float]:
        """The figures of the update since `before_step`, by tag."""
        assert self.weights, "call before_step() first"
        figures = self._probed()
        for path, layer in self.layers.items():
            part, old = part_of(path), self.weights.pop(path)
            change = [p - before for p, before in zip(layer.parameters(), old, strict=True)]
            figures[f"gradient/{part}"] = self.gradients.pop(path)
            figures[f"update_to_weight/{part}"] = nn.utils.get_total_norm(change) / nn.utils.get_total_norm(old)
            figures |= norms(part, layer.modules())
        for stack in self.real:
            figures |= norms(f"{stack} end", self.model.get_submodule(f"{stack}.norm").modules())
        # The only synchronisation with a GPU.
        values = torch.stack([value.float() for value in figures.values()]).tolist()
        return {f"{GROUP}/{tag}": value for tag, value in zip(figures, values, strict=True)}

    def _probed(self) -> dict[str, Tensor]:
        """The figures of a forward pass of the probe."""
        figures: dict[str, Tensor] = {}
        hooks = []
        training = [module for module in self.model.modules() if module.training]
        self.model.eval()
        try:
            for path, layer in self.layers.items():
                part, real = part_of(path), self.real[path.partition(".")[0]]
                hooks += [
                    module.register_forward_hook(hook)
                    for name, module in layer.named_modules()
                    for hook in _hooks(part, name, module, real, figures)
                ]
            self.model.states(self.source, self.target, *masks(self.source, self.target))  # type: ignore[operator]
        finally:
            for hook in hooks:
                hook.remove()
            for module in training:
                module.training = True
        return figures


def part_of(path: str) -> str:
    """A layer's name for people: `encoder.layers.0` is encoder 1."""
    stack, _, number = path.split(".")
    return f"{stack} {int(number) + 1}"


def norms(part: str, modules: Iterable[nn.Module]) -> dict[str, Tensor]:
    """Mean absolute gain and bias of all norms among modules; empty if there are none."""
    found = [module for module in modules if isinstance(module, nn.LayerNorm | nn.RMSNorm)]
    values: dict[str, list[Tensor]] = {
        "norm_gain": [module.weight for module in found],
        "norm_bias": [module.bias for module in found if isinstance(module, nn.LayerNorm)],
    }
    return {f"{measure}/{part}": torch.cat(each).abs().mean() for measure, each in values.items() if each}


def _hooks(part: str, name: str, module: nn.Module, real: Tensor, figures: dict[str, Tensor]) -> list[Any]:
    """Forward hooks for a module of a layer. name is its path within the layer, "" for the layer itself.

    Each stores one number, so that the states can be freed when the next layer has been computed.
    """

    def measure_activation(_: nn.Module, __: Any, output: tuple[Tensor, Any]) -> None:
        figures[f"activation/{part}"] = root_mean_square(output[0], real)

    def measure_attention(attention: Attention, inputs: Any, _: Tensor) -> None:
        kind = "cross" if name == "cross_attention" else "self"
        figures[f"attention_entropy/{part} {kind}"] = entropy(attention.weights(*inputs), real)

    def measure_relu(_: nn.Module, __: Any, output: Tensor) -> None:
        figures[f"dead_relu/{part}"] = dead_units(output, real)

    match module:
        case EncoderLayer() | DecoderLayer():
            return [measure_activation]
        case Attention():
            return [measure_attention]
        case nn.ReLU() if name.startswith("feed_forward."):
            return [measure_relu]
    return []
