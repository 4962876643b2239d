"""The search for a translation: from a model that rates the next token to whole sentences with scores.

One search serves greedy decoding (a beam of one), beam search, diverse beam search and sampling. It knows no
Transformer and no text: a model is anything with `start` and `step`; a table of numbers will do for a test.

Shapes are written in these letters:
    A sentences still being translated   P hypotheses of each   V vocabulary   T tokens so far
The P hypotheses of a sentence are G groups of W: one group in a plain beam, several that each go their own way in a
diverse one, and groups of a single hypothesis when sampling. Row a * P + p of the model's batch is hypothesis p of
sentence a.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from dragoman.architectures import ctc
from dragoman.settings import EOS, PAD, SOS, UNK, DecodingConfig


class StepModel(Protocol):
    """What a search needs of a model; the state offers `select(hypotheses, sentences)`, as `model.State` does."""

    def start(self, source: Tensor) -> Any:
        """Read source ids (A, S) and return the state before the first step, with one hypothesis a sentence."""
        ...

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits (A P, V) of the token after tokens (A P,), and the state that has seen them."""
        ...


class Hypothesis(NamedTuple):
    """One translation found."""

    tokens: list[int]  # without [SOS] and [EOS]
    log_probs: list[float]  # of every token, in nats, that of the closing [EOS] last if there is one
    score: float  # their sum / what `normalizer` makes of their number: the measure by which hypotheses are compared
    complete: bool  # False if the limit of length cut it off before its [EOS]


NOTHING = Hypothesis([], [], -math.inf, False)  # if the rules have left no token to go on with
Watch = Callable[[int, list[int]], None]


@torch.inference_mode()
def search(
    model: StepModel,
    source: Tensor,
    limits: Sequence[int],
    settings: DecodingConfig | None = None,
    least: Sequence[int] | None = None,
    unknowns: Sequence[int] | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
    watch: Watch | None = None,
) -> list[list[Hypothesis]]:
    """The best translations of each sentence of source (A, S), best first, settings.n_best at most, all different.

    At each step the best continuations of a sentence are kept, those that end among them, so that a beam of one is
    exactly greedy decoding. A group of hypotheses is finished when nothing still alive in it can overtake what it has
    found, which is certain: log-probabilities only fall, and the most that the division by length can give back is
    known. A sentence all of whose groups are finished leaves the batch.

    Args:
        limits: (A) tokens of a translation at most, the closing [EOS] included
        settings: of these, `n_best` and those that choose the next tokens; None: greedy decoding
        least: (A) tokens of a translation before [EOS] may follow; None: no such limit
        unknowns: (A) how many [UNK] a translation may hold; None: as many as are likely
        prefixes: (A) tokens that each translation begins with; None: none
        watch: is called after each step with the number of a sentence and those of its tokens that are settled, because
            all hypotheses that could still win agree on them
    """
    settings = settings or DecodingConfig()
    rules = _Rules(settings, least, unknowns, prefixes, source.device)
    loop = _greedy if settings.beam_size == 1 and not settings.sample else _beam
    return loop(model, source, limits, settings, rules, watch)


class PlacesModel(Protocol):
    """What `read_off` needs of a model, all of whose words come at once."""

    def places(self, source: Tensor) -> Tensor:
        """Logits (A, N, V) of what stands at each of N places for a token, `ctc.BLANK` being nothing."""
        ...

    def lengths(self, source: Tensor) -> Tensor:
        """How many places are real: (A)."""
        ...


