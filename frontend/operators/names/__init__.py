"""Operators under the names of other times and interfaces: MXNet 0.x, sparse arrays, mx.np."""
