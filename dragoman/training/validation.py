"""Validate during training: measure the model on the validation pairs and show samples of its translations."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

import numpy as np

from dragoman.architectures.build import Model
from dragoman.console import say
from dragoman.evaluation import validation_loss
from dragoman.evaluation.metrics import Measurements, tokenization
from dragoman.evaluation.per_direction import bleu_by_direction, tokenizations
from dragoman.settings import Config, with_values
from dragoman.signals import Stop, Stopped
from dragoman.training import samples
from dragoman.training.state import TrainingState
from dragoman.translation.loading import UNSURE
from dragoman.translation.results import Sentence
from dragoman.translation.translator import Translator

RISES = 3  # of the validation loss in a row, before training says what to change
LEAST_BLEU = 0.005  # below this, BLEU is printed as 0.00
UNSURE_SHARE = 0.02  # of the validation translations count as guesses


def validate(state: TrainingState, stop: Stop) -> bool:
    """Validate on rank 0 while the others wait. Returns whether this is the best score so far.

    If `stop` asks for it, the validation ends early and leaves no trace; `progress.unvalidated` stays set.
    """
    is_best = False
    with suppress(Stopped), state.final_model(state.device) as model:
        if model and state.ranks.is_first:
            is_best = _validate(state, model, stop)
    is_best, progress = state.ranks.broadcast((is_best, vars(state.progress)))
    vars(state.progress).update(progress)
    state.read_clock()
    return is_best


def _validate(state: TrainingState, model: Model, stop: Stop) -> bool:
    """Validate a full model on this rank."""
    assert state.writer is not None
    progress, step, started = state.progress, state.progress.step, time.perf_counter()
    batch_tokens = state.config.training.batch_tokens
    loss = validation_loss.mean_loss(model, state.validation, batch_tokens, state.dtype, stop.poll)
    perplexity = validation_loss.perplexity(loss)
    figures = {"loss/validation": loss, "score/perplexity_validation": perplexity}
    translator = Translator.of_model(model, state.data, state.config, state.dtype)
    chrf = 0.0
    if state.config.is_language_model:
        quality, summary = 100 / perplexity, f"perplexity {perplexity:.2f}"
        samples.show_continuations(state, translator)
    else:
        sources, references = zip(*state.data.validation, strict=True)
        translated = translator.explain(sources, poll=stop.poll)
        translations = [result.text for result in translated]
        progress.unsure = least_sure([sentence for result in translated for sentence in result.sentences])
        measured = Measurements(translations, references, tokenizations(sources, state.config.data))
        chrf = measured.chrf.score()
        figures |= {"score/chrf": chrf, "score/wer": measured.wer, "score/cer": measured.cer}
        by_direction = bleu_by_direction(sources, translations, references, state.config.data)
        # For several directions the mean: BLEU of all sentences together would give the longest texts the most weight.
        quality = sum(by_direction.values()) / len(by_direction) if by_direction else measured.bleu.score()
        figures |= {"score/bleu": quality} | {
            f"score/bleu/{direction}": bleu for direction, bleu in by_direction.items()
        }
        summary = f"BLEU {quality:.2f}, chrF {chrf:.2f}"
        summary += "".join(f", {direction} {bleu:.2f}" for direction, bleu in by_direction.items())
        rows = list(zip(sources, references, translations, strict=True))
        samples.show_translations(state, translator, model, rows)
    for tag, value in figures.items():
        state.writer.add_scalar(tag, value, step)

    is_best = _is_best_so_far(state, quality, chrf, loss)
    progress.validation_seconds = time.perf_counter() - started
    progress.validations_seconds += progress.validation_seconds
    share = progress.validations_seconds / (progress.seconds + progress.validation_seconds)  # of the training time
    state.writer.add_scalar("speed/validation", share, step)
    say(
        f"step {step}, {progress.seconds / 60:.1f} min: validation loss {loss:.3f}, {summary}"
        f"{' (best so far)' if is_best else ''}"
    )
    state.losses.append((loss, state.train_loss))
    if advice := advise(state.losses):
        say(f"warning: {advice}")
        state.losses.clear()
    return is_best


def advise(losses: Sequence[tuple[float, float]]) -> str:
    """What to change once the validation loss has risen RISES times in a row; nothing if it has not.

    Args:
        losses: of each validation, and of training before it
    """
    recent = losses[-RISES - 1 :]
    if len(recent) <= RISES or any(after <= before for (before, _), (after, _) in pairwise(recent)):
        return ""
    (first, train_then), *_, (last, train_now) = recent
    if train_now < train_then:
        reason = "while the training loss falls: the model overfits. Raise model.dropout, or set training.patience."
    else:
        reason = "and the training loss does not fall: the updates are too large. Lower training.lr."
    return f"the validation loss has risen {RISES} times in a row, from {first:.3g} to {last:.3g}, {reason}"


def least_sure(sentences: Sequence[Sentence]) -> float:
    """The mean log-probability of a token, in nats, that UNSURE_SHARE of the translations stay below."""
    means = [sum(best.log_probs) / len(best.log_probs) for each in sentences if (best := each.candidates[0]).log_probs]
    return float(np.quantile(means, UNSURE_SHARE)) if means else UNSURE


def _is_best_so_far(state: TrainingState, quality: float, chrf: float, loss: float) -> bool:
    """Record a validation in the progress. Returns whether it is the best so far.

    Where BLEU is equal, or zero as printed, chrF decides, and where that is equal, the loss. This also works for
    languages without spaces, where BLEU may stay 0.
    """
    progress = state.progress
    if not progress.step:
        progress.first_bleu = quality
    loss = loss if math.isfinite(loss) else sys.float_info.max
    best_bleu, bleu = (score if score >= LEAST_BLEU else 0.0 for score in (progress.best_bleu, quality))
    is_best = (bleu, chrf, -loss) > (best_bleu, progress.best_chrf, -progress.best_loss)
    if is_best:
        progress.best_bleu, progress.best_chrf, progress.best_loss = quality, chrf, loss
        progress.best_step, progress.worse = progress.step, 0
    else:
        progress.worse += 1
    progress.unvalidated = False
    return is_best


def with_tokenization(config: Config) -> Config:
    """Replace data.bleu_tokenize auto by the tokenization for the target language.

    With several directions, auto stays, and stands for the tokenization of each. Raises ConfigError if a library is
    missing.
    """
    chosen = tokenization(config.data, config.data.target_lang)
    return config if config.data.several else with_values(config, {"data.bleu_tokenize": chosen})


def has_time(state: TrainingState) -> bool:
    """Whether there is time for another validation. If not, skip it, so that the learning rate can fall to zero."""
    minutes, progress = state.config.training.max_minutes, state.progress
    return minutes is None or progress.seconds + progress.validation_seconds < 60 * minutes
