"""`split-batch`: takes chains of ops on large arrays a part of the batch at a time.

Training a network with batch normalization reads and writes each large array of a layer several times: a convolution
writes it, sums over the batch read it, the next kernels read it again. Where no cache holds the array, each of them
waits for memory. But only the sums need all images. Between two of them, everything else is computed image by image:

    for each part of the batch:
        dx = …                      elementwise, from the sums of the layer after it
        dw[part] = gradient of the weights (x, dx)
        dy = gradient of the input (dx, w)
        sums[part] = sum(dy), sum(dy · y)

Such a chain becomes one `loop`, whose body has parts of the arrays, small enough that the third-level cache holds what
the body makes until it has been read. What the next chain reads are rows of the loop, and sums are added up behind it.
Of parts with means m and sums of squares s about these, n elements each,

    mean = mean(m),    sum((x - mean)²) = sum(s) + n · sum((m - mean)²)

(Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983). Each m is kept as two numbers, so
nothing is lost by the parts, even if the mean is far greater than the deviations.

Which ops are chains: `batch_chains.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gluonjit.ir.graph import Builder, Graph, Op, Rewriter, Value, reemit
from gluonjit.ir.machine import Machine
from gluonjit.ir.primitives.control_flow import INDEX
from gluonjit.ir.types import F32, IRError
from gluonjit.passes.batch_chains import Chain, Stages, is_cheap, is_sum
from gluonjit.passes.dce import dce, is_pure
from gluonjit.passes.join_moments import moments, sum_of_squares
from gluonjit.passes.manager import register_pass

_LARGE = 2
"""Arrays are large from such a part of the third-level cache on: a kernel reads and writes two of them or more."""
_PART = 16
"""An array of a loop's body takes such a part of it at most: each is read when a few others have been written."""


