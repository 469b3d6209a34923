"""Running graphs: backends, the calls of hybridized blocks, and what `Symbol.bind` gives."""
