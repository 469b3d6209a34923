"""The compiler's typed SSA: types, graphs, operator definitions, text form and verifier.

Nothing here knows MXNet or LLVM; everything else stands on it. Importing this package declares the primitives, so that
`opdef.lookup` finds them whichever module of it is used.
"""

from gluonjit.ir import primitives

__all__ = ["primitives"]
