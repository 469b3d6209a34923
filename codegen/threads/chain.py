"""`@chain`: a native function that runs others, one after the other, so that a step of training is one call.

Its table (`Chain`) lists them with the tables of their own. Each starts when the one before has ended on all threads. A
function whose code has no barriers runs on thread 0 alone; the others meet at the barrier after it.
"""

from __future__ import annotations

from enum import IntEnum

from gluonjit.codegen.text.llvm import KERNEL_PARAMS, Module


class Chain(IntEnum):
    """Words of a chain's table."""

    COUNT = 0  # i64: how many of the functions run
    TEAM = 1  # ptr: `codegen.threads.team.Block`
    FIRST = 2  # for each function, the words of `Link`


class Link(IntEnum):
    """Words about one function of a chain."""

    FUNCTION = 0  # void (*)(ptr table, i64 thread, i64 nthreads)
    TABLE = 1
    ALONE = 2  # i64: nonzero if its code has no barriers
    SIZE = 3


def add_chain(module: Module) -> None:
    """Adds `@chain`; `@barrier` is there already."""
    f = module.function("chain", KERNEL_PARAMS)
    count = f.load("i64", f.gep("i64", "%table", int(Chain.COUNT)), 8)
    team = f.load("ptr", f.gep("i64", "%table", int(Chain.TEAM)), 8)
    together = f.op("icmp sgt i64 %nthreads, 1")
    with f.for_(0, count, hint="link") as loop:
        link = f.gep("i64", "%table", f.add(f.mul(loop.index, int(Link.SIZE)), int(Chain.FIRST)))
        function, table = (f.load("ptr", f.gep("i64", link, int(word)), 8) for word in (Link.FUNCTION, Link.TABLE))
        alone = f.op(f"icmp ne i64 {f.load('i64', f.gep('i64', link, int(Link.ALONE)), 8)}, 0")
        most = f.op(f"select i1 {alone}, i64 1, i64 %nthreads")
        with f.if_(f.op(f"icmp slt i64 %thread, {most}")):
            f.call(function, "void", ("ptr", table), ("i64", "%thread"), ("i64", most))
        with f.if_(together):
            f.call("barrier", "void", ("ptr", team), ("i64", "%nthreads"))
