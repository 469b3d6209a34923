"""Sample uses of each operator: inputs and attributes.

    @sample("softmax", "log_softmax")
    def along_the_last_axis(rng):
        return [floats(rng, 2, 5)], {"axis": -1}

Each family of operators has a file `samples_<family>.py` beside this one. `cases(name)` returns the required number of
cases, and cycles through the operator's samples. The cases are used to compare eager with compiled results, and
`oracle/record.py` runs them in real MXNet. So nothing here imports gluonjit, and inputs must have the same bits on
every machine: they are made from integers and uniform numbers of `RandomState`, whose streams never change, by
operations whose rounding IEEE 754 defines. They must not use `exp`, `log` or normal numbers, which depend on the C
library, or matrix products and `np.linalg`, which depend on the CPU.
"""

from __future__ import annotations

import functools
import importlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

AT_LEAST = 5
ASKED_AT_LEAST = 3
"""Of these, how many MXNet answers."""

Inputs = "list[np.ndarray]"
Build = Callable[[np.random.RandomState], "tuple[Inputs, dict[str, Any]]"]


@dataclass(frozen=True)
class Sample:
    build: Build
    family: str
    training: bool
    oracle: bool


@dataclass(frozen=True)
class Case:
    """One use of an operator. `oracle` tells whether MXNet can be asked for its result."""

    operator: str
    number: int
    sample: Sample
    inputs: list[np.ndarray] = field(repr=False, compare=False)
    attrs: dict[str, Any] = field(compare=False)

    @property
    def training(self) -> bool:
        return self.sample.training

    @property
    def oracle(self) -> bool:
        return self.sample.oracle

    def __str__(self) -> str:
        return f"{self.operator}-{self.number}-{self.sample.build.__name__}"

    def checksum(self) -> int:
        """Tells whether two machines made the same inputs."""
        return zlib.crc32(b"".join(repr((x.dtype.str, x.shape)).encode() + x.tobytes() for x in self.inputs))


SAMPLES: dict[str, list[Sample]] = {}


def sample(*operators: str, training: bool = False, oracle: bool = True) -> Callable[[Build], Build]:
    """Declares the decorated function as sample of each of `operators`.

    `training`: run in training mode. `oracle=False`: what MXNet refuses, gets wrong, or draws at random.
    """

    def declare(build: Build) -> Build:
        family = build.__module__.rpartition("samples_")[2]
        for name in operators:
            SAMPLES.setdefault(name, []).append(Sample(build, family, training, oracle))
        return build

    return declare


@functools.cache
def cases(operator: str) -> list[Case]:
    """Cases of an operator: each sample of it once, and again in turn until there are enough, and enough for MXNet."""
    _load()
    return list(_cases(operator))


def _cases(operator: str) -> Iterator[Case]:
    samples = SAMPLES[operator]
    wanted = ASKED_AT_LEAST if any(s.oracle for s in samples) else 0
    asked = number = 0
    while number < max(AT_LEAST, len(samples)) or asked < wanted:
        chosen = samples[number % len(samples)]
        inputs, attrs = chosen.build(np.random.RandomState(zlib.crc32(f"{operator} {number}".encode())))
        yield Case(operator, number, chosen, [np.asarray(x, order="C") for x in inputs], attrs)
        asked += chosen.oracle
        number += 1


def operators() -> list[str]:
    """Names of all operators that have samples."""
    _load()
    return sorted(SAMPLES)


_loaded = False


def _load() -> None:
    global _loaded
    if not _loaded:
        _loaded = True
        for path in sorted(Path(__file__).parent.glob("samples_*.py")):
            importlib.import_module(f"{__package__}.{path.stem}")


# What samples are made of


def uniform(rng: np.random.RandomState, low: float, high: float, shape: tuple[int, ...] = ()) -> np.ndarray:
    """`rng.uniform` in two steps that are rounded one by one. In one step, some CPUs round its numbers once."""
    return np.multiply(rng.random_sample(shape), high - low) + low


def floats(rng: np.random.RandomState, *shape: int, dtype: Any = "float32", low: float = -2, high: float = 2) -> Any:
    """Uniform numbers."""
    return uniform(rng, low, high, shape).astype(dtype)


def integers(rng: np.random.RandomState, *shape: int, dtype: Any = "int32", low: int = -9, high: int = 10) -> Any:
    """Whole numbers from low to high - 1; unsigned types start at 0, bool has 0 and 1."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        low, high = 0, 2
    return rng.randint(max(low, 0) if kind == "u" else low, high, shape).astype(dtype)


SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.0, -2.0, 2.5, -2.5, 3.0)


def special(dtype: Any = "float32") -> np.ndarray:
    """NaN, infinities, both zeros, and the numbers where functions change: (4, 4)."""
    return np.array(SPECIAL, dtype).reshape(4, 4)


def special_pairs(dtype: Any = "float32") -> list[np.ndarray]:
    """Each special value against each."""
    values = np.array(SPECIAL, dtype)
    return [np.repeat(values, len(values)), np.tile(values, len(values))]
