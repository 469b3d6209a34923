"""Which function writes the code of a kernel: each stands in the file of the kernel's name, and says so by `writes`."""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

from gluonjit.codegen.text.llvm import Module
from gluonjit.common.aside import imported
from gluonjit.ir.annotations import KERNEL, SCRATCH, THREADS, WORKSPACE
from gluonjit.ir.graph import Graph, Op, Value
from gluonjit.ir.kernels import Plan
from gluonjit.ir.machine import Machine

Lower = Callable[[str, Op, Module], None]
"""`lower(name, op, module)` appends the op's kernel to the module. Its table: the op's operands, then its results, then
`.scratch` bytes for the thread; with a `.workspace`, this and the team follow."""
SameSums = Callable[[Op, Machine, int], bool]
"""`same_sums(op, target, least)`: whether each row of the result has the same bits for every number of rows from
`least`, so that threads may compute parts of the rows."""


_FOR_THE_CALLER = (SCRATCH.name, WORKSPACE.name, THREADS.name)


class AnySize(NamedTuple):
    """An op with open dimensions, and their sizes, with which it is one that has none."""

    op: Op
    sizes: Mapping[str, int]

    @staticmethod
    def of(op: Op, body: Graph, sizes: Mapping[str, int], plan: Plan | None = None) -> AnySize:
        """The op with this body, whose dimensions are open, and this plan if it is another one, without what an op says
        to its caller."""
        operands = tuple(Value(v.name, new.type) for v, new in zip(op.operands, body.inputs, strict=True))
        results = tuple(Value(v.name, new.type) for v, new in zip(op.results, body.outputs, strict=True))
        attrs = {k: v for k, v in op.attrs.items() if k not in _FOR_THE_CALLER}
        if plan is not None:
            attrs |= KERNEL(plan)
        return AnySize(replace(op, operands=operands, results=results, attrs=attrs, regions=(body,)), sizes)


ForAnySize = Callable[[Op, Machine], AnySize | None]
"""`for_any_size(op, target)`: what ops that differ in sizes alone have in common, if one kernel serves them all."""


class KernelCode(NamedTuple):
    lower: Lower
    same_sums: SameSums
    for_any_size: ForAnySize


_CODE: dict[type[Plan], KernelCode] = {}
_L = TypeVar("_L", bound=Lower)


def never(op: Op, target: Machine, least: int) -> bool:
    return False


def always(op: Op, target: Machine, least: int) -> bool:
    return True


def for_one_size(op: Op, target: Machine) -> AnySize | None:
    return None


def writes(
    *plans: type[Plan], same_sums: SameSums = never, for_any_size: ForAnySize = for_one_size
) -> Callable[[_L], _L]:
    """Declares a function to write the kernels of these plans."""

    def declare(lower: _L) -> _L:
        for plan in plans:
            _CODE[plan] = KernelCode(lower, same_sums, for_any_size)
        return lower

    return declare


def code_of(op: Op) -> KernelCode | None:
    """The code of the op's kernel, if there is one."""
    plan = KERNEL.of(op)
    if plan is None:
        return None
    if plan.kernel in _modules():  # also if it is in the table: another thread may not have imported the whole file yet
        imported(f"{_PACKAGE}.{plan.kernel}")
    return _CODE.get(type(plan))


_PACKAGE = "gluonjit.codegen.kernels"
"""The package whose modules are searched for the function that writes a kernel."""


@functools.cache
def _modules() -> frozenset[str]:
    return frozenset(m.name for m in pkgutil.iter_modules(imported(_PACKAGE).__path__))
