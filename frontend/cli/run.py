"""`gluonjit run`: computes a graph or a block on random inputs, and says whether native code and reference agree."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from gluonjit.cli.loading import INPUT_HELP, example_inputs, input_type, is_python, load_graph, random_input
from gluonjit.ir.graph import Graph, evaluate
from gluonjit.ir.types import IRError, type_of


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "run",
        help="compile and run a graph or a block on random inputs",
        description="Compiles a graph or a block, runs it on random inputs, prints the results, and how far they are "
        "from the reference (each op computed by NumPy).",
        epilog="example: echo 'graph @g() { %a = constant() {value = 1.5} %b = exp(%a) return %b }' | gluonjit run -",
    )
    p.add_argument("model", metavar="FILE.ir|FILE.py:NAME", help="a graph's text (`-`: standard input), or a block")
    p.add_argument("--input", type=input_type, action="append", default=[], metavar="SHAPE", help=INPUT_HELP)
    p.add_argument("--random", type=int, default=0, metavar="SEED", help="seed of the inputs (default: %(default)s)")
    p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    if is_python(arguments.model):
        outputs, reference = _run_block(arguments)
    else:
        outputs, reference = _run_graph(load_graph(arguments.model), arguments.random)
    for k, (got, want) in enumerate(zip(outputs, reference, strict=True)):
        print(f"output {k}: {type_of(got)}")
        print(np.array2string(got, threshold=64, edgeitems=3))
        print(f"relative difference to the reference: {relative_difference(got, want):.1e}")


def relative_difference(got: np.ndarray, want: np.ndarray) -> float:
    """max |got − want| / max |want| over finite elements; inf where one is finite and the other not."""
    a, b = (np.asarray(x, np.float64) for x in (got, want))
    if not a.size:
        return 0.0
    finite = np.isfinite(b)
    if not (np.isfinite(a) == finite).all() or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    return float(np.abs(a[finite] - b[finite]).max() / max(np.abs(b[finite]).max(), np.finfo(np.float64).tiny))


def _run_graph(graph: Graph, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    from gluonjit.passes import run_passes
    from gluonjit.runtime.compiler import compile_graph

    if graph.level not in ("traced", "expanded", "legal"):
        raise IRError(f"`run` takes a graph of level traced, expanded or legal; this one is {graph.level!r}")
    if graph.level == "traced":
        graph = run_passes(graph, "expand")
    rng = np.random.default_rng(seed)
    inputs = [random_input(v.type, rng) for v in graph.inputs]
    outputs, updates = compile_graph(graph).run(inputs)
    return [*outputs, *updates], [x for part in evaluate(graph, inputs) for x in part]


def _run_block(arguments: argparse.Namespace) -> tuple[list[np.ndarray], list[np.ndarray]]:
    from gluonjit import random
    from gluonjit.cli.loading import load_block
    from gluonjit.trace import flatten

    block = load_block(arguments.model)
    inputs = example_inputs(arguments.input, arguments.random)
    random.seed(arguments.random)
    reference = flatten([block(*inputs)])[0]
    block.hybridize()
    random.seed(arguments.random)
    outputs = flatten([block(*inputs)])[0]
    return [x.asnumpy() for x in outputs], [x.asnumpy() for x in reference]
