"""How the compiler's primitives are written as ONNX."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit.ir.dims import Dim, Extent
from gluonjit.ir.graph import Op, Value
from gluonjit.ir.primitives.convolution_layout import Layout
from gluonjit.ir.primitives.reduction import identity
from gluonjit.ir.types import I16, I32
from gluonjit.onnx.exporting.onnx_writer import Unsupported, Writer, lowering

_SAME = {
    "neg": "Neg",
    "abs": "Abs",
    "sign": "Sign",
    "floor": "Floor",
    "ceil": "Ceil",
    "rint": "Round",
    "not": "Not",
    "isnan": "IsNaN",
    "isinf": "IsInf",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "asin": "Asin",
    "acos": "Acos",
    "atan": "Atan",
    "sinh": "Sinh",
    "cosh": "Cosh",
    "tanh": "Tanh",
    "asinh": "Asinh",
    "acosh": "Acosh",
    "atanh": "Atanh",
    "sigmoid": "Sigmoid",
    "erf": "Erf",
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "pow": "Pow",
    "maximum": "Max",
    "minimum": "Min",
    "eq": "Equal",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
    "select": "Where",
}
_LOGIC = {"and": "And", "or": "Or", "xor": "Xor"}


def operands(w: Writer, op: Op) -> list[str]:
    """Names of the operands of an elementwise op. One may have to stretch along axes of which another one has the full
    extent."""
    whole = [v for v in op.operands if not w.stretches(v)]
    names = []
    for v in op.operands:
        if w.stretches(v) and all(n == 1 or _has_extent(whole, k, n) for k, n in enumerate(reversed(v.shape))):
            names.append(w.loose(v))
        else:
            whole.append(v)
            names.append(w.name(v))
    return names


def _has_extent(values: Sequence[Value], axis: int, n: Extent) -> bool:
    """Whether one of the values has the extent `n` along the axis, counted from the last one."""
    return any(v.ndim > axis and v.shape[v.ndim - 1 - axis] == n for v in values)


@lowering(*_SAME)
def _same(w: Writer, op: Op) -> str:
    if op.name == "div" and op.operands[0].dtype.is_integer:  # rounds toward minus infinity, ONNX's toward 0
        x, y = operands(w, op)
        rest = w.emit("Mod", [x, y])
        return w.emit("Div", [w.emit("Sub", [x, rest]), y])
    return w.emit(_SAME[op.name], operands(w, op))


@lowering(*_LOGIC)
def _logic(w: Writer, op: Op) -> str:
    if op.operands[0].dtype.kind == "b":
        return w.emit(_LOGIC[op.name], operands(w, op))
    if w.opset < 18:
        raise Unsupported("of integers needs opset 18")
    return w.emit(f"Bitwise{_LOGIC[op.name]}", operands(w, op))


@lowering("ne")
def _unequal(w: Writer, op: Op) -> str:
    return w.emit("Not", [w.emit("Equal", operands(w, op))])


@lowering("isfinite")
def _finite(w: Writer, op: Op) -> str:
    (x,) = operands(w, op)
    return w.emit("Not", [w.emit("Or", [w.emit("IsNaN", [x]), w.emit("IsInf", [x])])])


@lowering("mod")
def _mod(w: Writer, op: Op) -> str:
    """The remainder with the sign of the divisor, which ONNX has for integers alone."""
    x, y = operands(w, op)
    if op.operands[0].dtype.is_integer:
        return w.emit("Mod", [x, y])
    rest = w.emit("Mod", [x, y], fmod=1)
    zero = w.like(0, op.operands[0])
    other = w.emit("Less", [w.emit("Mul", [w.emit("Sign", [rest]), w.emit("Sign", [y])]), zero])
    return w.emit("Where", [other, w.emit("Add", [rest, y]), rest])


@lowering("expm1", "log1p", "log2", "log10", "rsqrt", "hypot", "trunc", "round", "cbrt")
def _composed(w: Writer, op: Op) -> str:
    x, *more = operands(w, op)
    number = lambda value: w.like(value, op.operands[0])  # noqa: E731
    match op.name:
        case "expm1":
            return w.emit("Sub", [w.emit("Exp", [x]), number(1)])
        case "log1p":
            return w.emit("Log", [w.emit("Add", [x, number(1)])])
        case "log2" | "log10":
            return w.emit("Mul", [w.emit("Log", [x]), number(1 / math.log(2 if op.name == "log2" else 10))])
        case "rsqrt":
            return w.emit("Reciprocal", [w.emit("Sqrt", [x])])
        case "hypot":
            squares = [w.emit("Mul", [v, v]) for v in (x, *more)]
            return w.emit("Sqrt", [w.emit("Add", squares)])
        case "trunc":
            return w.emit("Mul", [w.emit("Sign", [x]), w.emit("Floor", [w.emit("Abs", [x])])])
        case "round":  # halves away from 0
            half = w.emit("Add", [w.emit("Abs", [x]), number(0.5)])
            return w.emit("Mul", [w.emit("Sign", [x]), w.emit("Floor", [half])])
        case _:
            return w.emit("Mul", [w.emit("Sign", [x]), w.emit("Pow", [w.emit("Abs", [x]), number(1 / 3)])])


@lowering("cast")
def _cast(w: Writer, op: Op) -> str:
    """As i32, which holds i16 as well, if the integers are to be multiplied: few readers know i16."""
    kind = I32 if op.result.dtype is I16 else op.result.dtype
    return w.cast(w.name(op.operands[0]), kind.numpy)


# Movement


@lowering("reshape")
def _reshape(w: Writer, op: Op) -> str:
    (x,) = op.operands
    return w.reshape(w.name(x), x.shape, op.result.shape)


@lowering("transpose")
def _transpose(w: Writer, op: Op) -> str:
    return transposed(w, w.name(op.operands[0]), op.attrs["perm"])


def transposed(w: Writer, x: str, perm: Sequence[int]) -> str:
    return x if list(perm) == list(range(len(perm))) else w.emit("Transpose", [x], perm=list(perm))


@lowering("slice")
def _slice(w: Writer, op: Op) -> str:
    (x,) = op.operands
    step = op.attrs["step"] or (1,) * x.ndim
    bounds = list(zip(range(x.ndim), x.shape, op.attrs["start"], op.attrs["size"], step))
    cut = [(k, a, a + (n - 1) * by + 1 if n != 0 else a, by) for k, full, a, n, by in bounds if n != full or a != 0]
    if not cut:
        return w.name(x)
    axes, starts, ends, steps = zip(*cut)
    more = [w.ints(*steps)] if any(by != 1 for by in steps) else []
    return w.emit("Slice", [w.name(x), w.shape(starts), w.shape(ends), w.ints(*axes), *more])


@lowering("reverse")
def _reverse(w: Writer, op: Op) -> str:
    axes = op.attrs["axes"]
    far = -(1 << 62)
    bounds = [w.ints(*(value,) * len(axes)) for value in (-1, far)]
    return w.emit("Slice", [w.name(op.operands[0]), *bounds, w.ints(*axes), w.ints(*(-1,) * len(axes))])


@lowering("pad")
def _pad(w: Writer, op: Op) -> str:
    if op.attrs["interior"] and any(op.attrs["interior"]):
        raise Unsupported("between elements")
    pads = w.shape((*op.attrs["low"], *op.attrs["high"]))
    return w.emit("Pad", [w.name(op.operands[0]), pads, w.name(op.operands[1])], mode="constant")


@lowering("concat")
def _concat(w: Writer, op: Op) -> str:
    return w.emit("Concat", [w.name(v) for v in op.operands], axis=op.attrs["axis"])


@lowering("update_slice")
def _update_slice(w: Writer, op: Op) -> str:
    """The new part between what is left of the old array on both sides, axis by axis."""
    x, u = op.operands
    if op.attrs["step"] and any(by != 1 for by in op.attrs["step"]):
        raise Unsupported("with a step")
    return _updated(w, w.name(x), w.name(u), x.shape, u.shape, op.attrs["start"], 0)


def _updated(w: Writer, x: str, u: str, old: Any, new: Any, start: Any, axis: int) -> str:
    if axis == len(old):
        return u
    if start[axis] == 0 and new[axis] == old[axis]:
        return _updated(w, x, u, old, new, start, axis + 1)
    end = start[axis] + new[axis]

    def part(first: Any, last: Any) -> str:
        return w.emit("Slice", [x, w.extent(first), w.extent(last), w.ints(axis)])

    inner = (*old[:axis], new[axis], *old[axis + 1 :])
    parts = [part(0, start[axis])] if start[axis] != 0 else []
    parts.append(_updated(w, part(start[axis], end), u, inner, new, (*start[:axis], 0, *start[axis + 1 :]), axis + 1))
    if end != old[axis]:
        parts.append(part(end, old[axis]))
    return w.emit("Concat", parts, axis=axis)


@lowering("iota")
def _iota(w: Writer, op: Op) -> str:
    shape, axis = op.result.shape, op.attrs["axis"]
    number = lambda k: w.constant(np.array(k, np.int64))  # noqa: E731
    line = w.emit("Range", [number(0), w.squeeze(w.extent(shape[axis]), 0), number(1)])
    if op.result.dtype.name != "i64":
        line = w.cast(line, op.result.dtype.numpy)
    if len(shape) == 1:
        return line
    if others := [k for k in range(len(shape)) if k != axis]:
        line = w.unsqueeze(line, *others)
    return line if all(shape[k] == 1 for k in others) else w.emit("Expand", [line, w.shape(shape)])


@lowering("extent")
def _extent(w: Writer, op: Op) -> str:
    return w.squeeze(w.extent(op.attrs["of"]), 0)


@lowering("constant")
def _constant(w: Writer, op: Op) -> str:
    raise Unsupported("of that size")


# Indices


def clipped(w: Writer, index: str, n: Any) -> str:
    """An int64 index in the range of an axis of `n`."""
    last = w.squeeze(w.extent(n - 1), 0) if isinstance(n, Dim) else w.constant(np.array(n - 1, np.int64))
    return w.emit("Clip", [index, w.constant(np.array(0, np.int64)), last])


def wide(w: Writer, op: Op, k: int) -> str:
    index = op.operands[k]
    return w.name(index) if index.dtype.name == "i64" else w.cast(w.name(index), np.int64)


@lowering("gather")
def _gather(w: Writer, op: Op) -> str:
    x, index = op.operands
    axis, n = op.attrs["axis"], x.shape[op.attrs["axis"]]
    known = w.known(index)
    if known is not None and isinstance(n, int):
        within = known.astype(np.int64) % n if op.attrs["mode"] == "wrap" else known.astype(np.int64).clip(0, n - 1)
        at = w.constant(within)
    elif op.attrs["mode"] == "wrap":
        at = w.emit("Mod", [wide(w, op, 1), w.squeeze(w.extent(n), 0)])
    else:
        at = clipped(w, wide(w, op, 1), n)
    return w.emit("Gather", [w.name(x), at], axis=axis)


@lowering("check_index")
def _check_index(w: Writer, op: Op) -> str:
    """ONNX's GatherND checks indices, and counts negative ones from the end."""
    w.checked.add(op.result)
    return w.name(op.operands[0])


