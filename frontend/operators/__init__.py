"""MXNet's operators, each expanded into primitives."""
