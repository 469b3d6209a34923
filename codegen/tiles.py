"""Register tiles: the inner loops that matrix products and convolutions share.

A tile of the result, `rows` × `vectors` registers, is summed up term by term. For each term the weights of the tile's
columns are loaded as vectors, one value per row is broadcast, and every accumulator gets one multiply-add. Shapes are
static, so a row is a constant displacement from one pointer, and the loop has no address arithmetic to speak of.
"""

from __future__ import annotations

from collections.abc import Sequence

from gluonjit.codegen.llvm import Function, memory_type, vector
from gluonjit.ir.types import DType

_CHAINS = 8
"""Multiply-adds that must be under way at a time: two units with a latency of four cycles."""
_UNROLLED = 56
"""Multiply-adds in the body of an unrolled loop, about."""

_STRIDE = 1024
"""Bytes of weights that a loop's body reads at most. Prefetchers follow an instruction whose address grows by this much
per iteration; beyond, a matrix times a vector was measured at half the bandwidth of the L2 cache."""
_FEW_ROWS = 4
"""With fewer, loading weights from the second cache takes longer than the multiply-adds."""
_AHEAD = 4096
"""Bytes between a weight and what is prefetched when it is used."""

Rows = list[list[str]]
"""Accumulators: a list of vectors for each row."""


