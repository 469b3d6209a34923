"""A library that `gluonjit build` made, as a predictor's model. Neither the compiler nor LLVM is imported."""

from __future__ import annotations

import numpy as np

from gluonjit import deployed
from gluonjit.ir.dims import at, parse
from gluonjit.ir.sizes import sizes_of
from gluonjit.tools.serving.described import Described


class LibraryModel:
    def __init__(self, path: str, threads: int | None) -> None:
        self.net = deployed.load(path, threads)
        self.rows, self.why_rows_mix = self.net.rows, self.net.why_rows_mix
        self.inputs = tuple(map(_described, self.net.inputs))
        self.outputs: tuple[Described, ...] | None = tuple(map(_described, self.net.outputs))

    def run(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if not all(x.size for x in arrays.values()):
            return self._empty(arrays)
        results = self.net(**arrays)
        return dict(zip([y.name for y in self.net.outputs], results if isinstance(results, list) else [results]))

    def _empty(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The results of an empty batch, for which a library has no code. ValueError where they are not empty, too."""
        sizes = sizes_of([x.type for x in self.inputs], [x.shape for x in arrays.values()], 0)
        results = {}
        for y in self.outputs or ():
            shape = tuple(at(n, sizes) for n in y.shape or ())
            if 0 not in shape:
                raise ValueError(f"the library {self.net.name} takes no arrays without elements")
            results[y.name] = np.empty(shape, y.dtype)
        return results


def _described(x: deployed.Array) -> Described:
    return Described(x.name, x.dtype, tuple(parse(n) if isinstance(n, str) else n for n in x.shape))
