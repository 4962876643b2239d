"""How good is a translator: the loss on held-out pairs, and scores of its translations.

Sums travel with their counts and are divided once, last, so that no figure depends on how the pairs were batched.
BLEU and chrF come from sacreBLEU, whose signature makes them comparable across programs, word and character error
rates from torchmetrics. All of them compare whole, detokenised text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from torchmetrics.functional.text import char_error_rate, word_error_rate

from dataset import EncodedPairs, batch_plan, make_batch
from optim import loss_sums
from runtime import autocast
from translate import Translator


@dataclass(frozen=True)
class Scores:
    """Scores of a set of translations; BLEU and chrF up to 100, higher being better, error rates from 0 up."""

    bleu: float
    chrf: float
    wer: float  # word edits needed, per word of the references
    cer: float  # the same in characters
    signature: str  # how BLEU was computed, in sacreBLEU's notation


def score(translations: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> Scores:
    """Compare translations with one reference each. tokenize is sacreBLEU's: `none` for text already tokenised."""
    bleu = BLEU(tokenize=tokenize, force=True)  # force: do not warn that tokenised text looks tokenised
    corpus_bleu = bleu.corpus_score(translations, [references])
    chrf = CHRF().corpus_score(translations, [references])
    return Scores(
        bleu=corpus_bleu.score,
        chrf=chrf.score,
        wer=word_error_rate(list(translations), list(references)).item(),
        cer=char_error_rate(list(translations), list(references)).item(),
        signature=str(bleu.get_signature()),
    )


@torch.inference_mode()
def mean_loss(translator: Translator, pairs: EncodedPairs, batch_tokens: int) -> float:
    """The negative log-likelihood of a target token, in nats, without smoothing and without dropout."""
    model = translator.model.eval()
    total, tokens = 0.0, 0
    for indices in batch_plan(*pairs.lengths, batch_tokens, seed=0, epoch=0):
        batch = make_batch(pairs, indices).to(translator.device)
        with autocast(translator.device, translator.dtype):
            logits = model(batch.source, batch.target_in)
        total += loss_sums(logits, batch.target_out, smoothing=0.0).plain.item()
        tokens += batch.tokens
    return total / tokens


def perplexity(loss: float) -> float:
    """exp(loss), the number of equally likely tokens that would be as hard to guess; a huge one is cut at 1e9."""
    return math.exp(min(loss, math.log(1e9)))
