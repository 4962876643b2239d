"""Translate with a trained model: text in, text out.

    python translate.py "The train leaves at nine." "Where is it?"
    python translate.py --input letter.en --output letter.it
    some-program | python translate.py --run runs/phrasebook | another-program

    from translate import Translator
    Translator("runs/phrasebook").translate(["The train leaves at nine."])

One line in is one line out, whatever the line. Translations go to standard output, everything else to standard error.
Exit codes: 0 done, 2 wrong arguments, 3 unreadable input, 4 no usable checkpoint, 7 output that cannot be written.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, NoReturn

import config as configuration
from config import Config, ConfigError


class Parser(argparse.ArgumentParser):
    """Says a mistake in one line, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


DECODING_KEYS = [key for key in configuration.keys() if key.startswith("decoding.")]  # noqa: SIM118


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; `overrides` of the result holds what it says of the run's decoding settings."""
    parser = Parser(
        prog="translate.py",
        allow_abbrev=False,
        description="Translate sentences, a file, or standard input line by line.",
        epilog=f"Settings of the search, as in config.yaml: {', '.join('--' + key for key in DECODING_KEYS)}.",
    )
    parser.add_argument("sentences", nargs="*", metavar="SENTENCE", help="text to translate (none: --input or stdin)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--run", type=Path, metavar="DIR", help="folder of a run, as runs/phrasebook (default: the newest)"
    )
    where.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="folder of one checkpoint, instead of a run's best"
    )
    parser.add_argument("--input", type=Path, metavar="FILE", help="read lines from FILE instead of standard input")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write to FILE instead of standard output")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 or mps (default: auto)")
    for key in DECODING_KEYS:
        parser.add_argument(f"--{key}", dest=key, help=argparse.SUPPRESS)
    parsed = parser.parse_args(argv)
    if parsed.sentences and parsed.input:
        parser.error("give sentences or --input, not both")
    values = vars(parsed)
    parsed.overrides = [word for key in DECODING_KEYS if values[key] is not None for word in (f"--{key}", values[key])]
    try:
        configuration.override(configuration.Config(), parsed.overrides)
    except configuration.ConfigError as error:
        parser.error(str(error))
    return parsed


if __name__ == "__main__":
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")  # see train.py
    # Before torch is imported, which takes seconds: --help and a mistake are answered at once.
    ARGUMENTS = parse()


import torch

import checkpoint
from corpus import DataError, clean, decode_line
from dataset import source_batch
from decoding import Hypothesis, search
from model import Transformer
from runtime import DeviceError, autocast, choose_device, choose_precision, tune
from tokenizer import Tokenizer

BATCH_TOKENS = 4096  # padded source positions in a batch, for each hypothesis in the beam
SIDES = ("source", "target")
BUNDLE = ("config.yaml", "model.safetensors", *(f"{side}.tokenizer.json" for side in SIDES))


