"""`gluonjit convert`: converts files of arrays, and models between MXNet's files and ONNX."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.common.quantities import bytes_text
from gluonjit.files import formats
from gluonjit.files.array_names import shown
from gluonjit.ir.dims import Dim, hinted
from gluonjit.tools.cli import files, inputs, models
from gluonjit.tools.cli.inputs import Input

_FORMS = (
    "convert takes FROM and TO, files of arrays; or a model (model-symbol.json model.params, model.onnx, FILE.py:NAME, "
    "or a name of the zoo) and what to write: model.onnx, or model-symbol.json model.params"
)


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "convert",
        help="convert a file of parameters, or a model from or to ONNX",
        description="Reads arrays and writes them in the format that the second name's ending selects: .npz, "
        ".safetensors or MXNet's .params. MXNet's files of every version are read. A model is converted if what is "
        "written is an .onnx file, or a graph (.json) and its parameters; that takes --input unless the model says it, "
        "in which a word in place of a size leaves that size open.",
        epilog="examples:\n  gluonjit convert examples/fire-0000.params fire.safetensors\n"
        "  gluonjit convert fire.safetensors fire.npz --strip\n"
        "  gluonjit convert examples/fire-symbol.json examples/fire-0000.params fire.onnx --input batchx3x224x224\n"
        "  gluonjit convert fire.onnx fire-symbol.json fire-0000.params\n"
        "  gluonjit convert examples/lenet.py:net lenet.onnx --input batchx1x28x28",
    )
    p.add_argument("files", nargs="+", metavar="FILE", help="FROM and TO; what is written replaces old files")
    p.add_argument("--strip", action="store_true", help="remove arg: and aux: from the start of names of arrays")
    p.add_argument("--opset", type=inputs.at_least(1), help="version of ONNX's operators (default: 20)")
    inputs.add_option(p)
    p.set_defaults(run=_run, usage_error=p.error)


def _run(arguments: argparse.Namespace) -> None:
    given = arguments.files
    try:
        if 2 <= len(given) <= 3 and files.is_onnx(given[-1]) and not given[0].endswith(formats.ENDINGS):
            _to_onnx(given[:-1], given[-1], arguments.input, arguments.opset)
        elif len(given) == 3 and files.is_onnx(given[0]) and _is_checkpoint(given[1:]):
            _from_onnx(given[0], given[1], given[2])
        elif 3 <= len(given) <= 4 and _is_checkpoint(given[-2:]) and not given[0].endswith(formats.ENDINGS):
            _to_checkpoint(given[:-2], given[-2], given[-1], arguments.input)
        elif len(given) == 2 and not any(map(files.is_symbol, given)):
            _arrays(given[0], given[1], arguments.strip)
        else:
            arguments.usage_error(_FORMS)
    except ImportError as e:
        raise MXNetError(str(e)) from e


def _is_checkpoint(paths: Sequence[str]) -> bool:
    """Whether these are names of a graph and its parameters."""
    return paths[0].endswith(".json") and paths[1].endswith(formats.ENDINGS)


def _arrays(source: str, target: str, strip: bool) -> None:
    arrays = formats.read(source, copy=False)
    if strip and isinstance(arrays, dict):
        stripped = {name[4:] if name.startswith(("arg:", "aux:")) else name: x for name, x in arrays.items()}
        if len(stripped) != len(arrays):
            raise MXNetError(f"{source}: without arg: and aux:, some names are the same")
        arrays = stripped
    if not target.endswith(formats.ENDINGS):
        listed = ", ".join(formats.ENDINGS)
        raise MXNetError(
            f"{target}: its ending is not that of a format that convert writes: {listed}, or .onnx with a graph"
        )
    formats.write(target, arrays)
    values = list(arrays.values() if isinstance(arrays, dict) else arrays)
    print(f"{target}: {len(values)} arrays, {bytes_text(sum(x.nbytes for x in values))}")


def _source(model: Sequence[str], given: Sequence[Input]) -> tuple[Any, dict[str, Any], list[str], Sequence[Input]]:
    """(symbol, arrays by name, names of inputs, what the inputs are) of the model that the words name."""
    params = model[1] if len(model) == 2 else None
    if files.is_symbol(model[0]):
        read = files.FileModel(model[0], params)
        if not read.complete:
            raise MXNetError(f"name the parameters' file after {model[0]}, too")
        return read.symbol, read.arrays, read.inputs, given or read.declared
    arguments = argparse.Namespace(model=model[0], params=params, input=list(given), seed=0, zeros=False)
    block, arrays = models.load_model(arguments)
    if not hasattr(block, "_jit_exported"):
        raise MXNetError(f"{model[0]} is not a HybridBlock, so it has no graph")
    block.hybridize(dynamic=arguments.dynamic)
    with models.calling(model[0], arrays):
        block(*arrays)
    symbol, named = block._jit_exported()
    return symbol, named, block._argument_names(len(arrays)), arguments.input


def _to_onnx(source: Sequence[str], target: str, given: Sequence[Input], opset: int | None) -> None:
    from gluonjit.onnx import export_model

    symbol, arrays, names, given = _source(source, given)
    if not given or any(x.type is None for x in given):
        raise MXNetError(
            f"say which shapes the inputs have, such as --input {shown(names[0]) if names else 'data'}=1x3x224x224"
        )
    inputs.check_names([x.name for x in given])
    left = iter([name for name in names if name not in [x.name for x in given]])
    types = {x.name or next(left, ""): x.type for x in given}
    strangers = [name for name in types if name not in symbol.list_arguments()]
    if strangers:
        raise MXNetError(inputs.no_input(strangers[0], names))
    ordered = [types[name] for name in symbol.list_inputs() if name in types]
    export_model(
        symbol,
        arrays,
        [hinted(t.shape) for t in ordered if t],
        [t.dtype.numpy for t in ordered if t],
        target,
        dynamic=any(isinstance(n, Dim) for t in ordered if t for n in t.shape),
        dynamic_input_shapes=[tuple(n if isinstance(n, int) else str(n) for n in t.shape) for t in ordered if t],
        opset_version=opset,
    )
    print(f"{target}: {len(arrays)} arrays, {bytes_text(sum(x._array.nbytes for x in arrays.values()))}")


def _to_checkpoint(source: Sequence[str], graph: str, params: str, given: Sequence[Input]) -> None:
    from gluonjit import ndarray

    symbol, arrays, names, _ = _source(source, given)
    states = symbol.list_auxiliary_states()
    symbol.save(graph)
    ndarray.save(params, {f"{'aux' if name in states else 'arg'}:{name}": x for name, x in arrays.items()})
    print(f"{graph}: inputs {shown(', '.join(names))}")
    print(f"{params}: {len(arrays)} arrays, {bytes_text(sum(x._array.nbytes for x in arrays.values()))}")


def _from_onnx(source: str, graph: str, params: str) -> None:
    from gluonjit import ndarray
    from gluonjit.onnx import import_model

    symbol, args, aux = import_model(source)
    arrays = {f"arg:{name}": x for name, x in args.items()} | {f"aux:{name}": x for name, x in aux.items()}
    symbol.save(graph)
    ndarray.save(params, arrays)
    print(f"{graph}: inputs {shown(', '.join(n for n in symbol.list_arguments() if n not in args))}")
    print(f"{params}: {len(arrays)} arrays, {bytes_text(sum(x._array.nbytes for x in arrays.values()))}")
