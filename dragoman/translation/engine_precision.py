"""The number format in which an engine is fastest here: measured once, then remembered.

    choose("auto", files, tokens, supported)      # "int8" or "float32"

Which one is faster depends on the processor: int8 by a factor of three on some, not at all on others.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from dragoman import reading
from dragoman.errors import CheckpointError
from dragoman.serialization import json_bytes, load_json
from dragoman.storage import replace_durably
from dragoman.translation.engine_files import user_cache

CACHE = 16 * 2**20  # bytes of cache that every CPU core has
FASTER = 1.2  # a less exact format must be this many times as fast: int8 costs a tenth of a BLEU point
SENTENCES, TOKENS, TURNS = 8, 8, 3  # that are measured


def choose(name: str, files: Mapping[str, bytes], tokens: Sequence[str], supported: Collection[str]) -> str:
    """The precision with this name, for a model in these files.

    On a CPU, auto is float32 for a model that fits into the cache. For a larger one it is int8 if that is measured to
    be faster, which takes a second. The result is kept in the user's cache, if that can be written.

    Args:
        tokens: some of the vocabulary, to translate
        supported: what this machine has
    """
    size = len(files["model.bin"])
    if name != "auto":
        return name
    if "float16" in supported:  # only a GPU has it
        return "float16"
    if size <= CACHE or "int8" not in supported:
        return "float32"

    def faster() -> str:
        return "int8" if seconds(files, tokens, "int8") * FASTER < seconds(files, tokens, "float32") else "float32"

    return remembered(f"{size} bytes", faster)


def remembered(what: str, measure: Callable[[], str]) -> str:
    """What was measured to be fastest on this processor: "float32", "bfloat16" or "int8". Measured if not known yet."""
    key = f"{_processor()}, {what}"
    known = _read(_file())
    if known.get(key) not in ("float32", "bfloat16", "int8"):
        known[key] = measure()
        with suppress(OSError):  # then it is measured at every start
            _file().parent.mkdir(parents=True, exist_ok=True)
            replace_durably(_file(), json_bytes(known))
    return known[key]


def seconds(files: Mapping[str, bytes], tokens: Sequence[str], precision: str) -> float:
    """The shortest time in which CTranslate2 translates a batch on one thread."""
    import ctranslate2

    translator = ctranslate2.Translator("model", compute_type=precision, intra_threads=1, files=dict(files))
    batch = [[tokens[(7 * i + k) % len(tokens)] for k in range(TOKENS)] for i in range(SENTENCES)]
    times = []
    for _ in range(TURNS):
        started = time.perf_counter()
        translator.translate_batch(batch, beam_size=1, min_decoding_length=TOKENS, max_decoding_length=TOKENS)
        times.append(time.perf_counter() - started)
    return min(times)


def _file() -> Path:
    return user_cache() / "precision.json"


def _read(path: Path) -> dict[str, str]:
    with suppress(OSError, CheckpointError):
        found = load_json(reading.read(path, reading.NOTE))
        if isinstance(found, dict):
            return found
    return {}


def _processor() -> str:
    """The name of the processor. On Linux, `platform.processor` does not know it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(("model name", "Hardware")):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
