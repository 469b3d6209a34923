"""A graph of the compiler as an ONNX graph: names, constants, shapes, and the walk over ops.

`Writer.write` goes through a graph op by op. An op that has a lowering (`lowering`) becomes the ONNX nodes that this
emits. Any other MXNet operator is replaced by its expansion into primitives, which have lowerings of their own. So
MXNet operators are only listed where ONNX has one operator for what would be many primitives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gluonjit.base import MXNetError
from gluonjit.ir.dims import Dim, Extent
from gluonjit.ir.graph import Graph, Op, Value
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.types import IRError
from gluonjit.onnx.package import require_onnx

LOWERINGS: dict[str, Callable[[Writer, Op], str | Sequence[str]]] = {}
"""By the name of an op: the function that emits its nodes and returns the names of its results."""

FOLDED = 1 << 22
"""The most elements of a result that is computed while the file is written, because it depends on no input."""


def lowering(*names: str) -> Callable[[Any], Any]:
    """Declares the decorated function (writer, op) → names of results as the lowering of ops. It may return None: then
    the operator is expanded."""

    def declare(function: Any) -> Any:
        LOWERINGS.update(dict.fromkeys(names, function))
        return function

    return declare


class Unsupported(MXNetError):
    """ONNX cannot express an op; the message says which feature of it."""


class Record(NamedTuple):
    """An ONNX node before its results have their last names."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attrs: Mapping[str, Any]


