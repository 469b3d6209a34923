"""The kernels: the vocabulary of how ops are computed, as `ir/primitives` is that of what.

A kernel is declared once, as a `Plan`: what has to be decided for an op (its tile, what is packed), and what all others
ask about it. What chooses it is in `passes/select_<name>.py`, its code in `codegen/kernels/<name>.py`. Nothing else
knows kernels by name.
"""

from gluonjit.ir.kernels.kernel_plan import Plan, all_kernels, find_kernel

__all__ = ["Plan", "all_kernels", "find_kernel"]
