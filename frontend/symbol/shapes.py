"""Shape inference on untyped symbols, in both directions.

An operator is defined only by its expansion, so if a node's input shapes are known, its result shapes come from
`Operator.infer`. In addition, four rules work on partial shapes (0 is an unknown dimension, None an unknown rank):
`complete` finds learnable inputs, `infer_inputs` inputs from outputs, `same_shape` unifies all of them, and a shape
with unknown dimensions is *probed*: the operator is inferred for several values of them, and the dimensions of the
result that come out equal every time are known. The rules run to a fixpoint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.ir.types import F32, I8, I32, IRError, TensorType
from gluonjit.language.source import quote
from gluonjit.operators import attributes
from gluonjit.operators.registry import Operator, OperatorError, Shape
from gluonjit.operators.support import Shapes, merge
from gluonjit.symbol.graph import Entry, Node, post_order
from gluonjit.util import is_np_shape

PROBES = (5040, 2520, 24, 6)
"""Values for unknown dimensions: divisible by what programs split by; large for kernels, small for clipping."""


# One node


def is_complete(shape: Shape | None) -> bool:
    return shape is not None and 0 not in shape


def bracketed(shape: Shape | None) -> str:
    """`[2,3]`, as MXNet's messages print shapes; -1 for unknown dimensions."""
    return "None" if shape is None else f"[{','.join(str(n or -1) for n in shape)}]"


_results: dict[Any, tuple[Shape, ...] | IRError] = {}
"""Results of `Operator.infer`, by operator, attributes and input shapes."""


def result_shapes(op: Operator, key: Any, attrs: Mapping[str, Any], shapes: Sequence[Shape]) -> tuple[Shape, ...]:
    """Shapes of the results for complete input shapes. IRError when there are none.

    Shapes never depend on element types, so they are found with all inputs float32; for the operators that want
    integers somewhere (a softmax's lengths), with all but the first, or all, int32; and for those that are quantized,
    with all int8 but the minima and maxima, which are single numbers.
    """
    entry = (key, tuple(shapes))
    found = _results.get(entry)
    if found is None:
        found = IRError()
        rows = [[first, *[rest] * (len(shapes) - 1)] for first, rest in ((F32, F32), (F32, I32), (I32, I32))]
        rows.append([F32 if s == (1,) else I8 for s in shapes])
        for k, dtypes in enumerate(rows):
            try:
                found = tuple(t.shape for t in op.infer(list(map(TensorType, dtypes, shapes)), attrs))
                break
            except IRError as e:
                found = found if k else e
        if len(_results) >= 1 << 16:
            _results.clear()
        _results[entry] = found
    if isinstance(found, IRError):
        raise found
    return found


def refine(node: Node, ins: Shapes, outs: Shapes) -> tuple[Shapes, Shapes]:
    """Shapes of the inputs and outputs of one operator node after all rules; MXNetError for a contradiction.

    `outs` may be longer than what the operator computes (hidden outputs that nothing reads).
    """
    op, attrs = node.op, node.parsed
    assert op is not None
    ins, outs = list(ins), list(outs)
    try:
        if op.complete is not None:
            ins = list(map(merge, ins, op.complete(attrs, list(ins))))
        if op.infer_inputs is not None and any(s is not None for s in outs):
            ins = list(map(merge, ins, op.infer_inputs(attrs, list(ins), list(outs))))
        if op.same_shape:
            common: Shape | None = None
            for k, shape in enumerate([*ins, *outs[: node.visible]]):
                try:
                    common = merge(common, shape)
                except OperatorError:
                    where = f"{k}-th input" if k < len(ins) else f"{k - len(ins)}-th output"
                    raise MXNetError(
                        f"Incompatible attr in node {node.name} at {where}: "
                        f"expected {bracketed(common)}, got {bracketed(shape)}"
                    ) from None
            ins = [common] * len(ins)
            outs[: node.visible] = [common] * node.visible
        if all(s is not None for s in ins):
            found = _forward(node, ins)  # type: ignore[arg-type]
            outs[: len(found)] = map(merge, outs, found)
    except (MXNetError, IRError) as e:
        raise MXNetError(f"Error in operator {node.name}: {op.name}: {e}{quote(node.loc)}") from None
    return ins, outs


def _forward(node: Node, ins: list[Shape]) -> Shapes:
    """Result shapes from input shapes of known rank; [] when nothing can be said."""
    op = node.op
    assert op is not None
    if is_open(node):
        return [open_shape(node)]
    if all(0 not in s for s in ins):
        return list(result_shapes(op, node.key, node.parsed, ins))
    found = []
    for probe in (*PROBES, 1) if op.clips else PROBES:
        try:
            found.append(result_shapes(op, node.key, node.parsed, [tuple(n or probe for n in s) for s in ins]))
        except IRError:
            continue  # this value does not suit the operator; another may
    if len(found) < 2:
        return []
    outs: Shapes = []
    for shapes in zip(*found):
        if len({len(s) for s in shapes}) > 1:
            outs.append(None)
        else:
            outs.append(tuple(n[0] if len(set(n)) == 1 else 0 for n in zip(*shapes)))
    return outs


