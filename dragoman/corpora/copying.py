"""Words that stand on both sides of a pair."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from dragoman.dataset import UNSEEN, Batch, Tokenizer
from dragoman.settings import SPECIAL_TOKENS, UNK


def shared_words(source: Tokenizer, target: Tokenizer) -> np.ndarray:
    """For each source id the target id of the very same word, if that is likely to be a name, a number or the like.

    -1 stands for no such word: pieces of words have none, and words of one or two letters (a, in, no) mean different
    things in two languages.
    """
    found = np.full(len(source), -1)
    if UNK in source.encode(UNSEEN):
        there = target.vocabulary
        for word, i in source.vocabulary.items():
            letters = sum(map(str.isalnum, word))
            if word not in SPECIAL_TOKENS and word not in source.tags and (letters > 2 or any(map(str.isdigit, word))):
                found[i] = there.get(word, -1)
    return found


def mask_copied_words(batch: Batch, twin: np.ndarray, rate: float, random: np.random.Generator) -> Batch:
    """The batch with [UNK], at the given rate, for words that a source and its target share, on both sides.

    What stands on both sides is copied, be it the name of a person or a number. A model that has never seen [UNK] in
    the place of one makes up some word for the next name that it does not know; now it learns to say [UNK] there, and
    `Translator` puts the name.

    Args:
        twin: see `twins`
    """
    target, twin_of = batch.target_out.numpy(), twin[batch.source.numpy()]  # (B, T), (B, S)
    drawn = (random.random(twin_of.shape) < rate) & (twin_of >= 0)  # (B, S)
    if not drawn.any():  # with pieces of words: always
        return batch
    same = (twin_of[:, :, None] == target[:, None, :]) & drawn[:, :, None]  # (B, S, T)
    # A word that occurs twice is dropped twice.
    of_target = same.any(1)  # (B, T)
    of_source = (twin_of[:, :, None] == np.where(of_target, target, -2)[:, None, :]).any(2)  # (B, S)
    started = np.pad(of_target[:, :-1], ((0, 0), (1, 0)))
    return replace(
        batch,
        source=batch.source.masked_fill(torch.from_numpy(of_source), UNK),
        target_in=batch.target_in.masked_fill(torch.from_numpy(started), UNK),
        target_out=batch.target_out.masked_fill(torch.from_numpy(of_target), UNK),
    )
