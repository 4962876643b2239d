"""Copy dropout masks the same words on both sides."""

import numpy as np
import torch

from dragoman import dataset
from dragoman.corpora import copying
from dragoman.corpora.subwords import train_tokenizers
from dragoman.dataset import (
    Tokenizer,
)
from dragoman.settings import UNK, TokenizerConfig

TWINS = [
    ("Anna met Zoltan, and Anna paid 40 euros.", "Anna ha incontrato Zoltan, e Anna ha pagato 40 euro."),
    ("no, in a taxi", "no, in taxi"),
]


def pair_with_twins() -> tuple[dataset.Batch, np.ndarray, Tokenizer, Tokenizer]:
    settings = TokenizerConfig(min_frequency=1)
    source, target = train_tokenizers(*dataset.unzip_pairs(TWINS), settings)
    encoded = dataset.encode_pairs(TWINS, source, target)
    return dataset.make_batch(encoded, np.arange(2)), copying.shared_words(source, target), source, target


def test_shared_words_are_names_and_numbers() -> None:
    """Guards against false friends: a short word in both languages is seldom the same word."""
    _, twin, source, target = pair_with_twins()
    found = {source.decode([i]): target.decode([int(j)]) for i, j in enumerate(twin) if j >= 0}
    assert found == {word: word for word in ("Anna", "Zoltan", "40", "taxi")}
    pieces = TokenizerConfig(kind="bpe", vocab_size=300)
    assert (copying.shared_words(*train_tokenizers(["Anna"], ["Anna"], pieces)) == -1).all()


def test_copied_words_are_masked_on_both_sides() -> None:
    """[UNK] on one side only would teach a model to drop or invent words."""
    batch, twin, source, target = pair_with_twins()
    random = np.random.default_rng(0)
    all_hidden = copying.mask_copied_words(batch, twin, 0.999999, random)
    assert source.decode(all_hidden.source[0].tolist()) == "[UNK] met [UNK], and [UNK] paid [UNK] euros."
    assert (
        target.decode(all_hidden.target_out[0].tolist()) == "[UNK] ha incontrato [UNK], e [UNK] ha pagato [UNK] euro."
    )
    for _ in range(50):
        hidden = copying.mask_copied_words(batch, twin, 0.3, random)
        texts = source.decode(hidden.source[0].tolist()), target.decode(hidden.target_out[0].tolist())
        for word in ("Anna", "Zoltan", "40"):
            assert texts[0].count(word) == texts[1].count(word) in (0, TWINS[0][0].count(word))
        assert torch.equal(hidden.target_in[:, 1:] == UNK, hidden.target_out[:, :-1] == UNK)
    untouched = copying.mask_copied_words(batch, twin, 0.0, random)
    assert torch.equal(untouched.source, batch.source)
    assert torch.equal(untouched.target_in, batch.target_in)
