"""Several processes that train one model, started by `mpirun`: what they send each other, and how each learns that
another one has ended."""
