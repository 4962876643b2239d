"""JoeyNMT 2.3 as a contender of quality.py, run in an environment of its own."""

from __future__ import annotations

import argparse
import copy
import re
import time
from pathlib import Path
from typing import Any

import yaml
from common import Texts, fail
from quality_contenders import SPLITS, Outcome, languages, output_lines

from dragoman.device import choose_device
from dragoman.evaluation.metrics import score
from dragoman.settings import Config

# From configs/iwslt14_deen_bpe.yaml of JoeyNMT 2.3.0, made for a corpus of this size and hours of a GPU.
# Changes: cased text; 8,000 subwords made by sentencepiece, as in its iwslt14_deen_sp.yaml, which has 32,000; the
# schedule of that file with a peak of 0.001 after 500 updates instead of 0.0002 after 4,000 (newer PyTorch refuses the
# plateau schedule of the first file); 4 + 4 layers instead of 6 + 6, and batches of 2,048 tokens instead of 4,096, for
# more updates per minute.
SIDE: dict[str, Any] = {
    "num_layers": 4, "num_heads": 4, "embeddings": {"embedding_dim": 256, "scale": True, "dropout": 0.0},
    "hidden_size": 256, "ff_size": 1024, "dropout": 0.3, "layer_norm": "pre", "activation": "relu",
    "type": "transformer",
}  # fmt: skip
RECIPE: dict[str, Any] = {
    "name": "quality", "joeynmt_version": "2.3.0",
    "testing": {
        "n_best": 1, "beam_alpha": 1.0, "batch_size": 1024, "batch_type": "token", "max_output_length": 100,
        "eval_metrics": ["bleu"], "sacrebleu_cfg": {"tokenize": "13a"},
    },
    "training": {
        "optimizer": "adamw", "normalization": "tokens", "adam_betas": [0.9, 0.999],
        "scheduling": "warmupinversesquareroot", "learning_rate": 0.001, "learning_rate_warmup": 500,
        "learning_rate_min": 1e-8, "weight_decay": 0.0, "label_smoothing": 0.1, "batch_size": 2048,
        "batch_type": "token", "early_stopping_metric": "bleu", "epochs": 1_000_000, "validation_freq": 1000,
        "logging_freq": 100, "print_valid_sents": [0, 1, 2], "keep_best_ckpts": 1,
    },
    "model": {
        "initializer": "xavier_uniform", "embed_initializer": "xavier_uniform", "embed_init_gain": 1.0,
        "init_gain": 1.0, "bias_initializer": "zeros", "tied_embeddings": True, "tied_softmax": True,
        "encoder": SIDE, "decoder": SIDE,
    },
}  # fmt: skip
SPECIAL = {"unk": 0, "pad": 1, "bos": 2, "eos": 3}  # the ids that JoeyNMT uses
TRAIN_TOKENIZER = "import sys, sentencepiece; sentencepiece.SentencePieceTrainer.Train(sys.argv[1])"


def joeynmt(options: argparse.Namespace, config: Config, folder: Path, texts: Texts) -> Outcome:
    """Run JoeyNMT by its command line: train a tokenizer, train the model until Ctrl-C, translate."""
    python = options.joeynmt.absolute()  # not resolved: the link tells Python its environment
    started = time.perf_counter()
    text, model = options.work / "text", folder / "pieces.model"
    words = [f"--input={','.join(str(text / f'train.{each}') for each in languages(config))}"]
    words += [f"--model_prefix={model.with_suffix('')}", "--vocab_size=8000", "--hard_vocab_limit=false"]
    words += ["--character_coverage=1.0", "--vocabulary_output_piece_score=false"]
    words += [f"--{name}_id={number}" for name, number in SPECIAL.items()]
    for _ in output_lines([python, "-c", TRAIN_TOKENIZER, " ".join(words)], folder, folder):
        pass
    recipe = _recipe(options, config, folder)
    (folder / "train.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    command = [python, "-m", "joeynmt", "train", folder / "train.yaml", "--skip-test"]
    learning = ended = None
    passes = size = 0
    for line, moment in output_lines(command, folder, folder, stop_after=(" EPOCH 1\n", 60 * options.minutes)):
        if number := re.search(r" EPOCH (\d+)$", line):
            learning, passes = learning or moment, int(number[1]) - 1
        elif number := re.search(r"Total params: (\d+)", line):
            size = int(number[1])
        elif "Interrupt at epoch" in line:
            ended = moment
    if learning is None or ended is None:
        fail(f"JoeyNMT ended too early: see {folder}.log")
    found = _translate(python, recipe, folder, texts)
    return Outcome((ended - learning) / 60, (ended - started) / 60, passes, size, found)


def _recipe(options: argparse.Namespace, config: Config, folder: Path) -> dict[str, Any]:
    """Return RECIPE with the paths of its files and the settings of --joeynmt_set."""
    recipe = copy.deepcopy(RECIPE)
    recipe["model"]["decoder"] = copy.deepcopy(SIDE)  # deepcopy keeps one shared dictionary for both sides
    pieces = str(folder / "pieces.model")
    side: dict[str, Any] = {
        "lowercase": False, "normalize": False, "level": "bpe", "voc_min_freq": 1, "max_length": 128,
        "voc_file": str(folder / "pieces.vocab"), "tokenizer_type": "sentencepiece",
        "tokenizer_cfg": {"model_file": pieces, "pretokenizer": "none"},
    }  # fmt: skip
    source, target = ({"lang": each, **copy.deepcopy(side)} for each in languages(config))
    names = {"train": "train", "dev": "validation", "test": "test"}
    recipe["data"] = {key: str(options.work / "text" / split) for key, split in names.items()}
    recipe["data"] |= {"dataset_type": "plain", "src": source, "trg": target}
    recipe["data"]["special_symbols"] = {f"{name}_id": number for name, number in SPECIAL.items()}
    recipe["model_dir"], recipe["random_seed"] = str(folder / "model"), options.seed
    recipe["use_cuda"] = choose_device(options.device).type == "cuda"
    for setting in options.joeynmt_set:
        path, _, value = setting.partition("=")
        *sections, key = path.split(".")
        place = recipe
        for section in sections:
            place = place[section]
        place[key] = yaml.safe_load(value)
    return recipe


def _translate(python: Path, recipe: dict[str, Any], folder: Path, texts: Texts) -> dict[str, list[str]]:
    """Translate validation and test texts with the best or the last weights, whichever score better on validation."""

    def decode(weights: str, beam: int) -> dict[str, list[str]]:
        settings = copy.deepcopy(recipe)
        settings["testing"] |= {"load_model": str(folder / "model" / weights), "beam_size": beam}
        (folder / "test.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
        output = folder / f"{Path(weights).stem}-{beam}"
        for _ in output_lines([python, "-m", "joeynmt", "test", folder / "test.yaml", "-o", output], folder, folder):
            pass
        lines = {split: Path(f"{output}.{key}").read_text("utf-8") for key, split in zip(("dev", "test"), SPLITS)}  # noqa: B905
        return {f"{split} {beam}": text.split("\n")[:-1] for split, text in lines.items()}

    greedy = {each: decode(each, 1) for each in ("best.ckpt", "latest.ckpt") if (folder / "model" / each).exists()}
    references = texts["validation"][1]
    chosen = max(greedy, key=lambda each: score(greedy[each]["validation 1"], references).bleu)
    return {**greedy[chosen], **decode(chosen, 5)}
