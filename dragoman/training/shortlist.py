"""Learn the vocabulary shortlist of a finished run, see `translation.shortlist`, and keep it if it does no harm.

The model aligns training pairs. Each target token counts for the source tokens that it looks at most in the last layer,
and the most frequent target tokens of a source token are its list.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from dragoman.console import say
from dragoman.corpora.preparation import PreparedData
from dragoman.dataset import EncodedPairs, Pair, Tokenizer
from dragoman.errors import EngineError, ExportError
from dragoman.evaluation.metrics import score, tokenization
from dragoman.settings import SPECIAL_TOKENS, UNK, Config
from dragoman.storage import storing
from dragoman.training.validation import UNSURE_SHARE
from dragoman.translation import shortlist
from dragoman.translation.assembly import mean_log_prob
from dragoman.translation.ctranslate2_engine import CTranslate2Engine
from dragoman.translation.engine_files import engine_files
from dragoman.translation.loading import TrainedModel
from dragoman.translation.shortlist import Shortlist
from dragoman.translation.teacher_forcing import alignments
from dragoman.translation.translator import Translator

SMALLEST = 6000  # target tokens; with 5,400 a file takes a sixth less time, which is not worth learning them
LEARNT = 1_000_000  # tokens of both sides, at most, that are aligned
AT_ONCE = 2000  # pairs
LOOKS, LEAST_WEIGHT = 2, 0.1  # source tokens that a target token counts for, and how much it looks at each
SEEN = 3  # alignments without which a source token gets no list
LISTED, ALWAYS = 40, 100  # target tokens of a source token, and those that are always listed
CHECKED = 2000  # validation pairs, at most
LOSS = 0.1  # of BLEU, at which a shortlist is dropped


def make_shortlist(config: Config, directory: Path, data: PreparedData) -> dict[str, object] | None:
    """Learn a shortlist for the best checkpoint of a run, compare translations, and keep or drop it.

    Returns BLEU on the validation pairs with and without it; None if the model has no use for one. Raises StorageError.
    """
    if not _is_useful(config, data):
        return None
    try:
        translator = Translator(directory, "cpu", ["--decoding.precision", "float32"], "ctranslate2")
    except (EngineError, ExportError):  # whoever translates will hear of it
        return None
    trained = Translator(translator.path, config.training.device).trained
    learnt = Shortlist.of(learn(trained, data.train), trained.source)
    files = partial(engine_files, translator.path)
    engine = CTranslate2Engine(files, "cpu", "float32", trained.source, trained.target, learnt)
    both = translator.with_engine(engine), data.validation, tokenization(config.data, config.data.target_lang)
    (with_list, among_few), (without, among_all) = (measure(*both, listed) for listed in (True, False))
    learnt = replace(learnt, surer=among_few - among_all)
    kept = without - with_list < LOSS
    with storing(directory):
        if kept:
            shortlist.write(translator.path, learnt)
        else:
            shortlist.remove(translator.path)
    say(f"vocabulary shortlist {'kept' if kept else 'dropped'}: validation BLEU {with_list:.2f}, {without:.2f} without")
    return {"bleu": with_list, "bleu_without": without, "kept": kept}


def _is_useful(config: Config, data: PreparedData) -> bool:
    """Whether a shortlist may make this model faster. With several target languages, a list would mix them."""
    return bool(
        config.decoding.shortlist
        and config.model.architecture == "encoder-decoder"
        and not config.data.several
        and data.validation
        and len(data.target) >= SMALLEST
    )


def learn(trained: TrainedModel, pairs: EncodedPairs) -> str:
    """Learn the lists from training pairs, in the format of `Shortlist.vmap`."""
    total = sum(int(lengths.sum()) for lengths in pairs.lengths)
    rows = np.linspace(0, len(pairs) - 1, min(len(pairs), LEARNT * len(pairs) // total), dtype=np.int64)
    size = len(trained.target)
    frequency = np.zeros(size, np.int64)
    links = [np.zeros(0, np.int64)]  # a source and a target token as one number
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE, None]
        ids = [(pairs.source.joined(row).astype(np.int64), pairs.target.joined(row).astype(np.int64)) for row in some]
        frequency += np.bincount(np.concatenate([target for _, target in ids]), minlength=size)
        aligned = alignments(trained, [(source.tolist(), target.tolist()) for source, target in ids], last=True)
        for (source, target), weights in zip(ids, aligned, strict=True):
            best = np.argsort(-weights, 1)[:, :LOOKS]
            t, k = np.nonzero(np.take_along_axis(weights, best, 1) > LEAST_WEIGHT)
            links.append(source[best[t, k]] * size + target[t])
    return _lists(trained.source, trained.target, frequency, np.concatenate(links))


def _lists(source: Tokenizer, target: Tokenizer, frequency: np.ndarray, links: np.ndarray) -> str:
    """Write the lists.

    Placeholders are translated to themselves, and are always listed. An unknown word may be translated to anything.

    Args:
        frequency: how often each target token occurs: (V)
        links: source token * V + target token, for each target token that looks at a source token
    """
    frequent = np.argsort(-frequency, kind="stable")[:ALWAYS].tolist()
    lists = {"": sorted({*range(len(SPECIAL_TOKENS)), *target.placeholders, *frequent})}
    names, other_names = source.tokens_by_id, target.tokens_by_id
    found, counts = np.unique(links, return_counts=True)
    sources, targets = np.divmod(found, len(other_names))
    starts = np.searchsorted(sources, np.arange(len(names) + 1))
    for token, (start, end) in enumerate(pairwise(starts.tolist())):
        if token != UNK and counts[start:end].sum() >= SEEN:
            best = np.argsort(-counts[start:end], kind="stable")[:LISTED]
            lists[names[token]] = targets[start + best].tolist()
    lists |= {names[token]: target.placeholders for token in source.placeholders}
    return "".join(f"{name}\t{' '.join(other_names[t] for t in listed)}\n" for name, listed in lists.items())


def measure(translator: Translator, pairs: list[Pair], tokenize: str, listed: bool) -> tuple[float, float]:
    """Translate some of the pairs, with the shortlist if `listed`.

    Returns BLEU, and the mean log-probability of a token that UNSURE_SHARE of the translations stay below.
    """
    chosen = [pairs[i] for i in np.linspace(0, len(pairs) - 1, min(len(pairs), CHECKED), dtype=np.int64)]
    sources, references = zip(*chosen, strict=True)
    translator = translator.with_decoding(shortlist=listed, n_best=1)
    found = translator.explain(sources)
    best = [sentence.candidates[0] for each in found for sentence in each.sentences]
    means = [mean_log_prob(each, translator.config.decoding) for each in best if each.complete]
    least = float(np.quantile(means, UNSURE_SHARE)) if means else 0.0
    return score([each.text for each in found], references, tokenize).bleu, least
