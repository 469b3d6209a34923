"""`gluonjit trace` and `gluonjit dump`: a model's graph at any stage, from traced operators to assembly."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.ir.graph import Graph
from gluonjit.tools.cli.models import add_model, calling, load_model

STAGES = ("trace", "expanded", "optimized", "llvm", "asm", "joint", "forward", "backward")
GRADIENT_STAGES = ("joint", "forward", "backward")
"""What `backward()` makes of a recorded call, in training mode: `joint` is the model and its gradient by the
parameters, or by the inputs if there are none; `forward` and `backward` are its halves."""


def add_commands(commands: Any) -> None:
    for name, stage, help_ in (
        ("trace", "trace", "print the graph that a model is traced to"),
        ("dump", "optimized", "print a model's graph at any stage of the compiler"),
    ):
        p = commands.add_parser(
            name,
            help=help_,
            description=f"{help_[0].upper()}{help_[1:]}.",
            epilog=f"example:\n  gluonjit {name} examples/lenet.py:net --input 16x1x28x28 --stage optimized\n"
            f"  gluonjit {name} examples/lenet.py:net --input 16x1x28x28 --stage backward",
        )
        add_model(p)
        p.add_argument(
            "--stage",
            choices=STAGES,
            default=stage,
            help="what to print (default: %(default)s); joint: with its gradient by the parameters; forward, backward: "
            "the halves of that",
        )
        p.add_argument(
            "--remat",
            choices=("elementwise", "all"),
            default="elementwise",
            help="what the backward half computes again, as in hybridize(remat=...) (default: %(default)s)",
        )
        p.add_argument("--train", action="store_true", help="in training mode")
        p.add_argument("--no-winograd", action="store_true", help="as with hybridize(winograd=False)")
        p.add_argument(
            "--explain", action="store_true", help="list the kernels, their estimates, and why they were chosen"
        )
        p.add_argument("--locs", action="store_true", help="show where in the program each op comes from")
        p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    from gluonjit.execution.cached_call import trace_call
    from gluonjit.language import modes

    block, given = load_model(arguments)
    stage = "explain" if arguments.explain else arguments.stage
    training = arguments.train or stage in GRADIENT_STAGES
    mode = modes.train_mode() if training else modes.predict_mode()
    with mode, calling(arguments.model, given):
        graph = trace_call(block, given, arguments.dynamic)
    if stage in GRADIENT_STAGES:
        fixed = {p.name for p in block.collect_params().values() if p.grad_req == "null"}
        print(render_gradient(graph, stage, fixed, arguments.locs, arguments.remat), end="")
        return
    print(render(graph, stage, arguments.locs, not arguments.no_winograd), end="")


def render(graph: Graph, stage: str, locs: bool = False, winograd: bool = True) -> str:
    """The text of `graph` (level `traced` or `expanded`) at a stage; at stage `explain`, the list of its kernels."""
    from gluonjit.codegen import llvm
    from gluonjit.codegen.program import lower_program
    from gluonjit.codegen.target import host
    from gluonjit.ir.text import print_graph
    from gluonjit.passes import run_passes
    from gluonjit.runtime.compiler import pipeline

    if stage == "trace":
        return print_graph(graph, locs=locs, elide=16)
    if stage == "expanded":
        return print_graph(run_passes(graph, "expand"), locs=locs, elide=16)
    target = host()
    planned = run_passes(graph, pipeline(winograd), target=target)
    if stage == "explain":
        from gluonjit.passes.explain import table

        return table(planned, target)
    if stage == "optimized":
        return print_graph(planned, locs=locs, elide=16)
    text = lower_program(planned, target).text
    return text if stage == "llvm" else llvm.assembly(text, target)


def render_gradient(
    graph: Graph, stage: str, fixed: Collection[str] = (), locs: bool = False, remat: str = "elementwise"
) -> str:
    """The text of `graph` (level `traced`) with its gradient, or of one half. `fixed` are the names of parameters that
    get no gradient."""
    from gluonjit.execution.computation import Computation
    from gluonjit.ir.text import print_graph
    from gluonjit.passes import run_passes

    computation = Computation(graph)
    floats = [k for k, v in enumerate(graph.inputs) if v.dtype.is_float and v.name not in fixed]
    params = [k for k in floats if k in graph.attrs.get("params", ())]
    wrt = tuple(params or floats)
    heads = computation.differentiable(wrt)
    if not heads:
        raise MXNetError(f"no output of {graph.name} depends on a parameter or an input in a way that has a gradient")
    joint = computation.joint(wrt, heads)
    if stage != "joint":
        joint = run_passes(joint, [("partition", {"half": stage, "remat": remat})])
    return print_graph(joint, locs=locs, elide=16)
