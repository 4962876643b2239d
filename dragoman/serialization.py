"""JSON as bytes, and back, with a hash where damage must be noticed. No NaN or infinity is saved or read."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

from dragoman.errors import CheckpointError


def json_bytes(value: Any) -> bytes:
    """Pack a value as JSON, floats exactly. Raises ValueError for NaN and infinities, which JSON does not have."""
    return (json.dumps(value, allow_nan=False, indent=2) + "\n").encode()


def load_json(data: bytes) -> Any:
    """Unpack JSON.

    Raises:
        CheckpointError: the data is not JSON, or holds a number that is not finite.
    """

    def finite(text: str) -> float:
        if not math.isfinite(number := float(text)):
            raise ValueError(f"{text} is not a finite number")
        return number

    try:
        return json.loads(data, parse_float=finite, parse_constant=finite)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"the data is not JSON: {error}.") from error


def sealed(content: dict[str, Any]) -> bytes:
    """Pack as JSON with a hash of the rest, so that a flipped bit in a step number is noticed."""
    return json_bytes({**content, "sha256": sha256_of(json_bytes(content))})


def unsealed(data: bytes) -> dict[str, Any]:
    """Unpack the bytes of `sealed`.

    Raises:
        CheckpointError: the data does not match its hash.
    """
    content = load_json(data)
    if not isinstance(content, dict) or not content.pop("sha256", None) or sealed(content) != data:
        raise CheckpointError("the data does not match its own sha256: use another checkpoint.")
    return content


def sha256_of(data: bytes) -> str:
    """The SHA-256 of the data, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
