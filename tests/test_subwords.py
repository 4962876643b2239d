"""Words cut otherwise in training: the same text, by chance that can be repeated."""

from __future__ import annotations

import itertools
import math
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from conftest import tiny_pairs
from dragoman.corpora import subword_dropout
from dragoman.corpora.subword_dropout import VARIANTS, Divider, SideDropout, SubwordDropout, likeliest, merged
from dragoman.corpora.subwords import train_tokenizer
from dragoman.dataset import EncodedPairs, EncodedSide, Tokenizer, encode_side
from dragoman.settings import TokenizerConfig

TEXTS = [
    *(text for pair in tiny_pairs(40) for text in pair),
    "a rather longer sentence, with marks (of all kinds): it's 3,000.50!",
    "  two blanks  before and within ",
    "größe, naïve, 日本語の文 and 😀",
    "ġ Ġ Ċ are letters of the bytes' alphabet",
    "[EOS] is text here, and so are [PAD] and x[UNK]y",
    "",
]
KINDS = ["bpe", "unigram"]
FAR = 10**6


@cache  # trained twice, it would have other ids
def tokenizer(kind: str) -> Tokenizer:
    return train_tokenizer(TEXTS * 2, TokenizerConfig(kind=kind, vocab_size=400))  # type: ignore[arg-type]


def rows_of(side: EncodedSide) -> list[list[int]]:
    return [side.ids[a:b].tolist() for a, b in pairwise(side.offsets)]


def cut(kind: str, rate: float, seed: int = 1, longest: int = FAR, epoch: int = 0) -> list[list[int]]:
    ours = tokenizer(kind)
    side = SideDropout(encode_side(TEXTS, ours), Divider(ours, rate, seed), longest)
    return rows_of(side(np.random.default_rng(epoch)))


@pytest.mark.parametrize("kind", KINDS)
def test_with_nothing_left_out_it_is_the_tokenizer(kind: str) -> None:
    """Guards the two algorithms, the order of merges, and where words are taken to begin, against the library's own."""
    found, library = cut(kind, 0.0), rows_of(encode_side(TEXTS, tokenizer(kind)))
    if kind == "bpe":
        assert found == library
    # Of two equally likely segmentations, such as 0 00 and 00 0, either may be taken.
    assert list(map(sorted, found)) == list(map(sorted, library))


