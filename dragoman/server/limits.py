"""What the server accepts from its clients, and how much it does for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MAX_CHARACTERS = 5_000  # in one request
MAX_TEXTS = 32  # in one request
MAX_TERMS = 200  # of a glossary in one request
MAX_CHUNKED = 50_000  # bytes of a request that comes in chunks
MAX_TERM = 100  # characters of a term
MAX_N_BEST = MAX_BEAM_SIZE = 10
LONG_WORK = 2_000  # a job of more work is long: it is translated a part at a time
LONG_TOKENS = 25  # of the source in such a part, fewer for a wide beam or weights: new jobs wait for it
QUIET = 1.0  # seconds without short jobs, after which parts are larger, and follow one another without a rest
QUIET_TOKENS = 400  # of the source in such a larger part
SHORT_TOKENS = 10_000  # of short jobs that are translated together, so that the first ones do not wait for too many
READ_TIMEOUT = 10.0  # seconds to send the head of a request, again to send its body, and to read the last 64 kB
STALL_TIMEOUT = 5.0  # seconds in which a client must read 64 kB of its answer
RECEIVE_BUFFER = 2**13  # bytes that the kernel keeps for a connection, so that uvicorn gets few chunks at once
CHUNK_BYTES = 2**14  # of an answer, given to uvicorn at once
WATCH_INTERVAL = 0.5  # seconds between two looks at idle connections
FINISH_TIMEOUT = 5.0  # seconds for the requests under way when the server is asked to stop; the rest get a 503
ABORT_TIMEOUT = 8.0  # seconds from then until clients that do not take their answers are cut off
DOCUMENTS_AT_ONCE = 2  # that are translated
DOCUMENT_PART = 5_000  # characters of a document that are translated as one request
KEEP_DOCUMENT = 1_200.0  # seconds for which a translated document can be fetched
KEPT_BYTES = 2**27  # of all translated documents
UPLOAD_TIMEOUT = 120.0  # seconds to send a document
RETRY_AFTER = 2  # seconds that a client should wait when the server is busy


@dataclass(frozen=True)
class Limits:
    """The budgets that options of `dragoman serve` set, such as --max-work; an answer that refuses names the option."""

    max_bytes: int = 900_000  # of a request; well above valid ones, so that most invalid ones get a specific error
    max_work: int = 100_000  # of a request, see `work`
    max_seconds: float = 20.0  # of computing for a request
    max_wait: float = 60.0  # seconds from the whole request to its answer
    max_waiting: int = 200  # requests in the queue
    max_connections: int = 500
    max_document_bytes: int = 10_000_000
    max_document_wait: float = 600.0  # seconds from a document to its translation


class Refused(Exception):  # noqa: N818  (not a mistake of the server)
    """A request met a budget. Status: of HTTP; the message names the option that sets the budget."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def estimated_work(texts: Iterable[str], beam_size: int, weights: bool) -> int:
    """How much there is to do, known before anything is done.

    A character counts 1, and a line 10 more, because even a line of one letter may be translated as ten tokens. The
    beam multiplies this, and so do the weights: to compute them, the model reads each translation twice, and they
    are most of an answer.
    """
    units = sum(len(line) + 10 for text in texts for line in text.split("\n") if line.strip())
    return units * beam_size * (4 if weights else 1)
