"""Mix dirt into a clean corpus, and measure how much of it `dragoman clean` removes; or measure the speed of cleaning.

    python benchmarks/cleaning.py --seed 1                # Multi30k, English to German: a table of what was removed
    python benchmarks/cleaning.py --corpus tatoeba-en-fr  # Tatoeba, English to French, unchanged: the losses
    python benchmarks/cleaning.py --keep /scratch/dirt    # keep the dirty and the cleaned corpus, to train on both
    python benchmarks/cleaning.py --speed 1000000         # reading, checking and cleaning Tatoeba six times over

Each kind of dirt takes its share of the clean pairs, and no pair has two kinds:
    shifted      20 %   half in stretches of 20 to 200 whose targets slipped by a line, half two neighbours exchanged
    language     10 %   the target, the source or both replaced by lines of Tatoeba: French, or a pair en-fr
    copied        5 %   the target is the source
    cut          10 %   one side loses its second half
    mojibake     10 %   UTF-8 read as Windows-1252, in the target or in both sides
    duplicate     5 %   a pair again, somewhere below the first
    near          5 %   a pair again in capitals, with other punctuation, or with one word changed on one side
A repeated pair counts as removed if one of the two is dropped.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import html
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

Pair = tuple[str, str]
SHARES = {"language": 0.10, "copied": 0.05, "cut": 0.10, "mojibake": 0.10, "duplicate": 0.05, "near": 0.05}
SHIFTED = 0.20
CORPORA = {"multi30k": ("en", "de"), "tatoeba-en-fr": ("en", "fr")}


def read_corpus(data: Path, name: str) -> list[Pair]:
    """Read the training pairs of a corpus."""
    sides = [
        (data / name / f"train.{language}").read_bytes().decode().replace("\t", " ").split("\n")[:-1]
        for language in CORPORA[name]
    ]
    return list(zip(*sides, strict=True))


def soil(pairs: Sequence[Pair], french: Sequence[Pair], seed: int) -> list[tuple[str, Pair]]:
    """Return the pairs with dirt mixed in, each with its kind; the kind of an unchanged pair is empty."""
    draw = random.Random(seed)
    made = list(pairs)
    kinds = [""] * len(pairs)
    for start, end in _stretches(len(pairs), draw):
        targets = [made[i][1] for i in range(start, end)]
        for i in range(start, end):
            made[i] = made[i][0], targets[(i + 1 - start) % len(targets)]
            kinds[i] = "shifted"
    free = [i for i, kind in enumerate(kinds) if not kind]
    draw.shuffle(free)
    again: list[tuple[int, str, Pair]] = []
    for kind, share in SHARES.items():
        wanted = round(share * len(pairs))
        while wanted:
            i = free.pop()
            dirty = _dirty(kind, made[i], draw, french)
            if dirty is None:
                free.insert(0, i)
                continue
            if kind in ("duplicate", "near"):
                again.append((i, kind, dirty))
            else:
                made[i], kinds[i] = dirty, kind
            wanted -= 1
    below: dict[int, list[tuple[str, Pair]]] = {}
    for i, kind, pair in again:
        below.setdefault(draw.randrange(i, len(pairs)), []).append((kind, pair))
    return [each for i in range(len(pairs)) for each in [(kinds[i], made[i]), *below.get(i, [])]]


def _stretches(count: int, draw: random.Random) -> list[tuple[int, int]]:
    """Choose disjoint ranges whose targets slip: long ones, and neighbours."""
    taken, found = [False] * count, []
    for lengths, share in ((range(20, 201), SHIFTED / 2), (range(2, 3), SHIFTED / 2)):
        wanted = round(share * count)
        while wanted > 1:
            length = min(draw.choice(lengths), wanted)
            start = draw.randrange(count - length)
            if length > 1 and not any(taken[start : start + length]):
                taken[start : start + length] = [True] * length
                found.append((start, start + length))
                wanted -= length
    return found


def _dirty(kind: str, pair: Pair, draw: random.Random, french: Sequence[Pair]) -> Pair | None:
    """Spoil one pair; None if this pair cannot have this kind of dirt."""
    source, target = pair
    match kind:
        case "language":
            other = draw.choice(french)
            return draw.choice([(source, other[1]), (other[1], target), other])
        case "copied":
            return source, source
        case "cut":
            return draw.choice([(_half(source), target), (source, _half(target))])
        case "mojibake":
            wrong = misread(source) if draw.random() < 0.5 else source, misread(target)
            return wrong if wrong != pair else None
        case "duplicate":
            return pair
        case _:
            return _near(pair, draw)


def _half(text: str) -> str:
    words = text.split()
    return " ".join(words[: (len(words) + 1) // 2])


def misread(text: str) -> str:
    """Read UTF-8 as Windows-1252, with the five bytes that it lacks as control characters."""
    return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in text.encode())


def _near(pair: Pair, draw: random.Random) -> Pair:
    match draw.randrange(3):
        case 0:
            return draw.choice([(pair[0].upper(), pair[1].upper()), (pair[0].lower(), pair[1].lower())])
        case 1:
            ends = draw.choice(["!", " .", "..."])
            return tuple(re.sub(r"[.!?]?$", ends, text.replace(",", ""), count=1) for text in pair)  # pyright: ignore
        case _:
            side = draw.randrange(2)
            words = pair[side].split()
            words[draw.randrange(len(words))] = draw.choice(["other", "2019", "xyz", "new"])
            changed = " ".join(words)
            return (changed, pair[1]) if side == 0 else (pair[0], changed)


def write(pairs: Sequence[Pair], languages: tuple[str, str], path: Path) -> list[str]:
    """Write pairs as a .tsv with a header; returns the settings that name it."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(languages) + "\n")
        file.writelines(f"{source}\t{target}\n" for source, target in pairs)
    return ["--data.train", str(path), "--data.source_lang", languages[0], "--data.target_lang", languages[1]]


