"""From a graph with open dimensions to the static graph of some sizes: what the open graph means."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gluonjit.ir.dims import HINT, LOWEST, Dim, at, names_of, partly_at, polynomial
from gluonjit.ir.graph import Graph, Loc, Op, Value, attr_names
from gluonjit.ir.types import IRError, TensorType

__all__ = [
    "dimensions",
    "fitted",
    "is_open",
    "sized",
    "sizes_of",
    "untold",
    "usual_name",
    "with_hints",
    "with_sizes",
    "with_some_sizes",
    "with_usual_names",
]


def dimensions(graph: Graph) -> tuple[str, ...]:
    """The names of the graph's open dimensions, which are those in the types of its inputs, in order."""
    found: dict[str, None] = {}
    for v in graph.inputs:
        for n in v.shape if not v.type.is_static else ():
            found.update(dict.fromkeys(sorted(names_of((n,)))))
    return tuple(found)


def sizes_of(types: Sequence[TensorType], shapes: Sequence[tuple[int, ...]], lowest: int = LOWEST) -> dict[str, int]:
    """The sizes of all names, none below `lowest`, by which `types` have these shapes. Raises IRError if there are
    none."""
    sizes: dict[str, int] = {}
    combined: list[tuple[Dim, int]] = []
    for type_, shape in zip(types, shapes, strict=True):
        if len(type_.shape) != len(shape):
            raise IRError(f"{type_} cannot have the shape {shape}")
        for n, size in zip(type_.shape, shape, strict=True):
            if isinstance(n, Dim) and len(n.names) == 1 and n.terms == {tuple(n.names): 1}:
                (name,) = n.names
                if size < lowest:
                    raise IRError(f"{name} = {size} of {type_}: an open dimension is at least {lowest}")
                if sizes.setdefault(name, size) != size:
                    raise IRError(f"{name} cannot be both {sizes[name]} and {size}")
            elif isinstance(n, Dim):
                combined.append((n, size))
    while told := [(by, n, size) for n, size in combined if (by := _told_by(n, sizes))]:
        name, n, size = told[0]
        rest = n.at({**sizes, name: 0})
        each = n.at({**sizes, name: 1}) - rest
        if (size - rest) % each or (size - rest) // each < lowest:
            break
        sizes[name] = (size - rest) // each
    for type_, shape in zip(types, shapes, strict=True):
        actual = tuple(at(n, sizes) for n in type_.shape)
        if actual != tuple(shape):
            raise IRError(f"{type_} is {actual} with {_listed(sizes)}, not {tuple(shape)}")
    return sizes


def _told_by(n: Dim, known: Container[str]) -> str | None:
    """The name whose size follows from that of `n` and those of `known`: 3*n*l + 1 tells n, where l is known."""
    unknown = [name for name in n.names if name not in known]
    factors = [names.count(unknown[0]) for names in n.terms if unknown[0] in names] if len(unknown) == 1 else []
    return unknown[0] if factors == [1] else None


def untold(graph: Graph) -> list[str]:
    """The open dimensions whose sizes do not follow from the shapes of the inputs: both of f32[n*l], and those that
    only ops have, as in the gradient of a sum, which is a number."""
    known: set[str] = set()
    extents: list[Any] = [n for v in graph.inputs for n in v.shape if isinstance(n, Dim)]
    while told := {by for n in extents if (by := _told_by(n, known))}:
        known |= told
    there = dimensions(graph)
    return [name for name in (*there, *sorted(graph.open_names - {*there})) if name not in known]


def fitted(graph: Graph, inputs: Sequence[Any]) -> Graph:
    """The graph for inputs (ndarrays; None for those that are not read) of these shapes, without open dimensions."""
    if not dimensions(graph):
        return graph
    given = [(v.type, x.shape) for v, x in zip(graph.inputs, inputs, strict=True) if x is not None]
    return with_sizes(graph, sizes_of([t for t, _ in given], [shape for _, shape in given]))


def is_open(op: Op) -> bool:
    """Whether the op depends on the size of an open dimension: by its types, its attributes, or in its regions."""
    for v in op.operands:
        if not v.type.is_static:
            return True
    for v in op.results:
        if not v.type.is_static:
            return True
    for attr in op.attrs.values():
        if attr_names(attr):
            return True
    return bool(op.regions) and any(region.open_names for region in op.regions)


