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

*Stages* order the chains: a sum over the batch, and whatever is no part of a chain, ends one. What takes few
instructions of arrays that exist before is computed again in each chain that reads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gluonjit.ir.cost import transfer_and_computing
from gluonjit.ir.dims import is_static
from gluonjit.ir.graph import Builder, Graph, Op, Rewriter, Value, reemit
from gluonjit.ir.machine import Machine
from gluonjit.ir.primitives.control_flow import INDEX
from gluonjit.ir.primitives.movement import broadcast_dims
from gluonjit.ir.types import F32, IRError
from gluonjit.passes.dce import dce, is_pure
from gluonjit.passes.join_moments import moments, sum_of_squares
from gluonjit.passes.manager import register_pass

_LARGE = 2
"""Arrays are large from such a part of the third-level cache on: a kernel reads and writes two of them or more."""
_PART = 16
"""An array of a loop's body takes such a part of it at most: each is read when a few others have been written."""
_SHARE = 5
"""How many times as long as moving the arrays would take the products of a chain may take."""


@register_pass("split-batch", needs="legal")
def split_batch(graph: Graph, *, target: Machine) -> Graph:
    """Takes chains of ops on arrays that no cache holds, between sums over a batch, a part of the batch at a time."""
    least = target.l3 // _LARGE
    sums = [op for op in graph.ops if _is_sum(op) and op.operands[0].type.nbytes >= least]
    if not sums or not all(map(is_pure, graph.ops)):
        return graph
    images = max(sums, key=lambda op: op.operands[0].type.nbytes).operands[0].shape[0]
    squares = {op: total for op in sums if (total := sum_of_squares(graph, op)) is not None}
    while True:
        stages = _Stages(graph, images, least, squares)
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


# ---- what can be computed of a part of the batch


def _is_sum(op: Op) -> bool:
    """Whether it sums up the floats of a batch of images."""
    if op.name != "reduce" or op.attrs["op"] not in ("sum", "mean") or 0 not in op.attrs["axes"]:
        return False
    x = op.operands[0]
    return x.dtype is F32 and x.ndim > 2 and is_static(x.shape)


def _split_operands(op: Op, images: int) -> tuple[bool, Sequence[int]] | None:
    """(whether the op sums over the batch, which operands have an image for each element of their first axis); None if
    it is not known to compute each image by itself."""
    name, attrs, x = op.name, op.attrs, op.operands
    if len(op.results) != 1 or op.regions or not x:
        return None
    found: tuple[bool, Sequence[int]] | None = None
    if op.definition.elementwise:
        found = False, range(len(x))
    elif name == "broadcast":
        dims = broadcast_dims(x[0].ndim, attrs["shape"], attrs["dims"])
        found = False, (0,) if 0 in dims and x[0].shape[dims.index(0)] == images else ()
    elif name == "reduce":
        found = (_is_sum(op), (0,)) if _is_sum(op) or 0 not in attrs["axes"] else None
    elif name == "depthwise_gradient":
        found = True, (0, 1)
    elif name == "conv":
        of_input, of_weight, of_result = attrs["layout"]
        if of_input[0] == "N" == of_result[0]:
            found = False, (0,)
        elif of_input[0] == "C" and of_weight[0] == "I" and attrs["groups"] == 1:
            found = True, (0, 1)
    elif name in _MOVES and _MOVES[name](op):
        found = False, range(len(x))
    if (
        found is None
        or found[0]
        and op.result.dtype is not F32
        or any(x[k].ndim == 0 or x[k].shape[0] != images for k in found[1])
    ):
        return None
    if not found[0]:
        return found if op.result.ndim and op.result.shape[0] == images else None
    # What each part gives is written and read, too.
    return found if op.result.type.nbytes * images <= max(x[k].type.nbytes for k in found[1]) else None


_MOVES: dict[str, Callable[[Op], bool]] = {
    "reshape": lambda op: True,
    "transpose": lambda op: op.attrs["perm"][0] == 0,
    "concat": lambda op: op.attrs["axis"] != 0,
    "reduce_window": lambda op: op.attrs["window"][0] == 1 == op.attrs["stride"][0],
}
"""Whether other ops keep the images apart."""


