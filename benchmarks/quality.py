"""Who translates better after equal time: this program and its peers, each trained alone for as many minutes.

    python benchmarks/quality.py --config configs/tatoeba-en-fr.yaml --minutes 60 --work /scratch/quality
    python benchmarks/quality.py --config mine.yaml --minutes 30 --joeynmt joey/bin/python --contenders ours joeynmt

All learn from the same text files, with the same number of threads, one after the other. The minutes are those of the
loop, validations and checkpoints included; what comes before them (tokenizers, ids, vocabularies) is in the column
`from raw text`. What a contender has become lies in --work, and is not made again by a later call.

The contenders, each by its own recipe:
    ours      `train.py` with the config, whose preset should be auto; other settings may follow on the command line,
              of which --data.train and its like say what all learn from
    words     the loop of PyTorch's translation tutorial: nn.Transformer with the tutorial's shape, 128 pairs at random,
              Adam at 1e-4, float32, all words of the corpus; the weights of the pass with the lowest validation loss
    pieces    the same with 8,000 pieces of words (BPE) for both languages together, which the tutorial does not have
    joeynmt   JoeyNMT 2.3, installed into an environment whose Python is given by --joeynmt: the recipe that it has for
              IWSLT14, of as many pairs, with the changes told at `JOEYNMT` and those of --joeynmt_set; after the
              minutes it gets the Ctrl-C for which it saves and ends; of its best weights and its last ones those that
              are better on validation, and nothing of what it had to do to find out is counted

Ours knows from the start when it will end, and its learning rate comes down by then; the peers do not. In favour of the
peers: of the tutorial it is the best pass that counts, its tokens are our tokenizer's, which join marks to words again,
and it has our beam; JoeyNMT has a model as large as that of our preset base.

JoeyNMT 2.3.0 asks for libraries older than itself. Into an environment that has torch, tensorboard, sacrebleu, datasets
and matplotlib, this suffices:

    pip install --no-deps joeynmt==2.3.0 sentencepiece==0.2.0 'importlib_metadata<8' zipp subword-nmt mock

The columns: the minutes; passes over the data that were completed; parameters, shared ones once; BLEU of validation
and test, greedy and with a beam of five. The scores are sacreBLEU's over whole, detokenised text, for all contenders
against the same references; the signature stands below. Then what ours is ahead of each peer on the test pairs, with
a beam, the 95 % interval by paired bootstrap, and p by approximate randomisation: chance of the pairs, not of seeds.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)
sys.path.append(str(ROOT / "benchmarks"))

import torch
import torch.nn.functional as F
import trainings
import yaml
from torch import Tensor, nn
from training import Tutorial, batches
from trainings import Texts

from dragoman import config_file, dataset
from dragoman import device as device_module
from dragoman.command_line import override
from dragoman.corpora import preparation, splitting
from dragoman.corpora import sources as sources_module
from dragoman.evaluation.metrics import compare, measure, score
from dragoman.settings import PAD, Config, DecodingConfig
from dragoman.translation import search
from dragoman.translation.translator import Translator

SPLITS = ("validation", "test")
BEAMS = (1, 5)

# The tutorial's shape, and what it calls its tokens.
TUTORIAL = {"d_model": 512, "n_heads": 8, "encoder_layers": 3, "decoder_layers": 3, "d_ff": 512, "tie": "none"}
TOKENS = {
    "words": {"kind": "word", "vocab_size": 100_000, "min_frequency": 1},
    "pieces": {"kind": "bpe", "vocab_size": 8000, "min_frequency": 2, "shared": True},
}

# configs/iwslt14_deen_bpe.yaml of JoeyNMT 2.3.0, which is for as many pairs, but for hours on a GPU. What is not that
# file's: cased text; 8,000 pieces made by sentencepiece, as in its iwslt14_deen_sp.yaml, where it has 32,000; the
# schedule of that file, with a peak of 0.001 after 500 updates (0.0002 after 4,000; the first file's plateau, from
# 0.0003, is refused by later PyTorch); 4 + 4 layers for 6 + 6, and batches of 2,048 for 4,096: more updates a minute.
_SIDE: dict[str, Any] = {
    "num_layers": 4, "num_heads": 4, "embeddings": {"embedding_dim": 256, "scale": True, "dropout": 0.0},
    "hidden_size": 256, "ff_size": 1024, "dropout": 0.3, "layer_norm": "pre", "activation": "relu",
    "type": "transformer",
}  # fmt: skip
JOEYNMT: dict[str, Any] = {
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
        "encoder": _SIDE, "decoder": _SIDE,
    },
}  # fmt: skip
SPECIAL = {"unk": 0, "pad": 1, "bos": 2, "eos": 3}  # as JoeyNMT numbers them
PIECES = "import sys, sentencepiece; sentencepiece.SentencePieceTrainer.Train(sys.argv[1])"


@dataclass(frozen=True)
class Outcome:
    """What a contender has come to."""

    minutes: float  # in its loop
    whole: float  # minutes from raw text to a trained model
    passes: int
    parameters: int
    translations: dict[str, list[str]]  # by split and beam: "test 5"


def main() -> None:
    """Train whoever has not been trained, and print a table."""
    parser = argparse.ArgumentParser(description="Compare translators that had equal time to learn.")
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "tatoeba-en-fr.yaml")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, help="default: all there are")
    parser.add_argument("--joeynmt", type=Path, metavar="PYTHON", help="that of the environment in which JoeyNMT is")
    parser.add_argument("--joeynmt_set", nargs="+", default=[], metavar="SECTION.KEY=VALUE", help="in its recipe")
    parser.add_argument("--pairs", type=int, help="train on the first so many")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, help="folder of texts and models (default: a temporary one)")
    parser.add_argument("--contender", choices=TOKENS, help=argparse.SUPPRESS)
    options, options.settings = parser.parse_known_args()
    config = trainings.configured(parser, options.config, options.settings)
    if config.is_language_model or config.data.directions or not (config.data.test or config.data.test_fraction):
        parser.error(f"{options.config} has no test set of pairs of two languages, by which contenders are told")
    if options.joeynmt is None and "joeynmt" in (options.contenders or ()):
        parser.error("joeynmt is a program of its own: name the Python that has it, by --joeynmt")
    names = options.contenders or [name for name in CONTENDERS if name != "joeynmt" or options.joeynmt]
    if options.contender:
        follow(options, config)
        return
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(options.threads)
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")  # see train.py; the peers may have it too
    with tempfile.TemporaryDirectory() as scratch:
        options.work = (options.work or Path(scratch)).resolve()
        texts = shared_texts(options, config)
        found = {name: trained(name, options, config, texts) for name in names}
    report(found, texts)


def shared_texts(options: argparse.Namespace, config: Config) -> Texts:
    """Write the files from which all learn, a sentence a line, and return what they are scored on."""
    pairs, _, _ = splitting.read_corpus(sources_module.find_sources(config.data), config.data)
    pairs["train"] = pairs["train"][: options.pairs]
    return trainings.write_texts(options.work / "text", pairs, languages(config))


def languages(config: Config) -> tuple[str, str]:
    """What the names of the text files end with."""
    return str(config.data.source_lang), config.data.target_lang


def data_settings(options: argparse.Namespace, config: Config) -> list[str]:
    """The shared texts as settings of this program."""
    words = [f"--data.{split}={options.work / 'text' / split}" for split in ("train", *SPLITS)]
    return [*words, *(f"--data.{side}_lang={each}" for side, each in zip(("source", "target"), languages(config)))]  # noqa: B905


def trained(name: str, options: argparse.Namespace, config: Config, texts: Texts) -> Outcome:
    """Train a contender and let it translate, or take what an earlier call has kept of it."""
    same = {key: getattr(options, key) for key in ("minutes", "pairs", "threads", "device", "seed")}
    same["settings"] = {"ours": options.settings, "joeynmt": options.joeynmt_set}.get(name, [])
    same["config"] = config_file.dump(config)
    kept, folder = options.work / f"{name}.json", options.work / name
    if kept.exists():
        before = json.loads(kept.read_text(encoding="utf-8"))
        if before.pop("options") != same:
            sys.exit(f"quality.py: error: {kept} is of other options: choose another --work, or take it away.")
        return Outcome(**before)
    if folder.exists():
        sys.exit(f"quality.py: error: {folder} was cut short, but each begins with nothing: take it away.")
    folder.mkdir()
    print(f"{name}: {options.minutes:g} minutes; see {folder}", file=sys.stderr, flush=True)
    outcome = CONTENDERS[name](options, config, folder, texts)
    kept.write_text(json.dumps({**asdict(outcome), "options": same}, ensure_ascii=False), encoding="utf-8")
    return outcome


def report(found: dict[str, Outcome], texts: Texts) -> None:
    """Print how good each is, and how far ours is ahead."""
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


# ---------------------------------------------------------------------------------------------------------------- ours


def ours(options: argparse.Namespace, config: Config, folder: Path, texts: Texts) -> Outcome:
    """`train.py`, as anybody starts it."""
    settings = [f"--run.seed={options.seed}", f"--training.device={options.device}"]
    settings += [f"--training.max_minutes={options.minutes}", "--training.max_epochs=null", "--training.max_steps=null"]
    settings += options.settings + ["--data.config=null"] * bool(config.data.config) + data_settings(options, config)
    command = trainings.command(folder, "run", options.config, settings)
    begun = time.perf_counter()
    ended = next((moment for line, moment in told(command, folder, ROOT) if line.startswith("finished:")), None)
    if ended is None:
        sys.exit(f"quality.py: error: train.py has not finished: see {folder}.log")
    progress = trainings.progress(folder / "run")
    translator = Translator(folder / "run", options.device)
    found = {
        f"{split} {beam}": translator.with_decoding(beam_size=beam).translate(texts[split][0])
        for split in SPLITS
        for beam in BEAMS
    }
    size = sum(weight.numel() for weight in translator.model.parameters())
    return Outcome(progress["seconds"] / 60, (ended - begun) / 60, progress["epoch"], size, found)


def told(
    command: Sequence[str | Path], folder: Path, place: Path, stop_after: tuple[str, float] | None = None
) -> Iterator[tuple[str, float]]:
    """The lines that a command prints, and when; they are kept in a file beside the folder.

    So many seconds after it has said the first words of stop_after it gets a Ctrl-C.
    """
    timer = None
    with (
        Path(f"{folder}.log").open("a", encoding="utf-8") as log,
        subprocess.Popen(
            command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            preexec_fn=_hear_again,
        ) as process,
    ):  # fmt: skip
        assert process.stdout
        try:
            for line in process.stdout:
                if stop_after and timer is None and stop_after[0] in line:
                    timer = threading.Timer(stop_after[1], process.send_signal, [signal.SIGINT])
                    timer.start()
                log.write(line)
                log.flush()
                yield line, time.perf_counter()
        except BaseException:
            process.kill()
            raise
        finally:
            if timer:
                timer.cancel()
    if process.returncode:
        sys.exit(
            f"quality.py: error: {' '.join(map(str, command[:3]))} ended with {process.returncode}: see {log.name}"
        )


def _hear_again() -> None:
    """A program started in the background is deaf to Ctrl-C, and so is what it starts, if nobody does this."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


