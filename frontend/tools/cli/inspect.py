"""`gluonjit inspect`: describes a model's files without running it."""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gluonjit.common.quantities import bytes_text, count_text
from gluonjit.files.array_names import shown
from gluonjit.ir.graph import Builder, Graph
from gluonjit.ir.sizes import assumed, with_hints
from gluonjit.ir.types import TensorType, dtype, type_of
from gluonjit.ir.work import flops
from gluonjit.tools.cli import files, graphs, models
from gluonjit.tools.cli.loading import is_python, load_block, load_graph
from gluonjit.tools.cli.terminal import add_output, printing_to

STATES = ("running_mean", "running_var", "moving_mean", "moving_var")
"""The endings of names of auxiliary states."""

SHOWN = 10
"""Lines of a list, unless --all is given."""


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "inspect",
        help="describe a model: inputs, outputs, operators, parameters, FLOPs",
        description="Describes a model, or a file of parameters: inputs, outputs, numbers of each operator, "
        "parameters, sizes, FLOPs and what is not supported. FLOPs are those of the operators by their definitions (a "
        "multiply-add counts as 2); compiled kernels need fewer where BatchNorm is part of a convolution's weights, "
        "see `gluonjit dump`.",
        epilog="examples:\n"
        "  gluonjit inspect examples/fire-symbol.json examples/fire-0000.params --input data=1x3x224x224\n"
        "  gluonjit inspect examples/fire-0000.params",
    )
    models.add_model(p, "|FILE.ir|FILE.params", "; the text of a compiler's graph; a file of arrays", runs=False)
    p.add_argument("--all", action="store_true", help=f"list every parameter, not the {SHOWN} largest")
    add_output(p)
    p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    with printing_to(arguments.output):
        _describe(arguments)


def _describe(arguments: argparse.Namespace) -> None:
    if graphs.is_graph(arguments.model):
        _compiler_graph(arguments)
        return
    if not files.is_symbol(arguments.model):
        if not is_python(arguments.model) and Path(arguments.model).is_file() and not arguments.params:
            models.no_library(arguments.model)
            _arrays(arguments.model, arguments.all)
        else:
            _block(arguments)
        return
    problems = _graph(arguments)
    print("unsupported:" + ("" if problems else " nothing"))
    for problem in problems:
        print(f"  {shown(problem)}")


def _arrays(path: str, every: bool) -> None:
    from gluonjit.ndarray.array_files import borrow

    loaded = borrow(path)
    named = loaded if isinstance(loaded, dict) else {f"[{k}]": x for k, x in enumerate(loaded)}
    print(path)
    _list({name: type_of(x._array) for name, x in named.items()}, every)


def _block(arguments: argparse.Namespace) -> None:
    """Describes a block of a Python file, or of the zoo."""
    from gluonjit.execution.block_compiler import trace_call

    if is_python(arguments.model) and not arguments.input:
        models.no_parameters(arguments)
        print(arguments.model)
        _parameters(load_block(arguments.model), arguments.all)
        print("give the inputs' shapes for operators and FLOPs, such as --input 1x3x224x224")
        return
    block, given = models.load_model(arguments)
    with models.calling(arguments.model, given):
        graph = trace_call(block, given, arguments.dynamic)
    print(arguments.model)
    _described_graph(graph, len(given))
    _parameters(block, arguments.all)


def _parameters(block: Any, every: bool) -> None:
    params = dict(block.collect_params().items())
    known = {name: p for name, p in params.items() if p.shape is not None and all(n > 0 for n in p.shape)}
    _list({name: TensorType(dtype(p.dtype), tuple(p.shape)) for name, p in known.items()}, every)
    if len(known) < len(params):
        print(f"  and {len(params) - len(known)} whose shapes the first call decides")


def _compiler_graph(arguments: argparse.Namespace) -> None:
    """Describes a graph of the compiler."""
    models.no_parameters(arguments)
    graph = load_graph(arguments.model)
    print(f"{arguments.model}: a graph of the compiler, level {graph.level}")
    _described_graph(graph, len(graph.inputs))


def _described_graph(graph: Graph, inputs: int) -> None:
    _names(
        {"inputs": [v.name for v in graph.inputs[:inputs]], "outputs": [v.name for v in graph.outputs]},
        {v.name: v.type for v in (*graph.inputs, *graph.outputs)},
    )
    found = _flops(with_hints(graph))
    _operators(Counter(op.name.removeprefix("mx.") for op in graph.ops), found)
    print(f"FLOPs: {count_text(sum(found.values()))}{assumed(graph)}")