class Tile:
    """Writes the code of one register tile: `vectors` registers of columns, of which the last has `last` lanes.

    Columns past `last` are never read from operands of the result's width, nor written.
    """

    def __init__(self, f: Function, dtype: DType, vectors: int, last: int | None = None) -> None:
        self.f = f
        self.scalar = memory_type(dtype)
        self.bytes = dtype.itemsize
        self.lanes = f.target.lanes(dtype)
        self.vectors = vectors
        self.last = self.lanes if last is None else last
        self.vector = vector(self.lanes, self.scalar)
        suffix = f"v{self.lanes}f{dtype.bits}"
        self._fma = f"@llvm.fma.{suffix}"
        if f.target.has_fma:
            f.module.declare(self._fma[1:], self.vector, [self.vector] * 3)

    def is_partial(self, v: int) -> bool:
        """Whether vector `v` of a row has columns that do not exist."""
        return v == self.vectors - 1 and self.last < self.lanes

    def zeros(self, rows: int) -> Rows:
        return [["zeroinitializer"] * self.vectors for _ in range(rows)]

    # ---- instructions

    def splat(self, scalar: str) -> str:
        f = self.f
        one = f.op(f"insertelement {self.vector} poison, {self.scalar} {scalar}, i64 0")
        mask = f"<{self.lanes} x i32> zeroinitializer"
        return f.op(f"shufflevector {self.vector} {one}, {self.vector} poison, {mask}")

    def multiply_add(self, a: str, b: str, c: str) -> str:
        """a·b + c: rounded once where the target can, else twice."""
        f, t = self.f, self.vector
        if f.target.has_fma:
            return f.op(f"call {t} {self._fma}({t} {a}, {t} {b}, {t} {c})")
        return f.op(f"fadd {t} {f.op(f'fmul {t} {a}, {b}')}, {c}")

    def load(self, pointer: str, partial: bool = False, align: int | None = None) -> str:
        """A vector from memory; a partial one does not touch what lies past its last lane, and has zeros there."""
        f, t = self.f, self.vector
        align = align or self.bytes
        if not partial:
            return f.op(f"load {t}, ptr {pointer}, align {align}")
        name = f"llvm.masked.load.v{self.lanes}f{self.bytes * 8}.p0"
        f.module.declare(name, t, ["ptr", "i32", f"<{self.lanes} x i1>", t])
        return f.op(f"call {t} @{name}(ptr {pointer}, i32 {align}, {self.mask}, {t} zeroinitializer)")

    @property
    def mask(self) -> str:
        """The lanes of a partial vector that exist, as a typed constant."""
        bits = ", ".join("i1 true" if k < self.last else "i1 false" for k in range(self.lanes))
        return f"<{self.lanes} x i1> <{bits}>"

    # ---- sums of products

    def chains(self, rows: int) -> int:
        """How many partial sums each accumulator is split into, so that a small tile does not wait for itself."""
        return max(1, -(-_CHAINS // (rows * self.vectors)))

    def contract(
        self,
        acc: Rows,
        x: str,
        offsets: Sequence[int],
        w: str,
        terms: int,
        *,
        w_step: int,
        aligned: bool,
        ahead: bool = False,
        active: Sequence[int] | None = None,
    ) -> Rows:
        """acc[r] += Σ x[offsets[r] + k] · w[k · w_step + column] over k < terms, for the rows in `active` (all).

        `x` and `w` are pointers, offsets and steps count elements. `aligned`: each row of w is a whole number of
        vectors that begins at a multiple of their size; else its last vector is read as far as it exists.
        `ahead`: the nearest cache does not hold the weights, fetch them ahead of their use.
        """
        active = range(len(acc)) if active is None else active
        # A tile of few rows waits for memory anyway, and the machine's own prefetcher is better at streams.
        ahead = ahead and len(active) >= _FEW_ROWS
        chains = self.chains(len(active))
        if terms < 2 * chains:
            chains = 1
        unroll = unroll_factor(terms, len(active) * self.vectors, self.vectors * self.lanes * self.bytes, chains)
        sums = [acc, *(self.zeros(len(acc)) for _ in range(chains - 1))]
        whole = terms - terms % unroll
        f = self.f

        def step(x: str, w: str, k: int, acc: Rows) -> None:
            weights = []
            for v in range(self.vectors):
                p = f.gep(self.scalar, w, k * w_step + v * self.lanes)
                weights.append(
                    self.load(p, not aligned and self.is_partial(v), self.lanes * self.bytes if aligned else None)
                )
                if ahead:
                    prefetch(f, p, _AHEAD)
            for r in active:
                a = self.splat(f.load(self.scalar, f.gep(self.scalar, x, offsets[r] + k), self.bytes))
                for v in range(self.vectors):
                    acc[r][v] = self.multiply_add(a, weights[v], acc[r][v])

        if whole == unroll:
            whole = 0
        if whole:
            flat = [sums[c][r][v] for c in range(chains) for r in active for v in range(self.vectors)]
            with f.for_(0, whole, unroll, [(self.vector, a) for a in flat], "k") as loop:
                inner = _nested(loop.carried, chains, len(acc), active, self.vectors)
                x_k = f.gep(self.scalar, x, loop.index)
                w_k = f.gep(self.scalar, w, f.mul(loop.index, w_step))
                for k in range(unroll):
                    step(x_k, w_k, k, inner[k % chains])
                loop.next(*(inner[c][r][v] for c in range(chains) for r in active for v in range(self.vectors)))
            sums_after = _nested(loop.results, chains, len(acc), active, self.vectors)
        else:
            sums_after = [[list(row) for row in s] for s in sums]
        for k in range(whole, terms):
            step(x, w, k, sums_after[k % chains])
        total = [list(row) for row in acc]
        for r in active:
            for v in range(self.vectors):
                parts = [sums_after[c][r][v] for c in range(chains)]
                while len(parts) > 1:
                    parts = [f.op(f"fadd {self.vector} {a}, {b}") for a, b in zip(parts[::2], parts[1::2])] + (
                        parts[-1:] if len(parts) % 2 else []
                    )
                total[r][v] = parts[0]
        return total


def prefetch(f: Function, pointer: str, ahead: int) -> None:
    """Asks for the cache line `ahead` bytes after `pointer`, which need not exist."""
    p = f.op(f"getelementptr i8, ptr {pointer}, i64 {ahead}")
    args = (("ptr", p), ("i32", 0), ("i32", 3), ("i32", 1))  # to be read, in all caches, data
    f.intrinsic("llvm.prefetch", "void", *args, overload=("ptr",))


def unroll_factor(terms: int, per_term: int, weights: int, chains: int) -> int:
    """Terms in the body of the loop: a multiple of `chains`, a divisor of `terms` if one is near.

    `per_term` counts multiply-adds, `weights` is the bytes of weights that one term reads.
    """
    wanted = max(1, min(16, round(_UNROLLED / per_term), _STRIDE // weights))
    if terms <= wanted + wanted // 2:
        return max(terms, 1)
    steps = [u for u in range(chains, 2 * wanted + chains, chains) if 2 * u >= wanted and u * weights <= _STRIDE]
    return min(steps or [chains], key=lambda u: (terms % u * 4 + abs(u - wanted), u))


def _nested(flat: Sequence[str], chains: int, rows: int, active: Sequence[int], vectors: int) -> list[Rows]:
    """Per chain, row and vector, what was flattened in that order; rows that are not active stay empty."""
    it = iter(flat)
    out: list[Rows] = []
    for _ in range(chains):
        of_row = {r: [next(it) for _ in range(vectors)] for r in active}
        out.append([of_row.get(r, []) for r in range(rows)])
    return out