# -------------------------------------------------------------------------------------------------------- the tutorial


def tutorial(options: argparse.Namespace, config: Config, folder: Path, texts: Texts) -> Outcome:
    """The tutorial in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), f"--contender={folder.name}"]
    command += [f"--config={options.config.resolve()}", f"--work={options.work}", f"--minutes={options.minutes}"]
    command += [f"--device={options.device}", f"--seed={options.seed}", *options.settings]
    for _ in told(command, folder, ROOT):
        pass
    return Outcome(**json.loads((folder / "outcome.json").read_text(encoding="utf-8")))


def follow(options: argparse.Namespace, config: Config) -> None:
    """Train as the tutorial does, then translate."""
    begun = time.perf_counter()
    torch.manual_seed(options.seed)
    folder = options.work / options.contender
    device = device_module.choose_device(options.device)
    words = [f"--tokenizer.{key}={value}" for key, value in TOKENS[options.contender].items()]
    words += [f"--model.{key}={value}" for key, value in TUTORIAL.items()]
    config = override(Config(), [*data_settings(options, config), f"--run.dir={folder}", *words])
    data = preparation.prepare_data(config, folder / "data", lambda line: print(line, flush=True))
    model = Tutorial(config, len(data.source), len(data.target)).to(device)
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.xavier_uniform_(weight)
    learning = time.perf_counter()
    passes = learn(model, config, data, device, 60 * options.minutes)
    ended = time.perf_counter()
    torch.save(model.state_dict(), folder / "weights.pt")
    sizes = sum(weight.numel() for weight in model.parameters())
    found = {}
    for split in SPLITS:
        sources = (options.work / "text" / f"{split}.{languages(config)[0]}").read_text(encoding="utf-8").splitlines()
        for beam in BEAMS:
            found[f"{split} {beam}"] = translated(model, data, sources, beam, device)
            print(f"{split}, beam {beam}: translated", flush=True)
    outcome = Outcome((ended - learning) / 60, (ended - begun) / 60, passes, sizes, found)
    (folder / "outcome.json").write_text(json.dumps(asdict(outcome), ensure_ascii=False), encoding="utf-8")


def learn(model: Tutorial, config: Config, data: preparation.PreparedData, device: torch.device, seconds: float) -> int:
    """The tutorial's loop, until the time is up; the model is left with its best weights. Returns whole passes."""
    begun = time.perf_counter()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    held_out = dataset.encode_pairs(data.validation, data.source, data.target)
    best, lowest, passes = copy.deepcopy(model.state_dict()), math.inf, 0
    in_a_pass = math.ceil(len(data.train) / 128)
    model.train()
    for step, each in enumerate(batches(config, data, like_tutorial=True), start=1):
        batch = each.to(device)
        optimizer.zero_grad()
        logits = model(batch.source, batch.target_in)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=PAD)
        loss.backward()
        optimizer.step()
        over = time.perf_counter() - begun >= seconds
        passes += step % in_a_pass == 0
        if over or step % in_a_pass == 0:
            found = mean_loss(model, held_out, device)
            minutes = (time.perf_counter() - begun) / 60
            print(f"step {step}, {minutes:.1f} min: loss {loss.item():.3f}, validation {found:.3f}", flush=True)
            if found < lowest:
                best, lowest = copy.deepcopy(model.state_dict()), found
            if over or minutes * 60 >= seconds:
                break
    model.load_state_dict(best)
    return passes


