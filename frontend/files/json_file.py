"""JSON from untrusted files."""

from __future__ import annotations

import os
import struct
from typing import Any

from gluonjit.base import CheckpointError, MXNetError
from gluonjit.files.params import MAGIC

MAX_BYTES = 64 << 20
"""The largest file. It could hold a graph of 200,000 nodes, which is more than real ones have."""

MAX_VALUES = 4 << 20
"""The most values in lists and objects. A value may have only two bytes in the file, but takes up to 100 in Python."""


def read(path: str | os.PathLike[str]) -> bytes:
    """The contents of a file; of a file that is too large, only a part. MXNetError if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as e:
        raise MXNetError(f"cannot read {os.fspath(path)}: {e.strerror or e}") from e


def decode(text: str | bytes, name: str, what: str) -> Any:
    """The value at the start of `text`, called `what` in messages; CheckpointError if there is none.

    As in MXNet, strings may contain control characters, and any text may follow the value.
    """
    import json

    if len(text) > MAX_BYTES:
        raise CheckpointError(f"{name}: the file: more than {MAX_BYTES} bytes; expected {what}")
    try:
        decoded = text if isinstance(text, str) else str(text, "utf-8-sig")
    except UnicodeDecodeError as e:
        if text[:8] == struct.pack("<Q", MAGIC):
            raise CheckpointError(f"{name} is a file of parameters; expected {what}, which is JSON") from None
        raise CheckpointError(f"{name}: byte {e.start}: not UTF-8 ({e.reason}); expected text") from e
    values = sum(map(decoded.count, ",[{"))
    if values > MAX_VALUES:
        raise CheckpointError(f"{name}: the file: {values} values; expected {what} of at most {MAX_VALUES}")
    try:
        return json.JSONDecoder(strict=False).raw_decode(decoded, len(decoded) - len(decoded.lstrip()))[0]
    except json.JSONDecodeError as e:
        raise CheckpointError(f"{name}: line {e.lineno}, column {e.colno}: not JSON ({e.msg}); expected {what}") from e
    except RecursionError:
        raise CheckpointError(f"{name}: the file: nested too deep; expected {what}") from None
    except ValueError as e:  # an integer with thousands of digits
        raise CheckpointError(f"{name}: the file: not JSON ({e}); expected {what}") from e


def brief(value: Any) -> str:
    """A short text for a value; for an object, or a list that contains others, only its kind and length."""
    if isinstance(value, dict) or isinstance(value, list) and any(isinstance(x, (dict, list)) for x in value):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
