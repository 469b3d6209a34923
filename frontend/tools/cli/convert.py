"""`gluonjit convert`: converts files of arrays, and models between MXNet's files and ONNX."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.files.array_names import shown
from gluonjit.ir.dims import Dim, hinted
from gluonjit.profiling.listing import bytes_text
from gluonjit.tools.cli import files, inputs
from gluonjit.tools.cli.inputs import Input

_FORMS = (
    "convert takes FROM and TO, files of arrays; or model-symbol.json model.params model.onnx; or model.onnx "
    "model-symbol.json model.params"
)


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "convert",
        help="convert a file of parameters, or a model from or to ONNX",
        description="Reads arrays and writes them in the format that the second name's ending selects: .npz, "
        ".safetensors, or MXNet's .params for any other ending. MXNet's files of every version are read. With an .onnx "
        "file and a graph (.json), a model is converted; to write ONNX takes --input, in which a word in place of a "
        "size leaves that size open.",
        epilog="examples:\n  gluonjit convert examples/fire-0000.params fire.safetensors\n"
        "  gluonjit convert fire.safetensors fire.npz --strip\n"
        "  gluonjit convert examples/fire-symbol.json examples/fire-0000.params fire.onnx --input batchx3x224x224\n"
        "  gluonjit convert fire.onnx fire-symbol.json fire-0000.params",
    )
    p.add_argument("files", nargs="+", metavar="FILE", help="FROM and TO; what is written replaces old files")
    p.add_argument("--strip", action="store_true", help="remove arg: and aux: from the start of names of arrays")
    p.add_argument("--opset", type=inputs.at_least(1), help="version of ONNX's operators (default: 20)")
    inputs.add_option(p)
    p.set_defaults(run=_run, usage_error=p.error)


def _run(arguments: argparse.Namespace) -> None:
    given = arguments.files
    onnx = [files.is_onnx(path) for path in given]
    graphs = [path.endswith(".json") for path in given]
    try:
        if len(given) == 3 and onnx == [False, False, True] and graphs == [True, False, False]:
            _to_onnx(given[0], given[1], given[2], arguments.input, arguments.opset)
        elif len(given) == 3 and onnx == [True, False, False] and graphs == [False, True, False]:
            _from_onnx(given[0], given[1], given[2])
        elif len(given) == 2 and not any(onnx + graphs):
            _arrays(given[0], given[1], arguments.strip)
        else:
            arguments.usage_error(_FORMS)
    except ImportError as e:
        raise MXNetError(str(e)) from e


def _arrays(source: str, target: str, strip: bool) -> None:
    from gluonjit.files import formats

    arrays = formats.read(source, copy=False)
    if strip and isinstance(arrays, dict):
        stripped = {name[4:] if name.startswith(("arg:", "aux:")) else name: x for name, x in arrays.items()}
        if len(stripped) != len(arrays):
            raise MXNetError(f"{source}: without arg: and aux:, some names are the same")
        arrays = stripped
    formats.write(target, arrays)
    values = list(arrays.values() if isinstance(arrays, dict) else arrays)
    print(f"{target}: {len(values)} arrays, {bytes_text(sum(x.nbytes for x in values))}")


def _to_onnx(graph: str, params: str, target: str, given: Sequence[Input], opset: int | None) -> None:
    from gluonjit.onnx import export_model

    model = files.FileModel(graph, params)
    if not given or any(x.type is None for x in given):
        names = shown(model.inputs[0]) if model.inputs else "data"
        raise MXNetError(f"say which shapes the inputs have, such as --input {names}=1x3x224x224")
    inputs.check_names([x.name for x in given])
    left = iter([name for name in model.inputs if name not in [x.name for x in given]])
    types = {x.name or next(left, ""): x.type for x in given}
    strangers = [name for name in types if name not in model.symbol.list_arguments()]
    if strangers:
        raise MXNetError(f"the graph has no input {shown(strangers[0])!r}; it has {shown(', '.join(model.inputs))}")
    ordered = [types[name] for name in model.symbol.list_inputs() if name in types]
    export_model(
        model.symbol,
        model.arrays,
        [hinted(t.shape) for t in ordered if t],
        [t.dtype.numpy for t in ordered if t],
        target,
        dynamic=any(isinstance(n, Dim) for t in ordered if t for n in t.shape),
        dynamic_input_shapes=[tuple(n if isinstance(n, int) else str(n) for n in t.shape) for t in ordered if t],
        opset_version=opset,
    )
    print(f"{target}: {len(model.arrays)} arrays, {bytes_text(sum(x._array.nbytes for x in model.arrays.values()))}")


def _from_onnx(source: str, graph: str, params: str) -> None:
    from gluonjit import ndarray
    from gluonjit.onnx import import_model

    symbol, args, aux = import_model(source)
    arrays = {f"arg:{name}": x for name, x in args.items()} | {f"aux:{name}": x for name, x in aux.items()}
    symbol.save(graph)
    ndarray.save(params, arrays)
    print(f"{graph}: inputs {shown(', '.join(n for n in symbol.list_arguments() if n not in args))}")
    print(f"{params}: {len(arrays)} arrays, {bytes_text(sum(x._array.nbytes for x in arrays.values()))}")
