"""The Open Inference Protocol, version 2: tensors in JSON, in bytes behind JSON, and as the server's arrays.

Everything that is read here comes from strangers. What does not fit is `Refused`, with the HTTP status that says so; no
array is made before its size is known to be that of the bytes that were received.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gluonjit.files.array_names import shown
from gluonjit.ir.dims import Dim
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.types import BF16
from gluonjit.tools.serving.described import Described

HEADER_LENGTH = "inference-header-content-length"
"""The HTTP header with the number of bytes of JSON in a body that has tensors' bytes behind it."""
EXTENSIONS = ("binary_tensor_data", "model_repository")
MAX_RANK = 16
MAX_NAME = 256
"""Characters of a request's id."""
_JSON_NUMBER = 32
"""Bytes that an element may take in JSON, brackets and spaces included."""
_JSON_REST = 64 * 1024
"""Bytes of a request but for its elements."""

DATATYPES: Mapping[str, np.dtype] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "INT8": np.dtype(np.int8),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "BF16": BF16.numpy,
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
}
_NAMES = {dtype: name for name, dtype in DATATYPES.items()}
_UNKNOWN = ("UINT16", "UINT32", "UINT64", "INT16", "BYTES")


class Refused(Exception):
    """A request that is answered with an error. `status`: of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Asked(NamedTuple):
    """An output that a request names. `binary`: None if the request's default holds."""

    name: str
    binary: bool | None


class Inference(NamedTuple):
    """A request to run a model."""

    arrays: dict[str, np.ndarray]
    id: str | None
    outputs: list[Asked]
    """Empty: all outputs."""
    binary: bool
    """Whether outputs are sent as bytes, where the request does not say otherwise."""


def datatype(dtype: np.dtype) -> str:
    """The protocol's name. Refused (of the server's own model) for an element type that it has no name for."""
    if dtype not in _NAMES:
        raise Refused(400, f"the protocol has no name for elements of {dtype}")
    return _NAMES[dtype]


def metadata(x: Described) -> dict[str, Any]:
    shape = [-1] if x.shape is None else [-1 if isinstance(n, Dim) else n for n in x.shape]
    return {"name": x.name, "datatype": _NAMES.get(x.dtype, str(x.dtype)), "shape": shape}


def largest_body(inputs: Sequence[Described], limits: Mapping[str, int]) -> int:
    """The bytes that the longest request for these inputs takes in JSON, when open sizes are at most `limits`."""
    total = _JSON_REST
    for x in inputs:
        size = math.prod(n.at(limits) if isinstance(n, Dim) else n for n in x.shape or ())
        total += size * max(_JSON_NUMBER, x.dtype.itemsize)
    return total


# ---- requests


def read(body: bytes | bytearray | memoryview, header_length: str | None, inputs: Sequence[Described]) -> Inference:
    """The request in a body. `header_length`: the value of HEADER_LENGTH, if there is one."""
    view = memoryview(body)
    length = len(body)
    if header_length is not None:
        if not header_length.isascii() or not header_length.isdecimal() or int(header_length[:20]) > len(body):
            raise Refused(400, f"{HEADER_LENGTH} must be a number of bytes of the body, which has {len(body)}")
        length = int(header_length)
    return read_document(parsed(bytes(view[:length])), view[length:], inputs)


def parsed(text: bytes | bytearray) -> dict[str, Any]:
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as e:
        what = "too deep" if isinstance(e, RecursionError) else str(e)[:200]
        raise Refused(400, f"the body is not JSON: {what}") from None
    return _object(found, "the request")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON; send such numbers as bytes (binary tensor data)")


