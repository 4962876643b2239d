"""Compare the translations of this program and its peers after equal training time.

    python benchmarks/quality.py --config configs/tatoeba-en-fr.yaml --minutes 60 --work /scratch/quality
    python benchmarks/quality.py --config mine.yaml --minutes 30 --joeynmt joey/bin/python --contenders ours joeynmt

All contenders train on the same text files with the same number of threads, one after another. The minutes count the
training loop, including validation and checkpoints. Everything before it (tokenizers, ids, vocabularies) is counted in
the column `from raw text`. Results are kept in --work, and a later call does not train them again.

Contenders, each with its own recipe:
    ours      `train.py` with the config, whose preset should be auto. Other settings may follow on the command line;
              --data.train and similar ones also choose the text for all contenders.
    words     The loop of PyTorch's translation tutorial: nn.Transformer with the tutorial's shape, 128 random pairs per
              batch, Adam with rate 1e-4, float32, all words of the corpus; the weights of the pass with the lowest
              validation loss.
    pieces    The same with 8,000 BPE subwords, shared by both languages, which the tutorial does not have.
    joeynmt   JoeyNMT 2.3, installed in an environment whose Python is given by --joeynmt. It uses its recipe for
              IWSLT14, a corpus of similar size, with the changes in quality_joeynmt.py and those of --joeynmt_set. When
              the minutes are over it gets Ctrl-C, on which it saves and ends. Of its best and its last weights, those
              that score better on validation count; the time to find out does not.

Our training knows from the start when it will end, so its learning rate decays in time; the peers' do not. In favour of
the peers: the tutorial keeps its best pass, uses our tokenizer, which joins punctuation to words again, and our beam
search; JoeyNMT has a model as large as our preset base.

JoeyNMT 2.3.0 pins libraries older than itself. In an environment with torch, tensorboard, sacrebleu, datasets and
matplotlib, this is enough:

    pip install --no-deps joeynmt==2.3.0 sentencepiece==0.2.0 'importlib_metadata<8' zipp subword-nmt mock

The columns: the minutes; minutes from raw text; complete passes over the data; parameters, shared ones counted once;
BLEU of validation and test, greedy and with a beam of five. The scores are sacreBLEU's on detokenized text, with the
same references for all; the signature is printed below. Then comes the lead of ours over each peer on the test pairs
with a beam, its 95 % interval by paired bootstrap, and p by approximate randomization. These measure the chance in the
choice of pairs, not of seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from common import ROOT, Texts, fail, load_config, write_texts
from quality_contenders import BEAMS, SPLITS, Outcome, languages, ours
from quality_joeynmt import joeynmt
from quality_tutorial import TOKENIZERS, train_and_translate, tutorial

from dragoman import config_file
from dragoman.corpora import sources, splitting
from dragoman.evaluation.metrics import compare, measure, score
from dragoman.settings import Config

CONTENDERS = {"ours": ours, "words": tutorial, "pieces": tutorial, "joeynmt": joeynmt}


def main() -> None:
    """Train the contenders that are not trained yet, and print a table."""
    parser = argparse.ArgumentParser(description="Compare translators after equal training time.")
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "tatoeba-en-fr.yaml")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, help="default: all that are available")
    parser.add_argument("--joeynmt", type=Path, metavar="PYTHON", help="the Python of an environment with JoeyNMT")
    parser.add_argument("--joeynmt_set", nargs="+", default=[], metavar="SECTION.KEY=VALUE", help="change its recipe")
    parser.add_argument("--pairs", type=int, help="train on this many pairs only")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, help="folder for texts and models (default: a temporary one)")
    parser.add_argument("--contender", choices=TOKENIZERS, help=argparse.SUPPRESS)
    options, options.settings = parser.parse_known_args()
    config = load_config(parser, options.config, options.settings)
    if config.is_language_model or config.data.directions or not (config.data.test or config.data.test_fraction):
        parser.error(f"{options.config} has no test set of pairs in one direction, which BLEU needs")
    if options.joeynmt is None and "joeynmt" in (options.contenders or ()):
        parser.error("joeynmt is a separate program: name the Python that has it with --joeynmt")
    names = options.contenders or [name for name in CONTENDERS if name != "joeynmt" or options.joeynmt]
    if options.contender:
        train_and_translate(options, config)
        return
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        options.work = (options.work or Path(scratch)).resolve()
        texts = shared_texts(options, config)
        found = {name: trained(name, options, config, texts) for name in names}
    report(found, texts)


def shared_texts(options: argparse.Namespace, config: Config) -> Texts:
    """Write the text that all contenders train on, and return it with the texts that they are scored on."""
    found = sources.find_sources(config.data)
    pairs = {split: splitting.read_split(split, found, config.data) for split in sources.SPLITS}
    pairs["train"] = pairs["train"][: options.pairs]
    return write_texts(options.work / "text", pairs, languages(config))


def trained(name: str, options: argparse.Namespace, config: Config, texts: Texts) -> Outcome:
    """Train a contender and let it translate, or load the result of an earlier call."""
    same = {key: getattr(options, key) for key in ("minutes", "pairs", "threads", "device", "seed")}
    same["settings"] = {"ours": options.settings, "joeynmt": options.joeynmt_set}.get(name, [])
    same["config"] = config_file.dump(config)
    kept, folder = options.work / f"{name}.json", options.work / name
    if kept.exists():
        before = json.loads(kept.read_text(encoding="utf-8"))
        if before.pop("options") != same:
            fail(f"{kept} was made with other options: choose another --work or remove it.")
        return Outcome(**before)
    if folder.exists():
        fail(f"{folder} was interrupted, but contenders start from nothing: remove it.")
    folder.mkdir()
    print(f"{name}: {options.minutes:g} minutes; see {folder}", file=sys.stderr)
    outcome = CONTENDERS[name](options, config, folder, texts)
    kept.write_text(json.dumps({**asdict(outcome), "options": same}, ensure_ascii=False), encoding="utf-8")
    return outcome


def report(found: dict[str, Outcome], texts: Texts) -> None:
    """Print the scores of each contender and the lead of ours."""
    scored = [(split, beam) for split in SPLITS for beam in BEAMS]
    heads = [f"{split}, {'greedy' if beam == 1 else f'beam {beam}'}" for split, beam in scored]
    print("| contender | minutes | from raw text | passes | parameters | " + " | ".join(heads) + " |")
    print("| --- " * (5 + len(heads)) + "|")
    for name, each in found.items():
        bleu = [score(each.translations[f"{split} {beam}"], texts[split][1]).bleu for split, beam in scored]
        print(
            f"| {name} | {each.minutes:.1f} | {each.whole:.1f} | {each.passes} | {each.parameters / 1e6:.1f} M | "
            + " | ".join(f"{value:.2f}" for value in bleu)
            + " |"
        )
    references = texts["test"][1]
    print(f"\n{score(references, references).signature}; {len(references):,} test pairs")
    measured = {name: measure(each.translations["test 5"], references, "13a") for name, each in found.items()}
    for name in [name for name in measured if "ours" in measured and name != "ours"]:
        bleu = compare(name, measured["ours"], measured[name]).differences[0]
        print(f"ours - {name}: {bleu.difference:+.2f} BLEU [{bleu.low:+.2f}, {bleu.high:+.2f}], p = {bleu.p:.4f}")


if __name__ == "__main__":
    main()
