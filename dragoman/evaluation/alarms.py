"""Check translations for common failures, which scores alone can hide."""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from dragoman import presets, resources, settings
from dragoman.evaluation.metrics import Measurements
from dragoman.evaluation.report import Alarm, EvaluatedSentence
from dragoman.settings import Config
from dragoman.translation.doubts import has_loop

MIN_SHARE = 0.01  # of the translations must fail a check to raise its alarm
LENGTH_RATIO = (0.8, 1.25)  # words in the translations per reference word; an alarm outside this range
MAX_LISTED = 20  # sentences in an alarm
SYMPTOMS = frozenset({"empty", "repeated", "cut", "same", "length", "useless"})  # of too little training


def find_alarms(
    sentences: Sequence[EvaluatedSentence], measured: Measurements, copied: Measurements, searches: bool = False
) -> list[Alarm]:
    """Check translations; sources must be without tags.

    Args:
        copied: measures the sources, taken as translations
        searches: whether a beam was searched, so that decoding.length_penalty has an effect
    """
    alarms = [
        failing_sentences("empty", [not each.translation for each in sentences], "are empty."),
        failing_sentences(
            "repeated",
            repetitive(sentences, measured),
            "repeat the same words three times or more in a row, unlike their references. The model needs more "
            "training, or has never seen such sentences.",
        ),
        failing_sentences(
            "cut",
            [not each.complete for each in sentences],
            "were cut off at the length limit. If they do not repeat themselves, raise decoding.max_length and "
            "decoding.max_ratio.",
        ),
        same_translation(sentences),
        failing_sentences(
            "untranslated",
            [each.translation == each.source != each.reference for each in sentences],
            "equal their sources, unlike their references. Check the training data for untranslated pairs.",
        ),
        failing_sentences(
            "unknown",
            ["[UNK]" in each.translation and "[UNK]" not in each.source for each in sentences],
            "contain [UNK] in place of a word. decoding.unknown copy inserts the source word instead; a new run with "
            "tokenizer.kind bpe and without training.init_from has no unknown words.",
        ),
        wrong_length(sentences, searches),
        no_better_than_copying(measured, copied),
    ]
    return [alarm for alarm in alarms if alarm]


def judged(alarms: Sequence[Alarm], config: Config, step: int, vocabulary: int) -> list[Alarm]:
    """Replace the symptoms of too little training by one alarm, which says how to continue.

    Args:
        config, step: of the run, at its newest checkpoint
        vocabulary: number of entries for the target
    """
    training = config.training
    symptoms = [alarm for alarm in alarms if alarm.name in SYMPTOMS]
    if not symptoms or not step or training.init_from:
        return list(alarms)
    needed = presets.usable_tokens(settings.values(config) | {"tokenizer.vocab_size": vocabulary})
    seen = step * training.accumulate * training.batch_tokens
    if seen >= needed:
        return list(alarms)
    limits = {name: getattr(training, name) for name in ("max_steps", "max_epochs", "max_minutes")}
    raised = [f"--training.{name} {math.ceil(most * 1.2 * needed / seen)}" for name, most in limits.items() if most]
    file = shlex.quote(str(Path(config.run.dir) / config.run.name / "config.yaml"))
    text = (
        f"The model is not trained enough: it has seen {seen:,.0f} tokens, and translations become usable after "
        f"about {needed:,.0f}. Continue with: {resources.command('train')} --config {file} {' '.join(raised)}"
    )
    return [Alarm("undertrained", text, symptoms[0].sentences), *(each for each in alarms if each.name not in SYMPTOMS)]


def failing_sentences(name: str, failing: Sequence[bool], failure: str) -> Alarm | None:
    """An alarm if enough translations fail a check."""
    numbers = [i for i, fails in enumerate(failing, 1) if fails]
    if not numbers or len(numbers) < MIN_SHARE * len(failing):
        return None
    share = f"{len(numbers):,} of {len(failing):,} translations ({len(numbers) / len(failing):.1%})"
    return Alarm(name, f"{share} {failure}", numbers[:MAX_LISTED])


def repetitive(sentences: Sequence[EvaluatedSentence], measured: Measurements) -> list[bool]:
    """Which translations repeat themselves where their references do not."""
    tokenizers = [metric.tokenizer for metric in measured.bleu.metrics]  # type: ignore[attr-defined]
    return [
        # [UNK] raises its own alarm; as a punctuation mark it does not count here.
        has_loop(tokenize(each.translation.replace("[UNK]", "?"))) and not has_loop(tokenize(each.reference))
        for each, tokenize in zip(sentences, tokenizers, strict=True)
    ]


def same_translation(sentences: Sequence[EvaluatedSentence]) -> Alarm | None:
    """An alarm if many sources with different references get the same translation."""
    by_translation: dict[str, list[int]] = defaultdict(list)
    for i, each in enumerate(sentences):
        by_translation[each.translation].append(i)
    largest = max(by_translation.values(), key=lambda members: len({sentences[i].reference for i in members}))
    references = len({sentences[i].reference for i in largest})
    if not sentences[largest[0]].translation or references < max(3, MIN_SHARE * len(sentences)):
        return None
    text = f"{len(largest):,} sources with {references:,} different references all have the same translation."
    return Alarm("same", text, [i + 1 for i in largest[:MAX_LISTED]])


def wrong_length(sentences: Sequence[EvaluatedSentence], searches: bool) -> Alarm | None:
    """An alarm if the translations as a whole are much shorter or longer than the references."""
    words, expected = sum(each.words for each in sentences), sum(each.reference_words for each in sentences)
    if LENGTH_RATIO[0] <= words / max(1, expected) <= LENGTH_RATIO[1]:
        return None
    wrong, right, change = ("short", "longer", "higher") if words < expected else ("long", "shorter", "lower")
    text = f"The translations have {words:,} words and the references {expected:,}: they are much too {wrong}."
    if searches:
        text += f" A {change} decoding.length_penalty favours {right} translations."
    return Alarm("length", text, [])


def no_better_than_copying(measured: Measurements, copied: Measurements) -> Alarm | None:
    """An alarm if the sources themselves score as well as their translations."""
    ours, theirs = measured.chrf.score(), copied.chrf.score()
    if ours > theirs:
        return None
    text = f"The translations are no better than their untranslated sources: chrF {ours:.1f} against {theirs:.1f}."
    return Alarm("useless", text, [])
