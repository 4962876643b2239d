"""Make the files from which CTranslate2 runs a checkpoint, see `translation.engine_files`, and check them.

The check compares the log-probabilities of random sentence pairs, token by token, with those of `model.py`, which
needs no data and is not affected by ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from dragoman.architectures.ctranslate2_spec import ctranslate2_spec, save_ctranslate2
from dragoman.architectures.portable_weights import BANNED
from dragoman.dataset import masks, source_batch
from dragoman.errors import EngineError
from dragoman.model import Transformer
from dragoman.settings import SOS, SPECIAL_TOKENS
from dragoman.translation.loading import TrainedModel
from dragoman.translation.model_loading import load

PAIRS, LONGEST = 8, 24  # that are compared: sentences, tokens of the longest
TOLERANCE = 0.02  # nats; two engines differ by their rounding, far less than by a mistake in one weight matrix

Ids = Sequence[Sequence[int]]


def make_files(checkpoint: Path) -> dict[str, bytes]:
    """Make the files for the checkpoint in this folder.

    Raises:
        CheckpointError: the checkpoint is damaged
        EngineError: CTranslate2 computes something else, or there is no space for temporary files
    """
    trained, _ = load([checkpoint], torch.device("cpu"))
    model, sides = trained.model, (trained.source.tokens_by_id, trained.target.tokens_by_id)
    assert isinstance(model, Transformer)
    try:
        with TemporaryDirectory() as folder, torch.no_grad():
            save_ctranslate2(ctranslate2_spec(model, *sides), Path(folder))
            files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
    except OSError as error:
        raise EngineError(f"the files for CTranslate2 cannot be written: {error}.") from error
    compare(files, trained, *sides)
    return files


def compare(files: dict[str, bytes], trained: TrainedModel, source: list[str], target: list[str]) -> None:
    """Check that CTranslate2 computes the same log-probabilities. Raises EngineError if it does not."""
    import ctranslate2

    rng = np.random.default_rng(1)
    lengths = np.linspace(1, LONGEST, PAIRS, dtype=int)
    sources, targets = (
        [rng.integers(len(SPECIAL_TOKENS), size, length).tolist() for length in order]
        for size, order in ((len(source), lengths), (len(target), rng.permutation(lengths)))
    )
    engine = ctranslate2.Translator("model", intra_threads=1, files=dict(files))
    scored = engine.score_batch(
        [[source[i] for i in ids] for ids in sources], [[target[i] for i in ids] for ids in targets]
    )
    for ours, theirs in zip(log_probs(trained, sources, targets), scored, strict=True):
        difference = np.abs(np.array(theirs.log_probs)[: len(ours)] - ours).max()
        if not difference < TOLERANCE:
            raise EngineError(
                f"CTranslate2 computes log-probabilities that differ by up to {difference:.3g} from those of this "
                "program, so it is not used."
            )


@torch.inference_mode()
def log_probs(trained: TrainedModel, sources: Ids, targets: Ids) -> list[np.ndarray]:
    """The log-probability of each target token, among those that a search may write."""
    rows = []
    for source, target in zip(sources, targets, strict=True):
        ids, given = source_batch([source]), torch.tensor([[SOS, *target[:-1]]])
        logits = trained.model(ids, given, *masks(ids, given))[0].float()
        logits[:, BANNED] = -torch.inf
        rows.append(logits.log_softmax(-1)[range(len(target)), target].numpy())
    return rows
