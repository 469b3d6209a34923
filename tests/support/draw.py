"""Random uses of each primitive: operand types, attributes, and what operand values may be.

`draw(name, rng)` makes a `Case`; `draw(name, rng, first)` one whose first operand has the type `first`, or raises
`Unfit`. Shapes are small; about one axis in ten is 0.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gluonjit.ir.types import BOOL, DTYPES, F32, F64, I32, I64, DType, TensorType


class Unfit(Exception):
    """The primitive cannot take an operand of this type."""


@dataclass(frozen=True)
class Case:
    """A use of a primitive. `limits[k]` bounds the values of operand k (inclusive); others may be anything."""

    name: str
    operands: tuple[TensorType, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    limits: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        attrs = ", ".join(f"{k}={v}" for k, v in self.attrs.items() if not isinstance(v, np.ndarray))
        return f"{self.name}({', '.join(map(str, self.operands))}; {attrs})"

    def values(self, rng: random.Random, special: bool = False) -> list[np.ndarray]:
        """Values for the operands; with `special`, NaN, infinities, denormals and extreme integers among them."""
        return [
            values(type, rng, self.limits.get(k), special and k not in self.limits)
            for k, type in enumerate(self.operands)
        ]


FLOATS = tuple(d for d in DTYPES.values() if d.is_float)
INTS = tuple(d for d in DTYPES.values() if d.is_integer)
NUMBERS = FLOATS + INTS
ALL = (*NUMBERS, BOOL)


DENORMALS = (1e-40, -3e-45, 1e-310, -5e-324)
"""Of float32 and float64; 0 in the other type, or a tiny number."""


def values(
    type: TensorType, rng: random.Random, limit: tuple[int, int] | None = None, special: bool = False
) -> np.ndarray:
    """Random values: floats are multiples of 1/8 around 0, so that sums are exact and ties happen, or fill (-3, 3)."""
    gen = np.random.default_rng(rng.getrandbits(32))
    dtype = type.dtype
    out: Any
    if dtype is BOOL:
        out = gen.integers(0, 2, type.shape)
    elif dtype.is_integer:
        low, high = limit or (0 if dtype.kind == "u" else -9, 9)
        out = gen.integers(low, high + 1, type.shape)
        if special:
            info = np.iinfo(dtype.numpy)
            extremes = np.array([info.min, info.max, 0, 1], dtype.numpy)
            out = np.where(gen.random(type.shape) < 0.2, gen.choice(extremes, type.shape), out)
    else:
        low, high = limit or (-3, 3)
        grid = rng.random() < 0.5
        out = gen.integers(8 * low, 8 * high + 1, type.shape) / 8 if grid else gen.uniform(low, high, type.shape)
        if special:
            extremes = np.array([np.nan, np.inf, -np.inf, -0.0, 1.0, -1.0, 0.5, 2.5, 200.0, 3e9, -1e38, *DENORMALS])
            out = np.where(gen.random(type.shape) < 0.3, gen.choice(extremes, type.shape), out)
    with np.errstate(all="ignore"):
        return np.asarray(out).astype(dtype.numpy)


def dim(rng: random.Random, low: int = 1, high: int = 5) -> int:
    return 0 if rng.random() < 0.08 else rng.randint(low, high)


def shape(rng: random.Random, low: int = 0, high: int = 4) -> tuple[int, ...]:
    rank = rng.randint(low, high)
    return tuple(dim(rng, 1, 6 if rank < 3 else 4) for _ in range(rank))


def _first(
    rng: random.Random, first: TensorType | None, dtypes: Sequence[DType], low: int = 0, high: int = 4
) -> TensorType:
    if first is None:
        return TensorType(rng.choice(dtypes), shape(rng, low, high))
    if first.dtype not in dtypes or not low <= first.rank <= high:
        raise Unfit
    return first


def _stretched(rng: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to `shape`: fewer leading axes, some axes 1."""
    if rng.random() < 0.6:
        return shape
    return tuple(1 if rng.random() < 0.4 else n for n in shape[rng.randint(0, len(shape)) :])