@pytest.mark.parametrize("rate", [0.1, 0.6, 0.999])
@pytest.mark.parametrize("kind", KINDS)
def test_the_text_stays(kind: str, rate: float) -> None:
    """Guards against a model that is taught other words than those of the corpus."""
    found = cut(kind, rate)
    assert tokenizer(kind).decode_batch(found) == TEXTS
    assert found != cut(kind, 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tag_is_one_at_the_beginning_alone(kind: str) -> None:
    """Guards against a sentence on tags that would teach a model of several directions to write them."""
    ours = train_tokenizer(TEXTS * 2, TokenizerConfig(kind=kind, vocab_size=400), ["de"])  # type: ignore[arg-type]
    side = encode_side([">>de<< the tag >>de<< is text", "x>>de<<y"], ours)
    tag = ours.vocabulary[">>de<<"]
    for rate in (0.0, 0.5):
        found = rows_of(SideDropout(side, Divider(ours, rate, 1), FAR)(np.random.default_rng(0)))
        assert [row.count(tag) for row in found] == [1, 0]
        assert [row[0] == tag for row in found] == [True, False]
        assert ours.decode_batch(found) == ["the tag >>de<< is text", "x>>de<<y"]


@pytest.mark.parametrize("kind", KINDS)
def test_with_nearly_all_left_out_bytes_remain(kind: str) -> None:
    """Guards against pieces that cannot be left out, and against a text that cannot be written without them."""
    letters = [len(ours) for ours in map(tokenizer(kind).tokens, TEXTS)]
    bytes_ = [len(f" {text}".encode()) if text else 0 for text in TEXTS]
    found = list(map(len, cut(kind, 1 - 1e-9)))
    assert found == bytes_
    assert sum(found) > 1.5 * sum(letters)


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_depends_on_nothing_but_its_number(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the exact resume: what earlier epochs drew, and where the pairs are parted into chunks of work, must not
    tell; the seams between these must not either."""
    ours = tokenizer(kind)
    pairs = EncodedPairs(*(encode_side(texts, ours) for texts in (TEXTS, TEXTS[::-1])))
    used, fresh = (SubwordDropout(pairs, ours, ours, 0.3, FAR, seed=1) for _ in range(2))
    for epoch in range(5):
        used(epoch)
    five = [[rows_of(side) for side in (each(5).source, each(5).target)] for each in (used, fresh)]
    assert five[0] == five[1]
    assert five[0][0] != five[0][1][::-1], "the sides draw for themselves"
    assert rows_of(used(6).source) != five[0][0]
    assert rows_of(SubwordDropout(pairs, ours, ours, 0.3, FAR, seed=2)(5).source) != five[0][0]
    monkeypatch.setattr(subword_dropout, "CHUNK", 7)
    assert rows_of(fresh(5).source) == five[0][0]


def test_words_are_told_apart() -> None:
    """Guards the numbers by which equal words are found: were two of them equal, one word would become the other."""
    words = [tuple(word) for n in range(4) for word in itertools.product(range(20), repeat=n) if word]
    ids = np.array([i for word in words for i in word], np.uint16)
    starts = np.cumsum([0, *map(len, words)])[:-1]
    found = subword_dropout.hashes(ids, starts)
    assert len(set(found.tolist())) == len(words)
    assert subword_dropout.hashes(ids[:0], starts[:0]).tolist() == []


def test_a_merge_is_left_out_as_often_as_asked() -> None:
    """Guards the meaning of the rate: a word that a single merge makes is as often left apart."""
    ours = train_tokenizer(["xy xy xy"], TokenizerConfig(kind="bpe", vocab_size=261))  # the bytes and one merge
    word = tuple(ours.encode("xy"))
    assert len(word) == 2, "of the blank, x and y, two are merged"
    rate, seeds = 0.2, 200
    dividers = [Divider(ours, rate, seed) for seed in range(seeds)]
    apart = [len(each.variant(word, number)) == 3 for each in dividers for number in range(VARIANTS)]
    assert np.mean(apart) == pytest.approx(rate, abs=4 * math.sqrt(rate * (1 - rate) / len(apart)))


def test_merges_go_by_rank_and_are_offered_again() -> None:
    """Guards BPE's order, the earliest learnt merge first, and that what is left out once may be made later."""
    ranks = {("b", "c"): 0, ("a", "b"): 1, ("ab", "c"): 2, ("d", "e"): 3, ("a", "bc"): 4}
    assert merged("abcde", ranks, lambda: False) == ["abc", "de"]
    # Of a|b, b|c and d|e only the last is offered first; then a|b and b|c anew, of which the second is refused.
    answers = iter([True, True, False, False, True])
    assert merged("abcde", ranks, lambda: next(answers, False)) == ["abc", "de"]
    answers = iter([False, True, True, True, True])
    assert merged("abcde", ranks, lambda: next(answers, False)) == ["ab", "c", "d", "e"]


def test_the_likeliest_of_all_segmentations_is_found() -> None:
    """Guards the search against every way to cut a word, listed."""
    random = np.random.default_rng(0)
    for _ in range(50):
        word = "".join(random.choice(list("ab"), 7))
        pieces = {word[a:b] for a in range(7) for b in range(a + 1, 8) if b - a == 1 or random.random() < 0.5}
        scores = {piece: float(-random.random()) * len(piece) ** 0.5 for piece in sorted(pieces)}

        def ways(rest: str, scores: dict[str, float] = scores) -> list[list[str]]:
            if not rest:
                return [[]]
            heads = [rest[:n] for n in range(1, len(rest) + 1) if rest[:n] in scores]
            return [[head, *tail] for head in heads for tail in ways(rest[len(head) :])]

        best = max(ways(word), key=lambda way: sum(scores[piece] for piece in way))
        found = likeliest(word, scores, lambda: False)
        assert "".join(found) == word
        assert sum(scores[piece] for piece in found) == pytest.approx(sum(scores[piece] for piece in best))


@pytest.mark.parametrize("kind", KINDS)
def test_a_sentence_does_not_outgrow_the_limit(kind: str) -> None:
    """Guards learned positions, and memory, against a sentence that is cut into bytes."""
    short, long = rows_of(encode_side(TEXTS, tokenizer(kind))), cut(kind, 0.999)
    found = cut(kind, 0.999, longest=60)
    assert found == [new if len(new) <= 60 else kept for new, kept in zip(long, short, strict=True)]
    assert {len(new) <= 60 for new in long} == {True, False}


def test_a_tokenizer_without_merges() -> None:
    """Guards the smallest vocabulary that bytes allow: there is nothing to leave out, and nothing to fail at."""
    ours = train_tokenizer(TEXTS, TokenizerConfig(kind="bpe", vocab_size=260))
    side = encode_side(TEXTS, ours)
    assert rows_of(SideDropout(side, Divider(ours, 0.5, 1), FAR)(np.random.default_rng(0))) == rows_of(side)


@pytest.mark.parametrize("kind", KINDS)
def test_text_without_blanks_is_cut_in_parts(kind: str) -> None:
    """Guards the time for Chinese and the like: were a sentence one word, none would come twice."""
    letters = "天地玄黄宇宙洪荒日月盈昃辰宿列张"
    random = np.random.default_rng(0)
    texts = ["".join(letters[i] for i in random.integers(0, 16, size=40)) for _ in range(60)]
    ours = train_tokenizer(texts, TokenizerConfig(kind=kind, vocab_size=400))  # type: ignore[arg-type]
    dropout = SideDropout(encode_side(texts, ours), Divider(ours, 0.2, 1), FAR)
    assert max(map(len, dropout.kinds)) <= subword_dropout.LONG
    assert len(dropout.kinds) < len(dropout.words)
    found = rows_of(dropout(np.random.default_rng(0)))
    assert ours.decode_batch(found) == texts
    assert found != rows_of(encode_side(texts, ours))
    whole = rows_of(SideDropout(encode_side(texts, ours), Divider(ours, 0.0, 1), FAR)(np.random.default_rng(0)))
    assert list(map(len, whole)) == list(map(len, rows_of(encode_side(texts, ours))))