def _graph(arguments: argparse.Namespace) -> list[str]:
    """Describes the graph; returns the reasons why it cannot be run."""
    from gluonjit.execution.symbol_codes import LEARNED
    from gluonjit.symbol import json_reader

    if files.is_onnx(arguments.model):
        return _onnx(arguments)
    head = json_reader.summary(arguments.model)
    print(f"{arguments.model}: written by MXNet {_version(head.version)}, {head.nodes} nodes")
    if head.unknown:
        arrays = files.read_parameters(arguments.params) if arguments.params else {}
        inputs = [n for n in head.variables if n not in arrays and (arrays or not n.endswith((*LEARNED, *STATES)))]
        _names({"inputs": inputs, "outputs": dict.fromkeys(head.heads)}, {})
        _operators(head.operators, {})
        if arrays:
            _list({name: type_of(x._array) for name, x in arrays.items()}, arguments.all)
        return [f"operator {name} ({', '.join(nodes[:3])})" for name, nodes in head.unknown.items()]
    _described(files.FileModel(arguments.model, arguments.params), arguments, head.operators)
    return []


def _onnx(arguments: argparse.Namespace) -> list[str]:
    from gluonjit.onnx.importing.onnx_files import File
    from gluonjit.symbol.graph import post_order

    model = files.FileModel(arguments.model, arguments.params)
    nodes = [node.op.name for node in post_order(model.symbol._heads) if node.op is not None]
    print(f"{arguments.model}: an ONNX file of opset {File(arguments.model).versions['']}, {len(nodes)} operators here")
    _described(model, arguments, Counter(nodes))
    return []


def _described(model: files.FileModel, arguments: argparse.Namespace, operators: Mapping[str, int]) -> None:
    types = model.types
    graph: Graph | None = None
    if arguments.input or model.declared:
        from gluonjit.execution.block_compiler import trace_call

        block, given = model.prepare(arguments.input, 0, quiet=True)
        graph = trace_call(block, given)
        types = {v.name: v.type for v in graph.inputs}
        types |= {name: v.type for name, v in zip(model.outputs, graph.outputs)}
    _names({"inputs": model.inputs, "outputs": model.outputs}, types)
    flops = _flops(graph) if graph is not None else {}
    _operators(operators, flops)
    wanted = [n for n in model.symbol.list_inputs() if n not in model.inputs]
    if model.complete:
        _list({name: type_of(model.arrays[name]._array) for name in wanted}, arguments.all)
    else:
        print(f"parameters: {len(wanted)} (give their file for shapes and sizes)")
    if graph is not None:
        print(f"FLOPs: {count_text(sum(flops.values()))}")
    else:
        example = f"--input {shown(model.inputs[0]) if model.inputs else 'data'}=1x3x224x224"
        print(f"FLOPs: give the inputs' shapes, such as {example}")
    extra = [name for name in model.arrays if name not in model.symbol.list_inputs()]
    if extra:
        print(f"not read by the graph: {shown(', '.join(extra[:SHOWN]))}{', ...' if len(extra) > SHOWN else ''}")


def _names(groups: Mapping[str, Iterable[str]], types: Mapping[str, TensorType]) -> None:
    for title, names in groups.items():
        print(f"{title}:")
        for name in names:
            print(f"  {shown(name)}{f': {types[name]}' if name in types else ''}")


def _version(number: int) -> str:
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}" + (" or earlier" if number <= 800 else "")


def _operators(nodes: Mapping[str, int], flops: Mapping[str, int]) -> None:
    print(f"operators: {sum(nodes.values())}")
    for name, count in sorted(nodes.items(), key=lambda item: (-item[1], item[0])):
        print(f"  {shown(name):32} {count:5}{f'  {count_text(flops[name]):>9} FLOPs' if flops.get(name) else ''}")


def _list(types: Mapping[str, TensorType], every: bool) -> None:
    """Prints totals, then the arrays: all in order, or the largest."""
    kinds = Counter(str(t.dtype) for t in types.values())
    elements, nbytes = sum(t.size for t in types.values()), sum(t.nbytes for t in types.values())
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    print(f"parameters: {len(types)} arrays ({listed or 'none'}), {elements:,} elements, {bytes_text(nbytes)}")
    names = list(types) if every else sorted(types, key=lambda name: -types[name].nbytes)[:SHOWN]
    for name in names:
        print(f"  {shown(name):40} {types[name]}")
    if len(names) < len(types):
        print(f"  ... and {len(types) - len(names)} smaller ones (--all lists them)")


# FLOPs


def _flops(graph: Graph) -> dict[str, int]:
    """FLOPs by operator, counted in its expansions into primitives."""
    from gluonjit.operators import registry

    found: dict[str, int] = defaultdict(int)
    for op in graph.ops:
        if not op.name.startswith("mx."):
            found[op.name] += int(flops(op))
            continue
        b = Builder("count", training=bool(graph.attrs.get("training")))
        operator = registry.get(op.name.removeprefix("mx."))
        results = operator.expand_into(b, [b.input("", v.type) for v in op.operands], op.attrs)
        found[operator.name] += int(sum(map(flops, b.build(results).ops)))
    return dict(found)
