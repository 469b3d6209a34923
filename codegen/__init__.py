"""From graphs to LLVM IR."""
