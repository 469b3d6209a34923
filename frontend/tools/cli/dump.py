"""`gluonjit trace` and `gluonjit dump`: a model's graph at any stage, from traced operators to assembly."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable
from dataclasses import replace
from fnmatch import fnmatchcase as fnmatch
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.common.quantities import bytes_text, count_text
from gluonjit.files.array_names import shown
from gluonjit.ir.graph import Graph, Op
from gluonjit.tools.cli.graphs import is_graph, runnable
from gluonjit.tools.cli.loading import load_graph
from gluonjit.tools.cli.models import add_model, add_no_winograd, add_train_mode, calling, load_model, no_parameters
from gluonjit.tools.cli.terminal import add_options, add_output, show

STAGES = ("layers", "trace", "expanded", "optimized", "llvm", "asm", "joint", "forward", "backward")
GRADIENT_STAGES = ("joint", "forward", "backward")
"""What `backward()` makes of a recorded call, in training mode: `joint` is the model and its gradient by the
parameters, or by the inputs if there are none; `forward` and `backward` are its halves."""

_LANGUAGE = {"layers": "plain", "explain": "plain", "llvm": "llvm", "asm": "gas"}
"""The kind, in `ir.highlight`, of texts that are no graphs."""


def add_commands(commands: Any) -> None:
    add_command(commands, "dump", "layers", "print a model's graph at any stage of the compiler")


def add_command(commands: Any, name: str, stage: str, help_: str) -> None:
    """A command that prints a graph, at this stage unless asked for another."""
    p = commands.add_parser(
        name,
        help=help_,
        description=f"Prints{help_.removeprefix('print')}. The FLOPs and bytes in the table of layers are those of the "
        "compiled kernels: a BatchNorm that became part of a convolution's weights has none, and a ReLU that a "
        "convolution's kernel computes counts there. `gluonjit inspect` counts each operator by its definition.",
        epilog=f"examples:\n  gluonjit {name} examples/lenet.py:net --input 16x1x28x28 --stage optimized\n"
        f"  gluonjit {name} examples/lenet.py:net --input 16x1x28x28 --stage backward",
    )
    add_model(p, "|FILE.ir|-", "; the text of a compiler's graph, `-` for standard input")
    p.add_argument(
        "--stage",
        choices=STAGES,
        default=stage,
        help="what to print (default: %(default)s); layers: a line for each, with its kernels, FLOPs and bytes; "
        "joint: with its gradient by the parameters; forward, backward: the halves of that",
    )
    p.add_argument(
        "--layer",
        metavar="PATTERN",
        help="only ops of layers whose path fits, such as '*/conv1' or 'net/stage3/*'; "
        "what these read becomes the graph's inputs",
    )
    add_output(p)
    p.add_argument(
        "--remat",
        choices=("elementwise", "all"),
        default="elementwise",
        help="what the backward half computes again, as in hybridize(remat=...) (default: %(default)s)",
    )
    add_train_mode(p)
    add_no_winograd(p)
    p.add_argument(
        "--explain",
        action="store_true",
        help="list the kernels, their estimates, and why they were chosen; the last line says for how many threads a "
        "call has work: on a machine with more cores, it leaves the others alone",
    )
    p.add_argument("--locs", action="store_true", help="show where in the program each op comes from")
    add_options(p)
    p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    from gluonjit.execution.block_compiler import trace_call
    from gluonjit.language import modes

    stage = "explain" if arguments.explain else arguments.stage
    if is_graph(arguments.model):
        _show(_of_text(arguments, stage), stage, arguments)
        return
    block, given = load_model(arguments)
    gradient = arguments.stage in GRADIENT_STAGES
    training = arguments.train or gradient
    mode = modes.train_mode() if training else modes.predict_mode()
    with mode, calling(arguments.model, given):
        graph = trace_call(block, given, arguments.dynamic)
    if gradient:
        from gluonjit.execution.inspecting import without_gradient

        graph = with_gradient(graph, arguments.stage, without_gradient(block), arguments.remat)
    _show(render(graph, stage, arguments.locs, not arguments.no_winograd, arguments.layer), stage, arguments)


def _of_text(arguments: argparse.Namespace, stage: str) -> str:
    """`render` of a graph in a text file."""
    no_parameters(arguments)
    if arguments.stage in GRADIENT_STAGES or arguments.train:
        raise MXNetError(f"{arguments.model} is a graph: `gluonjit opt -p joint` makes that of its gradient")
    if arguments.input:
        raise MXNetError(f"--input: {arguments.model} is a graph, which has the types of its inputs")
    if stage == "trace":
        graph = load_graph(arguments.model)
    else:
        graph = runnable(arguments.model)
    return render(graph, stage, arguments.locs, not arguments.no_winograd, arguments.layer)


def _show(text: str, stage: str, arguments: argparse.Namespace) -> None:
    if arguments.output:
        from gluonjit.files import atomic

        atomic.write(arguments.output, [text.encode()])
    else:
        show(text, _LANGUAGE.get(stage, "gluonjit"), arguments)


def render(graph: Graph, stage: str, locs: bool = False, winograd: bool = True, layer: str | None = None) -> str:
    """The text of `graph` (level `traced` or `expanded`, or what `with_gradient` makes) at a stage; at stage `explain`,
    the list of its kernels; at stage `layers`, a line for each layer. `layer`: of layers that fit this pattern
    alone."""
    from gluonjit.codegen.program import lower_program
    from gluonjit.codegen.target import host
    from gluonjit.codegen.text import llvm
    from gluonjit.ir.text import print_graph
    from gluonjit.passes import run_passes
    from gluonjit.passes.pipelines import pipeline

    if layer is not None and stage in ("llvm", "asm"):
        raise MXNetError(f"the stage {stage} is of the whole model; --layer is for the other stages, and for --explain")
    if stage in ("trace", *GRADIENT_STAGES):
        return print_graph(_part(graph, layer), locs=locs, elide=16)
    if stage == "expanded":
        return print_graph(_part(run_passes(graph, "expand"), layer), locs=locs, elide=16)
    target = host()
    planned = run_passes(graph, pipeline(winograd), target=target)
    if stage == "explain":
        from gluonjit.passes.explain import table

        return table(_part(planned, layer).with_attrs(threads=planned.attrs["threads"]), target)
    if stage == "layers":
        return layers(graph, planned, layer)
    if stage == "optimized":
        return print_graph(_part(planned, layer), locs=locs, elide=16)
    text = lower_program(planned, target).text
    return text if stage == "llvm" else llvm.assembly(text, target)


def layers(traced: Graph, planned: Graph, pattern: str | None = None) -> str:
    """A table: for each layer that fits the pattern, in the order of the call, how many operators it has, into how many
    kernels they were made, and the FLOPs and bytes of these."""
    from gluonjit.ir.buffers import runs_kernel
    from gluonjit.ir.sizes import assumed, with_hints
    from gluonjit.ir.work import bytes_moved, flops
    from gluonjit.profiling.listing import columns

    rows: dict[str, list[int]] = {}
    for op in traced.ops:
        rows.setdefault(_layer(op), [0, 0, 0, 0])[0] += 1
    for op in with_hints(planned).ops:
        if runs_kernel(op):
            row = rows.setdefault(_layer(op), [0, 0, 0, 0])
            row[1] += 1
            row[2] += int(flops(op))
            row[3] += int(bytes_moved(op))
    chosen = {path: row for path, row in rows.items() if pattern is None or fnmatch(path, pattern)}
    if not chosen:
        raise _no_layer(str(pattern), rows)
    total = [sum(row[k] for row in chosen.values()) for k in range(4)]
    table = [["ops", "kernels", "FLOPs", "bytes", "layer"]]
    for path, (ops, kernels, work, nbytes) in [*chosen.items(), (f"in all{assumed(planned)}", total)]:
        table.append([str(ops), str(kernels), count_text(work), bytes_text(nbytes), shown(path or planned.name)])
    return "\n".join(columns(table, 1)) + "\n"


def _layer(op: Op) -> str:
    from gluonjit.ir.work import origin

    loc = origin(op)
    return loc.block if loc is not None else ""


def _no_layer(pattern: str, there: Iterable[str]) -> MXNetError:
    known = sorted(shown(path) for path in there if path)
    some = ", ".join([*known[:8], *(["…"] if known[8:] else [])])
    return MXNetError(f"--layer {shown(pattern)}: no layer fits; there are {some}")


def _part(graph: Graph, pattern: str | None) -> Graph:
    """The ops of layers that fit the pattern. What they read from elsewhere are inputs, what others read, outputs."""
    if pattern is None:
        return graph
    ops = tuple(op for op in graph.ops if fnmatch(_layer(op), pattern))
    if not ops:
        raise _no_layer(pattern, {_layer(op) for op in graph.ops})
    made = {v for op in ops for v in op.results}
    inputs = tuple(dict.fromkeys(v for op in ops for v in op.operands if v not in made))
    read = {v for op in graph.ops if op not in ops for v in op.operands} | set(graph.results)
    outputs = tuple(v for op in ops for v in op.results if v in read)
    return replace(graph, inputs=inputs, ops=ops, outputs=outputs, updates=(), attrs={})


def with_gradient(graph: Graph, stage: str, fixed: Collection[str] = (), remat: str = "elementwise") -> Graph:
    """`graph` (level `traced`) with its gradient, or one half of that. `fixed` are the names of parameters that get no
    gradient."""
    from gluonjit.execution.inspecting import joint_graph
    from gluonjit.passes import run_passes

    joint = joint_graph(graph, fixed)
    return joint if stage == "joint" else run_passes(joint, [("partition", {"half": stage, "remat": remat})])
