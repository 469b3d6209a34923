"""`fold-affine`: scales and shifts per channel move into the convolution or dense layer beside them.

    conv(x, w) * s + t  →  conv(x, w * s) + t          (BatchNorm after a convolution; s per output channel)
    conv(x * s + t, w)  →  conv(x, w * s) + Σ w * t    (affine op before the convolution; s and t per input channel)

where s and t, like w, depend on parameters and constants alone, so that `hoist` has the products of weights computed
once. What remains of t is one sum in the kernel's epilogue. Before a convolution with padding only scales move: padding
is 0, not t.

This reassociates: x · (w · s) in place of (x · w) · s. Both round each term twice and the sum alike, so the error bound
stays, about n ε Σ |x w s| for n terms, but the bits may change. For float32 and float64 only: in 16-bit types rounding
the scaled weights would lose more than the sums do, which are accumulated in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gluonjit.ir.graph import Builder, Graph, Op, Rewriter, Value
from gluonjit.ir.primitives.contraction import free_axes
from gluonjit.ir.primitives.convolution_layout import Layout
from gluonjit.ir.primitives.movement import broadcast_dims
from gluonjit.ir.types import F32, F64
from gluonjit.passes.dce import dce
from gluonjit.passes.hoist import fixed_ops
from gluonjit.passes.manager import register_pass

SCALING = frozenset({"mul", "div"})
SHIFTING = frozenset({"add", "sub"})


@register_pass("fold-affine", needs="legal")
def fold_affine(graph: Graph) -> Graph:
    """Moves scales and shifts per channel, if they depend on parameters alone, into the weights beside them."""
    products = [op for op in graph.ops if op.definition.accumulates == "contraction"]
    if not products:
        return graph
    folder = _Folder(graph)
    if all(folder.fixed.isdisjoint(op.operands) for op in products):  # as in training
        return graph
    new = folder.run()
    return dce(new) if folder.folded else graph


@dataclass(frozen=True)
class _Linear:
    """A value of the new graph: `anchor(operands)`, whose operand `side` holds the weights, and an optional `shift`."""

    anchor: Op
    """The op of the old graph, whose operands may have been replaced since."""
    operands: tuple[Value, ...]
    side: int
    shift: Value | None = None
    """A sum per output channel, in the shape of the weights' output axes."""
    pool: Op | None = None
    """Window sums between anchor and shift; scales per channel commute with them."""

    @property
    def weights(self) -> Value:
        return self.operands[self.side]

    @property
    def outputs(self) -> dict[int, int]:
        """Axis of the result → the axis of the weights that it comes from."""
        attrs = self.anchor.attrs
        if self.anchor.name == "conv":
            layout = Layout.parse(attrs["layout"])
            return {layout.result[1]: layout.weight[0]}
        free = [free_axes(v.ndim, attrs["contract"][k], attrs["batch"][k]) for k, v in enumerate(self.anchor.operands)]
        first = len(attrs["batch"][0]) + (len(free[0]) if self.side == 1 else 0)
        return {first + k: axis for k, axis in enumerate(free[self.side])}

    @property
    def inputs(self) -> dict[int, int] | None:
        """Axis of the other operand → the axis of the weights that it is contracted with; None for groups."""
        attrs = self.anchor.attrs
        if self.anchor.name == "conv":
            layout = Layout.parse(attrs["layout"])
            return {layout.input[1]: layout.weight[1]} if attrs["groups"] == 1 else None
        pairs = attrs["contract"]
        return dict(sorted(zip(pairs[1 - self.side], pairs[self.side], strict=True)))

    @property
    def sums_everywhere(self) -> bool:
        """Whether each element of the result sums over all weights of its output: no term is padding."""
        attrs = self.anchor.attrs
        if self.anchor.name != "conv":
            return not attrs["batch"][0]
        return all(n <= 0 for n in (*attrs["low"], *attrs["high"])) and set(attrs["input_dilation"]) <= {1}