@lowering("gather_nd")
def _gather_nd(w: Writer, op: Op) -> str:
    x, index = op.operands
    at = transposed(w, wide(w, op, 1), (*range(1, index.ndim), 0))
    depth = index.shape[0]
    if index in w.checked:
        return w.emit("GatherND", [w.name(x), at])
    last = w.emit("Sub", [w.shape(x.shape[:depth]), w.ints(1)])
    inside = w.emit("Max", [w.emit("Min", [at, last]), w.ints(0)])
    return w.emit("GatherND", [w.name(x), inside])


@lowering("scatter_add")
def _scatter_add(w: Writer, op: Op) -> str:
    if w.opset < 16:
        raise Unsupported("needs opset 16")
    x, index, u = op.operands
    at = transposed(w, wide(w, op, 1), (*range(1, index.ndim), 0))
    return w.emit("ScatterND", [w.name(x), at, w.name(u)], reduction="add")


@lowering("sort")
def _sort(w: Writer, op: Op) -> Any:
    (x,) = op.operands
    axis = op.attrs["axis"]
    return w.emit(
        "TopK", [w.name(x), w.extent(op.results[0].shape[axis])], 2, axis=axis, largest=int(op.attrs["descending"])
    )


# Reductions and products

_REDUCTIONS = {"sum": "ReduceSum", "mean": "ReduceMean", "prod": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}