def with_hints(graph: Graph) -> Graph:
    """The graph, or a part of one such as the body of a loop, as decisions about speed see it: each name is HINT."""
    names = graph.open_names
    return with_sizes(graph, dict.fromkeys(names, HINT)) if names else graph


def assumed(graph: Graph) -> str:
    """` (for n = 16)`, behind a figure that `with_hints` has given; empty without open dimensions."""
    names = sorted(graph.open_names)
    return f" (for {' = '.join(names)} = {HINT})" if names else ""


def with_sizes(graph: Graph, sizes: Mapping[str, int], lowest: int = LOWEST) -> Graph:
    """The graph with these sizes for its open dimensions, in types and attributes, regions included. Raises IRError if
    one has none, or a size below `lowest`, or one with which a type does not exist."""
    for name, n in sizes.items():
        if n < lowest:
            raise IRError(
                f"{name} = {n}: an open dimension is at least {lowest}; smaller ones need a graph of their own"
            )
    return _Sized(lambda n: at(n, sizes)).graph(graph)


def with_some_sizes(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph with these sizes for some of its open dimensions, which are not compared with `LOWEST`. Raises IRError
    if a type does not exist with them."""
    return _Sized(lambda n: partly_at(n, sizes)).graph(graph)


_LETTERS = "nmkljhgf"


def usual_name(k: int) -> str:
    """What the open dimension number k of a graph is called unless somebody has named it."""
    return _LETTERS[k] if k < len(_LETTERS) else f"n{k}"


def with_usual_names(graph: Graph) -> Graph:
    """The graph with the usual names of open dimensions, in order: what is compiled under one name serves others."""
    usual = {name: usual_name(k) for k, name in enumerate(dimensions(graph))}
    if all(name == new for name, new in usual.items()):
        return graph

    def renamed(n: Any) -> Any:
        if not isinstance(n, Dim):
            return n
        return polynomial({tuple(sorted(usual[name] for name in names)): c for names, c in n.terms.items()})

    return _Sized(renamed).graph(graph)


def sized(type_: TensorType, sizes: Mapping[str, int]) -> TensorType:
    """The type with these sizes for its open dimensions. Raises IRError if it is too large."""
    return TensorType(type_.dtype, tuple(at(n, sizes) for n in type_.shape))


class _Sized:
    def __init__(self, at: Callable[[Any], Any]) -> None:
        self.at = at
        """An extent with sizes; anything else as it is."""
        self.regions: dict[Graph, Graph] = {}
        """Calls of one function share their region."""

    def region(self, region: Graph) -> Graph:
        if not region.open_names:
            return region
        if region not in self.regions:
            self.regions[region] = self.graph(region)
        return self.regions[region]

    def graph(self, graph: Graph) -> Graph:
        env: dict[Value, Value] = {}
        inputs = tuple(self.value(v, env) for v in graph.inputs)
        ops = tuple(self.op(op, env) for op in graph.ops)
        outputs = tuple(env[v] for v in graph.outputs)
        updates = tuple((env[s], env[v]) for s, v in graph.updates)
        return Graph(graph.name, inputs, ops, outputs, updates, graph.level, self.attrs(graph.attrs))

    def op(self, op: Op, env: dict[Value, Value]) -> Op:
        operands = tuple(env[v] for v in op.operands)
        results = tuple(self.value(r, env) for r in op.results)
        regions = tuple(map(self.region, op.regions))
        loc: Loc | None = op.loc
        return Op(op.name, operands, self.attrs(op.attrs), results, regions, loc)

    def value(self, v: Value, env: dict[Value, Value]) -> Value:
        offset = None if v.offset is None else self.at(v.offset)
        env[v] = Value(v.name, self.type(v.type), offset)
        return env[v]

    def attrs(self, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
        return MappingProxyType({k: self.attr(v) for k, v in attrs.items()})

    def attr(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self.attr(v) for v in value)
        if isinstance(value, TensorType):
            return self.type(value)
        return self.at(value)

    def type(self, type_: TensorType) -> TensorType:
        return TensorType(type_.dtype, tuple(self.at(n) for n in type_.shape))


def _listed(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {n}" for name, n in sizes.items()) or "no open dimension"
