"""Validate during training: measure the model on the validation pairs and show samples of its translations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from dragoman.architectures.protocol import Model
from dragoman.console import say
from dragoman.evaluation import validation_loss
from dragoman.evaluation.metrics import score
from dragoman.evaluation.per_direction import bleu_by_direction
from dragoman.signals import Stop, Stopped
from dragoman.training import curves, samples
from dragoman.training.state import TrainingState
from dragoman.translation.loading import UNSURE
from dragoman.translation.results import Sentence
from dragoman.translation.translator import Translator

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
    loss = validation_loss.mean_loss(model, state.validation, state.batch_tokens, state.dtype, stop.poll)
    perplexity = validation_loss.perplexity(loss)
    figures = {"loss/validation": loss, "score/perplexity_validation": perplexity}
    translator = translator_around(state, model)
    translations: list[str] = []
    references: tuple[str, ...] = ()
    if state.config.is_language_model:
        quality, summary = 100 / perplexity, f"perplexity {perplexity:.2f}"
        samples.show_continuations(state, translator)
    else:
        sources, references = zip(*state.data.validation, strict=True)
        translated = translator.explain(sources, advance=stop.poll)
        translations = [each.text for each in translated]
        progress.unsure = least_sure([sentence for each in translated for sentence in each.sentences])
        scores = score(translations, references, state.config.data.bleu_tokenize)
        figures |= {"score/chrf": scores.chrf, "score/wer": scores.wer, "score/cer": scores.cer}
        by_direction = bleu_by_direction(sources, translations, references, state.config.data)
        # For several directions the mean: BLEU of all sentences together would give the longest texts the most weight.
        quality = sum(by_direction.values()) / len(by_direction) if by_direction else scores.bleu
        figures |= {"score/bleu": quality} | {
            f"score/bleu/{direction}": bleu for direction, bleu in by_direction.items()
        }
        summary = f"BLEU {quality:.2f}, chrF {scores.chrf:.2f}"
        summary += "".join(f", {direction} {bleu:.2f}" for direction, bleu in by_direction.items())
        rows = list(zip(sources, references, translations, strict=True))
        samples.show_translations(state, translator, model, rows)
    for tag, value in figures.items():
        state.writer.add_scalar(tag, value, step)

    is_best = _record(state, quality)
    progress.validation_seconds = time.perf_counter() - started
    progress.validations_seconds += progress.validation_seconds
    share = progress.validations_seconds / (progress.seconds + progress.validation_seconds)  # of the training time
    state.writer.add_scalar("speed/validation", share, step)
    say(
        f"step {step}, {progress.seconds / 60:.1f} min: validation loss {loss:.3f}, {summary}"
        f"{' (best so far)' if is_best else ''}"
    )
    curves.advise(state.coach.validation(step, loss, state.train_loss, quality, translations, references))
    return is_best


def least_sure(sentences: Sequence[Sentence]) -> float:
    """The mean log-probability of a token, in nats, that UNSURE_SHARE of the translations stay below."""
    means = [sum(best.log_probs) / len(best.log_probs) for each in sentences if (best := each.candidates[0]).log_probs]
    return float(np.quantile(means, UNSURE_SHARE)) if means else UNSURE


def translator_around(state: TrainingState, model: Model) -> Translator:
    """A translator that uses this model, so that validation decodes with the code of translate.py."""
    return Translator.around(model, state.data, state.config, state.dtype)


def _record(state: TrainingState, quality: float) -> bool:
    """Record a validation in the progress. Returns whether it is the best so far."""
    progress = state.progress
    if not progress.step:
        progress.first_bleu = quality
    is_best = quality > progress.best_bleu
    if is_best:
        progress.best_bleu, progress.best_step, progress.worse = quality, progress.step, 0
    else:
        progress.worse += 1
    progress.unvalidated = False
    return is_best


def has_time(state: TrainingState) -> bool:
    """Whether the time limit leaves more than a validation takes.

    Otherwise the final one will do: this one would use up the time while the learning rate is still high.
    """
    minutes, progress = state.config.training.max_minutes, state.progress
    return minutes is None or progress.seconds + progress.validation_seconds < 60 * minutes