@torch.inference_mode()
def read_off(
    model: PlacesModel,
    source: Tensor,
    limits: Sequence[int],
    settings: DecodingConfig | None = None,
    unknowns: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """What stands at the places that a model fills in one pass, where others need `search`: one for each sentence.

    It is what the likeliest path spells, see `ctc`. The log-probability of a token is that of its places together; that
    of the closing [EOS] stands for all the empty ones.

    Args:
        limits, unknowns: as for `search`; but an [UNK] is ruled out only where there may be none at all
    """
    settings = settings or DecodingConfig()
    log_probs = model.places(source).float().log_softmax(-1)
    log_probs[..., [SOS, EOS]] = -torch.inf
    if unknowns is not None:
        log_probs[torch.tensor(unknowns) == 0, :, UNK] = -torch.inf
    lengths = model.lengths(source)
    sentences, path = ctc.best_path(log_probs, lengths)
    rated = [ctc.by_token(*row) for row in zip(log_probs, lengths.tolist(), sentences, path, strict=True)]
    return [
        [_hypothesis([*ids, EOS] if len(ids) < limit else ids[:limit], each[:limit], settings)]
        for ids, each, limit in zip(sentences, rated, limits, strict=True)
    ]


def _beam(
    model: StepModel,
    source: Tensor,
    limits: Sequence[int],
    settings: DecodingConfig,
    rules: _Rules,
    watch: Watch | None = None,
) -> list[list[Hypothesis]]:
    """`search` with several hypotheses of a sentence."""
    device = source.device
    groups = settings.n_best if settings.sample else settings.diversity_groups
    width = 1 if settings.sample else settings.beam_size // groups
    wanted = math.ceil(settings.n_best / groups)  # translations of each group
    noise = _chances(source, rules, settings) if settings.sample else []

    found: list[list[list[Hypothesis]]] = [[[] for _ in range(groups)] for _ in limits]
    sentences = list(range(len(limits)))  # a -> number of the sentence in the input
    limit = torch.tensor(limits, device=device)  # (A)
    state = model.start(source)
    scores = torch.zeros(len(limits), 1, device=device)  # (A, P), beginning with P = 1; -inf: the place is empty
    tokens = torch.full((len(limits), 1, 1), SOS, device=device)  # (A, P, 1 + T)
    steps = torch.empty(len(limits), 1, 0, device=device)  # (A, P, T), log-probability of each token

    while sentences:
        logits, state = model.step(tokens[:, :, -1].flatten(), state)
        allowed = rules.apply(logits.float().log_softmax(-1).unflatten(0, scores.shape), tokens)  # (A, P, V)
        if settings.sample:
            origin, token = _draw(scores, allowed, groups, settings, [noise[i] for i in sentences])
        else:
            origin, token = _extend(scores, allowed, groups, width, settings.diversity_penalty)
        at = torch.arange(len(sentences), device=device)[:, None]
        likely = allowed[at, origin, token]  # (A, P)
        scores = scores[at, origin] + likely
        tokens = torch.cat((tokens[at, origin], token[:, :, None]), 2)
        steps = torch.cat((steps[at, origin], likely[:, :, None]), 2)

        length = steps.shape[2]
        of_group = scores.shape[1] // groups
        leaving = ((token == EOS) | (length >= limit)[:, None]) & scores.isfinite()  # (A, P)
        for a, p in leaving.nonzero().tolist():
            hypothesis = _hypothesis(tokens[a, p, 1:].tolist(), steps[a, p].tolist(), settings)
            found[sentences[a]][p // of_group].append(hypothesis)
        scores = scores.masked_fill(leaving, -torch.inf)
        if watch:
            _tell(watch, sentences, found, tokens, scores)

        longest = limit if settings.length_penalty >= 0 else torch.full_like(limit, length + 1)
        bound = scores.unflatten(1, (groups, of_group)).amax(2) / normalizer(longest, settings)[:, None]  # (A, G)
        going = _unfinished([found[sentence] for sentence in sentences], bound.tolist(), wanted)
        kept = None
        if len(going) < len(sentences):
            kept = torch.tensor(going, dtype=torch.long, device=device)
            sentences = [sentences[a] for a in going]
            rules.keep(kept)
            limit, scores, tokens, steps, origin, at = (x[kept] for x in (limit, scores, tokens, steps, origin, at))
        if sentences:
            stay = kept is None and allowed.shape[1] == scores.shape[1] == 1  # one sample of each, and nobody left
            state = state.select(None if stay else (at * allowed.shape[1] + origin).flatten(), kept)

    return [_ranked([*itertools.chain(*of_groups)])[: settings.n_best] or [NOTHING] for of_groups in found]


def _greedy(
    model: StepModel,
    source: Tensor,
    limits: Sequence[int],
    settings: DecodingConfig,
    rules: _Rules,
    watch: Watch | None = None,
) -> list[list[Hypothesis]]:
    """What `search` comes to with a beam of one: the likeliest token, again and again.

    Nothing is ever overtaken, so that all the beam's accounts can go. They would take as long as the model itself does
    for a single sentence.
    """
    found: list[tuple[list[int], list[float]]] = [([], []) for _ in limits]
    sentences = list(range(len(limits)))  # a -> number of the sentence in the input
    state = model.start(source)
    tokens = torch.full((len(limits), 1, 1), SOS, device=source.device)  # (A, 1, 1 + T)
    while sentences:
        logits, state = model.step(tokens[:, 0, -1], state)
        allowed = rules.apply(logits.float().log_softmax(-1)[:, None], tokens)  # (A, 1, V)
        token = _argmax(allowed)  # (A, 1)
        tokens = torch.cat((tokens, token[:, :, None]), 2)
        likely = allowed.gather(2, token[:, :, None])
        going = []
        for a, (sentence, new, log_prob) in enumerate(
            zip(sentences, token.flatten().tolist(), likely.flatten().tolist(), strict=True)
        ):
            ids, log_probs = found[sentence]
            if log_prob == -math.inf:
                ids.clear()
                continue
            ids.append(new)
            log_probs.append(log_prob)
            if watch:
                watch(sentence, ids[:-1] if new == EOS else list(ids))
            if new != EOS and len(ids) < limits[sentence]:
                going.append(a)
        if 0 < len(going) < len(sentences):
            kept = torch.tensor(going, device=source.device)
            tokens, state = tokens[kept], state.select(kept, kept)
            rules.keep(kept)
        sentences = [sentences[a] for a in going]
    return [[_hypothesis(ids, log_probs, settings) if ids else NOTHING] for ids, log_probs in found]


def _argmax(x: Tensor) -> Tensor:
    """Where the largest of each row of x (…, V) stands, the first one of equals: (…).

    On a CPU by numpy, which takes a tenth of torch's time: half a step of 64 sentences would go into this alone.
    """
    return torch.from_numpy(x.numpy().argmax(-1)) if x.device.type == "cpu" else x.argmax(-1)


def normalizer(length: Any, settings: DecodingConfig) -> Any:
    """What a sum of log-probabilities of length tokens (a number or a tensor) is divided by.

    length ** alpha, or ((5 + length) / 6) ** alpha as in Wu et al. 2016, "Google's Neural Machine Translation System",
    equation 14, from which "Attention Is All You Need" has it.
    """
    base = length if settings.length_formula == "power" else (5 + length) / 6
    return base**settings.length_penalty


def _hypothesis(ids: list[int], log_probs: list[float], settings: DecodingConfig) -> Hypothesis:
    """A hypothesis that leaves the beam, because it ends in [EOS] or has reached its limit."""
    complete = ids[-1] == EOS
    score = math.fsum(log_probs) / normalizer(len(ids), settings)
    return Hypothesis(ids[:-1] if complete else ids, log_probs, score, complete)


def _ranked(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Best first, each once; one that was cut off is worth less than any that ended by itself."""
    unique: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in sorted(hypotheses, key=lambda each: (each.complete, each.score), reverse=True):
        unique.setdefault(tuple(hypothesis.tokens), hypothesis)
    return list(unique.values())


def _worst(hypotheses: list[Hypothesis], wanted: int) -> float:
    """The score that a new hypothesis has to beat to be among those that are wanted of its group."""
    return _ranked(hypotheses)[wanted - 1].score if len(hypotheses) >= wanted else -torch.inf


def _unfinished(found: list[list[list[Hypothesis]]], bound: list[list[float]], wanted: int) -> list[int]:
    """Which of the A sentences go on: those of which some group may still find a better hypothesis than it has.

    bound (A, G) is the score that no hypothesis alive can surpass.
    """
    return [
        a
        for a, (groups, bounds) in enumerate(zip(found, bound, strict=True))
        if any(best > _worst(group, wanted) for group, best in zip(groups, bounds, strict=True))
    ]


def _tell(
    watch: Watch, sentences: list[int], found: list[list[list[Hypothesis]]], tokens: Tensor, scores: Tensor
) -> None:
    """Tell what all hypotheses of a sentence agree on, those alive and those that have ended."""
    for a, sentence in enumerate(sentences):
        alive = tokens[a, scores[a].isfinite(), 1:].tolist()
        ended = [hypothesis.tokens for group in found[sentence] for hypothesis in group]
        columns = takewhile(lambda column: len(set(column)) == 1, zip(*alive, *ended, strict=False))
        watch(sentence, [column[0] for column in columns])


# ------------------------------------------------------------------------------------------------ choosing next tokens


def _extend(
    scores: Tensor, allowed: Tensor, groups: int, width: int, diversity_penalty: float
) -> tuple[Tensor, Tensor]:
    """The best continuations of scores (A, P) by allowed (A, P, V): which hypotheses, by which tokens, (A, groups W).

    Groups choose one after another, and each avoids what the former took at this step, by diversity_penalty for each
    time that it was taken (Vijayakumar et al. 2018, "Diverse Beam Search", with Hamming diversity).
    """
    total = scores[:, :, None] + allowed  # (A, P, V)
    vocabulary = total.shape[2]
    if total.shape[1] == 1:  # the first step: all groups begin at the same hypothesis
        total = total.expand(-1, groups, -1)
    parts = total.unflatten(1, (groups, -1))  # (A, G, W, V)
    taken = torch.zeros_like(total[:, 0])  # (A, V), how often the groups so far have taken a token
    origins, tokens = [], []
    for g in range(groups):
        rank = parts[:, g] - diversity_penalty * taken[:, None] if g else parts[:, g]
        best, index = rank.flatten(1).topk(min(width, rank[0].numel()))  # (A, W)
        token = index % vocabulary
        offset = g * parts.shape[2] if scores.shape[1] > 1 else 0
        origins.append(offset + index // vocabulary)
        tokens.append(token)
        if groups > 1:
            taken = taken.scatter_add(1, token, best.isfinite().to(taken.dtype))  # -inf: a group that has ended
    return torch.cat(origins, 1), torch.cat(tokens, 1)


def _draw(
    scores: Tensor, allowed: Tensor, groups: int, settings: DecodingConfig, noise: list[torch.Generator]
) -> tuple[Tensor, Tensor]:
    """One continuation of each hypothesis, drawn by its probability: origins and tokens, (A, groups).

    The largest of log p + Gumbel noise falls on each token with probability p, so that a draw is a plain maximum.
    """
    logits = _likely(allowed / settings.temperature, settings.top_k, settings.top_p)  # (A, P, V)
    uniform = torch.stack([torch.rand(groups, logits.shape[2], generator=each) for each in noise])
    gumbel = -(-uniform.clamp(1e-20, 1 - 1e-7).log()).log()  # (A, groups, V)
    token = (logits + gumbel.to(logits.device)).argmax(2)
    # At the first step, all groups continue one and the same hypothesis.
    origin = torch.arange(groups, device=token.device).clamp(max=scores.shape[1] - 1)
    return origin.expand_as(token), token


def _likely(logits: Tensor, top_k: int | None, top_p: float) -> Tensor:
    """Rule out all but the top_k likeliest tokens, and of these all but the fewest that share the probability top_p.

    The latter is nucleus sampling (Holtzman et al. 2020, "The Curious Case of Neural Text Degeneration").
    """
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k).values[..., -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if top_p < 1:
        ordered, order = logits.softmax(-1).sort(-1, descending=True)
        before = ordered.cumsum(-1) - ordered  # the probability of all that are likelier
        unlikely = torch.zeros_like(before, dtype=torch.bool).scatter(-1, order, before >= top_p)
        logits = logits.masked_fill(unlikely, -torch.inf)
    return logits


def _chances(source: Tensor, rules: _Rules, settings: DecodingConfig) -> list[torch.Generator]:
    """A generator for each sentence of source (A, S)."""
    rows = source.tolist()
    begun = rules.forced.tolist() or [[]] * len(rows)
    return [_generator(settings.seed, [*a, *b]) for a, b in zip(rows, begun, strict=True)]


def _generator(seed: int, ids: list[int]) -> torch.Generator:
    """The chance of one sentence: the same for the same seed and sentence, whatever else is in the batch.

    ids are those of the source, and what its translation begins with; padding does not count.
    """
    ids = [each for each in ids if each not in (PAD, -1)]
    digest = hashlib.sha256(repr((seed, ids)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))


class _Rules:
    """Which tokens may come next at all, whatever their probability."""

    def __init__(
        self,
        settings: DecodingConfig,
        least: Sequence[int] | None,
        unknowns: Sequence[int] | None,
        prefixes: Sequence[Sequence[int]] | None,
        device: torch.device,
    ) -> None:
        self.ngram = settings.no_repeat_ngram
        self.longest_least = max(least, default=0) if least else 0
        self.least = torch.tensor(least or [], device=device)[:, None]  # (A, 1) or empty
        self.rationed = unknowns is not None
        self.most_unknowns = max(unknowns, default=0) if unknowns else 0
        self.unknowns = torch.tensor(unknowns or [], device=device)[:, None]  # (A, 1) or empty
        longest = max(map(len, prefixes), default=0) if prefixes else 0
        rows = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes or []]
        self.forced = torch.tensor(rows, device=device).view(len(rows), longest)  # (A, longest) or empty, -1: free

    def keep(self, kept: Tensor) -> None:
        """Go on with these of the A sentences."""
        self.least, self.unknowns, self.forced = (
            rows[kept] if len(rows) else rows for rows in (self.least, self.unknowns, self.forced)
        )

    def apply(self, log_probs: Tensor, tokens: Tensor) -> Tensor:
        """Set to -inf, in log_probs (A, P, V), what must not follow tokens (A, P, 1 + T)."""
        done = tokens.shape[2] - 1
        free = log_probs.clone() if done < self.forced.shape[1] else log_probs
        for never in (PAD, SOS):  # never the right next token, but a model gives them some probability
            log_probs.select(2, never).fill_(-torch.inf)
        if done < self.longest_least:
            log_probs.select(2, EOS).masked_fill_(self.least > done, -torch.inf)
        if self.rationed and self.most_unknowns == 0:
            log_probs.select(2, UNK).fill_(-torch.inf)
        elif self.rationed:
            log_probs.select(2, UNK).masked_fill_((tokens == UNK).sum(2) >= self.unknowns, -torch.inf)
        if self.ngram and done >= self.ngram:
            windows = tokens[:, :, 1:].unfold(2, self.ngram, 1)  # (A, P, T - n + 1, n)
            last = tokens[:, :, None, tokens.shape[2] - self.ngram + 1 :]  # (A, P, 1, n - 1)
            again = (windows[..., :-1] == last).all(3)  # where an n-gram began as it would end now
            follower = torch.where(again, windows[..., -1], PAD)  # PAD is ruled out already
            log_probs.scatter_(2, follower, -torch.inf)
        if done < self.forced.shape[1]:
            forced = self.forced[:, done][:, None, None]  # (A, 1, 1)
            other = torch.arange(log_probs.shape[2], device=log_probs.device) != forced  # (A, 1, V)
            return torch.where(forced < 0, log_probs, free.masked_fill(other, -torch.inf))
        return log_probs
