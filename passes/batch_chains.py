"""Which ops can be computed a part of the batch at a time, and in which order: the chains of `split-batch`.

*Stages* order the chains: a sum over the batch, and whatever is no part of a chain, ends one. What takes few
instructions of arrays that exist before is computed again in each chain that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gluonjit.ir.cost import transfer_and_computing
from gluonjit.ir.dims import is_static
from gluonjit.ir.graph import Graph, Op, Value
from gluonjit.ir.machine import Machine
from gluonjit.ir.primitives.movement import broadcast_dims
from gluonjit.ir.types import F32

_SHARE = 5
"""How many times as long as moving the arrays would take the products of a chain may take."""


def is_sum(op: Op) -> bool:
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
        found = (is_sum(op), (0,)) if is_sum(op) or 0 not in attrs["axes"] else None
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


def is_cheap(op: Op) -> bool:
    """Whether computing the op takes no longer than reading its result."""
    return op.name in ("broadcast", "concat") or op.definition.elementwise and op.definition.instructions <= 1


# ---- chains


@dataclass(eq=False)
class Chain:
    """Ops that become a loop, in program order."""

    images: int
    ops: list[Op]
    part: int = 0
    """How many images an iteration takes."""

    def divide(self, most: int) -> None:
        """Chooses `part`, so that no array of a part has more than `most` bytes."""
        image = max(v.type.nbytes for op in self.ops for v in (*op.operands, *op.results)) // self.images
        self.part = max((p for p in range(1, self.images) if self.images % p == 0 and p * image <= most), default=1)


class Stages:
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
            if split is None or op.name in _MOVES and not inside and not is_cheap(op):
                # It needs all of an array that a chain of this stage makes.
                waits = any(self._makes_whole(op, k, stage) for k in range(len(op.operands)))
                ready.update(dict.fromkeys(op.results, stage + waits))
                continue
            stage += any(self._makes_whole(op, k, stage) for k in range(len(op.operands)) if k not in split[1])
            self.split[op] = split
            ready[op.result] = stage + split[0]
            if is_cheap(op) and not inside:
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

    def chains(self) -> list[Chain]:
        """The ops of each stage that read the same arrays, or what others of it make."""
        chain_of: dict[Op, Chain] = {}
        near: dict[tuple[int, Value], Op] = {}
        """An op of the stage that makes or reads the array."""
        for op in self.graph.ops:
            if op not in self.stages:
                continue
            chain = chain_of[op] = Chain(self.images, [op])
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

    def is_worth(self, chain: Chain, target: Machine) -> bool:
        """Whether the chain has products, which do not take too long (`_SHARE`) for what is saved: writing and reading
        the arrays that it makes and that products and sums of it read."""
        products = [op for op in chain.ops if op.name in _PRODUCTS]
        made = {op.result for op in self.light.union(chain.ops)}
        kernels = [op for op in chain.ops if op.name in (*_PRODUCTS, "reduce")]
        arrays = {op.operands[k] for op in kernels for k in self.split[op][1]} & made
        moving = 2 * sum(v.type.nbytes for v in arrays) / target.loop_far
        computing = sum(transfer_and_computing(op, target)[1] for op in products)
        return bool(products) and moving > 0 and computing <= _SHARE * moving
