"""CTranslate2 as the search engine of our `Translator`: `translate --engine ctranslate2`.

    translator = with_ctranslate2(Translator(run), run)
    translator.translate(["Where is the station?"])

Our translator still splits, tokenizes, copies and joins. CTranslate2 needs the model in its own files, an export, which
is made once for each checkpoint: in the run's folder or, if that cannot be written, in the user's cache.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dragoman import console
from dragoman.command_line import EXPORT_MARK
from dragoman.dataset import Tokenizer
from dragoman.errors import ConfigError
from dragoman.export import formats
from dragoman.export.export import checkpoint_hash, export
from dragoman.export.loaded import until_eos
from dragoman.export.tokenizer_files import tokens_by_id
from dragoman.settings import EOS, DecodingConfig
from dragoman.translation.engines import choose_weights
from dragoman.translation.search import Hypothesis, Watch
from dragoman.translation.translator import Translator


def with_ctranslate2(translator: Translator, run: Path) -> Translator:
    """Return the run's translator with CTranslate2 as its search engine, after making the export that it needs.

    Raises ConfigError for a device or a search setting that CTranslate2 lacks, and whatever `export` raises.
    """
    formats.require_libraries("ctranslate2")
    if translator.device.type not in ("cpu", "cuda"):
        raise ConfigError(f"CTranslate2 does not run on {translator.device}: set --device to cpu or cuda.")
    if reason := unsupported_setting(translator.config.decoding):
        raise ConfigError(f"CTranslate2 cannot search like this: {reason}.")
    folder = engine_folder(translator, run)
    weights = max(translator.model.products())  # type: ignore[operator]
    precision = choose_weights(translator.config.decoding.precision, translator.device, weights)
    threads = torch.get_num_threads()
    return translator.with_engine(
        CTranslate2Engine(folder, translator.source, translator.target, translator.device, precision, threads)
    )


def unsupported_setting(settings: DecodingConfig) -> str | None:
    """Name the first setting of the search that CTranslate2 lacks, and what it does instead; None if it has all."""
    if settings.sample:
        return "decoding.sample is true, but it draws other random numbers"
    if settings.diversity_groups > 1:
        return f"decoding.diversity_groups is {settings.diversity_groups}, but it has no groups"
    if settings.min_ratio:
        return f"decoding.min_ratio is {settings.min_ratio:g}, but it has one minimum length for all sentences"
    if settings.length_formula == "paper" and settings.beam_size > 1:
        return "decoding.length_formula is paper, but it divides by a power of the length: set it to power"
    return None


class CTranslate2Engine:
    """CTranslate2 in place of our own search, an `ExternalEngine` for `Translator.with_engine`.

    Greedy search gives the same translations as ours. Beam search stops by a different rule, so it gives nearly the
    same.
    """

    step_bytes = 0  # it runs its own threads

    def __init__(
        self, folder: Path, source: Tokenizer, target: Tokenizer, device: torch.device, precision: str, threads: int
    ) -> None:
        """Load an export. Raises ConfigError for a device or precision that CTranslate2 does not have here."""
        import ctranslate2  # pyright: ignore[reportMissingImports]

        try:
            self.translator: Any = ctranslate2.Translator(
                str(folder),
                device=device.type,
                device_index=device.index or 0,
                compute_type=precision,
                inter_threads=threads,
                intra_threads=1,
            )
        except (ValueError, RuntimeError) as error:
            raise ConfigError(f"CTranslate2 cannot translate on {device} in {precision}: {error}") from None
        self.source, self.target, self.ids = tokens_by_id(source), tokens_by_id(target), target.vocabulary

    def search(
        self,
        source: Tensor,
        limits: Sequence[int],
        settings: DecodingConfig,
        min_lengths: Sequence[int] | None = None,
        max_unknowns: Sequence[int] | None = None,
        prefixes: Sequence[Sequence[int]] | None = None,
        watch: Watch | None = None,
        absent: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Like `search.search`, but it ignores `min_lengths`, `watch`, `absent` and any `max_unknowns` but 0."""
        found: list[list[Hypothesis]] = [[] for _ in limits]
        for allowed in (True, False):
            chosen = [i for i in range(len(limits)) if allowed == (max_unknowns is None or max_unknowns[i] > 0)]
            results = self.translator.translate_batch(
                [[self.source[token] for token in until_eos(source[i].tolist())] for i in chosen],
                [[self.target[token] for token in prefixes[i]] for i in chosen] if prefixes else None,
                beam_size=settings.beam_size,
                num_hypotheses=settings.n_best,
                length_penalty=settings.length_penalty,
                no_repeat_ngram_size=settings.no_repeat_ngram or 0,
                disable_unk=not allowed,
                min_decoding_length=0,
                max_decoding_length=max((limits[i] for i in chosen), default=1),
                max_input_length=0,
                return_scores=True,
                return_end_token=True,
            )
            for i, result in zip(chosen, results, strict=True):
                for tokens, score in zip(result.hypotheses, result.scores, strict=True):
                    ids = [self.ids[token] for token in tokens][: limits[i]]
                    found[i].append(Hypothesis(until_eos(ids), [], score, EOS in ids))
        return found


def engine_folder(translator: Translator, run: Path) -> Path:
    """Return the folder of the export for this checkpoint, in the run or in the user's cache; make it if it is missing.

    The cache serves runs that cannot be written, such as those of another user. Nothing is ever removed from it,
    because any run may still need its export. The user can delete it at any time.
    """
    name = f"engine-{checkpoint_hash(translator)[:16]}"
    in_run, in_cache = run / "exports" / name, user_cache() / name
    for folder in (in_run, in_cache):
        if is_export_of(folder, translator):
            return folder
    folder = in_run
    if not is_writable(in_run.parent):
        console.warn(f"{run} cannot be written, so the files for CTranslate2 are made in {in_cache}, once")
        folder = in_cache
    export(Translator(translator.path, "cpu"), run, "ctranslate2", folder)
    if folder == in_run:
        for old in in_run.parent.glob("engine-*"):  # exports of earlier checkpoints, but no folder that a user named
            if old != in_run and re.fullmatch(r"engine-[0-9a-f]{16}", old.name) and (old / EXPORT_MARK).is_file():
                shutil.rmtree(old, ignore_errors=True)
    return folder


def is_export_of(folder: Path, translator: Translator) -> bool:
    """Whether a folder is an export of the translator's checkpoint."""
    try:
        mark = json.loads((folder / EXPORT_MARK).read_bytes())
    except (OSError, ValueError):
        return False
    return mark["checkpoint"]["manifest"] == checkpoint_hash(translator)


def user_cache() -> Path:
    """Return the folder of this program in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification says to ignore a relative path
        match sys.platform:
            case "win32":
                base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
            case "darwin":
                base = Path.home() / "Library" / "Caches"
            case _:
                base = Path.home() / ".cache"
    return Path(base, "dragoman")


def is_writable(folder: Path) -> bool:
    """Whether a folder can be written, or made if it does not exist."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return os.access(existing, os.W_OK | os.X_OK)