@register_pass("split-batch", needs="legal")
def split_batch(graph: Graph, *, target: Machine) -> Graph:
    """Takes chains of ops on arrays that no cache holds, between sums over a batch, a part of the batch at a time."""
    least = target.l3 // _LARGE
    sums = [op for op in graph.ops if is_sum(op) and op.operands[0].type.nbytes >= least]
    if not sums or not all(map(is_pure, graph.ops)):
        return graph
    images = max(sums, key=lambda op: op.operands[0].type.nbytes).operands[0].shape[0]
    squares = {op: total for op in sums if (total := sum_of_squares(graph, op)) is not None}
    while True:
        stages = Stages(graph, images, least, squares)
        chains = [chain for chain in stages.chains() if stages.is_worth(chain, target)]
        split = {op for chain in chains for op in chain.ops}
        if split.issuperset(squares):
            break
        # Other chains may not depend on a variance that is computed in two passes.
        squares = {op: total for op, total in squares.items() if op in split}
    if images == 1 or not chains:
        return graph
    for chain in chains:
        chain.divide(target.l3 // _PART)
    return dce(_Split(graph, chains, stages).run())


def _of_part(op: Op, part: int) -> Mapping[str, Any]:
    """The op's attributes for so many images."""
    return {**op.attrs, "shape": (part, *op.result.shape[1:])} if op.name in ("broadcast", "reshape") else op.attrs


class _Inside(NamedTuple):
    """What a loop holds."""

    scanned: dict[Value, None]
    """Arrays of which it takes parts."""
    captured: dict[Value, None]
    """What it takes whole."""
    ops: list[Op]
    """In program order, with those that it computes again."""


class _Split(Rewriter):
    """Emits each chain where the first of its results is needed, after what it reads."""

    def __init__(self, graph: Graph, chains: Sequence[Chain], stages: Stages) -> None:
        super().__init__(graph)
        self.stages = stages
        self.chain_of = {op: chain for chain in chains for op in chain.ops}
        self.chain_of |= {t: self.chain_of[mean] for mean, t in stages.squares.items()}
        self.position = {op: k for k, op in enumerate(graph.ops)}
        self.inside = {chain: self._inside(chain) for chain in chains}
        self.read = {*graph.results, *(v for inside in self.inside.values() for v in inside.scanned)}
        """What is read outside of the chain that makes it."""
        self.read.update(v for op in graph.ops if op in stages.live and op not in self.chain_of for v in op.operands)

    def run(self) -> Graph:
        done: set[Op | Chain] = set()
        waiting: set[Op | Chain] = set()
        for op in self.graph.ops:
            if op not in self.stages.live:
                continue
            stack = [self._node(op)]
            while stack:
                node = stack[-1]
                made = [self.graph.producers.get(v) for v in self._operands(node) if v not in self.env]
                if node not in done and made:
                    if node in waiting:
                        raise IRError("split-batch: a chain needs all of an array that it makes itself")
                    waiting.add(node)
                    stack += [self._node(op) for op in made if op is not None]
                    continue
                stack.pop()
                if node not in done:
                    done.add(node)
                    self._emit(node)
        return self.finish([self.env[v] for v in self.graph.results])

    def _node(self, op: Op) -> Op | Chain:
        return self.chain_of.get(op, op)

    def _operands(self, node: Op | Chain) -> Iterable[Value]:
        return node.operands if isinstance(node, Op) else (*self.inside[node].scanned, *self.inside[node].captured)

    def _emit(self, node: Op | Chain) -> None:
        if isinstance(node, Chain):
            self._loop(node)
            return
        self.b.loc = node.loc
        self.env.update(zip(node.results, reemit(self.b, node, [self.env[v] for v in node.operands]), strict=True))

    def _inside(self, chain: Chain) -> _Inside:
        """What its loop holds. Where it reads everything else that a cheap op of another chain reads, it may as well
        read what the op was computed of, which exists anyway."""
        found = self._with(chain.ops)
        for v in found.scanned:
            made = self.graph.producers.get(v)
            if made is None or not is_cheap(made) or len(arrays := self.stages.arrays(made)) != 1:
                continue
            other = self._with([*found.ops, made])
            if other.scanned.keys() <= found.scanned.keys() | {arrays[0]}:
                found = other
        return found

    def _with(self, ops: Iterable[Op]) -> _Inside:
        """What a loop with these ops holds."""
        producers, split = self.graph.producers, self.stages.split
        inside = set(ops)
        stack = list(inside)
        while stack:
            op = stack.pop()
            made = [producers.get(op.operands[k]) for k in split[op][1]]
            more = {o for o in made if o is not None and o in self.stages.light} - inside
            stack += more
            inside |= more
        scanned: dict[Value, None] = {}
        captured: dict[Value, None] = {}
        order = sorted(inside, key=self.position.__getitem__)
        for op in order:
            for k, v in enumerate(op.operands):
                if k not in split[op][1]:
                    captured[v] = None
                elif producers.get(v) not in inside:
                    scanned[v] = None
        return _Inside(scanned, captured, order)

    def _loop(self, chain: Chain) -> None:
        b, part, trip = self.b, chain.part, chain.images // chain.part
        scanned, captured, ops = self.inside[chain]
        mine = set(chain.ops)
        body = Builder("part", self.graph.level)
        body.input("i", INDEX)
        env = {v: body.input(v.name, v.type.with_shape((part, *v.shape[1:]))) for v in scanned}
        env |= {v: body.input(v.name, v.type) for v in captured}
        arrays: list[Op] = []
        sums: list[Op] = []
        rows: list[Value] = []
        for op in ops:
            operands, body.loc = [env[v] for v in op.operands], op.loc
            if op in self.stages.squares:
                sums.append(op)
                rows += moments(body, operands[0], op.attrs["axes"])
                continue
            (env[op.result],) = body.emit(op.name, operands, _of_part(op, part), (), op.loc, [op.result.name])
            if op in mine and self.stages.split[op][0]:
                sums.append(op)
                rows.append(env[op.result])
            elif op in mine and op.result in self.read:
                arrays.append(op)
        region = dce(body.build([*rows, *(env[op.result] for op in arrays)]))
        b.loc = chain.ops[-1].loc
        operands = [b.reshape(self.env[v], shape=(trip, part, *v.shape[1:])) for v in scanned]
        operands += [self.env[v] for v in captured]
        results = iter(b.emit("loop", operands, {"scanned": len(scanned), "trip": trip}, [region]))
        for op in sums:
            shape = op.result.shape
            if op not in self.stages.squares:
                kind = op.attrs["op"] if op.name == "reduce" else "sum"
                self.env[op.result] = _over_rows(b, next(results), kind, shape)
                continue
            near, rest, squares = (next(results) for _ in range(3))
            mean = self.env[op.result] = _over_rows(b, b.add(near, rest), "mean", shape)
            apart = b.add(b.sub(near, b.broadcast(mean, shape=near.shape, dims=tuple(range(1, near.ndim)))), rest)
            terms = b.constant(part * math.prod(op.operands[0].shape[k] for k in op.attrs["axes"] if k), F32)
            between = b.mul(b.mul(apart, apart), b.broadcast(terms, shape=apart.shape, dims=()))
            self.env[self.stages.squares[op].result] = _over_rows(b, b.add(squares, between), "sum", shape)
        for op in arrays:
            self.env[op.result] = b.reshape(next(results), shape=op.result.shape)


def _over_rows(b: Builder, rows: Value, kind: str, shape: Sequence[int]) -> Value:
    """The sum or mean of the rows, as an array of this shape. It is taken of rows of numbers, for which one kernel
    serves all sizes."""
    flat = rows if len(shape) == 1 else b.reshape(rows, shape=(rows.shape[0], math.prod(shape)))
    total = b.reduce(flat, op=kind, axes=(0,))
    return total if len(shape) == 1 else b.reshape(total, shape=tuple(shape))
