"""LLVM IR as text, compiled to objects: the only room that knows llvmlite."""
