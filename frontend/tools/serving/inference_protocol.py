"""The Open Inference Protocol, version 2: tensors in JSON, in bytes after JSON, and as the server's arrays.

Everything that is read here comes from strangers. What does not fit is `Refused`, with the HTTP status that says so; no
array is made before its size is known to be that of the bytes that were received.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gluonjit.files.array_names import shown
from gluonjit.ir.dims import Dim
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.types import BF16
from gluonjit.tools.serving import json_tensors
from gluonjit.tools.serving.described import Described
from gluonjit.tools.serving.limits import Limits

HEADER_LENGTH = "inference-header-content-length"
"""The HTTP header with the number of bytes of JSON in a body that has tensors' bytes after it."""
EXTENSIONS = ("binary_tensor_data", "model_repository")
_SHOWN_NAME = 256
"""Characters of names that are repeated to a client."""
_JSON_NUMBER = 32
"""Bytes that an element takes in JSON, brackets and spaces included, in requests that are counted on."""

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
        # Halves of surrogates, which JSON may have as \\ud800, cannot be sent.
        super().__init__(message.encode("utf-8", "backslashreplace").decode())
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


def largest_body(inputs: Sequence[Described], sizes: Mapping[str, int], limits: Limits) -> int:
    """The bytes that the longest request for these inputs takes in JSON, when open sizes are at most `sizes`."""
    total = limits.json_rest
    for x in inputs:
        size = math.prod(n.at(sizes) if isinstance(n, Dim) else n for n in x.shape or ())
        total += size * max(_JSON_NUMBER, x.dtype.itemsize)
    return min(total, limits.max_body)


# ---- requests


def read(
    body: bytes | bytearray | memoryview, header_length: str | None, inputs: Sequence[Described], limits: Limits
) -> Inference:
    """The request in a body. `header_length`: the value of HEADER_LENGTH, if there is one."""
    view = memoryview(body)
    length = len(body)
    if header_length is not None:
        if not header_length.isascii() or not header_length.isdecimal() or int(header_length[:20]) > len(body):
            raise Refused(400, f"{HEADER_LENGTH} must be a number of bytes of the body, which has {len(body)}")
        length = int(header_length)
    try:
        document = json_tensors.parsed(view[:length], limits)
    except json_tensors.Invalid as e:
        raise Refused(e.status, str(e)) from None
    return _read_document(document, view[length:], inputs, limits)


def control(body: bytes | bytearray, limits: Limits) -> dict[str, Any]:
    """The document of a request that has no tensors."""
    try:
        return _object(json_tensors.parsed(memoryview(body or b"{}"), limits).rest, "the request")
    except json_tensors.Invalid as e:
        raise Refused(e.status, str(e)) from None


def _read_document(
    document: json_tensors.Document, rest: memoryview, inputs: Sequence[Described], limits: Limits
) -> Inference:
    """The request in a parsed document and the bytes after it."""
    found = _object(document.rest, "the request")
    id = found.get("id")
    if id is not None and not isinstance(id, str):
        raise Refused(400, "id must be a text")
    check_id(id or "", limits)
    parameters = _object(found.get("parameters", {}), "parameters")
    arrays: dict[str, np.ndarray] = {}
    known = {x.name: x for x in inputs}
    for given in _list(found.get("inputs"), "inputs", len(known)):
        tensor = _object(given, "an input")
        x = known_input(tensor.get("name"), known, arrays)
        shape = checked_shape(tensor.get("shape"), x, limits)
        check_datatype(tensor.get("datatype"), x)
        own = _parameters(tensor, x.name)
        size = own.get("binary_data_size")
        if size is None:
            arrays[x.name] = _from_json(tensor.get("data"), document, x, shape, limits)
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
        for given in _list(found["outputs"], "outputs", limits.outputs):
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
        near = did_you_mean(name, list(known)) if len(name) <= _SHOWN_NAME else ""
        raise Refused(400, f"the model takes {listed}; there is no input {shown(name[:_SHOWN_NAME])!r}{near}")
    if name in so_far:
        raise Refused(400, f"input {shown(name)} is given twice")
    return known[name]


def check_id(id: str, limits: Limits) -> None:
    if len(id) > limits.id:
        raise Refused(400, f"id must be a text of at most {limits.id} characters")


