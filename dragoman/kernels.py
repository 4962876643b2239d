"""Operations that PyTorch computes slowly on a CPU."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.device import random_words


class Dropout(nn.Module):
    """Zero a share of the values in training and scale the others up, so that their mean stays (section 5.4).

    What costs on a CPU is to draw the random numbers. Sixteen bits decide on a value as well as thirty-two do, to
    within 1/65536, and four of them are drawn at a time: a fifth of the time of `F.dropout`.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape to the same shape; unchanged outside of training."""
        if not self.training or self.share == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.share)
        bits = random_words(math.ceil(x.numel() / 4)).view(torch.int16)[: x.numel()].view(x.shape)
        least = min(round(self.share * 2**16), 2**16 - 1) - 2**15
        factors = torch.ge(bits, least, out=torch.empty(x.shape, dtype=x.dtype))  # 0 or 1
        return x * factors.div_(1 - self.share)


def softmax(scores: Tensor) -> Tensor:
    """softmax over the last dimension, of scores (..., S).

    On a CPU, torch takes rows that do not fill a vector register number by number: 14 scores, as many as a sentence has
    words, cost it in bfloat16 four times as much as 32. So short rows are filled up with -inf, whose share is nothing.
    """
    keys = scores.shape[-1]
    missing = 64 // scores.element_size() - keys  # bytes of AVX-512
    if scores.device.type != "cpu" or missing <= 0:
        return scores.softmax(-1)
    return F.pad(scores, (0, missing), value=-math.inf).softmax(-1)[..., :keys]
