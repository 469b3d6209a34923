"""Random networks: convolutions, dense layers, scales and shifts, pooling, residual sums, concatenations.

`random_network(seed)` gives a graph of level `legal` whose weights are the inputs in `params`, and float32 arrays for
its inputs, so scaled that values stay near 1. Now and then weights, scales and shifts are data, which no pass may take
for parameters, and an image is a parameter, which no pass may take for weights.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gluonjit.ir.dims import Extent, at, is_static
from gluonjit.ir.graph import Builder, Graph, Value
from gluonjit.ir.types import F32, F64, TensorType


@dataclass
class Network:
    seed: int
    graph: Graph
    inputs: list[np.ndarray]
    """Those of an open network are for a batch of 2."""
    bounds: list[tuple[float, float]]

    def for_batch(self, n: int) -> list[np.ndarray]:
        """Inputs of an open network for a batch of n."""
        draws = np.random.RandomState(self.seed)
        return [
            x if v.type.is_static else draws.uniform(*bounds, tuple(at(k, {"n": n}) for k in v.shape)).astype(x.dtype)
            for v, x, bounds in zip(self.graph.inputs, self.inputs, self.bounds, strict=True)
        ]


@dataclass
class _Maker:
    rng: random.Random
    batch: Extent | None = None
    """The batch size of images that are no parameters; None: any."""
    b: Builder = field(default_factory=lambda: Builder("network", "legal"))
    arrays: dict[Value, np.ndarray] = field(default_factory=dict)
    bounds: dict[Value, tuple[float, float]] = field(default_factory=dict)
    params: list[Value] = field(default_factory=list)
    images: list[Value] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draws = np.random.RandomState(self.rng.randrange(2**31))
        size = self.rng.randint(4, 9)
        for _ in range(self.rng.randint(1, 2)):
            make = self.param if self.rng.random() < 0.25 else self.array
            batch: Extent = self.rng.randint(1, 3)
            if self.batch is not None and make == self.array:
                batch = self.batch
            self.images.append(make((batch, self.rng.choice((2, 3, 4)), size, size)))

    def array(self, shape: tuple[Extent, ...], low: float = -1, high: float = 1) -> Value:
        value = self.b.input(f"x{len(self.arrays)}", TensorType(F32, shape))
        self.arrays[value] = self.draws.uniform(low, high, tuple(at(n, {"n": 2}) for n in shape)).astype(np.float32)
        self.bounds[value] = low, high
        return value

    def param(self, shape: tuple[int, ...], low: float = -1, high: float = 1) -> Value:
        self.params.append(self.array(shape, low, high))
        return self.params[-1]

    def weights(self, shape: tuple[int, ...], terms: int) -> Value:
        """Weights of a layer that sums `terms` products; rarely, they are data instead of parameters."""
        make = self.array if self.rng.random() < 0.15 else self.param
        return make(shape, -((3 / terms) ** 0.5), (3 / terms) ** 0.5)

    def image(self) -> Value:
        """One of the images, preferably a recent one; an image may be used several times."""
        late = max(self.rng.random(), self.rng.random(), self.rng.random())
        return self.images[int(len(self.images) * late)]

    # Layers -----------------------------------------------------------------------------------------------------------

    def conv(self) -> Value:
        x, rng = self.image(), self.rng
        n, channels, *size = x.shape
        filters, groups = rng.choice((2, 4, 6)), 1
        if rng.random() < 0.2:
            groups, filters = channels, channels * rng.choice((1, 2))
        taps, stride, low, high = [], [], [], []
        square = len(set(size)) == 1 and rng.random() < 0.8
        for k, length in enumerate(size):
            if k and square:
                for each in (taps, stride, low, high):
                    each.append(each[0])
                continue
            taps.append(rng.choice([t for t in (1, 1, 3) if t <= length]))
            stride.append(rng.choice((1, 1, 2, 3)))
            low.append(rng.choice((0, taps[-1] // 2)))
            high.append(rng.choice((0, taps[-1] // 2, 0 if taps[-1] > 1 else -(length > 1))))
        fan_in = channels // groups * taps[0] * taps[1]
        w = self.weights((filters, channels // groups, *taps), fan_in)
        attrs = {"stride": stride, "low": low, "high": high, "groups": groups}
        return self.b.conv(x, w, dilation=(1, 1), input_dilation=(1, 1), **attrs)

    def affine(self) -> Value:
        """A product or sum with a vector per channel, or with one number."""
        x, b, rng = self.image(), self.b, self.rng
        name = rng.choice(("mul", "mul", "add", "add", "div", "sub"))
        low = -1 if name in ("add", "sub") else 0.5
        kind = rng.random()
        if kind < 0.2:
            other = b.broadcast(b.constant(rng.choice((0.25, 3.0, 0.7)), F32), shape=x.shape, dims=())
        else:
            make = self.array if kind < 0.35 else self.param
            vector = make((x.shape[1],), low, 1.5)
            if rng.random() < 0.3:
                vector = b.mul(vector, self.param(vector.shape, 0.5, 1.5))
            other = b.broadcast(vector, shape=x.shape, dims=(1,))
        swapped = name in ("mul", "add") and rng.random() < 0.3
        return b.emit(name, (other, x) if swapped else (x, other))[0]

    def relu(self) -> Value:
        x = self.image()
        return self.b.maximum(x, self.b.broadcast(self.b.constant(0, F32), shape=x.shape, dims=()))

    def residual(self) -> Value | None:
        x = self.image()
        others = [v for v in self.images if v.shape == x.shape and v is not x]
        return self.b.add(x, self.rng.choice(others)) if others else None

    def concat(self) -> Value | None:
        x = self.image()
        others = [v for v in self.images if (v.shape[0], v.shape[2:]) == (x.shape[0], x.shape[2:]) and v is not x]
        if not others or x.shape[1] > 12:
            return None
        return self.b.concat(x, *self.rng.sample(others, min(len(others), self.rng.randint(1, 2))), axis=1)

    def pool(self) -> Value | None:
        x, rng = self.image(), self.rng
        window = rng.choice((1, 2, 2, 3))
        if min(x.shape[2:]) < window:
            return None
        step, edge = rng.choice((1, 2)), rng.choice((0, window // 2))
        op = rng.choice(("max", "sum", "sum"))
        padding = {"low": (0, 0, edge, edge), "high": (0, 0, edge, edge)}
        y = self.b.reduce_window(x, op=op, window=(1, 1, window, window), stride=(1, 1, step, step), **padding)
        if op == "max":
            return y
        count = self.b.broadcast(self.b.constant(window**2, F32), shape=y.shape, dims=())
        return self.b.div(y, count)

    def transition(self) -> Value | None:
        """An average and a 1×1 convolution, either first."""
        x, b, rng = self.image(), self.b, self.rng
        if min(x.shape[2:]) < 2:
            return None
        first = rng.random() < 0.5
        y = self._pointwise(x) if first else x
        step = rng.choice((1, 2))
        y = b.reduce_window(
            y, op="sum", window=(1, 1, 2, 2), stride=(1, 1, step, step), low=(0, 0, 0, 0), high=(0, 0, 1, 1)
        )
        y = b.mul(y, b.broadcast(b.constant(0.25, F32), shape=y.shape, dims=()))
        return y if first else self._pointwise(y)

    def _pointwise(self, x: Value) -> Value:
        w = self.weights((self.rng.choice((2, 6)), x.shape[1], 1, 1), 3)
        plain = {"low": (0, 0), "high": (0, 0), "stride": (1, 1), "dilation": (1, 1), "input_dilation": (1, 1)}
        return self.b.conv(x, w, **plain)

    def pad(self) -> Value:
        x = self.image()
        low, high = ((0, 0, *(self.rng.randint(0, 1) for _ in range(2))) for _ in range(2))
        return self.b.pad(x, self.b.constant(self.rng.choice((0, 0, 1)), F32), low=low, high=high)

    def crop(self) -> Value:
        """A slice, sometimes with a stride."""
        x, rng = self.image(), self.rng
        step = (1, 1, *(rng.choice((1, 2)),) * 2)
        start = (0, 0, *(rng.randint(0, min(1, n - 1)) for n in x.shape[2:]))
        size = tuple(-(-(n - a) // k) for n, a, k in zip(x.shape, start, step))
        return self.b.slice(x, start=start, size=size, step=step)

    def dense(self) -> Value:
        """A scaled dense layer of a flattened image, or of each of its channels; the result is not an image.

        The weights are either operand; the scale varies along any axis of the result."""
        x, b, rng = self.image(), self.b, self.rng
        if rng.random() < 0.3:
            flat, batch = b.reshape(x, shape=(*x.shape[:2], x.size // (x.shape[0] * x.shape[1]))), (1, 0)
        else:
            flat, batch = b.reshape(x, shape=(x.shape[0], x.size // x.shape[0])), ()
        terms = flat.shape[-1]
        w = self.weights((flat.shape[1], 5, terms) if batch else (5, terms), terms)
        sides = [(flat, (flat.ndim - 1,), batch[:1]), (w, (w.ndim - 1,), batch[1:])]
        if rng.random() < 0.4:
            sides.reverse()
        (left, *of_left), (right, *of_right) = sides
        contract, paired = zip(of_left, of_right, strict=True)
        y = b.dot_general(left, right, contract=contract, batch=paired)
        axis = rng.randrange(y.ndim)
        make = self.param if is_static((y.shape[axis],)) else self.array
        return b.mul(y, b.broadcast(make((y.shape[axis],)), shape=y.shape, dims=(axis,)))


LAYERS = (
    ("conv",) * 5
    + ("affine",) * 5
    + ("relu",) * 2
    + ("residual",) * 2
    + ("pool", "concat", "pad", "crop", "transition")
)


def random_network(seed: int, layers: int = 12, batch: Extent | None = None) -> Network:
    """The network of `seed`. With `batch`, that is the batch size of what is no parameter."""
    rng = random.Random(f"network {seed}")
    maker = _Maker(rng, batch)
    for _ in range(layers):
        made = getattr(maker, rng.choice(LAYERS))()
        if made is not None:
            maker.images.append(made)
    b = maker.b
    read = {v for op in b._ops for v in op.operands}
    outputs = [v for v in maker.images if v not in read and v not in maker.arrays]
    outputs += rng.sample(maker.images, int(rng.random() < 0.2))
    outputs += [maker.dense() for _ in range(rng.randint(0, 2))]
    graph = b.build(outputs or [maker.relu()])
    graph = graph.with_attrs(params=tuple(graph.inputs.index(v) for v in maker.params))
    return Network(seed, graph, [maker.arrays[v] for v in graph.inputs], [maker.bounds[v] for v in graph.inputs])


def in_float64(graph: Graph) -> Graph:
    """The same graph with float64 in place of float32."""
    b = Builder(graph.name, graph.level)
    env = {v: b.input(v.name, TensorType(F64 if v.dtype is F32 else v.dtype, v.shape)) for v in graph.inputs}
    for op in graph.ops:
        attrs: dict[str, Any] = dict(op.attrs)
        if op.name == "constant" and op.result.dtype is F32:
            attrs["value"] = attrs["value"].astype(np.float64)
        env.update(zip(op.results, b.emit(op.name, [env[v] for v in op.operands], attrs), strict=True))
    return b.build([env[v] for v in graph.outputs])
