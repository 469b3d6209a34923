"""The compiler's own pipelines: which passes run in which order. `docs/passes.md` gives the reasons for the order.

Each says of what level a graph must be, and of what level it is afterwards (`ir.graph.LEVELS`); a test follows the
levels that its passes need and give. Importing this file imports no pass.
"""

from __future__ import annotations

from typing import NamedTuple

PIPELINE = (
    "outline, expand, legalize-broadcast, simplify, fold, cse, dce, fold-moves, reorder-pooling, fold-affine, "
    "split-phases, hoist-strides, layout, sink-reshapes, simplify, cse, dce, split-batch, join-moments, fuse, "
    "select, fuse-depthwise, cse, hoist, alternate, views, share-windows, share-streams, threads, name-values, "
    "plan-memory"
)
"""The passes of the backend `llvm`."""
REFERENCE_PIPELINE = "expand"
"""What the backend `numpy` interprets, as primitives."""
GRADIENT_PIPELINE = "outline, expand {gradients = True}, legalize-broadcast, pool-before-relu, simplify, cse, dce"
"""What is done to a graph before it is differentiated."""
JOINT_PIPELINE = "legalize-broadcast, simplify, fold, cse, dce, distribute-sums, join-pads, dce"
"""What is done to the joint graph before it is divided."""


class Named(NamedTuple):
    """A pipeline that people can name."""

    steps: str
    takes: str
    """The level of graphs that it is for; those of a later one will do, too."""
    gives: str


PIPELINES = {
    "llvm": Named(PIPELINE, "traced", "planned"),
    "numpy": Named(REFERENCE_PIPELINE, "traced", "expanded"),
    "gradient": Named(GRADIENT_PIPELINE, "traced", "legal"),
    "joint": Named(JOINT_PIPELINE, "expanded", "legal"),
}


def gradient_pipeline(steps: str) -> str:
    """All that is done to a graph until the code of its gradient is made by `steps`."""
    return ", ".join((GRADIENT_PIPELINE, "differentiate", JOINT_PIPELINE, steps))


def pipeline(winograd: bool = True) -> str:
    """`PIPELINE` with options of `hybridize`. `winograd`: whether convolutions may be computed by fewer multiplications
    (`passes/select_winograd.py`)."""
    steps = {"select": "select" if winograd else "select {winograd = False}"}
    return ", ".join(steps.get(name, name) for name in PIPELINE.split(", "))
