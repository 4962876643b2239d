"""Write the files from which CTranslate2 runs a checkpoint, see `translation.engine_files`, and check them.

The check compares the log-probabilities of random sentence pairs, token by token, with those of `model.py`, so it
needs no data and depends on no tie between two tokens.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from dragoman import storage
from dragoman.architectures.ctranslate2_spec import ctranslate2_spec, save_ctranslate2
from dragoman.architectures.portable_weights import BANNED
from dragoman.atomic_folder import atomic_folder
from dragoman.checkpoint import file_entry
from dragoman.dataset import masks, source_batch
from dragoman.errors import ExportError
from dragoman.model import Transformer
from dragoman.settings import SOS, SPECIAL_TOKENS
from dragoman.translation.engine_files import MARK, VERSION, signed
from dragoman.translation.loading import TrainedModel
from dragoman.translation.model_loading import load

PAIRS, LONGEST = 8, 24  # that are compared: sentences, tokens of the longest
TOLERANCE = 0.02  # nats; two engines differ by their rounding, far less than by a mistake in one weight matrix

Ids = Sequence[Sequence[int]]


def write(checkpoint: Path, folder: Path, identity: str) -> None:
    """Write the files for a checkpoint into a new folder, and remove those of earlier checkpoints beside it.

    Raises:
        ExportError: CTranslate2 computes something else
        CheckpointError: the checkpoint is damaged
        StorageError: the folder cannot be written
    """
    trained, _ = load([checkpoint], torch.device("cpu"))
    model, sides = trained.model, (trained.source.tokens_by_id, trained.target.tokens_by_id)
    assert isinstance(model, Transformer)
    with atomic_folder(folder) as made:
        with torch.no_grad():
            save_ctranslate2(ctranslate2_spec(model, *sides), made)
        files = {path.name: path.read_bytes() for path in sorted(made.iterdir())}
        compare(files, trained, *sides)
        entries = {name: file_entry(data) for name, data in files.items()}
        mark = {"version": VERSION, "checkpoint": identity, "files": entries}
        storage.write_durably(made / MARK, signed(mark))
    for old in folder.parent.glob("engine-*"):  # of earlier checkpoints, but no folder that a user named
        if folder.parent.name == "exports" and old != folder and re.fullmatch(r"engine-[0-9a-f]{16}", old.name):
            shutil.rmtree(old, ignore_errors=True)


def compare(files: dict[str, bytes], trained: TrainedModel, source: list[str], target: list[str]) -> None:
    """Check that CTranslate2 computes the same log-probabilities. Raises ExportError if it does not."""
    import ctranslate2

    rng = np.random.default_rng(1)
    lengths = np.linspace(1, LONGEST, PAIRS, dtype=int)
    sources, targets = (
        [rng.integers(len(SPECIAL_TOKENS), size, length).tolist() for length in order]
        for size, order in ((len(source), lengths), (len(target), rng.permutation(lengths)))
    )
    engine = ctranslate2.Translator("model", intra_threads=1, files=dict(files))
    found = engine.score_batch(
        [[source[i] for i in ids] for ids in sources], [[target[i] for i in ids] for ids in targets]
    )
    for ours, theirs in zip(log_probs(trained, sources, targets), found, strict=True):
        difference = np.abs(np.array(theirs.log_probs)[: len(ours)] - ours).max()
        if not difference < TOLERANCE:
            raise ExportError(
                f"CTranslate2 computes log-probabilities that differ by up to {difference:.3g} from those of this "
                "program, so it is not used."
            )


@torch.inference_mode()
def log_probs(trained: TrainedModel, sources: Ids, targets: Ids) -> list[np.ndarray]:
    """The log-probability of each target token, among those that a search may write."""
    found = []
    for source, target in zip(sources, targets, strict=True):
        ids, given = source_batch([source]), torch.tensor([[SOS, *target[:-1]]])
        logits = trained.model(ids, given, *masks(ids, given))[0].float()
        logits[:, BANNED] = -torch.inf
        found.append(logits.log_softmax(-1)[range(len(target)), target].numpy())
    return found
