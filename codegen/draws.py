"""Random numbers that imperative execution draws: loops over the words of `random_bits`, of any length.

They are written by hand, not lowered from a graph: a program that draws its first parameters needs neither passes nor
code generation, and LLVM compiles a loop over the rounds in a sixth of the time that it takes for a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gluonjit.codegen.text.llvm import Function, Module
from gluonjit.ir.machine import Machine
from gluonjit.ir.primitives.random_bits import MULTIPLIERS, ROUNDS, WEYL

_MASK = 0xFFFFFFFF
_VECTORS = 2
"""Vectors that go through the rounds together: each product waits for the one before."""


class _Draw(NamedTuple):
    """What is drawn: elements of `type`, which `compute` makes of words 0 and 1, whose upper halves may be anything.
    `params` follow those of all draws."""

    type: str
    compute: Callable[[_Lanes, str, str], str]
    params: tuple[tuple[str, str], ...] = ()


class _Lanes:
    """Writes operations on vectors of `count` elements."""

    def __init__(self, f: Function, count: int) -> None:
        self.f, self.count = f, count

    def type(self, element: str = "i64") -> str:
        return f"<{self.count} x {element}>"

    def all(self, value: int | str, type: str = "i64") -> str:
        """A vector with the number in all lanes."""
        return f"<{', '.join([f'{type} {value}'] * self.count)}>"

    def splat(self, value: str, type: str = "i64") -> str:
        """The same for a value."""
        vector = self.type(type)
        one = self.f.op(f"insertelement {vector} poison, {type} {value}, i32 0")
        return self.f.op(f"shufflevector {vector} {one}, {vector} poison, {self.type('i32')} zeroinitializer")

    def op(self, name: str, a: str, b: str, type: str = "i64") -> str:
        return self.f.op(f"{name} {self.type(type)} {a}, {b}")

    def cast(self, name: str, a: str, before: str, after: str) -> str:
        return self.f.op(f"{name} {self.type(before)} {a} to {self.type(after)}")

    def product(self, a: str, factor: int) -> str:
        """Of the lower halves."""
        return self.op("mul", self.op("and", a, self.all(_MASK)), self.all(factor))

    def high(self, a: str) -> str:
        return self.op("lshr", a, self.all(32))


def _words32(s: _Lanes, first: str, second: str) -> str:
    return s.cast("trunc", first, "i64", "i32")


def _words64(s: _Lanes, first: str, second: str) -> str:
    return s.op("or", s.op("shl", second, s.all(32)), s.op("and", first, s.all(_MASK)))


def _uniform(s: _Lanes, first: str, second: str) -> str:
    """(bits >> 8) · 2⁻²⁴ · width + low, at most `most`, with a rounding after each step as the operator has it."""
    bits = s.op("lshr", s.cast("trunc", first, "i64", "i32"), s.all(8, "i32"), "i32")
    unit = s.op("fmul", s.cast("sitofp", bits, "i32", "float"), s.all("0x3E70000000000000", "float"), "float")
    scaled = s.op("fmul", unit, s.splat("%width", "float"), "float")
    y, most = s.op("fadd", scaled, s.splat("%low", "float"), "float"), s.splat("%most", "float")
    over = s.op("fcmp ogt", y, most, "float")
    return s.f.op(f"select {s.type('i1')} {over}, {s.type('float')} {most}, {s.type('float')} {y}")


DRAWS = {
    "i32": _Draw("i32", _words32),
    "i64": _Draw("i64", _words64),
    "uniform": _Draw("float", _uniform, (("float", "width"), ("float", "low"), ("float", "most"))),
}
"""By the names of their functions: words of `random_bits`, and float32 numbers from [low, low + width)."""


def parameters(name: str) -> tuple[tuple[str, str], ...]:
    """(type, name) of each parameter of a draw."""
    return ("ptr", "out"), ("i64", "count"), ("i64", "start"), ("i64", "seed"), ("i64", "call"), *DRAWS[name].params


def draw_module(target: Machine, name: str) -> str:
    """LLVM text of `void name(…)`, which writes elements start … start + count - 1 of a key (seed, call) to `out`."""
    module = Module(target)
    draw = DRAWS[name]
    f = module.function(name, parameters(name))
    s = _Lanes(f, max(target.vector_bits // 64, 2))
    step = _VECTORS * s.count
    rest = f.alloca(draw.type, step, align=64)
    last = f.sub("%count", step)
    with f.for_(0, "%count", step) as loop:
        index = s.splat(f.add("%start", loop.index))
        places = [f"<{', '.join(f'i64 {v * s.count + k}' for k in range(s.count))}>" for v in range(_VECTORS)]
        words = _words(s, [s.op("add", index, place) for place in places])
        # The last ones go to `rest` if they are fewer than fit: one copy of the code serves all.
        fits = f.op(f"icmp sle i64 {loop.index}, {last}")
        to = f.op(f"select i1 {fits}, ptr {f.gep(draw.type, '%out', loop.index)}, ptr {rest}")
        for v, (first, second) in enumerate(words):
            found = draw.compute(s, first, second)
            f.store(s.type(draw.type), found, f.gep(draw.type, to, v * s.count), align=4)
    whole = f.op(f"and i64 %count, {-step}")
    with f.for_(whole, "%count") as loop:
        value = f.load(draw.type, f.gep(draw.type, rest, f.sub(loop.index, whole)))
        f.store(draw.type, value, f.gep(draw.type, "%out", loop.index))
    f.ret()
    return module.text()


def _words(s: _Lanes, index: list[str]) -> list[tuple[str, str]]:
    """Words 0 and 1 of Philox for vectors of indices, as `random_bits.word` computes them, with anything in their upper
    halves. Keys are i32 in i64 lanes, whose sums wrap around."""
    f = s.f
    halves = f"<{2 * s.count} x i32>"
    weyl = [f"<{', '.join([f'i32 {w}, i32 0'] * s.count)}>" for w in WEYL]
    call = s.splat("%call"), s.high(s.splat("%call"))
    state = [c for i in index for c in (*call, i, s.high(i))]
    seed = s.splat("%seed")
    carried = [*((s.type(), c) for c in state), *((s.type(), k) for k in (seed, s.high(seed)))]
    with f.for_(0, ROUNDS, carried=carried) as rounds:
        *state, k0, k1 = rounds.carried
        later = []
        for c0, c1, c2, c3 in zip(*[iter(state)] * 4, strict=True):
            p0, p1 = s.product(c0, MULTIPLIERS[0]), s.product(c2, MULTIPLIERS[1])
            later += [s.op("xor", s.op("xor", s.high(p1), c1), k0), p1]
            later += [s.op("xor", s.op("xor", s.high(p0), c3), k1), p0]
        for k, w in zip((k0, k1), weyl):
            sum = f.op(f"add {halves} {f.op(f'bitcast {s.type()} {k} to {halves}')}, {w}")
            later.append(f.op(f"bitcast {halves} {sum} to {s.type()}"))
        rounds.next(*later)
    return list(zip(rounds.results[:-2:4], rounds.results[1:-2:4]))
