"""Draw the figures of docs/transformer.md with the program's own functions.

    python docs/figures.py                             those that need no trained model: positions, distance, masks
    python docs/figures.py --run runs/phrasebook       also the attention of a trained model on the page's sentence

The same weights and the same matplotlib give the same bytes, so a figure changes only when its content does.
"""

# ruff: noqa: E402

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # the folder of the package, which need not be installed

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from dragoman.architectures.decoder_only import prefix_mask
from dragoman.dataset import causal_mask, padding_mask, source_batch
from dragoman.model import Transformer, record_attention, rotate, sinusoid
from dragoman.settings import EOS, PAD, SOS
from dragoman.training.tensorboard import attention_figure
from dragoman.translation.translator import Translator

ENGLISH = "The black cats are drinking the milk."
ITALIAN = "I gatti neri stanno bevendo il latte."
SOURCE = ["The", "black", "cats", "are", "drinking", "the", "milk", ".", "[EOS]"]
TARGET = ["[SOS]", "I", "gatti", "neri", "stanno", "bevendo", "il", "latte", "."]
SHORT = ["Good", "morning", "!", "[EOS]"]
WIDTH, HEADS = 128, 4  # of the default run

SEEN, HIDDEN, LINE = "#3f7fbf", "#eeeeee", "#ffffff"
COLOURS = ("#1b5e9e", "#d9742b", "#4f9a4b", "#8c5aa8")


