"""The vocabulary shortlist of a run: which target tokens each source token is translated to.

    shortlist = read(checkpoint.path, trained.source)      # None if the run has none for this checkpoint

CTranslate2 then computes the probabilities of the tokens on the lists of a batch alone, and of those that are on every
list: L'Hostis et al. 2016, "Vocabulary Selection Strategies for Neural Machine Translation". A batch has one list, the
union of the lists of its sentences, so a translation may depend on the sentences beside it.

It is shortlist.json in the folder of a run, with its own hash and that of the manifest of the checkpoint whose
translations it was compared with, see `training.shortlist`. One that is damaged or of another checkpoint is not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dragoman import checkpoint, reading
from dragoman.dataset import Tokenizer
from dragoman.errors import CheckpointError
from dragoman.serialization import sealed, sha256_of, unsealed
from dragoman.settings import DecodingConfig
from dragoman.storage import replace_durably
from dragoman.translation.pieces import Piece

NAME = "shortlist.json"
VERSION = 1


@dataclass(frozen=True)
class Shortlist:
    """Lists of target tokens.

    Attributes:
        vmap: a line for each source token, a tab and its target tokens; that of "" has those that are always listed.
            CTranslate2 reads this format, and crashes if it is empty.
        known: the source tokens that have a list, as ids
        always: how many target tokens are always listed
        surer: by how many nats a token the least sure translations seem more probable, among fewer tokens
    """

    vmap: str
    known: frozenset[int]
    always: int
    surer: float = 0.0

    @classmethod
    def of(cls, vmap: str, source: Tokenizer, surer: float = 0.0) -> Shortlist:
        """Take the lists apart. Raises CheckpointError if a line is no list of a source token."""
        lines = [line.split("\t") for line in vmap.removesuffix("\n").split("\n")]
        ids = source.vocabulary
        if not all(len(line) == 2 and (not line[0] or (line[0] in ids and " " not in line[0])) for line in lines):
            raise CheckpointError("a line of the shortlist is no list of a source token.")
        lists = dict(lines)
        return cls(vmap, frozenset(ids[token] for token in lists if token), len(lists.get("", "").split()), surer)

    def serves(self, piece: Piece, settings: DecodingConfig) -> bool:
        """Whether the search for this piece may use the lists.

        Not if it has a token without a list, nor with a prefix or terms, which may be any words, nor for several
        translations, which are ranked by their probabilities among all words.
        """
        return (
            settings.shortlist
            and settings.n_best == 1
            and 2 * settings.beam_size <= self.always
            and not (piece.prefix or piece.terms)
            and self.known.issuperset(piece.ids)
        )


def _place(path: Path) -> Path:
    """Where the shortlist for the checkpoint in this folder lies, if that is in a run."""
    return path.absolute().parent.parent / NAME


def _identity(path: Path) -> str:
    return sha256_of(checkpoint.read_plain(path / checkpoint.MANIFEST))


def read(path: Path, source: Tokenizer) -> Shortlist | None:
    """Read the shortlist for the checkpoint in this folder; None if there is none that fits and is whole."""
    place = _place(path)
    try:
        found = unsealed(reading.read(place, reading.TEXT, plain=True))
        if found.get("version") != VERSION or found.get("checkpoint") != _identity(path):
            return None
        return Shortlist.of(found["vmap"], source, float(found["surer"]))
    except (OSError, CheckpointError, ValueError, LookupError, TypeError, AttributeError):
        return None


def write(path: Path, shortlist: Shortlist) -> None:
    """Write the shortlist for the checkpoint in this folder. Raises OSError."""
    content = {"version": VERSION, "checkpoint": _identity(path), "surer": shortlist.surer, "vmap": shortlist.vmap}
    replace_durably(_place(path), sealed(content))


def remove(path: Path) -> None:
    """Remove the shortlist of the run that the checkpoint in this folder belongs to. Raises OSError."""
    _place(path).unlink(missing_ok=True)