def clean(pairs: Sequence[Pair], languages: tuple[str, str], folder: Path, *options: str) -> dict[int, str]:
    """Run `dragoman clean`; returns the reason of each dropped line, the header being line 1."""
    named = write(pairs, languages, folder / "pairs.tsv")
    command = [sys.executable, "-m", "dragoman", "clean", *named, "--output", str(folder / "clean"), *options]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    dropped = (folder / "clean" / "dropped.tsv").read_bytes().decode().split("\n")[1:-1]
    rows = (line.split("\t", 2) for line in dropped)
    return {int(position): reason for reason, position, _ in rows}


def count(kinds: Sequence[str], reasons: dict[int, str]) -> dict[str, Counter[str]]:
    """Count the reasons of each kind of dirt; the reason of a pair that stayed is empty."""
    found: dict[str, Counter[str]] = {}
    for line, kind in enumerate(kinds, 2):
        found.setdefault(kind or "good", Counter())[reasons.get(line, "")] += 1
    return found


def table(found: dict[str, Counter[str]]) -> list[str]:
    """Return a Markdown table of the removed pairs, with the most frequent reasons."""
    lines = ["| kind | pairs | removed | by rule |", "| --- | --- | --- | --- |"]
    dirt = sum((counts for kind, counts in found.items() if kind != "good"), Counter())
    for kind, counts in [*sorted(found.items()), *([("all dirt", dirt)] if dirt else [])]:
        pairs, gone = counts.total(), counts.total() - counts[""]
        rules = ", ".join(f"{name} {number:,}" for name, number in counts.most_common() if name)
        lines.append(f"| {kind} | {pairs:,} | {100 * gone / pairs:.2f} % | {rules} |")
    return lines


def many(pairs: Sequence[Pair], wanted: int) -> list[Pair]:
    """Repeat the pairs of a corpus, each time with another word at the end of both sides."""
    found: list[Pair] = []
    times = 0
    while len(found) < wanted:
        word = "".join(chr(ord("a") + int(digit)) for digit in str(times)) * 2
        found += [(f"{a} {word}", f"{b} {word}") if times else (a, b) for a, b in pairs]
        times += 1
    return found[:wanted]