def checked_shape(shape: Any, x: Described, limits: Limits) -> tuple[int, ...]:
    """The shape, which must be one that the model takes for `x`, but for the sizes of open dimensions."""
    if not isinstance(shape, (list, tuple)) or not all(type(n) is int and 0 <= n < 2**63 for n in shape):
        raise Refused(400, f"input {shown(x.name)}: shape must be a list of sizes")
    own = x.shape
    if len(shape) > limits.rank or (
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
    if not found.flags.aligned:  # after JSON of any length; NumPy copies such arrays element by element
        found = np.frombuffer(bytes(data), stored)
    return found.astype(x.dtype, copy=False).reshape(shape)


def from_numbers(pieces: Iterable[Any], x: Described, shape: tuple[int, ...], *, finite: bool = True) -> np.ndarray:
    """An array of Python's numbers, which come in lists. Refuses what would not be the same number. The caller knows
    that about so many have been received."""
    name, size = shown(x.name), math.prod(shape)
    kinds, what = {"b": ("b", "true and false"), "i": ("iu", "whole numbers"), "u": ("iu", "whole numbers")}.get(
        x.dtype.kind, ("f", "numbers")
    )
    out_of_range = Refused(400, f"input {name}: a number is not in the range of {datatype(x.dtype)}")
    result = np.empty(size, x.dtype)
    filled = 0
    for piece in pieces:
        try:
            values = np.array(piece, np.float64 if kinds == "f" else None)
        except OverflowError:
            raise out_of_range from None
        if values.dtype.kind not in kinds:
            raise Refused(400, f"input {name}: data must be {what} for {datatype(x.dtype)}")
        if kinds == "iu":
            info = np.iinfo(x.dtype)
            if int(values.min()) < info.min or int(values.max()) > info.max:
                raise out_of_range
        if filled + len(values) > size:
            break
        with np.errstate(over="ignore"):
            result[filled : filled + len(values)] = values
        if kinds == "f" and finite and not np.isfinite(result[filled : filled + len(values)].astype(np.float64)).all():
            raise out_of_range
        filled += len(values)
    else:
        if filled == size:
            return result.reshape(shape)
    raise Refused(400, f"input {name}: data is not of {size} elements, as its shape {list(shape)}")


def _from_json(
    data: Any, document: json_tensors.Document, x: Described, shape: tuple[int, ...], limits: Limits
) -> np.ndarray:
    text = document.lists.get(data) if isinstance(data, str) else None
    if isinstance(data, list):  # the key was not written plainly: the list is small
        text = memoryview(json.dumps(data).encode())
    if text is None:
        raise Refused(400, f"input {shown(x.name)} has no list data, and no binary_data_size")
    try:
        return from_numbers(json_tensors.numbers(text, shape, x.dtype.kind, limits), x, shape)
    except json_tensors.Invalid as e:
        raise Refused(e.status, f"input {shown(x.name)}: {e}") from None


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(400, f"{what} must be an object")
    return value


def _list(value: Any, what: str, most: int) -> list[Any]:
    if value is None:
        raise Refused(400, f"the request has no {what}, which must be a list")
    if not isinstance(value, list):
        raise Refused(400, f"{what} must be a list")
    if len(value) > most:
        raise Refused(400, f"{len(value)} {what} are given; there are at most {most}")
    return value


def _parameters(tensor: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = _object(tensor.get("parameters", {}), f"parameters of {shown(name[:_SHOWN_NAME])}")
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
    seen = set()
    for x in asked:
        if names is not None and x.name not in names:
            near = did_you_mean(x.name, names) if len(x.name) <= _SHOWN_NAME else ""
            listed = ", ".join(map(shown, names))
            raise Refused(400, f"there is no output {shown(x.name[:_SHOWN_NAME])!r}{near}; the model gives {listed}")
        if x.name in seen:
            raise Refused(400, f"output {shown(x.name)} is named twice")
        seen.add(x.name)


def write(
    model: str, version: str, request: Inference, results: Mapping[str, np.ndarray]
) -> tuple[list[bytes], int | None]:
    """The parts of an answer's body, and the number of bytes of its JSON if others follow."""
    by_name = {x.name: x for x in request.outputs}
    text: list[bytes] = []
    rest: list[bytes] = []
    for name in selected(request.outputs, results):
        y = results[name]
        asked = by_name.get(name)
        binary = request.binary if asked is None or asked.binary is None else asked.binary
        described: dict[str, Any] = {"name": name, "datatype": datatype(y.dtype), "shape": list(y.shape)}
        if binary:
            data = to_bytes(y)
            described["parameters"] = {"binary_data_size": len(data)}
            rest.append(data)
            text += [_dumped(described), b","]
        else:
            text += [_dumped(described)[:-1], b',"data":', *_to_json(name, y), b"},"]
    answer: dict[str, Any] = {"model_name": model, "model_version": version}
    if request.id is not None:
        answer["id"] = request.id
    head = _dumped(answer)[:-1] + b',"outputs":['
    whole = b"".join([head, *text[:-1], text[-1].removesuffix(b","), b"]}"]) if text else head + b"]}"
    return [whole, *rest], len(whole) if rest else None


def _dumped(x: Any) -> bytes:
    return json.dumps(x, separators=(",", ":")).encode()


def to_bytes(y: np.ndarray) -> bytes:
    return np.ascontiguousarray(y).astype(y.dtype.newbyteorder("<"), copy=False).tobytes()


def _to_json(name: str, y: np.ndarray) -> Iterator[bytes]:
    if y.dtype.kind in "fV":
        y = y.astype(np.float64) if y.dtype.kind == "V" else y
        if not np.isfinite(y).all():
            raise Refused(
                400, f"output {shown(name)} has NaN or infinite numbers, which JSON lacks: ask for it with binary_data"
            )
    return json_tensors.written(y)