@lowering("reduce")
def _reduce(w: Writer, op: Op) -> str:
    x = w.name(op.operands[0])
    kind, axes = op.attrs["op"], op.attrs["axes"]
    if not axes:
        return x
    if kind in ("any", "all"):
        found = w.reduce("ReduceMax" if kind == "any" else "ReduceMin", w.cast(x, np.int32), axes)
        return w.cast(found, np.bool_)
    return w.reduce(_REDUCTIONS[kind], x, axes)


@lowering("arg_reduce")
def _arg_reduce(w: Writer, op: Op) -> str:
    name = "ArgMax" if op.attrs["op"] == "argmax" else "ArgMin"
    return w.emit(name, [w.name(op.operands[0])], axis=op.attrs["axis"], keepdims=0)


@lowering("cumsum")
def _cumsum(w: Writer, op: Op) -> str:
    return w.emit("CumSum", [w.name(op.operands[0]), w.constant(np.array(op.attrs["axis"], np.int64))])


@lowering("dot_general")
def _dot_general(w: Writer, op: Op) -> str:
    """A MatMul where batch axes lead and each operand has one more axis that is not summed over; otherwise Einsum."""
    a, b = op.operands
    (sum_a, sum_b), (batch_a, batch_b) = op.attrs["contract"], op.attrs["batch"]
    lead = tuple(range(len(batch_a)))
    if len(sum_a) == 1 and tuple(batch_a) == lead and tuple(batch_b) == lead:
        free_b = [k for k in range(b.ndim) if k not in batch_b and k not in sum_b]
        free_a = [k for k in range(a.ndim) if k not in batch_a and k not in sum_a]
        if len(free_b) == 1 and (len(free_a) == 1 or not lead):
            left = transposed(w, _factor(w, op, a), (*lead, *free_a, *sum_a))
            right = transposed(w, _factor(w, op, b), (*lead, *sum_b, *free_b))
            return w.emit("MatMul", [left, right])
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    of_a = [next(letters) for _ in range(a.ndim)]
    of_b = [next(letters) for _ in range(b.ndim)]
    for i, j in (*zip(sum_a, sum_b), *zip(batch_a, batch_b)):
        of_b[j] = of_a[i]
    out = [of_a[k] for k in batch_a]
    out += [of_a[k] for k in range(a.ndim) if k not in (*batch_a, *sum_a)]
    out += [of_b[k] for k in range(b.ndim) if k not in (*batch_b, *sum_b)]
    equation = f"{''.join(of_a)},{''.join(of_b)}->{''.join(out)}"
    return w.emit("Einsum", [_factor(w, op, a), _factor(w, op, b)], equation=equation)


