"""What the server accepts from its clients, and for how long it waits for them."""

MAX_CHARACTERS = 5_000  # in one request
MAX_TEXTS = 32  # in one request
MAX_TERMS = 200  # of a glossary in one request
MAX_TERM = 100  # characters of a term
MAX_BODY = 900_000  # bytes; far more than valid texts need, so that most invalid bodies are read and explained
MAX_N_BEST = MAX_BEAM_SIZE = 10
MAX_WAITING = 200  # jobs in the queue
BATCH_CHARACTERS = 50_000  # per batch, so that short requests do not wait for many long ones
READ_TIMEOUT = 10.0  # seconds for a client to send the head of a request, and again for its body
TRANSLATE_TIMEOUT = 60.0  # seconds from then until the response
RETRY_AFTER = 2  # seconds that a client should wait when the server is busy