class _Folder(Rewriter):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.fixed = {graph.inputs[k] for k in graph.attrs.get("params", ())}
        self.fixed.update(r for op in fixed_ops(graph) for r in op.results)
        # What is repeated along an open dimension is fixed, too, though it cannot be computed beforehand.
        self.fixed.update(op.result for op in graph.ops if op.name == "broadcast" and op.operands[0] in self.fixed)
        self.results = set(graph.results)
        self.linear: dict[Value, _Linear] = {}
        """What is known of values of the old graph."""
        self.folded = False

    def visit(self, op: Op) -> Sequence[Value] | None:
        return () if self._folds(op) else None

    def _folds(self, op: Op) -> bool:
        """Emits the replacement of `op`, if there is one; returns whether it did."""
        if len(op.results) != 1 or op.result in self.fixed or op.result.dtype not in (F32, F64):
            return False
        if op.definition.accumulates == "contraction":
            return self._anchor(op)
        if op.name == "reduce_window":
            self._pool(op)
        if op.name in SCALING | SHIFTING:
            for k in (0, 1) if op.name in ("mul", "add") else (0,):
                x, other = op.operands[k], op.operands[1 - k]
                if x in self.linear and other in self.fixed and self._is_read_once(x):
                    return self._moved_through(op, self.linear[x], other)
        return False

    def _is_read_once(self, v: Value) -> bool:
        return len(self.graph.uses[v]) == 1 and v not in self.results

    # After an anchor --------------------------------------------------------------------------------------------------

    def _pool(self, op: Op) -> None:
        """Records window sums of an anchor's result."""
        linear, a = self.linear.get(op.operands[0]), op.attrs
        if linear is None or linear.shift is not None or linear.pool is not None:
            return
        if a["op"] != "sum" or not self._is_read_once(op.operands[0]):
            return
        if all((a["window"][k], a["stride"][k], a["low"][k], a["high"][k]) == (1, 1, 0, 0) for k in linear.outputs):
            self.linear[op.result] = replace(linear, pool=op)

    def _moved_through(self, op: Op, linear: _Linear, other: Value) -> bool:
        b, axes = self.b, linear.outputs
        vector = _along(b, self.env[other], axes, linear.weights.shape)
        if vector is None:
            return False
        shift = linear.shift
        if op.name in SHIFTING:
            if shift is None:
                linear = replace(linear, shift=vector if op.name == "add" else b.neg(vector))
                self.linear[op.result] = linear
                return False
            shift = b.emit(op.name, [shift, vector])[0]
        else:
            weights = _times(b, op.name, linear.weights, vector, axes)
            operands = (weights, linear.operands[1]) if linear.side == 0 else (linear.operands[0], weights)
            linear = replace(linear, operands=operands)
            if shift is not None:
                shift = b.emit(op.name, [shift, vector])[0]
        self._give(op, replace(linear, shift=shift))
        return True

    def _give(self, op: Op, linear: _Linear) -> None:
        """Emits `linear` as the replacement of `op`'s result."""
        b, anchor = self.b, linear.anchor
        y = b.emit(anchor.name, linear.operands, anchor.attrs, (), anchor.loc)[0]
        if linear.pool is not None:
            y = b.reduce_window(y, **linear.pool.attrs)
        if linear.shift is not None:
            y = b.add(y, b.broadcast(linear.shift, shape=y.shape, dims=tuple(linear.outputs)))
        if op.result.name:
            object.__setattr__(y, "name", op.result.name)  # a hint for the printer, on a value made just now
        self.env[op.result] = y
        self.linear[op.result] = linear
        self.folded = True

    # Before an anchor -------------------------------------------------------------------------------------------------

    def _anchor(self, op: Op) -> bool:
        linear = self._linear(op)
        if linear is None:
            return False
        self.linear[op.result] = linear
        found = self._before(linear)
        if found is not None:
            self._give(op, found)
        return found is not None

    def _linear(self, op: Op) -> _Linear | None:
        """`op` as an anchor, if one operand holds weights and the other one data; else None.

        The weights of a product are its fixed operand, left or right. Those of a convolution are its second operand: a
        fixed image that is convolved with variable filters has no weights."""
        fixed = [v in self.fixed and v.type.is_static for v in op.operands]
        if fixed[0] == fixed[1] or (op.name == "conv" and fixed[0]):
            return None
        # `_is_taken` asks about anchors that have not been visited yet; nor may their operands have been.
        linear = _Linear(op, tuple(self.env.get(v, v) for v in op.operands), 1 if fixed[1] else 0)
        axes = list(linear.outputs.values())
        return linear if axes == sorted(axes) else None

    def _before(self, linear: _Linear) -> _Linear | None:
        """`linear` with the scales and shifts of its data moved into its weights and `shift`."""
        b, axes = self.b, linear.inputs
        x = linear.anchor.operands[1 - linear.side]
        if axes is None or list(axes.values()) != sorted(axes.values()):
            return None
        weights, shift, scaled = linear.weights, None, False
        rest = tuple(k for k in range(len(weights.shape)) if k not in linear.outputs.values())
        while (step := self._affine(x)) is not None and self._is_taken(x, step[0]):
            op, inner, other = step
            if op.name in SHIFTING and not linear.sums_everywhere:
                break
            vector = _along(b, self.env[other], axes, weights.shape)
            if vector is None:
                break
            if op.name in SCALING:
                weights, scaled = _times(b, op.name, weights, vector, axes), True
            else:
                part = b.reduce(_times(b, "mul", weights, vector, axes), op="sum", axes=rest)
                if shift is not None:
                    shift = b.emit(op.name, [shift, part])[0]
                else:
                    shift = part if op.name == "add" else b.neg(part)
            x = inner
        if not scaled:
            return None  # a sum alone costs nothing in the epilogue of the kernel that makes the data
        data = self.env[x]
        return replace(linear, operands=(weights, data) if linear.side == 0 else (data, weights), shift=shift)

    def _affine(self, x: Value) -> tuple[Op, Value, Value] | None:
        """(op, data, other) if `x` is data scaled or shifted by a fixed value, and `op` has not been folded into an
        anchor before it."""
        op = self.graph.producers.get(x)
        if op is None or op.name not in SCALING | SHIFTING or x in self.linear:
            return None
        for k in (0, 1) if op.name in ("mul", "add") else (0,):
            if op.operands[1 - k] in self.fixed and op.operands[k] not in self.fixed:
                return op, op.operands[k], op.operands[1 - k]
        return None

    def _is_taken(self, x: Value, step: Op) -> bool:
        """Whether all readers of `x` can do without `step`; otherwise it is computed in any case."""
        for user in self.graph.uses[x]:
            if user.name in SCALING | SHIFTING:
                if len(self.graph.uses[x]) > 1:
                    return False
                continue
            linear = self._linear(user) if user.definition.accumulates == "contraction" else None
            if linear is None or linear.inputs is None or (step.name in SHIFTING and not linear.sums_everywhere):
                return False
        return x not in self.results