def _factor(w: Writer, op: Op, v: Value) -> str:
    """An operand of a product, in the type of the result."""
    wide = op.attrs["dtype"]
    return w.name(v) if wide is None or (v.dtype, wide) == (I16, I32) else w.cast(w.name(v), wide.numpy)


@lowering("conv")
def _conv(w: Writer, op: Op) -> str:
    attrs = op.attrs
    spatial = len(attrs["stride"])
    if any(d != 1 for d in attrs["input_dilation"]) or min(*attrs["low"], *attrs["high"]) < 0:
        raise Unsupported("of a dilated or cut input")
    axes = Layout.parse(attrs["layout"])
    x, weight = (transposed(w, _factor(w, op, v), order) for v, order in zip(op.operands, (axes.input, axes.weight)))
    shape = tuple(op.operands[1].shape[k] for k in axes.weight[2:])
    made = conv(w, [x, weight], shape, attrs["stride"], attrs["low"], attrs["high"], attrs["dilation"], attrs["groups"])
    back = [axes.result.index(k) for k in range(spatial + 2)]
    return transposed(w, made, back)


def conv(
    w: Writer, inputs: Any, kernel: Any, stride: Any, low: Any, high: Any, dilation: Any, groups: int, op: str = "Conv"
) -> str:
    return w.emit(
        op,
        inputs,
        kernel_shape=list(kernel),
        strides=list(stride),
        pads=[*low, *high],
        dilations=list(dilation),
        group=groups,
    )


def padding_is_too_large(window: Sequence[int], low: Sequence[int], high: Sequence[int]) -> bool:
    """Whether a window may lie in padding alone, which engines refuse."""
    return any(max(a, b) >= n for n, a, b in zip(window, low, high) if max(a, b))


@lowering("reduce_window")
def _reduce_window(w: Writer, op: Op) -> str:
    """A pooling of all axes but the first two, whose windows are of one element."""
    attrs = op.attrs
    (x,) = op.operands
    window, stride, low, high = (attrs[k] for k in ("window", "stride", "low", "high"))
    dilation = attrs["dilation"] or (1,) * x.ndim
    plain = all((window[k], stride[k], low[k], high[k]) == (1, 1, 0, 0) for k in range(2))
    if x.ndim < 3 or not plain or attrs["op"] == "min" or (attrs["op"] == "sum" and any(d != 1 for d in dilation)):
        raise Unsupported(f"{attrs['op']} of {window}")
    name = w.name(x)
    if padding_is_too_large(window, low, high):
        nothing = w.like(identity(attrs["op"], x.dtype), x)
        name = w.emit("Pad", [name, w.shape((*low, *high)), nothing], mode="constant")
        low = high = (0,) * x.ndim
    shared: dict[str, Any] = {
        "kernel_shape": list(window[2:]),
        "strides": list(stride[2:]),
        "pads": [*low[2:], *high[2:]],
    }
    if attrs["op"] == "max":
        return w.emit("MaxPool", [name], **shared, dilations=list(dilation[2:]))
    mean = w.emit("AveragePool", [name], **shared, count_include_pad=1)
    return w.emit("Mul", [mean, w.like(math.prod(window), x)])


# Control flow


@lowering("branch")
def _branch(w: Writer, op: Op) -> Any:
    condition, *captured = op.operands
    bodies = [w.subgraph(region, captured, name) for region, name in zip(op.regions, ("then", "else"))]
    return w.emit("If", [w.name(condition)], len(op.results), then_branch=bodies[0], else_branch=bodies[1])


@lowering("loop")
def _loop(w: Writer, op: Op) -> Any:
    if op.attrs["last_first"]:
        raise Unsupported("from the last row to the first")
    return w.loop(op)