def positions() -> Figure:
    """The sinusoid as a map, and four of its columns as curves."""
    table = sinusoid(64, WIDTH)
    figure = Figure((9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    image = left.imshow(table.numpy(), cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="none")
    left.set(title="sinusoid(64, 128): a row for each position", xlabel="feature", ylabel="position")
    figure.colorbar(image, ax=left)
    for feature, colour in zip((0, 16, 32, 64), COLOURS, strict=True):
        turn = 2 * torch.pi * 10000 ** (feature / WIDTH)  # positions
        right.plot(table[:, feature], color=colour, label=f"feature {feature}: a turn in {turn:,.0f} positions")
    right.set(title="four of its columns: sines of four clocks", xlabel="position", ylim=(-1.1, 2.3))
    right.legend(loc="upper right", fontsize=8)
    return figure


def distance() -> Figure:
    """Dot products of two positions by distance, from several starts."""
    figure = Figure((9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    reach, starts = torch.arange(-30, 31), (30, 60, 200)
    table = sinusoid(256, WIDTH)
    width = WIDTH // HEADS
    angles = sinusoid(256, width)
    ones = torch.ones(1, width)
    query = rotate(ones, angles[1:2] * torch.tensor([-1.0, 1.0]).repeat(width // 2))  # rotated back by one position
    for start, colour, style in zip(starts, COLOURS, ((6, "-"), (3, "-"), (1.5, "--")), strict=False):
        thickness, dashes = style
        look = {"color": colour, "linewidth": thickness, "linestyle": dashes, "label": f"from position {start}"}
        left.plot(reach, table[start + reach] @ table[start], **look)
        keys = rotate(ones.expand(len(reach), -1), angles[start + reach])
        right.plot(reach, (rotate(query, angles[start : start + 1]) @ keys.T)[0], **look)
    left.set(title="sinusoid: product of two rows", xlabel="distance in positions")
    right.set(title="rotary: a query for the word before", xlabel="distance of the key from the query")
    right.axvline(-1, color="#888888", linewidth=0.8, linestyle=":")
    for axis in (left, right):
        axis.legend(loc="upper right", fontsize=8)
    return figure


def draw_mask(axis: Axes, mask: Tensor, queries: Sequence[str], keys: Sequence[str], title: str) -> None:
    """Draw a mask (T, S): a square for each query and key, dark where the query may look."""
    rows, columns = mask.shape
    axis.set(xlim=(0, columns), ylim=(rows, 0), aspect="equal", facecolor=HIDDEN)
    for row, seen in enumerate(mask.tolist()):
        runs = [list(run) for may, run in groupby(range(columns), seen.__getitem__) if may]
        axis.broken_barh([(run[0], len(run)) for run in runs], (row, 1), color=SEEN)
    axis.hlines(range(rows + 1), 0, columns, color=LINE, linewidth=1)
    axis.vlines(range(columns + 1), 0, rows, color=LINE, linewidth=1)
    axis.set_title(title, fontsize=9)
    axis.set_xticks(torch.arange(len(keys)) + 0.5, keys, rotation=90, fontsize=7)
    axis.set_yticks(torch.arange(len(queries)) + 0.5, queries, fontsize=7)
    axis.tick_params(left=False, bottom=False)
    for side in axis.spines.values():
        side.set_visible(False)


def masks() -> Figure:
    """The three masks for the page's sentence. The short sentence in the same batch shows the padding."""
    figure = Figure((10, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(9, 9, 13))
    read = len(SOURCE)
    short = torch.full((1, read), PAD)
    short[0, : len(SHORT)] = EOS  # any ids but padding
    queries = [*SHORT, *["[PAD]"] * (read - len(SHORT))]
    draw_mask(left, padding_mask(short)[0, 0].expand(read, -1), queries, queries, "padding_mask: the short sentence")
    draw_mask(middle, causal_mask(len(TARGET)), TARGET, TARGET, "causal_mask: the target")
    both = [*SOURCE, *TARGET]
    mask = prefix_mask(torch.ones(1, 1, 1, read, dtype=torch.bool), causal_mask(len(TARGET))[None, None])
    draw_mask(right, mask[0, 0], both, both, "prefix_mask: source, then target, in one sequence")
    left.set_ylabel("query", fontsize=8)
    figure.supxlabel("key (dark: visible)", fontsize=8)
    return figure


def attention(run: Path) -> dict[str, Figure]:
    """The attention of a run's encoder-decoder model on the page's sentence, by name of the figure."""
    translator = Translator(run, device="cpu")
    model = translator.model.eval()
    if not isinstance(model, Transformer):
        raise SystemExit(f"{run} is not an encoder-decoder model, and these figures need one.")
    source = source_batch([translator.source.encode(ENGLISH)])
    target = torch.tensor([[SOS, *translator.target.encode(ITALIAN)]])
    english = translator.source.pieces(source[0].tolist())
    italian = translator.target.pieces([*target[0, 1:].tolist(), EOS])
    cross = attention_figure(model.cross_attention(source, target)[:, 0].mean(1), english, italian)
    # A middle layer: the first sees only words, and most of what the last one needs has been found before.
    with record_attention([model.encoder.layers[len(model.encoder.layers) // 2].attention]) as maps, torch.no_grad():
        model.encode(source)
    heads = attention_figure(maps[0][0], english, english)
    for i, axis in enumerate(heads.axes):
        axis.set_title(f"head {i + 1}", fontsize=9)
    heads.axes[0].set_ylabel("source token that looks")
    return {"cross-attention": cross, "self-attention": heads}


def save(figure: Figure, path: Path) -> None:
    """Write an SVG without date or random ids, on white, so that it is readable on a dark page too."""
    for _ in range(2):
        figure.draw_without_rendering()  # a layout with square axes settles only on the second drawing
    with mpl.rc_context({"svg.hashsalt": "dragoman"}):
        figure.savefig(path, metadata={"Date": None}, facecolor="white")
    # No trailing spaces and one newline at the end, as in every text file here.
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("".join(f"{line.rstrip()}\n" for line in lines), encoding="utf-8", newline="\n")


def draw(folder: Path, run: Path | None = None) -> list[Path]:
    """Draw all figures into a folder and return their paths."""
    figures = {"positions": positions(), "distance": distance(), "masks": masks()}
    if run:
        figures |= attention(run)
    paths = [folder / f"{name}.svg" for name in figures]
    for path, figure in zip(paths, figures.values(), strict=True):
        save(figure, path)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="folder of a trained run (default: only the figures that need none)")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder for the figures (default: docs)")
    options = parser.parse_args()
    for path in draw(options.out, options.run):
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
