"""A block as the source of a library that runs without Python (`c_library/library.py`)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.c_library.library import LibrarySource
from gluonjit.codes.open_shapes import Declared, declared_open
from gluonjit.ir.dims import Undecided, at, names_of
from gluonjit.ir.graph import Graph
from gluonjit.ir.types import TensorType, type_of
from gluonjit.language.modes import predict_mode
from gluonjit.trace import flatten, trace

_MOST_DIMS = 3


def source_of(block: Any, args: Sequence[Any], name: str, dynamic: Declared | None = None) -> LibrarySource:
    """The block, called with arguments like `args`, in which the dimensions of `dynamic` are open.

    Raises MXNetError for what a library cannot do, Undecided for dimensions that cannot be open.
    """
    leaves, _ = flatten(tuple(args))
    with predict_mode():
        known = trace(block, args)
        types = [type_of(x._array) for x in leaves]
        names = block._argument_names(len(types))
        if dynamic:
            opened = declared_open(dynamic, names, types)
            if opened is None:
                raise MXNetError("sizes that are to be open must be at least 2 in the arguments that are given")
            types = opened
        dims = sorted(names_of(n for t in types for n in t.shape))
        if len(dims) > _MOST_DIMS:
            raise MXNetError(f"a library has up to {_MOST_DIMS} open dimensions, not {', '.join(dims)}")

        def graph(types: list[TensorType]) -> Graph:
            if broken := known.broken(types, False):
                raise Undecided(broken)
            made = known.graph(types, False)
            return made.with_attrs(params=tuple(range(len(leaves), len(made.inputs))))

        # A size of 1 means broadcasting, so it has a graph of its own.
        fixed = [
            dict.fromkeys(ones, 1) for count in range(len(dims) + 1) for ones in itertools.combinations(dims, count)
        ]
        programs = [(graph([_fixed(t, sizes) for t in types]), sizes) for sizes in fixed]
    held = known.input_types(types)[len(leaves) :]
    values = [*(p._first._array for p in known.params), *(x._array for x in known.captured)]
    if len(programs[0][0].inputs) != len(leaves) + len(held):
        raise MXNetError(f"{known.name} draws random numbers, which a library does not")
    outputs = [x.name for x in programs[0][0].outputs]
    return LibrarySource(name, names, [n or f"output{k}" for k, n in enumerate(outputs)], programs, values)


def _fixed(t: TensorType, sizes: Mapping[str, int]) -> TensorType:
    return t.with_shape(tuple(at(n, sizes) if names_of([n]) and names_of([n]) <= sizes.keys() else n for n in t.shape))