@torch.no_grad()
def mean_loss(model: Tutorial, pairs: dataset.EncodedPairs, device: torch.device) -> float:
    """That of a target token of the validation pairs, in nats."""
    model.eval()
    total, tokens = 0.0, 0
    for indices in dataset.batch_plan(*pairs.lengths, 4096, seed=0, epoch=0):
        batch = dataset.make_batch(pairs, indices).to(device)
        logits = model(batch.source, batch.target_in).flatten(0, 1)
        total += F.cross_entropy(logits, batch.target_out.flatten(), ignore_index=PAD, reduction="sum").item()
        tokens += batch.tokens
    model.train()
    return total / tokens


class Read(NamedTuple):
    """What `Stepwise` remembers of A sentences with P hypotheses each."""

    memory: Tensor  # (A, S, D)
    hidden: Tensor  # (A, S), True where there is padding
    tokens: Tensor  # (A P, T), all that went before

    def select(self, hypotheses: Tensor | None, sentences: Tensor | None) -> Read:
        """As `model.State.select`."""
        memory, hidden, tokens = self
        if sentences is not None:
            memory, hidden = memory[sentences], hidden[sentences]
        return Read(memory, hidden, tokens if hypotheses is None else tokens[hypotheses])


class Stepwise:
    """The tutorial's model for our search. Like the tutorial it reads all that it has written again at each step."""

    def __init__(self, model: Tutorial) -> None:
        self.model = model.eval()

    def start(self, source: Tensor) -> Read:
        """As `decoding.StepModel.start`."""
        hidden = source == PAD
        placed = self.model.placed(self.model.source, source)
        memory = self.model.body.encoder(placed, src_key_padding_mask=hidden)
        return Read(memory, hidden, source.new_empty(len(source), 0))

    def step(self, tokens: Tensor, state: Read) -> tuple[Tensor, Read]:
        """As `decoding.StepModel.step`."""
        written = torch.cat((state.tokens, tokens[:, None]), 1)  # (A P, T)
        each = len(written) // len(state.memory)
        memory, hidden = state.memory.repeat_interleave(each, 0), state.hidden.repeat_interleave(each, 0)
        length = written.shape[1]
        causal = nn.Transformer.generate_square_subsequent_mask(length, written.device).isinf()
        placed = self.model.placed(self.model.target, written)
        states = self.model.body.decoder(placed, memory, tgt_mask=causal, memory_key_padding_mask=hidden)
        return self.model.projection(states[:, -1]), state._replace(tokens=written)


