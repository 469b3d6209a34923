"""The compiler's typed SSA: types, graphs, operator definitions, text form and verifier.

Nothing here knows MXNet, LLVM or a machine; everything else stands on it.
"""