DOMAINS: dict[str, tuple[float, float]] = {
    "log": (0.2, 4),
    "log2": (0.2, 4),
    "log10": (0.2, 4),
    "log1p": (-0.7, 4),
    "sqrt": (0.1, 4),
    "rsqrt": (0.1, 4),
    "asin": (-0.9, 0.9),
    "acos": (-0.9, 0.9),
    "acosh": (1.2, 4),
    "atanh": (-0.9, 0.9),
    "erfinv": (-0.9, 0.9),
    "lgamma": (2.5, 8),
    "digamma": (2, 8),
    "tan": (-1.2, 1.2),
    "exp": (-4, 4),
    "expm1": (-4, 4),
    "sinh": (-4, 4),
    "cosh": (-4, 4),
}
"""The interval in which a function is real, finite and not steep; functions not listed are so everywhere."""

UNARY: dict[str, Sequence[DType]] = {
    **dict.fromkeys(("neg", "abs", "sign", "floor", "ceil", "round", "rint", "trunc"), NUMBERS),
    **dict.fromkeys("exp expm1 log log1p log2 log10 sqrt rsqrt cbrt sin cos tan asin acos atan".split(), FLOATS),
    **dict.fromkeys("sinh cosh tanh asinh acosh atanh erf erfinv lgamma digamma sigmoid".split(), FLOATS),
    **dict.fromkeys(("isnan", "isinf", "isfinite"), FLOATS),
    "not": (*INTS, BOOL),
}
BINARY: dict[str, Sequence[DType]] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "mod", "pow", "maximum", "minimum"), NUMBERS),
    **dict.fromkeys(("atan2", "hypot"), FLOATS),
    **dict.fromkeys(("and", "or", "xor"), (*INTS, BOOL)),
    **dict.fromkeys(("shift_left", "shift_right"), INTS),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), ALL),
}


def _unary(name: str) -> Drawer:
    return lambda rng, first: Case(name, (_first(rng, first, UNARY[name]),))


def _binary(name: str) -> Drawer:
    def run(rng: random.Random, first: TensorType | None) -> Case:
        a = _first(rng, first, BINARY[name])
        b = a.with_shape(_stretched(rng, a.shape))
        limits = {1: (-2, a.dtype.bits + 2)} if name.startswith("shift") and a.dtype.kind == "i" else {}
        if first is None and rng.random() < 0.5:
            a, b = b, a
        return Case(name, (a, b), limits=limits)

    return run


def _select(rng: random.Random, first: TensorType | None) -> Case:
    cond = _first(rng, first, (BOOL,))
    dtype = rng.choice(ALL)
    return Case("select", (cond, *(TensorType(dtype, _stretched(rng, cond.shape)) for _ in range(2))))


def _cast(rng: random.Random, first: TensorType | None) -> Case:
    return Case("cast", (_first(rng, first, ALL),), {"dtype": rng.choice(ALL)})


def _constant(rng: random.Random, first: TensorType | None) -> Case:
    if first is not None:
        raise Unfit
    return Case("constant", (), {"value": values(TensorType(rng.choice(ALL), shape(rng)), rng)})


def _iota(rng: random.Random, first: TensorType | None) -> Case:
    if first is not None:
        raise Unfit
    to = shape(rng, 1)
    return Case("iota", (), {"shape": to, "axis": rng.randrange(len(to)), "dtype": rng.choice(NUMBERS)})


def _broadcast(rng: random.Random, first: TensorType | None) -> Case:
    x = _first(rng, first, ALL)
    rank = rng.randint(x.rank, max(4, x.rank))
    trailing = rng.random() < 0.5
    dims = tuple(range(rank - x.rank, rank)) if trailing else tuple(sorted(rng.sample(range(rank), x.rank)))
    to = [dim(rng, 1, 3) for _ in range(rank)]
    for n, d in zip(x.shape, dims):
        to[d] = to[d] if n == 1 else n
    return Case("broadcast", (x,), {"shape": tuple(to), "dims": None if trailing else dims})


def _reshape(rng: random.Random, first: TensorType | None) -> Case:
    x = _first(rng, first, ALL)
    if x.size == 0:
        to = [dim(rng) for _ in range(rng.randint(0, 2))] + [0] + [dim(rng) for _ in range(rng.randint(0, 1))]
        return Case("reshape", (x,), {"shape": tuple(to)})
    to = []
    left = x.size
    while left > 1:
        n = rng.choice([k for k in range(2, left + 1) if left % k == 0])
        to.append(n)
        left //= n
    for _ in range(rng.choice((0, 0, 1, 2))):
        to.insert(rng.randint(0, len(to)), 1)
    return Case("reshape", (x,), {"shape": tuple(to)})


