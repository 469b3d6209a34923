"""Running graphs: backends, calls of hybridized blocks, and the executors of `Symbol.bind`."""
