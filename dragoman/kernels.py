"""Faster forms of two operations that PyTorch computes slowly on a CPU."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.device import random_words


class Dropout(nn.Module):
    """Zero a share of the values in training and scale up the rest, so that the mean stays (section 5.4 of the paper).

    The plain equivalent is `nn.Dropout(share)`, with other random numbers. On a CPU, drawing these is what costs time.
    This draws 64 bits for four values: 16 bits give the share to within 1/65536, in a fifth of the time of `F.dropout`.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """Map x of any shape to the same shape; outside training, return it unchanged."""
        if not self.training or self.share == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.share)
        bits = random_words(math.ceil(x.numel() / 4)).view(torch.int16)[: x.numel()].view(x.shape)
        least = min(round(self.share * 2**16), 2**16 - 1) - 2**15
        factors = torch.ge(bits, least, out=torch.empty(x.shape, dtype=x.dtype))  # 0 or 1
        return x * factors.div_(1 - self.share)


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last dimension of scores (..., S). The plain equivalent is `scores.softmax(-1)`.

    On a CPU, torch handles rows shorter than a vector register one number at a time: in bfloat16, a row of 14 scores, a
    typical sentence, takes four times as long as one of 32. So pad short rows with -inf, which gets no weight.
    """
    if torch.compiler.is_exporting():  # an exported graph must take any S, and padding would fix a range
        return scores.softmax(-1)
    keys = scores.shape[-1]
    missing = 64 // scores.element_size() - keys  # up to the 64 bytes of an AVX-512 register
    if scores.device.type != "cpu" or missing <= 0:
        return scores.softmax(-1)
    return F.pad(scores, (0, missing), value=-math.inf).softmax(-1)[..., :keys]