# A graph


def solve_shapes(heads: Sequence[Entry], known: Mapping[Node, Shape | None]) -> dict[Entry, Shape | None]:
    """The shape of every entry, as far as it follows from those of the variables. MXNetError for a contradiction."""
    order = post_order(heads)
    table: dict[Entry, Shape | None] = {}
    for node in order:
        if node.op is None:
            declared = declared_shape(node)
            given = known.get(node)
            # The caller's shape takes precedence over the declared one, which may complete it.
            try:
                table[node, 0] = merge(given, declared)
            except OperatorError:
                table[node, 0] = given
        else:
            table.update({(node, k): None for k in range(len(node.output_names))})
    settled: set[Node] = set()

    def step(node: Node) -> bool:
        ins = [table[e] for e in node.inputs]
        outs = [table[node, k] for k in range(len(node.output_names))]
        new_ins, new_outs = refine(node, ins, outs)
        if all(map(is_complete, new_ins)) and all(map(is_complete, new_outs[: node.visible])):
            settled.add(node)
        if new_ins == ins and new_outs == outs:
            return False
        for entry, shape in zip(node.inputs, new_ins):
            try:
                table[entry] = merge(table[entry], shape)  # an input used twice may have been refined twice
            except OperatorError as e:
                raise MXNetError(f"Error in operator {node.name}: {e}") from None
        table.update({(node, k): s for k, s in enumerate(new_outs)})
        return True

    pending = [node for node in order if node.op is not None]
    changed = True
    while changed and pending:
        changed = False
        for node in [*pending, *reversed(pending)]:
            if node not in settled:
                changed |= step(node)
        pending = [node for node in pending if node not in settled]
    return table


def is_open(node: Node) -> bool:
    """Whether the users of an operator without inputs determine its shape.

    That is so for `zeros((0, 4))`, where 0 and -1 are unknown dimensions (under `np_shape`, only -1), and for
    `arange(3, infer_range=True)`.
    """
    if node.op is None or node.inputs:
        return False
    if node.op.name == "_arange":
        return node.parsed["infer_range"] and node.parsed["stop"] is None
    shape = node.parsed.get("shape") or ()  # or a parameter of that name, of np.random.gamma
    return isinstance(shape, tuple) and any(n is not None and n <= -is_np_shape() for n in shape)


def open_shape(node: Node) -> Shape | None:
    """The partial shape that an open node itself declares; None if not even the rank is known."""
    return tuple(max(n, 0) for n in node.parsed["shape"]) if "shape" in node.parsed else None


def closed(node: Node, shape: Shape) -> dict[str, Any]:
    """The attributes with which an open node has `shape`. MXNetError if there are none."""
    if "shape" in node.parsed:
        return {"shape": shape}
    start, step, repeat = (node.parsed[key] for key in ("start", "step", "repeat"))
    if len(shape) != 1 or shape[0] % repeat:
        raise MXNetError(
            f"Error in operator {node.name}: arange with infer_range=True gives vectors of whole groups of {repeat}, "
            f"but what uses it needs shape {bracketed(shape)}"
        )
    # Half a step before the first excluded number: rounding cannot change the count.
    return {"stop": start + step * (shape[0] // repeat - 0.5), "infer_range": False}


_SHAPE = attributes.optional(attributes.bounds())


def exact_shapes(heads: Sequence[Entry], known: Mapping[Node, Shape]) -> dict[Entry, Shape] | None:
    """The shape of every entry under `np_shape`, where 0 is no elements, () a single one, and -1 not known.

    None unless all variables' shapes are known: then inference goes forward only, and may meet any shape.
    """
    table: dict[Entry, Shape] = {}
    for node in post_order(heads):
        if node.op is None:
            shape = known.get(node, written_shape(node))
            if shape is None or min(shape, default=0) < 0:
                return None
            table[node, 0] = shape
        elif is_open(node):
            return None
        else:
            try:
                results = result_shapes(node.op, node.key, node.parsed, [table[e] for e in node.inputs])
            except IRError as e:
                raise MXNetError(f"Error in operator {node.name}: {e}") from e
            table.update({(node, k): shape for k, shape in enumerate(results)})
    return table


def declared_shape(variable: Node) -> Shape | None:
    """The `__shape__` of a variable; None when it has none. MXNetError when that is no shape."""
    # () is an unknown rank, -1 an unknown dimension.
    return tuple(max(n, 0) for n in written_shape(variable) or ()) or None


def written_shape(variable: Node) -> Shape | None:
    """The `__shape__` of a variable as written, with -1 for None."""
    text = variable.attrs.get("__shape__")
    what = f"Variable '{variable.name}': its __shape__ is {str(text)[:60]!r}"
    try:
        given = _SHAPE.convert(text)
        dims = tuple(-1 if n is None else n for n in given or ())
    except ValueError as e:
        raise MXNetError(f"{what}, which is not a shape: {e}") from e
    if math.prod(max(n, 1) for n in dims) >= 1 << 60:
        raise MXNetError(f"{what}, expected less than 2**60 elements")
    return None if given is None else dims
