"""`--input`: the arguments of a model, random ones of a given shape or read from a file."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.files.array_names import shown
from gluonjit.ir.dims import Dim, hinted
from gluonjit.ir.dims import parse as parse_extent
from gluonjit.ir.opdef import did_you_mean
from gluonjit.ir.types import IRError, TensorType, dtype

HELP = (
    "an input's shape, such as 1x3x224x224, 8x16:int32 or scalar, for random values; or a file x.npy, or x.npz with "
    "all inputs by name. NAME=... says which input it is; repeat for several. A word in place of a size names a "
    "dimension that code is compiled for with any size: batchx3x224x224; 1x3x32*hx32*w is for multiples of 32"
)


class Input(NamedTuple):
    """`--input [NAME=]SHAPE` or `--input [NAME=]FILE`: either `path` or `type` is None."""

    name: str | None
    type: TensorType | None
    path: str | None


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--input", type=parse, action="append", default=[], metavar="[NAME=]SHAPE|FILE", help=HELP)


def parse(text: str) -> Input:
    """A value of --input, for argparse."""
    name, equals, value = text.partition("=") if "=" in text else ("", "", text)
    if equals and not name:
        raise argparse.ArgumentTypeError(f"{text!r} has no name in front of =")
    if value.endswith((".npy", ".npz")):
        return Input(name or None, None, value)
    return Input(name or None, input_type(value), None)


def input_type(text: str) -> TensorType:
    """The type that `1x3x224x224`, `8x16:int32` or, with open dimensions, `batchx3` and `1x3x32*hx32*w+5` names; for
    argparse."""
    shape, _, element = text.partition(":")
    parts = [] if shape == "scalar" else re.split("[x×]", shape)
    if not all(re.fullmatch(r"\d+|(\d+\*)?[a-z][a-z0-9_]*(\+\d+)?", part, re.ASCII) for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a shape; write it as 1x3x224x224, 8x16:int32 or batchx3")
    try:
        return TensorType(dtype(element or "f32"), tuple(map(parse_extent, parts)))
    except IRError as e:
        raise argparse.ArgumentTypeError(str(e)) from e


def at_least(low: float, kind: type = int) -> Any:
    """The argparse type of finite numbers that are at least `low`."""

    def convert(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text!r}: give a number that is at least {low}")
        return value

    return convert


def thread_count(text: str) -> int:
    """The argparse type of numbers of threads that a call may use."""
    from gluonjit.codegen.threads.team import MAX_THREADS

    if not text.isdecimal() or not 1 <= int(text) <= MAX_THREADS:
        raise argparse.ArgumentTypeError(f"{text!r}: the number of threads is 1 to {MAX_THREADS}")
    return int(text)


def add_threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=thread_count, help="how many a call may use (default: all cores)")


@contextlib.contextmanager
def on_threads(count: int | None) -> Iterator[None]:
    """A context in which calls use at most `count` threads; None: as many as there are cores."""
    from gluonjit.runtime import threads

    if count:
        threads.set_num_threads(count)
    try:
        yield
    finally:
        if count:
            threads.set_num_threads(None)


def random_input(type: TensorType, rng: np.random.Generator) -> np.ndarray:
    """Standard normal floats, integers from 0 to 9, or booleans."""
    if type.dtype.is_float:
        return rng.standard_normal(type.shape).astype(type.dtype.numpy)
    high = 2 if type.dtype.kind == "b" else 10
    return rng.integers(0, high, type.shape).astype(type.dtype.numpy)


def arrays(inputs: Sequence[Input], seed: int) -> list[tuple[str | None, np.ndarray]]:
    """(name or None, value) of every input in order. MXNetError for a file that cannot be read."""
    rng = np.random.default_rng(seed)
    found: list[tuple[str | None, np.ndarray]] = []
    for given in inputs:
        if given.type is not None:
            type_ = given.type.with_shape(hinted(given.type.shape))
            found.append((given.name, random_input(type_, rng)))
            continue
        assert given.path is not None
        content = _read(given.path)
        if given.name is not None:
            if len(content) != 1:
                raise MXNetError(f"{given.path} has {len(content)} arrays, and {given.name} is one input")
            found += [(given.name, x) for x in content.values()]
        else:
            found += content.items()
    check_names([name for name, _ in found])
    return found


def dynamic(inputs: Sequence[Input], names: Sequence[str]) -> dict[str, dict[int, str]] | None:
    """The open dimensions among the inputs, as `hybridize(dynamic=...)` takes them; None if there are none. `names` are
    those of the model's inputs; what has no name is given in their order."""
    remaining = iter([name for name in names if name not in [given.name for given in inputs]])
    found = {}
    for given in inputs:
        name = given.name or next(remaining, "")
        axes = {axis: str(n) for axis, n in enumerate(given.type.shape if given.type else ()) if isinstance(n, Dim)}
        if axes:
            found[name] = axes
    return found or None


def check_names(names: Sequence[str | None]) -> None:
    """IRError for an input that is given twice."""
    for k, name in enumerate(names):
        if name is not None and name in names[:k]:
            raise IRError(f"input {name} is given twice")


def no_input(name: str, inputs: Sequence[str]) -> str:
    """Says that a graph has no input of a name, and which one may be meant."""
    return f"the graph has no input {shown(name)!r}{did_you_mean(name, list(map(shown, inputs)))}"


def by_name(
    found: Sequence[tuple[str | None, np.ndarray]], inputs: Sequence[str], listed: str, known: Collection[str] = ()
) -> dict[str, np.ndarray]:
    """The arrays that `arrays` returned, by name; those without one are for the remaining `inputs`, in order.

    MXNetError for too many, and for a name that is neither one of `inputs` nor `known`; it shows what is `listed`.
    """
    remaining = iter([name for name in inputs if name not in [given for given, _ in found]])
    values: dict[str, np.ndarray] = {}
    for given, x in found:
        name = next(remaining, None) if given is None else given
        if name is None:
            raise MXNetError(f"{len(found)} inputs are given; the graph has {len(inputs)}: {listed}")
        if name not in inputs and name not in known:
            raise MXNetError(no_input(name, inputs))
        values[name] = x
    return values


def _read(path: str) -> Mapping[str | None, np.ndarray]:
    """The arrays in a file by name; the name of a single array is None."""
    from gluonjit.files import npz

    if path.endswith(".npz"):
        content = npz.read(path)
        return content if isinstance(content, dict) else {f"arr_{k}": x for k, x in enumerate(content)}  # type: ignore
    return {None: npz.read_array(path)}


def positional(inputs: Sequence[Input], seed: int) -> list[Any]:
    """The NDArrays that a block is called with. IRError if there are none, or if some have names."""
    from gluonjit import ndarray

    if not inputs:
        raise IRError("say what the block is called with: --input 1x3x224x224 (repeat for several inputs)")
    found = arrays(inputs, seed)
    named = [name for name, _ in found if name is not None]
    if named:
        raise IRError(f"a block in a Python file has no names for its inputs: leave out {named[0]}=")
    return [ndarray.NDArray._wrap(x) for _, x in found]