def _transpose(rng: random.Random, first: TensorType | None) -> Case:
    x = _first(rng, first, ALL)
    return Case("transpose", (x,), {"perm": tuple(rng.sample(range(x.rank), x.rank))})


def _window(rng: random.Random, shape: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Start, size and step of a slice of `shape`."""
    start, size, step = [], [], []
    for n in shape:
        by = rng.choice((1, 1, 2, 3))
        first = rng.randint(0, n)
        most = (n - first + by - 1) // by
        start.append(first)
        size.append(rng.randint(min(1, most), most))
        step.append(by)
    return tuple(start), tuple(size), tuple(step)


def _slice(rng: random.Random, first: TensorType | None) -> Case:
    x = _first(rng, first, ALL)
    start, size, step = _window(rng, x.shape)
    return Case("slice", (x,), {"start": start, "size": size, "step": None if set(step) <= {1} else step})


def _reverse(rng: random.Random, first: TensorType | None) -> Case:
    x = _first(rng, first, ALL)
    return Case("reverse", (x,), {"axes": tuple(k for k in range(x.rank) if rng.random() < 0.5)})


def _pad(rng: random.Random, first: TensorType | None) -> Case:
    x = _first(rng, first, ALL)
    low, high = (tuple(rng.randint(0, 2) for _ in x.shape) for _ in range(2))
    interior = tuple(rng.choice((0, 0, 1, 2)) for _ in x.shape)
    return Case(
        "pad",
        (x, x.with_shape(())),
        {"low": low, "high": high, "interior": None if rng.random() < 0.5 else interior},
    )


def _concat(rng: random.Random, first: TensorType | None) -> Case:
    x = _first(rng, first, ALL, low=1)
    axis = rng.randrange(x.rank)
    others = (x.with_shape((*x.shape[:axis], dim(rng, 1, 3), *x.shape[axis + 1 :])) for _ in range(rng.randint(0, 2)))
    return Case("concat", (x, *others), {"axis": axis})


def _update_slice(rng: random.Random, first: TensorType | None) -> Case:
    x = _first(rng, first, ALL)
    start, size, step = _window(rng, x.shape)
    return Case("update_slice", (x, x.with_shape(size)), {"start": start, "step": step})


def _gather(rng: random.Random, first: TensorType | None) -> Case:
    x = _first(rng, first, ALL, low=1)
    axis = rng.randrange(x.rank)
    n = x.shape[axis]
    idx = TensorType(rng.choice(INTS), shape(rng, 0, 2) if n else (0,))
    limit = (0 if idx.dtype.kind == "u" else -n - 2, n + 2)
    return Case("gather", (x, idx), {"axis": axis, "mode": rng.choice(("clip", "wrap"))}, {1: limit})


def _points(rng: random.Random, x: TensorType) -> tuple[TensorType, tuple[int, int]]:
    """Type and bounds of indices of the first axes of `x`."""
    depth = rng.randint(1, x.rank)
    inner = shape(rng, 0, 2) if 0 not in x.shape[:depth] else (0,)
    dtype = rng.choice(INTS)
    return TensorType(dtype, (depth, *inner)), (0 if dtype.kind == "u" else -1, 4)


def _gather_nd(rng: random.Random, first: TensorType | None) -> Case:
    x = _first(rng, first, ALL, low=1)
    idx, limit = _points(rng, x)
    return Case("gather_nd", (x, idx), limits={1: limit})


def _scatter_add(rng: random.Random, first: TensorType | None) -> Case:
    x = _first(rng, first, NUMBERS, low=1)
    idx, limit = _points(rng, x)
    u = x.with_shape(idx.shape[1:] + x.shape[idx.shape[0] :])
    return Case("scatter_add", (x, idx, u), limits={1: limit})


def _sort(rng: random.Random, first: TensorType | None) -> Case:
    x = _first(rng, first, NUMBERS, low=1)
    axis = rng.randrange(x.rank)
    count = rng.randrange(x.shape[axis] + 1)
    return Case("sort", (x,), {"axis": axis, "descending": rng.random() < 0.5, "count": count})


def _cumsum(rng: random.Random, first: TensorType | None) -> Case:
    x = _first(rng, first, NUMBERS, low=1)
    return Case("cumsum", (x,), {"axis": rng.randrange(x.rank)})


def _reduce(rng: random.Random, first: TensorType | None) -> Case:
    x = _first(rng, first, ALL)
    op = rng.choice(
        ("any", "all")
        if x.dtype is BOOL
        else ("sum", "mean", "prod", "max", "min")
        if x.dtype.is_float
        else ("sum", "prod", "max", "min")
    )
    return Case("reduce", (x,), {"op": op, "axes": tuple(k for k in range(x.rank) if rng.random() < 0.5)})


def _arg_reduce(rng: random.Random, first: TensorType | None) -> Case:
    x = _first(rng, first, NUMBERS, low=1)
    axes = [k for k, n in enumerate(x.shape) if n]
    if not axes:
        if first is not None:
            raise Unfit
        return _arg_reduce(rng, first)
    return Case("arg_reduce", (x,), {"op": rng.choice(("argmax", "argmin")), "axis": rng.choice(axes)})


def _dot_general(rng: random.Random, first: TensorType | None) -> Case:
    a = _first(rng, first, NUMBERS)
    axes = rng.sample(range(a.rank), rng.randint(0, a.rank))
    contract_a = tuple(axes[: (len(axes) + 1) // 2])
    batch_a = tuple(axes[(len(axes) + 1) // 2 :])
    # b's axes: the paired ones and up to two of its own, in any order.
    sources = [*contract_a, *batch_a, *("free" for _ in range(rng.randint(0, 2)))]
    rng.shuffle(sources)
    b = a.with_shape(tuple(dim(rng, 1, 4) if k == "free" else a.shape[k] for k in sources))
    contract = (contract_a, tuple(sources.index(k) for k in contract_a))
    batch = (batch_a, tuple(sources.index(k) for k in batch_a))
    return Case("dot_general", (a, b), {"contract": contract, "batch": batch})


def _permuted(rng: random.Random, text: str) -> str:
    return "".join(rng.sample(text, len(text)))


def _conv(rng: random.Random, first: TensorType | None) -> Case:
    if first is None:
        spatial = rng.choice((0, 1, 1, 2, 2, 2, 3))
        dtype = rng.choice(NUMBERS)
        x_shape = None
    else:
        if first.dtype not in NUMBERS or first.rank < 2:
            raise Unfit
        spatial, dtype, x_shape = first.rank - 2, first.dtype, first.shape
    digits = "".join(map(str, range(spatial)))
    if rng.random() < 0.5:
        layout = ("NC" + digits, "OI" + digits, "NC" + digits)
    else:
        layout = (_permuted(rng, "NC" + digits), _permuted(rng, "OI" + digits), _permuted(rng, "NC" + digits))
    if x_shape is None:
        kind = rng.choice(("dense", "grouped", "depthwise"))
        groups = 1 if kind == "dense" else rng.randint(2, 3)
        depth = 1 if kind == "depthwise" else dim(rng, 1, 2)
        sizes = {"N": dim(rng, 1, 2), "C": groups * depth, **{d: dim(rng, 1, 6) for d in digits}}
        x_shape = tuple(sizes[letter] for letter in layout[0])
    sizes = dict(zip(layout[0], x_shape))
    if first is not None:
        groups = rng.choice([g for g in range(1, max(sizes["C"], 1) + 1) if sizes["C"] % g == 0])
        depth = sizes["C"] // groups
    filters = groups * rng.randint(1, 2)
    pointwise = rng.random() < 0.2
    attrs: dict[str, list[int]] = {k: [] for k in ("stride", "low", "high", "dilation", "input_dilation")}
    weight = {"O": filters, "I": depth}
    for d in digits:
        n = sizes[d]
        taps = 1 if pointwise else rng.randint(1, 3)
        dilation, inner = rng.choice((1, 1, 2)), rng.choice((1, 1, 1, 2))
        extent = (taps - 1) * dilation + 1
        inside = (n - 1) * inner + 1 if n else 0
        low = rng.choice((0, 0, 1, 2, -1))
        high = rng.choice((0, 0, 1, 2, -1))
        high += max(0, extent - inside - low - high)
        weight[d] = taps
        for name, value in zip(attrs, (1 if pointwise else rng.randint(1, 3), low, high, dilation, inner)):
            attrs[name].append(value)
    w_shape = tuple(weight[letter] for letter in layout[1])
    return Case(
        "conv",
        (TensorType(dtype, x_shape), TensorType(dtype, w_shape)),
        {**{k: tuple(v) for k, v in attrs.items()}, "groups": groups, "layout": layout},
    )


def _reduce_window(rng: random.Random, first: TensorType | None) -> Case:
    x = _first(rng, first, NUMBERS)
    attrs: dict[str, list[int]] = {k: [] for k in ("window", "stride", "low", "high", "dilation")}
    for n in x.shape:
        if rng.random() < 0.4:
            # An axis that the window leaves alone; an empty one needs padding for a single window to fit.
            per_axis = (1, 1, 0, 0 if n else 1, 1)
        else:
            taps, dilation = rng.randint(1, 3), rng.choice((1, 1, 2))
            low, high = rng.randint(0, 2), rng.randint(0, 2)
            high += max(0, (taps - 1) * dilation + 1 - n - low - high)
            per_axis = (taps, rng.randint(1, 3), low, high, dilation)
        for name, value in zip(attrs, per_axis):
            attrs[name].append(value)
    done: dict[str, Any] = {k: tuple(v) for k, v in attrs.items()}
    if set(done["dilation"]) <= {1}:
        done["dilation"] = None
    return Case("reduce_window", (x,), {"op": rng.choice(("sum", "max", "min")), **done})


def _depthwise_gradient(rng: random.Random, first: TensorType | None) -> Case:
    if first is not None and (first.dtype not in (F32, F64) or first.rank < 3):
        raise Unfit
    spatial = rng.randint(1, 3) if first is None else first.rank - 2
    shape = first.shape if first else (dim(rng, 1, 3), *(dim(rng, 1, 6) for _ in range(spatial)), dim(rng, 1, 9))
    x = first or TensorType(rng.choice((F32, F64)), shape)
    attrs: dict[str, tuple[int, ...]] = {
        "taps": tuple(rng.randint(1, 3) for _ in range(spatial)),
        "stride": tuple(rng.choice((1, 1, 2, 3)) for _ in range(spatial)),
        "low": tuple(rng.choice((0, 0, 1, 2, -1)) for _ in range(spatial)),
        "dilation": tuple(rng.choice((1, 1, 2)) for _ in range(spatial)),
    }
    g = x.with_shape((shape[0], *(dim(rng, 1, 6) for _ in range(spatial)), shape[-1]))
    return Case("depthwise_gradient", (x, g), attrs)


def _random_bits(rng: random.Random, first: TensorType | None) -> Case:
    if first is not None:
        raise Unfit
    attrs = {"shape": shape(rng), "dtype": rng.choice((I32, I64)), "stream": rng.randint(0, 5)}
    return Case("random_bits", (TensorType(I64, (2,)),), attrs)


Drawer = Callable[[random.Random, "TensorType | None"], Case]

DRAWERS: dict[str, Drawer] = {
    **{name: _unary(name) for name in UNARY},
    **{name: _binary(name) for name in BINARY},
    **{f.__name__[1:]: f for f in (_select, _cast, _constant, _iota, _broadcast, _reshape, _transpose, _slice)},
    **{f.__name__[1:]: f for f in (_reverse, _pad, _concat, _update_slice, _gather, _gather_nd, _scatter_add)},
    **{f.__name__[1:]: f for f in (_sort, _cumsum, _reduce, _arg_reduce, _dot_general, _conv, _reduce_window)},
    "depthwise_gradient": _depthwise_gradient,
    "random_bits": _random_bits,
}
"""Every primitive but `fused`, whose region is a program of its own (see `programs`)."""


def draw(name: str, rng: random.Random, first: TensorType | None = None) -> Case:
    """A random use of primitive `name`, its first operand of type `first` if given (Unfit when it cannot be)."""
    return DRAWERS[name](rng, first)