READ = """
import sys
from dragoman.corpora.readers import read_units
from dragoman.corpora.sources import find_source
from dragoman.settings import DataConfig
data = DataConfig(train=sys.argv[1], source_lang="en", target_lang="fr")
assert sum(1 for _ in read_units(find_source("train", data, data.train), data)["train"].units) == int(sys.argv[2])
"""


def speed(pairs: Sequence[Pair], folder: Path, *options: str) -> Iterator[str]:
    """Read, check and clean pairs from English to French; yields the rows of a Markdown table."""
    named = write(pairs, ("en", "fr"), folder / "pairs.tsv")
    packed, table, memory = (folder / name for name in ("packed.tsv.gz", "table.csv", "memory.tmx"))
    packed.write_bytes(gzip.compress((folder / "pairs.tsv").read_bytes(), 6))
    with open(table, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=";").writerows([("en", "fr"), *pairs])
    with open(memory, "w", encoding="utf-8") as file:
        file.write('<tmx version="1.4"><header srclang="en"/><body>\n')
        for pair in pairs:
            variants = zip(("en", "fr"), map(html.escape, pair), strict=True)
            each = (f'<tuv xml:lang="{language}"><seg>{text}</seg></tuv>' for language, text in variants)
            file.write(f"<tu>{''.join(each)}</tu>\n")
        file.write("</body></tmx>\n")
    yield f"| {len(pairs):,} pairs | seconds | of processor time | largest process |"
    yield "| --- | --- | --- | --- |"
    for path in (folder / "pairs.tsv", packed, table, memory):
        yield f"| read {''.join(path.suffixes)} | {_measure('-c', READ, str(path), str(len(pairs)))} |"
    yield f"| check | {_measure('-m', 'dragoman', 'check', *named)} |"
    yield f"| clean | {_measure('-m', 'dragoman', 'clean', *named, '--output', str(folder / 'clean'), *options)} |"


# In a process between, because the peak memory of a process starts from that of its parent.
MEASURE = """
import resource, subprocess, sys, time
start = time.perf_counter()
subprocess.run([sys.executable, *sys.argv[1:]], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
seconds, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"{seconds:.1f} | {used.ru_utime + used.ru_stime:.1f} | {used.ru_maxrss / 2**20:.2f} GiB")
"""


def _measure(*words: str) -> str:
    command = [sys.executable, "-c", MEASURE, *words]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main() -> None:
    """Soil and clean a corpus, clean it unchanged, or measure the speed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of the corpora")
    parser.add_argument("--seed", type=int, default=1, help="of the dirt")
    parser.add_argument("--corpus", choices=CORPORA, help="clean this corpus as it is")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the dirty corpus and the cleaned one here")
    parser.add_argument("--speed", type=int, metavar="PAIRS", help="read, check and clean this many, measured")
    parser.add_argument("--processes", default=None, help="of clean")
    parsed = parser.parse_args()
    options = ["--processes", parsed.processes] if parsed.processes else []
    with tempfile.TemporaryDirectory() as folder:
        if parsed.speed:
            for row in speed(many(read_corpus(parsed.data, "tatoeba-en-fr"), parsed.speed), Path(folder), *options):
                print(row, flush=True)
            return
        name = parsed.corpus or "multi30k"
        pairs = read_corpus(parsed.data, name)
        dirty = [("", pair) for pair in pairs]
        if not parsed.corpus:
            dirty = soil(pairs, read_corpus(parsed.data, "tatoeba-en-fr"), parsed.seed)
        reasons = clean([pair for _, pair in dirty], CORPORA[name], Path(folder), *options)
        print("\n".join(table(count([kind for kind, _ in dirty], reasons))))
        if parsed.keep:
            shutil.copytree(folder, parsed.keep)


if __name__ == "__main__":
    main()
