"""The cases whose gradients are compared with MXNet's, and their head gradients.

Every sample of an operator once with each mode that it has (`act_type`, `pool_type` …), or as often as it takes to have
three cases; variants of the first sample that has them: with NaN, with infinities, with axes counted from the end, and
`ties`, whole numbers from -3 to 3, which layers have of every sample; and the samples below, which differ in their
gradient alone. As the samples, nothing here imports gluonjit.
"""

from __future__ import annotations

import dataclasses
import functools
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import samples, variants
from .samples import Build, Case, Sample, floats, integers

AT_LEAST = 3
KINDS = ("nan", "infinite", "negative", "ties")

TRAINING = ("Pooling", "IdentityAttachKLSparseReg", "_contrib_BatchNormWithReLU")
"""Operators that are always run in training mode: otherwise MXNet does not keep what their gradient needs."""

MORE: dict[str, list[Build]] = {}


def also(operator: str) -> Callable[[Build], Build]:
    """Declares one more sample, about the gradient alone."""

    def declare(build: Build) -> Build:
        MORE.setdefault(operator, []).append(build)
        return build

    return declare


def _classes(rng: np.random.RandomState, *shape: int) -> np.ndarray:
    return integers(rng, *shape, dtype="float32", low=0, high=3)


for _attrs in (
    {"grad_scale": 2.0, "normalization": "batch"},
    {"normalization": "valid", "use_ignore": True, "ignore_label": 1},
    {"normalization": "valid", "ignore_label": 1},
    {"smooth_alpha": 0.2},
    {"out_grad": True},
):

    @also("SoftmaxOutput")
    def rows(rng: Any, attrs: Any = _attrs) -> Any:
        return [floats(rng, 4, 3), _classes(rng, 4)], attrs

    @also("SoftmaxOutput")
    def positions(rng: Any, attrs: Any = _attrs) -> Any:
        return [floats(rng, 2, 3, 2, 2), _classes(rng, 2, 2, 2)], {"multi_output": True, **attrs}

    @also("SoftmaxOutput")
    def last_axis(rng: Any, attrs: Any = _attrs) -> Any:
        return [floats(rng, 2, 4, 3), _classes(rng, 2, 4)], {"preserve_shape": True, **attrs}


@also("SoftmaxOutput")
def distributions(rng: Any) -> Any:
    return [floats(rng, 4, 3), floats(rng, 4, 3, low=0, high=1)], {"grad_scale": 2.0, "normalization": "batch"}


for _how in ("batch", "null", "valid"):

    @also("MakeLoss")
    def losses(rng: Any, how: str = _how) -> Any:
        return [floats(rng, 4, 3)], {"grad_scale": 2.0, "valid_thresh": 0.5, "normalization": how}


@also("softmax_cross_entropy")
def unlikely(rng: Any) -> Any:
    return [floats(rng, 4, 3, low=-30, high=30), _classes(rng, 4)], {}


@dataclasses.dataclass(frozen=True)
class Variant(Case):
    kind: str = ""


def name(case: Case) -> str:
    return f"{case.operator}/{case.kind if isinstance(case, Variant) else case.number}"


def modes(case: Case) -> tuple[str, ...]:
    """The words among the attributes, which choose between formulas."""
    return tuple(value for value in case.attrs.values() if isinstance(value, str))


@functools.cache
def cases(operator: str) -> list[Case]:
    """The cases with an input of a float type."""
    found: list[Case] = []
    seen = set()
    for case in samples.cases(operator):
        if case.oracle and any(x.dtype.kind == "f" for x in case.inputs):
            kind = (case.sample.build.__name__, *modes(case))
            new = kind not in seen
            if new or len(found) < AT_LEAST:
                training = case.training or operator in TRAINING
                found.append(dataclasses.replace(case, sample=dataclasses.replace(case.sample, training=training)))
                seen.add(kind)
    given = found[:]
    for kind in KINDS:
        for case in given:
            changed = ties(case) if kind == "ties" else variants.vary(case, kind)
            if changed is not None:
                several = kind == "ties" and case.sample.family == "layers"
                found.append(_variant(changed, f"{kind}{case.number}" if several else kind))
                if not several:
                    break
    for k, build in enumerate(MORE.get(operator, ())):
        kind = f"{build.__name__}{k}"
        inputs, attrs = build(np.random.RandomState(zlib.crc32(f"{operator} {kind}".encode())))
        case = Case(operator, k, Sample(build, "gradients", False, True), [np.asarray(x) for x in inputs], attrs)
        found.append(_variant(case, kind))
    return found


def _variant(case: Case, kind: str) -> Variant:
    return Variant(**{f.name: getattr(case, f.name) for f in dataclasses.fields(Case)}, kind=kind)


def ties(case: Case) -> Case | None:
    """Float inputs as whole numbers, zeros among them: elements are equal, and functions are at their corners."""
    inputs = [_whole(x) if x.dtype.kind == "f" else x for x in case.inputs]
    return dataclasses.replace(case, inputs=inputs)


def _whole(x: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(np.nan_to_num(x.astype(np.float64), posinf=3, neginf=-3), -3, 3)).astype(x.dtype)


def heads(case: Case, results: Sequence[np.ndarray]) -> list[np.ndarray]:
    """A cotangent of each result: quarters from -2 to 2."""
    rng = np.random.RandomState(zlib.crc32(f"{name(case)} heads".encode()))
    return [(rng.randint(-8, 9, y.shape) / 4).astype(y.dtype) for y in results]
