"""An export as its own engine loads it: what `verification` compares with our translations."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import ctranslate2

from dragoman import reading
from dragoman.settings import EOS

Batch = Sequence[Sequence[int]]  # token ids, without [SOS] and [EOS]
Greedy = Callable[[Batch, int], list[list[int]]]  # sentences, limit of tokens with [EOS] -> translations
BATCH_SIZE = 32  # sentences translated together


class LoadedExport(NamedTuple):
    """The functions of an export, loaded the way its users load it."""

    greedy: Greedy
    encode: Callable[[Sequence[str]], list[list[int]]]  # texts -> ids, [EOS] last
    decode: Callable[[Batch], list[str]]  # ids -> texts


def until_eos(ids: list[int]) -> list[int]:
    """Cut ids before the first [EOS]."""
    return ids[: ids.index(EOS)] if EOS in ids else ids


def ctranslate2_greedy(model: Path) -> Greedy:
    """Return `LoadedExport.greedy` of CTranslate2, in the data type of the weights in the folder."""
    translator = ctranslate2.Translator(str(model), inter_threads=1, intra_threads=1)
    source, target = saved_vocabularies(model)
    ids = {token: i for i, token in enumerate(target)}

    def greedy(sentences: Batch, limit: int) -> list[list[int]]:
        texts = [[source[i] for i in sentence] for sentence in sentences]
        results = translator.translate_batch(
            texts, beam_size=1, min_decoding_length=0, max_decoding_length=limit, max_batch_size=BATCH_SIZE
        )
        return [[ids[token] for token in result.hypotheses[0]] for result in results]

    return greedy


def saved_vocabularies(model: Path) -> list[list[str]]:
    """Read the tokens of source and target from the files of CTranslate2, which saves one file if they are the same."""
    shared = model / "shared_vocabulary.json"
    paths = [shared] * 2 if shared.exists() else [model / f"{side}_vocabulary.json" for side in ("source", "target")]
    return [json.loads(reading.read(path, reading.TEXT)) for path in paths]