def read_document(found: dict[str, Any], rest: memoryview, inputs: Sequence[Described]) -> Inference:
    """The request in a parsed document and the bytes behind it."""
    id = found.get("id")
    if id is not None and (not isinstance(id, str) or len(id) > MAX_NAME):
        raise Refused(400, f"id must be a text of at most {MAX_NAME} characters")
    parameters = _object(found.get("parameters", {}), "parameters")
    arrays: dict[str, np.ndarray] = {}
    known = {x.name: x for x in inputs}
    for given in _list(found.get("inputs"), "inputs", len(known)):
        tensor = _object(given, "an input")
        x = known_input(tensor.get("name"), known, arrays)
        shape = checked_shape(tensor.get("shape"), x)
        check_datatype(tensor.get("datatype"), x)
        own = _parameters(tensor, x.name)
        size = own.get("binary_data_size")
        if size is None:
            arrays[x.name] = _from_json(tensor.get("data"), x, shape)
            continue
        if "data" in tensor:
            raise Refused(400, f"input {shown(x.name)} has both data and binary_data_size")
        if type(size) is not int or not 0 <= size <= len(rest):
            raise Refused(400, f"input {shown(x.name)}: binary_data_size is {str(size)[:40]}, {len(rest)} bytes follow")
        arrays[x.name] = from_bytes(rest[:size], x, shape)
        rest = rest[size:]
    if len(rest):
        raise Refused(400, f"{len(rest)} bytes of the body belong to no input")
    outputs = []
    if "outputs" in found:
        for given in _list(found["outputs"], "outputs", 1024):
            tensor = _object(given, "an output")
            name = tensor.get("name")
            if not isinstance(name, str):
                raise Refused(400, "an output has no name")
            own = _parameters(tensor, name)
            if own.get("classification"):
                raise Refused(400, "classification of outputs is not supported")
            outputs.append(Asked(name, _flag(own, "binary_data")))
    return Inference(arrays, id, outputs, bool(_flag(parameters, "binary_data_output")))


def known_input(name: Any, known: Mapping[str, Described], so_far: Mapping[str, Any]) -> Described:
    """The model's input of that name, which must not be among those given `so_far`."""
    if not isinstance(name, str) or name not in known:
        listed = ", ".join(f"{shown(x.name)}: {x}" for x in known.values())
    if not isinstance(name, str):
        raise Refused(400, f"an input has no name; the model takes {listed}")
    if name not in known:
        near = did_you_mean(name, list(known)) if len(name) <= MAX_NAME else ""
        raise Refused(400, f"there is no input {shown(name[:MAX_NAME])!r}{near}; the model takes {listed}")
    if name in so_far:
        raise Refused(400, f"input {shown(name)} is given twice")
    return known[name]


def checked_shape(shape: Any, x: Described) -> tuple[int, ...]:
    """The shape, which must be one that the model takes for `x`, but for the sizes of open dimensions."""
    if not isinstance(shape, (list, tuple)) or not all(type(n) is int and 0 <= n < 2**63 for n in shape):
        raise Refused(400, f"input {shown(x.name)}: shape must be a list of sizes")
    own = x.shape
    if len(shape) > MAX_RANK or (
        own is not None
        and (len(own) != len(shape) or any(n != m for n, m in zip(own, shape) if not isinstance(n, Dim)))
    ):
        raise Refused(400, f"input {shown(x.name)} has the shape {str(list(shape))[:200]}; the model takes {x}")
    return tuple(shape)


def check_datatype(name: Any, x: Described) -> None:
    wanted = datatype(x.dtype)
    if name != wanted:
        what = f"is {name}" if isinstance(name, str) and name in (*DATATYPES, *_UNKNOWN) else "has no known datatype"
        raise Refused(400, f"input {shown(x.name)} {what}; the model takes {wanted}")


def from_bytes(data: Any, x: Described, shape: tuple[int, ...]) -> np.ndarray:
    """An array of little-endian elements."""
    size = math.prod(shape)
    if size * x.dtype.itemsize != len(data):
        raise Refused(400, f"input {shown(x.name)}: {len(data)} bytes; {size} elements take {size * x.dtype.itemsize}")
    if x.dtype == np.bool_:
        found = np.frombuffer(data, np.uint8)
        if found.size and found.max() > 1:
            raise Refused(400, f"input {shown(x.name)}: bytes of BOOL must be 0 or 1")
        return found.view(np.bool_).reshape(shape)
    stored = x.dtype.newbyteorder("<")
    found = np.frombuffer(data, stored)
    if not found.flags.aligned:  # behind JSON of any length; NumPy copies such arrays element by element
        found = np.frombuffer(bytes(data), stored)
    return found.astype(x.dtype, copy=False).reshape(shape)