@torch.inference_mode()
def translated(
    model: Tutorial, data: preparation.PreparedData, sources: Sequence[str], beam: int, device: torch.device
) -> list[str]:
    """The translations of sources, 50 of about a length at a time."""
    settings, most = DecodingConfig(beam_size=beam), len(model.table) - 1  # type: ignore[arg-type]
    ids = [each[:most] for each in data.source.encode_batch(sources)]
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    found = [""] * len(ids)
    for start in range(0, len(order), 50):
        rows = order[start : start + 50]
        limits = [min(2 * len(ids[i]) + 10, most) for i in rows]
        batch = dataset.source_batch([ids[i] for i in rows]).to(device)
        best = [each[0].tokens for each in search.search(Stepwise(model), batch, limits, settings)]
        for i, text in zip(rows, data.target.decode_batch(best), strict=True):
            found[i] = text
    return found


# ------------------------------------------------------------------------------------------------------------- JoeyNMT


def joeynmt(options: argparse.Namespace, config: Config, folder: Path, texts: Texts) -> Outcome:
    """JoeyNMT by its command line: pieces, training until Ctrl-C, translations."""
    python = options.joeynmt.absolute()  # not resolved: it is by its link that Python knows the environment
    begun = time.perf_counter()
    text, model = options.work / "text", folder / "pieces.model"
    words = [f"--input={','.join(str(text / f'train.{each}') for each in languages(config))}"]
    words += [f"--model_prefix={model.with_suffix('')}", "--vocab_size=8000", "--hard_vocab_limit=false"]
    words += ["--character_coverage=1.0", "--vocabulary_output_piece_score=false"]
    words += [f"--{name}_id={number}" for name, number in SPECIAL.items()]
    for _ in told([python, "-c", PIECES, " ".join(words)], folder, folder):
        pass
    recipe = joeynmt_recipe(options, config, folder)
    (folder / "train.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    command = [python, "-m", "joeynmt", "train", folder / "train.yaml", "--skip-test"]
    learning = ended = None
    passes = size = 0
    for line, moment in told(command, folder, folder, stop_after=(" EPOCH 1\n", 60 * options.minutes)):
        if number := re.search(r" EPOCH (\d+)$", line):
            learning, passes = learning or moment, int(number[1]) - 1
        elif number := re.search(r"Total params: (\d+)", line):
            size = int(number[1])
        elif "Interrupt at epoch" in line:
            ended = moment
    if learning is None or ended is None:
        sys.exit(f"quality.py: error: JoeyNMT ended before its time: see {folder}.log")
    found = joeynmt_translations(python, recipe, folder, texts)
    return Outcome((ended - learning) / 60, (ended - begun) / 60, passes, size, found)


def joeynmt_recipe(options: argparse.Namespace, config: Config, folder: Path) -> dict[str, Any]:
    """`JOEYNMT` with its files, and with the settings that were asked for."""
    recipe = copy.deepcopy(JOEYNMT)  # in which both sides of the model become two
    recipe["model"]["decoder"] = copy.deepcopy(_SIDE)
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
    recipe["use_cuda"] = device_module.choose_device(options.device).type == "cuda"
    for setting in options.joeynmt_set:
        path, _, value = setting.partition("=")
        *sections, key = path.split(".")
        place = recipe
        for section in sections:
            place = place[section]
        place[key] = yaml.safe_load(value)
    return recipe


def joeynmt_translations(python: Path, recipe: dict[str, Any], folder: Path, texts: Texts) -> dict[str, list[str]]:
    """What JoeyNMT makes of the held-out texts, by the weights that are better on validation."""

    def decoded(weights: str, beam: int) -> dict[str, list[str]]:
        settings = copy.deepcopy(recipe)
        settings["testing"] |= {"load_model": str(folder / "model" / weights), "beam_size": beam}
        (folder / "test.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
        output = folder / f"{Path(weights).stem}-{beam}"
        for _ in told([python, "-m", "joeynmt", "test", folder / "test.yaml", "-o", output], folder, folder):
            pass
        lines = {split: Path(f"{output}.{key}").read_text("utf-8") for key, split in zip(("dev", "test"), SPLITS)}  # noqa: B905
        return {f"{split} {beam}": text.split("\n")[:-1] for split, text in lines.items()}

    greedy = {each: decoded(each, 1) for each in ("best.ckpt", "latest.ckpt") if (folder / "model" / each).exists()}
    references = texts["validation"][1]
    chosen = max(greedy, key=lambda each: score(greedy[each]["validation 1"], references).bleu)
    return {**greedy[chosen], **decoded(chosen, 5)}


CONTENDERS = {"ours": ours, "words": tutorial, "pieces": tutorial, "joeynmt": joeynmt}

if __name__ == "__main__":
    main()
