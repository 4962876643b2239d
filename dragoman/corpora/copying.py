"""Copy dropout: hide words that source and target share, so that a model learns to copy unknown ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from dragoman.dataset import UNSEEN, Batch, Tokenizer
from dragoman.settings import SPECIAL_TOKENS, UNK


def shared_words(source: Tokenizer, target: Tokenizer) -> np.ndarray:
    """Map each source id to the target id of the same word, if that is likely a name, a number or the like; else -1.

    Subwords have none. Words of one or two letters (a, in, no) have none, since they mean different things in two
    languages.
    """
    found = np.full(len(source), -1)
    if UNK in source.encode(UNSEEN):
        target_ids = target.vocabulary
        for word, i in source.vocabulary.items():
            letters = sum(map(str.isalnum, word))
            if word not in SPECIAL_TOKENS and word not in source.tags and (letters > 2 or any(map(str.isdigit, word))):
                found[i] = target_ids.get(word, -1)
    return found


def mask_copied_words(batch: Batch, twin: np.ndarray, rate: float, random: np.random.Generator) -> Batch:
    """Replace words that a source and its target share by [UNK], at the given rate, on both sides.

    Words that occur on both sides, such as names and numbers, are copied. A model that never saw [UNK] in their place
    invents a word for the next name it does not know; this way it learns to write [UNK], which `Translator` replaces
    by the name.

    Args:
        twin: the result of `shared_words`
    """
    target, twin_of = batch.target_out.numpy(), twin[batch.source.numpy()]  # (B, T), (B, S)
    drawn = (random.random(twin_of.shape) < rate) & (twin_of >= 0)  # (B, S)
    if not drawn.any():  # always so with subwords
        return batch
    same = (twin_of[:, :, None] == target[:, None, :]) & drawn[:, :, None]  # (B, S, T)
    of_target = same.any(1)  # (B, T)
    # Hide every occurrence of a word that is drawn once.
    of_source = (twin_of[:, :, None] == np.where(of_target, target, -2)[:, None, :]).any(2)  # (B, S)
    of_target_in = np.pad(of_target[:, :-1], ((0, 0), (1, 0)))
    return replace(
        batch,
        source=batch.source.masked_fill(torch.from_numpy(of_source), UNK),
        target_in=batch.target_in.masked_fill(torch.from_numpy(of_target_in), UNK),
        target_out=batch.target_out.masked_fill(torch.from_numpy(of_target), UNK),
    )