def from_numbers(data: Any, x: Described, shape: tuple[int, ...]) -> np.ndarray:
    """An array of Python's numbers, in a list of lists or in one list. Refuses what would not be the same number."""
    name = shown(x.name)
    try:
        found = np.asarray(data)
    except (ValueError, OverflowError, RecursionError):
        raise Refused(400, f"input {name}: data must be numbers in lists of equal lengths") from None
    wanted = math.prod(shape)
    if found.size != wanted or (found.ndim != 1 and found.shape != shape):
        raise Refused(
            400, f"input {name}: data has {found.size} elements in the shape {list(found.shape)}, not {list(shape)}"
        )
    if not found.size:
        return np.zeros(shape, x.dtype)
    kinds = {"b": "b", "i": "iu", "u": "iu"}.get(x.dtype.kind, "iuf")
    if found.dtype.kind not in kinds:
        raise Refused(400, f"input {name}: data must be {_KINDS[kinds]} for {datatype(x.dtype)}")
    if x.dtype.kind in "iu":
        info = np.iinfo(x.dtype)
        if int(found.min()) < info.min or int(found.max()) > info.max:
            raise Refused(400, f"input {name}: a number is not in the range of {datatype(x.dtype)}")
    with np.errstate(over="ignore"):
        result = found.astype(x.dtype).reshape(shape)
    if kinds == "iuf" and not np.isfinite(result.astype(np.float64)).all():
        raise Refused(400, f"input {name}: a number is not in the range of {datatype(x.dtype)}")
    return result


_KINDS = {"b": "true and false", "iu": "whole numbers", "iuf": "numbers"}


def _from_json(data: Any, x: Described, shape: tuple[int, ...]) -> np.ndarray:
    if not isinstance(data, list):
        raise Refused(400, f"input {shown(x.name)} has no list data, and no binary_data_size")
    return from_numbers(data, x, shape)


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(400, f"{what} must be an object")
    return value


def _list(value: Any, what: str, most: int) -> list[Any]:
    if not isinstance(value, list):
        raise Refused(400, f"{what} must be a list")
    if len(value) > most:
        raise Refused(400, f"{len(value)} {what} are given; there are at most {most}")
    return value


def _parameters(tensor: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = _object(tensor.get("parameters", {}), f"parameters of {shown(name[:MAX_NAME])}")
    if any(key.startswith("shared_memory") for key in found):
        raise Refused(400, "shared memory is not supported")
    return found


def _flag(parameters: Mapping[str, Any], name: str) -> bool | None:
    value = parameters.get(name)
    if value is not None and not isinstance(value, bool):
        raise Refused(400, f"the parameter {name} must be true or false")
    return value


# ---- answers


def selected(asked: Sequence[Asked], results: Mapping[str, np.ndarray]) -> list[str]:
    """The names of the outputs that are sent."""
    return [x.name for x in asked] or list(results)


def check_outputs(asked: Sequence[Asked], names: Sequence[str] | None) -> None:
    for k, x in enumerate(asked):
        if names is not None and x.name not in names:
            near = did_you_mean(x.name, names) if len(x.name) <= MAX_NAME else ""
            listed = ", ".join(map(shown, names))
            raise Refused(400, f"there is no output {shown(x.name[:MAX_NAME])!r}{near}; the model gives {listed}")
        if any(x.name == other.name for other in asked[:k]):
            raise Refused(400, f"output {shown(x.name)} is named twice")


def write(
    model: str, version: str, request: Inference, results: Mapping[str, np.ndarray]
) -> tuple[list[bytes], int | None]:
    """The parts of an answer's body, and the number of bytes of its JSON if others follow."""
    by_name = {x.name: x for x in request.outputs}
    outputs, rest = [], []
    for name in selected(request.outputs, results):
        y = results[name]
        asked = by_name.get(name)
        binary = request.binary if asked is None or asked.binary is None else asked.binary
        described: dict[str, Any] = {"name": name, "datatype": datatype(y.dtype), "shape": list(y.shape)}
        if binary:
            data = to_bytes(y)
            described["parameters"] = {"binary_data_size": len(data)}
            rest.append(data)
        else:
            described["data"] = _to_json(name, y)
        outputs.append(described)
    answer: dict[str, Any] = {"model_name": model, "model_version": version}
    if request.id is not None:
        answer["id"] = request.id
    text = json.dumps({**answer, "outputs": outputs}, separators=(",", ":")).encode()
    return [text, *rest], len(text) if rest else None


def to_bytes(y: np.ndarray) -> bytes:
    return np.ascontiguousarray(y).astype(y.dtype.newbyteorder("<"), copy=False).tobytes()


def _to_json(name: str, y: np.ndarray) -> list[Any]:
    if y.dtype.kind in "fV":
        y = y.astype(np.float64) if y.dtype.kind == "V" else y
        if not np.isfinite(y).all():
            raise Refused(
                400, f"output {shown(name)} has NaN or infinite numbers, which JSON lacks: ask for it with binary_data"
            )
    return y.ravel().tolist()
