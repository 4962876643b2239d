"""Report a finished run: translate the test set once, for result.json, report/test.* and TensorBoard."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from dragoman import checkpoint, dataset, serialization, storage
from dragoman.architectures.ensemble import Ensemble
from dragoman.console import say
from dragoman.corpora.preparation import PreparedData
from dragoman.evaluation import validation_loss
from dragoman.evaluation.evaluate import evaluate
from dragoman.evaluation.metrics import Measurements
from dragoman.evaluation.pairs import read_pairs
from dragoman.evaluation.per_direction import tokenizations
from dragoman.evaluation.report import report_lines, write_report
from dragoman.settings import Config
from dragoman.training import tensorboard
from dragoman.training.progress import Progress
from dragoman.translation.loading import RESULT
from dragoman.translation.translator import Translator


def result_step(directory: Path) -> int | None:
    """The step at which the run finished and its result was written; None if it has not finished."""
    path = directory / RESULT
    return serialization.load_json(checkpoint.read_plain(path))["step"] if path.exists() else None


def report(config: Config, directory: Path, data: PreparedData, progress: Progress) -> None:
    """Translate the test set with the best weights and write result.json, report/test.* and TensorBoard."""
    result: dict[str, object] = {
        "step": progress.step,
        "validation": {"step": progress.best_step, "bleu": progress.best_bleu},
    }
    if config.is_language_model:
        result |= perplexities(config, directory, data, progress)  # "validation" is one of them
    elif data.test:
        result["test"] = score_test_set(config, directory, data, progress)
    if config.training.init_from:
        result["init_from"] = gained_and_lost(config, directory, progress)
    storage.replace_durably(directory / RESULT, serialization.json_bytes(result))


def score_test_set(config: Config, directory: Path, data: PreparedData, progress: Progress) -> dict[str, object]:
    """Translate and score the test set, write the report, and return the entry for result.json."""
    translator = Translator(directory, config.training.device)
    measured = evaluate(translator, data.test)
    write_report(measured, directory / "report", "test")
    with tensorboard.reopened(directory, config) as writer:
        for figure in measured.figures:
            writer.add_scalar(f"test/{figure.name.lower()}", figure.score, progress.step)
        for direction in measured.directions:
            writer.add_scalar(f"test/bleu/{direction.name}", direction.bleu, progress.step)
        writer.add_text("test", tensorboard.indented("\n".join(report_lines(measured))), progress.step)
    bleu, chrf, *_ = measured.figures
    say(
        f"test set, {measured.pairs} pairs, weights of step {translator.step}: BLEU {bleu.score:.2f} "
        f"[{bleu.low:.2f}, {bleu.high:.2f}] ({bleu.signature}), chrF {chrf.score:.2f}"
    )
    for direction in measured.directions:
        say(f"{direction.name}: {direction.pairs} pairs, BLEU {direction.bleu:.2f}")
    for alarm in measured.alarms:
        say(f"warning: {alarm.text}")
    say(f"the report, with the worst sentences: {directory / 'report' / 'test.html'}")
    result: dict[str, object] = {
        "step": translator.step,
        "pairs": measured.pairs,
        **{figure.name.lower(): figure.score for figure in measured.figures},
        "signature": bleu.signature,
    }
    if measured.directions:
        result["directions"] = {entry.name: {"pairs": entry.pairs, "bleu": entry.bleu} for entry in measured.directions}
    return result


def perplexities(config: Config, directory: Path, data: PreparedData, progress: Progress) -> dict[str, object]:
    """Score a language model's best weights on the texts of each split, for result.json."""
    translator = Translator(directory, config.training.device)
    model = translator.model
    assert not isinstance(model, Ensemble)
    result: dict[str, object] = {}
    for split, pairs, step in (
        ("validation", data.validation, progress.best_step),
        ("test", data.test, translator.step),
    ):
        if pairs:
            encoded = dataset.encode_pairs(pairs, data.source, data.target)
            dtype = translator.trained.dtype
            loss = validation_loss.mean_loss(model, encoded, config.training.batch_tokens, dtype)
            perplexity = validation_loss.perplexity(loss)
            result[split] = {"step": step, "texts": len(pairs), "loss": loss, "perplexity": perplexity}
            say(f"{split} set, {len(pairs)} texts, weights of step {step}: perplexity {perplexity:.2f}")
    return result


def old_test(config: Config, translator: Translator) -> tuple[int, Measurements] | None:
    """Score a model on the test pairs of the run that training.init_from names: their number and the scores.

    None if they do not exist, and for a language model, which translates nothing.
    """
    path = Path(config.training.init_from or "") / "data" / "test.tsv"
    pairs = read_pairs(path) if path.exists() and not config.is_language_model else []
    if not pairs:
        return None
    sources, references = dataset.unzip_pairs(pairs)
    searching = translator.with_decoding(**asdict(config.decoding))  # the same before and after
    measured = Measurements(searching.translate(sources), references, tokenizations(sources, config.data))
    return len(pairs), measured


def gained_and_lost(config: Config, directory: Path, progress: Progress) -> dict[str, object]:
    """Compare the scores before and after training from another model, for result.json.

    For a language model this is only the path: the validation of step 0 shows its perplexity on the new texts.
    """
    path = config.training.init_from
    result: dict[str, object] = {"path": path}
    if config.is_language_model:
        return result
    summary = f"validation BLEU {progress.first_bleu:.2f} before, {progress.best_bleu:.2f} after"
    after = old_test(config, Translator(directory, config.training.device)) if progress.old_bleu >= 0 else None
    if after:
        pairs, measured = after
        bleu_after = measured.bleu.score()
        result["old_test"] = {
            "pairs": pairs,
            "bleu_before": progress.old_bleu,
            "bleu_after": bleu_after,
            "signature": measured.bleu.signature(),
        }
        summary += f"; on its own test set, {pairs} pairs: BLEU {progress.old_bleu:.2f} before, {bleu_after:.2f} after"
    say(f"started from {path}: {summary}")
    return result