_PRODUCTS = ("conv", "depthwise_gradient")


def _of_part(op: Op, part: int) -> Mapping[str, Any]:
    """The op's attributes for so many images."""
    return {**op.attrs, "shape": (part, *op.result.shape[1:])} if op.name in ("broadcast", "reshape") else op.attrs


def _is_cheap(op: Op) -> bool:
    """Whether computing the op takes no longer than reading its result."""
    return op.name in ("broadcast", "concat") or op.definition.elementwise and op.definition.instructions <= 1


# ---- chains


@dataclass(eq=False)
class _Chain:
    """Ops that become a loop, in program order."""

    images: int
    ops: list[Op]
    part: int = 0
    """How many images an iteration takes."""

    def divide(self, most: int) -> None:
        """Chooses `part`, so that no array of a part has more than `most` bytes."""
        image = max(v.type.nbytes for op in self.ops for v in (*op.operands, *op.results)) // self.images
        self.part = max((p for p in range(1, self.images) if self.images % p == 0 and p * image <= most), default=1)


class _Stages:
    """Which ops may be in chains, and in which stage each of them is.

    `squares`: by mean over the batch, the sum of squares of what it is subtracted from, which is computed with it."""

    def __init__(self, graph: Graph, images: int, least: int, squares: Mapping[Op, Op]) -> None:
        self.graph, self.images, self.least, self.squares = graph, images, least, squares
        self.means = {total: mean for mean, total in squares.items()}
        self.split: dict[Op, tuple[bool, Sequence[int]]] = {}
        """`_split_operands` of the ops that may be in chains."""
        self.light: set[Op] = set()
        """Those that are elementwise work on arrays that are there before the chains that read them."""
        self.stages: dict[Op, int] = {}
        """The stages of the others."""
        self.live = self._live()
        self._find()
        self._sink()

    def _live(self) -> set[Op]:
        """The ops that are needed if sums of squares no longer read the squares."""
        needed, live = set(self.graph.results), set[Op]()
        for op in reversed(self.graph.ops):
            if not needed.isdisjoint(op.results):
                live.add(op)
                needed.update(self.means[op].results if op in self.means else op.operands)
        return live

    def _find(self) -> None:
        ready: dict[Value, int] = {}
        """The stage in which a value can be read first."""
        producers = self.graph.producers
        for op in self.graph.ops:
            if op in self.means:
                ready[op.result] = ready[self.means[op].result]
                continue
            stage = max((ready.get(v, 0) for v in op.operands), default=0)
            split = self._split_operands(op) if op in self.live else None
            inside = split is not None and any(producers.get(op.operands[k]) in self.stages for k in split[1])
            if split is None or op.name in _MOVES and not inside and not _is_cheap(op):
                # It needs all of an array that a chain of this stage makes.
                waits = any(self._makes_whole(op, k, stage) for k in range(len(op.operands)))
                ready.update(dict.fromkeys(op.results, stage + waits))
                continue
            stage += any(self._makes_whole(op, k, stage) for k in range(len(op.operands)) if k not in split[1])
            self.split[op] = split
            ready[op.result] = stage + split[0]
            if _is_cheap(op) and not inside:
                self.light.add(op)
            else:
                self.stages[op] = stage

    def _makes_whole(self, op: Op, k: int, stage: int) -> bool:
        """Whether chains of the stage make operand k of an op that reads all of it, and so waits for their end."""
        made = self.graph.producers.get(op.operands[k])
        return made is not None and self.stages.get(made) == stage

    def _split_operands(self, op: Op) -> tuple[bool, Sequence[int]] | None:
        """`_split_operands`, if it reads or makes a large array."""
        if not all(is_static(v.shape) for v in (*op.operands, *op.results)):
            return None
        split = _split_operands(op, self.images)
        if split is None:
            return None
        sizes = [op.operands[k].size for k in split[1]] + [op.result.size] * (not split[0])
        return split if max(sizes) * F32.itemsize >= self.least else None

    def arrays(self, op: Op) -> list[Value]:
        """The operands of an op of a chain that ops of chains make."""
        if op not in self.stages:
            return []
        operands = [op.operands[k] for k in self.split[op][1]]
        return [v for v in dict.fromkeys(operands) if self.graph.producers.get(v) in self.stages]

    def _sink(self) -> None:
        """Moves elementwise ops of one array to the stage of their first readers, which then read the array."""
        for op in reversed(self.graph.ops):
            stage = self.stages.get(op)
            if stage is None or not op.definition.elementwise or op.result in self.graph.results:
                continue
            readers = [user for user in self.graph.uses[op.result] if user in self.live]
            first = min((self._read_first(op.result, user) for user in readers), default=-1)
            if first > stage and len(self.arrays(op)) == 1:
                self.stages[op] = first

    def _read_first(self, v: Value, user: Op) -> int:
        """The last stage in which a chain may make `v` for this reader; -1 for a reader outside of chains."""
        stage = self.stages.get(user)
        if stage is None:
            return -1
        return stage - any(x is v for k, x in enumerate(user.operands) if k not in self.split[user][1])

    def chains(self) -> list[_Chain]:
        """The ops of each stage that read the same arrays, or what others of it make."""
        chain_of: dict[Op, _Chain] = {}
        near: dict[tuple[int, Value], Op] = {}
        """An op of the stage that makes or reads the array."""
        for op in self.graph.ops:
            if op not in self.stages:
                continue
            chain = chain_of[op] = _Chain(self.images, [op])
            for v in (*(op.operands[k] for k in self.split[op][1]), op.result):
                other = chain_of[near.setdefault((self.stages[op], v), op)]
                if other is not chain:
                    small, chain = sorted((chain, other), key=lambda c: len(c.ops))
                    chain.ops += small.ops
                    chain_of.update(dict.fromkeys(small.ops, chain))
        for op in self.graph.ops:
            if op in chain_of:
                chain_of[op].ops.remove(op)
                chain_of[op].ops.append(op)
        return list(dict.fromkeys(chain_of.values()))

    def is_worth(self, chain: _Chain, target: Machine) -> bool:
        """Whether the chain has products, which do not take too long (`_SHARE`) for what is saved: writing and reading
        the arrays that it makes and that products and sums of it read."""
        products = [op for op in chain.ops if op.name in _PRODUCTS]
        made = {op.result for op in self.light.union(chain.ops)}
        kernels = [op for op in chain.ops if op.name in (*_PRODUCTS, "reduce")]
        arrays = {op.operands[k] for op in kernels for k in self.split[op][1]} & made
        moving = 2 * sum(v.type.nbytes for v in arrays) / target.loop_far
        computing = sum(transfer_and_computing(op, target)[1] for op in products)
        return bool(products) and moving > 0 and computing <= _SHARE * moving


# ---- loops


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

    def __init__(self, graph: Graph, chains: Sequence[_Chain], stages: _Stages) -> None:
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
        done: set[Op | _Chain] = set()
        waiting: set[Op | _Chain] = set()
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

    def _node(self, op: Op) -> Op | _Chain:
        return self.chain_of.get(op, op)

    def _operands(self, node: Op | _Chain) -> Iterable[Value]:
        return node.operands if isinstance(node, Op) else (*self.inside[node].scanned, *self.inside[node].captured)

    def _emit(self, node: Op | _Chain) -> None:
        if isinstance(node, _Chain):
            self._loop(node)
            return
        self.b.loc = node.loc
        self.env.update(zip(node.results, reemit(self.b, node, [self.env[v] for v in node.operands]), strict=True))

    def _inside(self, chain: _Chain) -> _Inside:
        """What its loop holds. Where it reads everything else that a cheap op of another chain reads, it may as well
        read what the op was computed of, which exists anyway."""
        found = self._with(chain.ops)
        for v in found.scanned:
            made = self.graph.producers.get(v)
            if made is None or not _is_cheap(made) or len(arrays := self.stages.arrays(made)) != 1:
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

    def _loop(self, chain: _Chain) -> None:
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
