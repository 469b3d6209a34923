"""`gluonjit run`: runs a graph or a model, and compares native code with the reference."""

from __future__ import annotations

import argparse
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from gluonjit.common.quantities import bytes_text
from gluonjit.files.array_names import shown
from gluonjit.ir.interpreter import evaluate
from gluonjit.ir.sizes import sizes_of, with_sizes
from gluonjit.ir.types import IRError, type_of
from gluonjit.tools.cli import graphs
from gluonjit.tools.cli.files import is_symbol
from gluonjit.tools.cli.graphs import is_graph
from gluonjit.tools.cli.inputs import add_threads, on_threads
from gluonjit.tools.cli.models import add_model, calling, load_model, no_parameters


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "run",
        help="compile and run a graph or a model",
        description="Compiles a graph or a model, runs it, prints the results and their difference to the reference "
        "(each op computed by NumPy): always, except for models in files, which need --check.",
        epilog="examples:\n  gluonjit run examples/fire-symbol.json examples/fire-0000.params "
        "--input data=examples/fire-input.npy --output y.npz\n"
        "  gluonjit run examples/lenet.py:net --input 16x1x28x28\n"
        "  gluonjit convert examples/fire-symbol.json examples/fire-0000.params f.onnx --input 1x3x32x32 && "
        "gluonjit run f.onnx",
    )
    add_model(p, "|FILE.ir|-", "; the text of a compiler's graph, `-` for standard input")
    p.add_argument("-o", "--output", metavar="FILE", help="write the results to x.npz, by name, or one to x.npy")
    add_threads(p)
    p.add_argument("--check", action="store_true", help="compare with the reference for a model in files, too")
    p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    with on_threads(arguments.threads):
        _call(arguments)


def _call(arguments: argparse.Namespace) -> None:
    reference: list[np.ndarray] | None = None
    if arguments.output and not arguments.output.endswith((".npy", ".npz")):
        raise IRError(f"--output {arguments.output}: the name must end in .npy or .npz")
    names: list[str] | None = None
    if is_symbol(arguments.model):
        names, outputs, reference = _run_file(arguments)
    elif is_graph(arguments.model):
        no_parameters(arguments)
        outputs, reference = _run_graph(arguments)
    else:
        outputs, reference = _run_block(arguments)
    names = names or [f"output {k}" for k in range(len(outputs))]
    if arguments.output:  # before printing, which a closed pipe (`| head`) ends
        _save(arguments.output, [name.replace(" ", "") for name in names], outputs)
    for k, (name, got) in enumerate(zip(names, outputs, strict=True)):
        print(f"{shown(name)}: {type_of(got)}{_range(got)}")
        if not arguments.output:
            print(_elements(got))
        if reference is not None:
            print(f"relative difference to the reference: {relative_difference(got, reference[k]):.1e}")


_PRINTED = 64
"""Elements of an array that is printed as a whole."""


def _range(x: np.ndarray) -> str:
    """`, from the least element to the largest, on average …`."""
    if not x.size or x.dtype == bool:
        return ""
    mean = f", mean {np.mean(x, dtype=np.float64):.4g}" if x.size > _PRINTED else ""
    return f", from {x.min():.4g} to {x.max():.4g}{mean}"


def _elements(x: np.ndarray) -> str:
    """The elements; of a large array the first ones, in one line."""
    if x.size <= _PRINTED:
        return np.array2string(x)
    return f"first elements: {np.array2string(x.ravel()[:6], separator=' ')[1:-1].strip()} ..."


def _save(path: str, names: Sequence[str], outputs: Sequence[np.ndarray]) -> None:
    from gluonjit.files import atomic, npz

    if not path.endswith(".npy"):
        again = [names[:k].count(name) for k, name in enumerate(names)]  # one output may be listed several times
        npz.write(path, {f"{name}_{k}" if k else name: x for name, k, x in zip(names, again, outputs)})
        _say(path, outputs)
        return
    if len(outputs) != 1:
        raise IRError(f"{path}: there are {len(outputs)} results; an .npz file holds several")
    buffer = io.BytesIO()
    np.save(buffer, outputs[0])
    atomic.write(path, [buffer.getvalue()])
    _say(path, outputs)


def _say(path: str, outputs: Sequence[np.ndarray]) -> None:
    arrays = "1 array" if len(outputs) == 1 else f"{len(outputs)} arrays"
    print(f"{path}: {arrays}, {bytes_text(sum(x.nbytes for x in outputs))}")


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


def _run_graph(arguments: argparse.Namespace) -> tuple[list[np.ndarray], list[np.ndarray]]:
    from gluonjit.runtime.compiler import compile_graph

    graph = graphs.runnable(arguments.model)
    inputs = graphs.inputs_of(graph, arguments.input, arguments.seed)
    sizes = sizes_of([v.type for v in graph.inputs], [x.shape for x in inputs])
    outputs, updates = compile_graph(graph).run(inputs)
    return [*outputs, *updates], [x for part in evaluate(with_sizes(graph, sizes), inputs) for x in part]


def _run_block(arguments: argparse.Namespace) -> tuple[list[np.ndarray], list[np.ndarray]]:
    block, inputs = load_model(arguments)
    with calling(arguments.model, inputs):
        reference = _outputs(block, inputs, arguments.seed)
        block.hybridize(dynamic=arguments.dynamic)
        return _outputs(block, inputs, arguments.seed), reference


def _run_file(arguments: argparse.Namespace) -> tuple[list[str], list[np.ndarray], list[np.ndarray] | None]:
    """(names of the outputs, outputs, reference if asked for)"""
    block, inputs = load_model(arguments)
    outputs = _outputs(block, inputs, arguments.seed)
    reference = None
    if arguments.check:
        block.hybridize(backend="numpy")
        reference = _outputs(block, inputs, arguments.seed)
    return block._graph.list_outputs(), outputs, reference


def _outputs(block: Any, inputs: Sequence[Any], seed: int) -> list[np.ndarray]:
    from gluonjit.language import rng
    from gluonjit.trace import flatten

    rng.seed(seed)
    return [x.asnumpy() for x in flatten([block(*inputs)])[0]]
