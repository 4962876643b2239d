"""Load an export for CTranslate2 with its engine; `architectures.ctranslate2_spec` writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ctranslate2

from dragoman.export.loaded import BATCH_SIZE, Batch
from dragoman.export.tokenizer_files import open_tokenizers


def load_ctranslate2(folder: Path) -> Callable[[Batch, int], list[list[int]]]:
    """Return `LoadedExport.greedy` of CTranslate2, in the data type of the weights in the folder."""
    translator = ctranslate2.Translator(str(folder), inter_threads=1, intra_threads=1)
    source, target = open_tokenizers(folder)
    ids = target.get_vocab()

    def greedy(sentences: Batch, limit: int) -> list[list[int]]:
        texts = [[source.id_to_token(i) for i in sentence] for sentence in sentences]
        results = translator.translate_batch(
            texts, beam_size=1, min_decoding_length=0, max_decoding_length=limit, max_batch_size=BATCH_SIZE
        )
        return [[ids[token] for token in result.hypotheses[0]] for result in results]

    return greedy