def _along(b: Builder, x: Value, axes: dict[int, int], weights: tuple[int, ...]) -> Value | None:
    """`x` in the shape of the weights' axes that `axes` maps its own axes to; None if it varies along other axes."""
    dims: tuple[int, ...] = tuple(range(x.ndim))
    if (op := b.producer(x)) is not None and op.name == "broadcast":
        x, dims = op.operands[0], broadcast_dims(op.operands[0].ndim, op.attrs["shape"], op.attrs["dims"])
    long = [d for d, n in zip(dims, x.shape, strict=True) if n != 1]
    order = sorted(axes)
    if not set(long) <= set(order):
        return None
    squeezed = tuple(n for n in x.shape if n != 1)
    wanted = tuple(weights[axes[d]] for d in order)
    if x.shape != squeezed:
        x = b.reshape(x, shape=squeezed)
    return x if squeezed == wanted else b.broadcast(x, shape=wanted, dims=tuple(order.index(d) for d in long))


def _times(b: Builder, name: str, weights: Value, vector: Value, axes: dict[int, int]) -> Value:
    """The weights multiplied or divided (`name`) by the vector along those of their axes that `axes` maps to."""
    dims = tuple(axes[d] for d in sorted(axes))
    return b.emit(name, [weights, b.broadcast(vector, shape=weights.shape, dims=dims)])[0]