class Translator:
    """A model with its tokenizers: texts in one language to texts in another.

    Attributes:
        config: the configuration of the run, with its decoding settings
        step: that of the checkpoint
        warnings: what the last call of `translate` has to say about its texts, a line each
    """

    def __init__(self, path: str | Path, device: str = "auto", overrides: Sequence[str] = ()) -> None:
        """Load the best checkpoint of the run whose folder this is, or the checkpoint whose folder this is.

        Raises CheckpointError if there is none that can be used, and ConfigError for a bad override, which is given
        as on the command line: `["--decoding.beam_size", "5"]`.
        """
        found = find_checkpoint(Path(path))
        settings = configuration.loads(found.files["config.yaml"], found.path / "config.yaml")
        settings = configuration.override(settings, overrides)
        source, target = (Tokenizer.from_json(found.files[f"{side}.tokenizer.json"].decode()) for side in SIDES)
        model = Transformer(settings.model, len(source), len(target))
        checkpoint.load_weights(model, found.files["model.safetensors"])
        on = choose_device(device)
        self._set(model.to(on), source, target, settings, choose_precision("auto", on))
        self.step = found.step

    @classmethod
    def around(
        cls, model: Transformer, source: Tokenizer, target: Tokenizer, settings: Config, dtype: torch.dtype
    ) -> Translator:
        """A translator with a model in memory. Training validates with it, so that both decode by the same code."""
        translator = cls.__new__(cls)
        translator._set(model, source, target, settings, dtype)
        return translator

    def _set(
        self, model: Transformer, source: Tokenizer, target: Tokenizer, settings: Config, dtype: torch.dtype
    ) -> None:
        self.model = model
        self.source = source
        self.target = target
        self.config = settings
        self.device = next(model.parameters()).device
        self.dtype = dtype
        self.warnings: list[str] = []

    def translate(self, texts: Sequence[str], first: int = 1) -> list[str]:
        """Translate each text, however long, to one line; an empty or blank text stays empty.

        first is the number by which warnings call the first text.
        """
        self.warnings = []
        pieces = [(i, ids) for i, text in enumerate(texts) for ids in self._pieces(clean(text), first + i)]
        parts: list[list[str]] = [[] for _ in texts]
        hypotheses = self.search([ids for _, ids in pieces])
        for (i, _), hypothesis in zip(pieces, hypotheses, strict=True):
            parts[i].append(self.target.decode(hypothesis.tokens))
            if not hypothesis.complete:
                self.warnings.append(
                    f"text {first + i}: a translation was cut off after {len(hypothesis.tokens)} tokens, the limit "
                    "that decoding.max_length and decoding.max_ratio set."
                )
        return [clean(" ".join(part)) for part in parts]

    def search(self, sources: Sequence[list[int]]) -> list[Hypothesis]:
        """The best hypothesis for each of the given source ids, which are batched by length; the order is kept."""
        decoding = self.config.decoding
        self.model.eval()  # no dropout
        result: dict[int, Hypothesis] = {}
        for batch in batches_by_length([len(ids) + 1 for ids in sources], BATCH_TOKENS // decoding.beam_size):
            source = source_batch([sources[i] for i in batch]).to(self.device)
            limits = [min(decoding.max_length, int(decoding.max_ratio * len(sources[i])) + 10) for i in batch]
            with autocast(self.device, self.dtype):
                found = search(self.model, source, limits, decoding.beam_size, decoding.length_penalty)
            result.update(zip(batch, (best for best, *_ in found), strict=True))
        return [result[i] for i in range(len(sources))]

    def _pieces(self, text: str, number: int) -> list[list[int]]:
        """The ids of a text; of one that is longer than what training has seen, those of its pieces."""
        if not text:
            return []
        longest = self.config.data.max_length
        ids = self.source.encode(text)
        if len(ids) <= longest:
            return [ids]
        pieces = [self.source.encode(part) for part in split(text, longest, self.source)]
        self.warnings.append(
            f"text {number}: its {len(ids):,} tokens were translated in {len(pieces)} pieces, "
            f"for the model has learnt from at most {longest} at a time (data.max_length)."
        )
        return pieces


def batches_by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Cut the numbers of all sentences, longest first, into batches of at most budget padded positions (or one)."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def split(text: str, longest: int, tokenizer: Tokenizer) -> list[str]:
    """Cut a cleaned text into parts of at most longest tokens each, which joined by blanks give it back.

    A part ends, if it can, where a sentence does, else at another mark of punctuation, else between two words; only
    a single word of more tokens than that is itself cut.
    """
    words = [part for word in text.split(" ") for part in _short_enough(word, longest, tokenizer)]
    lengths = [len(ids) for ids in tokenizer.encode_batch(words)]
    parts: list[str] = []
    start = 0
    while start < len(words):
        end, total = start, 0
        while end < len(words) and (end == start or total + lengths[end] <= longest):
            total += lengths[end]
            end += 1
        if end < len(words):  # look back for a better place, but not so far that the part gets tiny
            candidates = range(end, start + (end - start) // 4, -1)
            ends_with = [words[i - 1].rstrip("\"'”’»)")[-1:] for i in candidates]
            for marks in (".!?…。！？", ",;:–—"):
                places = [i for i, last in zip(candidates, ends_with, strict=True) if last and last in marks]
                if places:
                    end = places[0]
                    break
        parts.append(" ".join(words[start:end]))
        start = end
    return parts


def _short_enough(word: str, longest: int, tokenizer: Tokenizer) -> list[str]:
    """A word, or its halves, quarters and so on until none has more than longest tokens."""
    if len(word) <= 1 or len(tokenizer.encode(word)) <= longest:
        return [word]
    middle = len(word) // 2
    return _short_enough(word[:middle], longest, tokenizer) + _short_enough(word[middle:], longest, tokenizer)


# ------------------------------------------------------------------------------------------------- finding a checkpoint


def find_checkpoint(path: Path) -> checkpoint.Checkpoint:
    """Read what a translator needs from a run's best checkpoint, from its newest if none is best, or from path itself.

    Raises CheckpointError that says what is there instead.
    """
    if (path / checkpoint.MANIFEST).exists():
        return checkpoint.read(path, only=BUNDLE)
    root = path / "checkpoints"
    best = checkpoint.get_best(root)
    if best is not None:
        try:
            return checkpoint.read(checkpoint.step_directory(root, best["step"]), only=BUNDLE)
        except checkpoint.CheckpointError as error:
            warn(str(error))
    found = checkpoint.newest(root, quarantine=False, warn=warn, only=BUNDLE)
    if found is None:
        raise checkpoint.CheckpointError(f"{path} holds no checkpoint: {_what_exists(path)}")
    return found


def newest_run(folder: Path = Path("runs")) -> Path:
    """The run in folder (or, if there is none, in that folder beside this program) that saved a checkpoint last."""
    for place in (folder, Path(__file__).parent / folder):
        checkpoints = [path for path in place.glob("*/checkpoints/step-*") if path.is_dir()]
        if checkpoints:
            return max(checkpoints, key=lambda path: path.stat().st_mtime).parents[1]
    raise checkpoint.CheckpointError(
        f"there is no trained model in {folder.absolute()}: train one with python train.py, or name one with --run."
    )


def _what_exists(path: Path) -> str:
    """What a user who named a wrong folder may have meant."""
    place = path.parent if path.parent.is_dir() else Path("runs")
    names = sorted(str(other) for other in place.glob("*") if (other / "checkpoints").is_dir() or "step-" in other.name)
    return f"choose one of {', '.join(names)}." if names else "train one first, with python train.py."


# ------------------------------------------------------------------------------------------------------ command line


def warn(message: str) -> None:
    """Tell the user something that is not a translation."""
    print(f"translate.py: {message}", file=sys.stderr)


def arriving(stream: BinaryIO, name: str) -> Iterator[list[str]]:
    """The lines of a stream, as many at a time as have arrived: one from a person, thousands from a file.

    So a filter answers each line at once, and a file is still translated in full batches.
    """
    rest, number = b"", 1
    while block := os.read(stream.fileno(), 2**18):
        *lines, rest = (rest + block).split(b"\n")
        if lines:
            yield [decode_line(line, name, number + i) for i, line in enumerate(lines)]
            number += len(lines)
    if rest:
        yield [decode_line(rest, name, number)]


def run(options: argparse.Namespace) -> None:
    """Translate what the command line names. Raises what `main` turns into a line and an exit code."""
    if options.sentences:
        # As bytes, so that an argument that is not UTF-8 is told like a line that is not.
        blocks = [[decode_line(os.fsencode(text), "argument", i) for i, text in enumerate(options.sentences, 1)]]
    else:
        blocks = arriving(
            open_file(options.input, "rb") if options.input else sys.stdin.buffer, str(options.input or "stdin")
        )
    tune(choose_device(options.device))
    translator = Translator(options.checkpoint or options.run or newest_run(), options.device, options.overrides)
    if not options.sentences and not options.input and sys.stdin.isatty():
        warn("type a sentence and press Enter; Ctrl-D ends")
    first = 1
    with writing(options.output) as output:
        for texts in blocks:
            translations = translator.translate(texts, first)
            for message in translator.warnings:
                warn(message)
            output.write("".join(f"{line}\n" for line in translations).encode())
            output.flush()
            first += len(texts)


@contextmanager
def writing(path: Path | None) -> Iterator[BinaryIO]:
    """Where translations go. A file takes its name when it is whole: until then the old one stays, the input even."""
    if path is None:
        yield sys.stdout.buffer
    elif path.exists() and not path.is_file():  # a device, a pipe
        with open_file(path, "wb") as output:
            yield output
    else:
        beside = path.with_name(f".{path.name}.tmp")
        try:
            with open_file(beside, "wb") as output:
                yield output
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


def open_file(path: Path, mode: Literal["rb", "wb"]) -> BinaryIO:
    """Open a file. Raises DataError if it cannot be."""
    try:
        return path.open(mode)
    except OSError as error:
        raise DataError(f"{path}: cannot be opened: {error.strerror}.") from error


def main(options: argparse.Namespace) -> int:
    """Run, and turn every foreseen failure into one line and an exit code."""
    try:
        run(options)
    except (ConfigError, DeviceError) as error:
        warn(f"error: {error}")
        return 2
    except DataError as error:
        warn(f"error: {error}")
        return 3
    except checkpoint.CheckpointError as error:
        warn(f"error: {error}")
        return 4
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter would complain when it flushes at exit
        return 0
    except OSError as error:
        warn(f"error: the translations cannot be written: {error.strerror or error}")
        return 7
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(ARGUMENTS))