class Writer:
    """Collects nodes and initializers.

    * `opset`: the version of the operators that are written.
    * `sizes`: by the name of an open dimension, the input and its axis that have this size.
    * `arrays`: what initializers hold, by name.
    * `checked`: indices that ONNX is to check, as the graph does.
    * `problems`: (op, why) of all ops that ONNX has nothing for.
    """

    def __init__(self, opset: int, sizes: Mapping[str, tuple[str, int]], outer: Writer | None = None) -> None:
        self.opset = opset
        self.sizes = sizes
        self.nodes: list[Record] = []
        self.arrays: dict[str, np.ndarray] = outer.arrays if outer else {}
        self.problems: dict[tuple[str, str], None] = outer.problems if outer else {}
        self.checked: set[Value] = set()
        self.renamed: dict[str, str] = outer.renamed if outer else {}
        self._names: dict[Value, str] = {}
        self._known: dict[Value, np.ndarray] = {}
        self._unstretched: dict[Value, str] = {}
        self._outer = outer
        self._taken: set[str] = outer._taken if outer else set()
        self._parameters: dict[Value, np.ndarray] = outer._parameters if outer else {}
        self._makers: dict[Value, Op] = {}
        self._shared_weights: set[Value] = set()
        self._shared: dict[Any, str] = {}
        self._hint = ""

    # Names

    def fresh(self, stem: str) -> str:
        name, k = stem, 0
        while name in self._taken:
            k += 1
            name = f"{stem}_{k}"
        self._taken.add(name)
        return name

    def bind(self, value: Value, name: str, known: np.ndarray | None = None) -> None:
        """Says that `value` is called `name`, and what it is if that is fixed."""
        self._names[value] = name
        if known is not None:
            self._known[value] = known

    def name(self, value: Value) -> str:
        """The name of a value in its full shape."""
        if value in self._unstretched:
            loose = self._unstretched.pop(value)
            self._names[value] = self.emit("Expand", [loose, self.shape(value.shape)])
        if value not in self._names and value in self._known:
            self._names[value] = self.constant(self._known[value])
        if value not in self._names and self._outer is not None:
            return self._outer.name(value)
        return self._names[value]

    def loose(self, value: Value) -> str:
        """The name of something that becomes `value` by broadcasting along with an operand of the full shape."""
        if value in self._unstretched:
            return self._unstretched[value]
        known = self._known.get(value)
        if known is not None and value not in self._names and known.size and not any(known.strides):
            return self.constant(known[(slice(1),) * known.ndim])
        return self.name(value)

    def stretches(self, value: Value) -> bool:
        """Whether `loose` is of another shape."""
        return value in self._unstretched or (value in self._known and value not in self._names)

    def known(self, value: Value) -> np.ndarray | None:
        """What the value is, if the graph's inputs have no influence on it."""
        return self._known.get(value)

    # Parameters

    def bind_parameter(self, value: Value, name: str, array: np.ndarray) -> None:
        """An initializer that keeps its name."""
        self._taken.add(name)
        self.arrays[name] = array
        self._names[value] = name
        self._parameters[value] = array

    def parameter(self, value: Value) -> np.ndarray:
        """What a value is that depends on parameters alone; Unsupported if it does not."""
        if value in self._parameters:
            return self._parameters[value]
        maker = self._makers.get(value)
        if maker is None:
            raise Unsupported("whose parameters are not fixed")
        given = [self.parameter(v) for v in maker.operands]
        body = maker.definition.expansion([v.type for v in maker.operands], maker.attrs)  # type: ignore[attr-defined]
        for v, array in zip(maker.results, evaluate(body, given)[0]):
            self._parameters[v] = np.asarray(array)
        return self._parameters[value]

    def transposed(self, value: Value) -> str:
        """The value with its last two axes swapped: a parameter that nothing else reads is stored so."""
        array = self._parameters.get(value)
        if array is None or value in self._shared_weights or value not in self._names:
            perm = [*range(value.ndim - 2), value.ndim - 1, value.ndim - 2]
            return self.emit("Transpose", [self.name(value)], perm=perm)
        name = self.fresh(f"{self._names[value]}_transposed")
        self.arrays[name] = np.ascontiguousarray(np.swapaxes(array, -1, -2))
        return name

    # Nodes

    def emit(self, op: str, inputs: Sequence[str], count: int = 1, **attrs: Any) -> Any:
        """Appends a node; the names of its `count` results, or the name of the only one. Inputs left out are ''."""
        given = {key: value for key, value in attrs.items() if value is not None}
        outputs = [self.fresh(f"{self._hint or 'value'}_{op.lower()}") for _ in range(count)]
        self.nodes.append(Record(op, list(inputs), outputs, given))
        return outputs[0] if count == 1 else outputs

    def constant(self, value: Any, dtype: Any = None) -> str:
        array = np.asarray(value, dtype)
        key: Any = None
        if array.size <= 64:
            key = (str(array.dtype), array.shape, array.tobytes())
            if key in self._shared:
                return self._shared[key]
        name = self.fresh(f"{self._hint}_constant" if array.size > 64 else "constant")
        self.arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
        if key is not None:
            self._shared[key] = name
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def like(self, value: float, x: Value) -> str:
        """A number of the element type of `x`."""
        return self.constant(np.array(value, x.dtype.numpy))

    # Shapes

    def extent(self, n: Extent) -> str:
        """An extent as an int64[1]."""
        if not isinstance(n, Dim):
            return self.ints(int(n))
        if n in self._shared:
            return self._shared[n]
        if self._outer is not None:
            return self._outer.extent(n)
        total = ""
        for names, factor in n.terms.items():
            parts = [self._size(name) for name in names]
            if factor != 1 or not parts:
                parts.append(self.ints(factor))
            product = parts[0]
            for part in parts[1:]:
                product = self.emit("Mul", [product, part])
            total = self.emit("Add", [total, product]) if total else product
        self._shared[n] = total
        return total

    def _size(self, name: str) -> str:
        key = ("size", name)
        if key not in self._shared:
            source, axis = self.sizes[name]
            self._shared[key] = self.emit("Gather", [self.emit("Shape", [source]), self.ints(axis)], axis=0)
        return self._shared[key]

    def shape(self, shape: Sequence[Extent]) -> str:
        """A shape as an int64 vector."""
        if not any(isinstance(n, Dim) for n in shape):
            return self.ints(*map(int, shape))
        return self.emit("Concat", [self.extent(n) for n in shape], axis=0) if len(shape) > 1 else self.extent(shape[0])

    def reshape(self, x: str, old: Sequence[Extent], new: Sequence[Extent]) -> str:
        """`x` of shape `old` in the shape `new`."""
        if tuple(old) == tuple(new):
            return x
        if 0 in new:
            return self.emit("Reshape", [x, self.shape(new)], allowzero=1 if self.opset >= 14 else None)
        target = [0 if k < len(old) and isinstance(n, Dim) and n == old[k] else n for k, n in enumerate(new)]
        rest = [k for k, n in enumerate(target) if isinstance(n, Dim)]
        if len(rest) == 1:
            target[rest[0]] = -1
        if 0 not in target or len(rest) <= 1:
            return self.emit("Reshape", [x, self.shape(target)])
        return self.emit("Reshape", [x, self.shape(new)])

    def reduce(self, op: str, x: str, axes: Sequence[int], keep: bool = False) -> str:
        """A reduction; from opset 18 on all of them take the axes as an input, before only ReduceSum did."""
        if op == "ReduceSum" or self.opset >= 18:
            return self.emit(op, [x, self.ints(*axes)], keepdims=int(keep))
        return self.emit(op, [x], axes=list(axes), keepdims=int(keep))

    def unsqueeze(self, x: str, *axes: int) -> str:
        return self.emit("Unsqueeze", [x, self.ints(*axes)])

    def squeeze(self, x: str, *axes: int) -> str:
        return self.emit("Squeeze", [x, self.ints(*axes)])

    def slice(self, x: str, axis: int, start: int, end: int) -> str:
        return self.emit("Slice", [x, self.ints(start), self.ints(end), self.ints(axis)])

    def cast(self, x: str, dtype: Any) -> str:
        onnx = require_onnx()
        return self.emit("Cast", [x], to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    # The walk

    def write(self, graph: Graph) -> None:
        """Emits what computes the graph, whose inputs have names already."""
        self._makers.update(graph.producers)
        self._shared_weights |= {v for v in graph.inputs if len(graph.uses.get(v, ())) > 1}
        for op in graph.ops:
            self._write(op, outermost=True)

    def _write(self, op: Op, outermost: bool = False) -> None:
        if outermost:
            self._hint = next((v.name for v in op.results if v.name), "")
        if self._fold(op):
            return
        own = op.name.startswith("mx.")
        try:
            self.requires(op)
            lower = LOWERINGS.get(op.name)
            names = lower(self, op) if lower else None
            if names is not None:
                self._results(op, [names] if isinstance(names, str) else names)
                return
            if not own:
                raise Unsupported("")
            self._expand(op)
        except Unsupported as e:
            self.problems[self._hint if outermost else "", _reason(op.name, str(e))] = None
            for v in op.results:
                self._names.setdefault(v, "?")
            return
        if outermost:
            for k, v in enumerate(op.results):
                self._rename(v, k, op)

    def requires(self, op: Op) -> None:
        """Unsupported for what no ONNX can have."""
        for v in op.results:
            if v.dtype.name == "bf16":
                raise Unsupported("of bfloat16")

    def _results(self, op: Op, names: Sequence[str]) -> None:
        for k, (v, name) in enumerate(zip(op.results, names)):
            if name:
                self._names[v] = name
            if op.name.startswith("mx."):
                self._rename(v, k, op)

    def _rename(self, value: Value, k: int, op: Op) -> None:
        """Gives a result the name of its node in the symbol, if it was made for it."""
        if k == 0 and value.name and (made := self._names.get(value)) and made.startswith(f"{self._hint}_"):
            if value.name not in self._taken and made not in self.arrays:
                self._taken.add(value.name)
                self.renamed.setdefault(made, value.name)

    def _fold(self, op: Op) -> bool:
        """Computes the op if all its operands are fixed, and remembers broadcasts, which most users can do without."""
        if op.regions or op.name.startswith("mx.") or op.name in ("random_bits", "host_call", "check_index"):
            return False
        values = [self._known.get(v) for v in op.operands]
        static = all(isinstance(n, int) for v in op.results for n in v.shape)
        if op.name == "broadcast":
            return self._broadcast(op, values[0], static)
        if not static or any(v is None for v in values) or op.name == "extent":
            return False
        if sum(math.prod(v.shape) for v in op.results) > FOLDED:
            return False
        with np.errstate(all="ignore"):
            found = _primitive(op).eval(*values, **{k: v for k, v in op.attrs.items() if not k.startswith(".")})
        for v, array in zip(op.results, found if isinstance(found, tuple) else (found,)):
            self._known[v] = np.asarray(array, v.dtype.numpy)
        return True

    def _broadcast(self, op: Op, value: np.ndarray | None, static: bool) -> bool:
        (x,), (y,) = op.operands, op.results
        if value is not None and static:
            dims = op.attrs["dims"]
            self._known[y] = _primitive(op).eval(value, shape=op.attrs["shape"], dims=dims)
            return True
        dims = op.attrs["dims"] or tuple(range(y.ndim - x.ndim, y.ndim))
        aligned: list[Extent] = [1] * y.ndim
        for n, d in zip(x.shape, dims):
            aligned[d] = n
        name = self.loose(x)
        if tuple(dims) != tuple(range(y.ndim - x.ndim, y.ndim)):
            inserted = [k for k in range(y.ndim) if k not in dims]
            name = self.unsqueeze(self.name(x), *inserted)
        if tuple(aligned) == tuple(y.shape):
            self._names[y] = name
        else:
            self._unstretched[y] = name
        return True

    def _expand(self, op: Op) -> None:
        """Writes the operator's expansion in its place."""
        definition = op.definition
        if definition.host:  # type: ignore[attr-defined]
            raise Unsupported("runs Python")
        if definition.streams is not None and definition.streams(op.attrs, False):  # type: ignore[attr-defined]
            raise Unsupported("draws random numbers")
        attrs = {k: v for k, v in op.attrs.items() if not k.startswith(".")}
        try:
            body = definition.expansion([v.type for v in op.operands], attrs)  # type: ignore[attr-defined]
        except IRError as e:
            raise Unsupported(str(e)) from e
        self.inline(body, op.operands, op.results)

    def inline(self, body: Graph, operands: Sequence[Value], results: Sequence[Value]) -> None:
        before = len(self.problems)
        for v in (*body.inputs, *(v for op in body.ops for v in op.results)):
            for table in (self._names, self._known, self._unstretched):
                table.pop(v, None)  # an expansion may be written several times
        for inner, outer in zip(body.inputs, operands):
            self._alias(inner, outer)
        hint = self._hint
        for part in body.ops:
            self._write(part)
            self._hint = hint
        if len(self.problems) > before:
            own = [key for key in self.problems if not key[0]]
            for key in own:
                del self.problems[key]
            raise Unsupported("needs " + ", ".join(why for _, why in own))
        for inner, outer in zip(body.outputs, results):
            self._alias(outer, inner)

    def _alias(self, new: Value, old: Value) -> None:
        tables: tuple[dict[Value, Any], ...] = (self._names, self._known, self._unstretched)
        for table in tables:
            if old in table:
                table[new] = table[old]
        if self._outer is not None and not any(old in t for t in (self._names, self._known, self._unstretched)):
            self._names[new] = self._outer.name(old)

    # Control flow

    def subgraph(self, region: Graph, captured: Sequence[Value], name: str) -> Any:
        """A branch of If. Inner graphs see the names around them."""
        inner = Writer(self.opset, self.sizes, self)
        for v, outer in zip(region.inputs, captured):
            inner._alias(v, outer)
        inner._body(region)
        return inner.graph(name, [], inner.results(region.outputs))

    def loop(self, op: Op) -> Sequence[str]:
        carried, end = op.attrs["carried"], op.attrs["carried"] + op.attrs["scanned"]
        body, *condition = op.regions
        state, rows, captured = op.operands[:carried], op.operands[carried:end], op.operands[end:]
        index, number = Value("index", body.inputs[0].type), self.constant(np.array(0, np.int64))

        def decided(w: Writer, index: str, now: Sequence[str]) -> str:
            (test,) = condition
            for v, name in zip(test.inputs, (index, *now)):
                w.bind(v, name)
            for v, outer in zip(test.inputs[1 + carried :], captured):
                w._alias(v, outer)
            w._body(test)
            return w.name(test.outputs[0])

        first = decided(self, number, [self.name(v) for v in state]) if condition else ""
        trip = self.squeeze(self.extent(op.attrs["trip"]), 0)
        inner = Writer(self.opset, self.sizes, self)
        given = [index, *(Value(v.name, v.type) for v in state)]
        for v, stem in zip(given, ("index", *("state",) * carried)):
            inner.bind(v, inner.fresh(stem))
        going = inner.fresh("going")
        for v, outer in zip(body.inputs, given):
            inner._alias(v, outer)
        for v, outer in zip(body.inputs[1 + carried :], rows):
            inner.bind(v, inner.emit("Gather", [self.name(outer), inner.name(index)], axis=0))
        for v, outer in zip(body.inputs[1 + end :], captured):
            inner._alias(v, outer)
        inner._body(body)
        results = inner.results(body.outputs)
        if condition:
            following = inner.emit("Add", [inner.name(index), inner.constant(np.array(1, np.int64))])
            test = decided(inner, following, [name for name, _ in results[:carried]])
        else:
            test = going
        last = inner.emit("Identity", [test])
        flag: Any = (going, np.dtype(np.bool_), ())
        inputs: list[Any] = [(inner.name(index), np.dtype(np.int64), ()), flag]
        inputs += [(inner.name(v), v.dtype.numpy, v.shape) for v in given[1:]]
        outputs = [(last, np.dtype(np.bool_), ()), *((name, v.dtype.numpy, v.shape) for name, v in results)]
        graph = inner.graph("body", inputs, outputs, typed=True)
        names = self.emit("Loop", [trip, first, *map(self.name, state)], len(op.results), body=graph)
        names = [names] if len(op.results) == 1 else names
        if not condition:
            return names
        return [*names[:carried], *(self._filled(n, v) for n, v in zip(names[carried:], op.results[carried:]))]

    def _filled(self, rows: str, value: Value) -> str:
        """Rows of 0 after those of the iterations that ran."""
        wanted = self.shape(value.shape)
        missing = self.emit("Sub", [wanted, self.emit("Shape", [rows])])
        return self.emit("Pad", [rows, self.emit("Concat", [self.ints(*(0,) * value.ndim), missing], axis=0)])

    def _body(self, region: Graph) -> None:
        before = len(self.problems)
        for part in region.ops:
            self._write(part)
        if len(self.problems) > before:
            own = [key for key in self.problems if not key[0]]
            for key in own:
                del self.problems[key]
            raise Unsupported("needs " + ", ".join(why for _, why in own))

    def results(self, values: Sequence[Value]) -> list[tuple[str, Value]]:
        """(name, value) of what leaves a graph: each the result of a node of its own."""
        made = {name for record in self.nodes for name in record.outputs}
        found: list[tuple[str, Value]] = []
        for v in values:
            name = self.name(v)
            if name not in made or any(name == other for other, _ in found):
                name = self.emit("Identity", [name])
            found.append((name, v))
        return found

    def graph(self, name: str, inputs: Any, outputs: Any, typed: bool = False) -> Any:
        """The GraphProto of the nodes so far, before `renamed`, and without initializers: inner graphs use those around
        them."""
        helper = require_onnx().helper

        def info(name: str, dtype: Any, shape: Any) -> Any:
            sizes = [n if isinstance(n, int) else str(n) for n in shape]
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), sizes)

        if not typed:
            outputs = [(name, v.dtype.numpy, v.shape) for name, v in outputs]
        nodes = [helper.make_node(n.op, n.inputs, n.outputs, n.outputs[0], **n.attrs) for n in self.nodes]
        return helper.make_graph(nodes, name, *([info(*each) for each in group] for group in (inputs, outputs)))


def _primitive(op: Op) -> Any:
    return op.definition


def _reason(op: str, why: str) -> str:
    name = op.removeprefix("mx.")
    return f"{name}: {why}" if why else name
