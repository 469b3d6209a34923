"""`gluonjit serve`: models behind a port."""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.common.quantities import bytes_text
from gluonjit.ir.opdef import did_you_mean
from gluonjit.tools.cli.inputs import add_threads, at_least, input_type
from gluonjit.tools.serving.limits import Limits, described, shown

_NEEDS = ("starlette", "uvicorn", "httptools", "prometheus_client")
_GRPC_NEEDS = ("grpc", "google.protobuf")
_INSTALL = 'pip install "gluonjit[serve]"'
_MODEL = re.compile(r"(?:([A-Za-z0-9_][A-Za-z0-9_.-]{0,99})(?:@([0-9]{1,18}))?=)?(.+)")


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "serve",
        help="answer requests to run models, over HTTP and gRPC",
        description="Serves models by the Open Inference Protocol, version 2, as clients of KServe and Triton do. "
        "Requests that come together are computed together where a model's graph shows that no row of a batch depends "
        f"on another. The port's page shows the models, and lets one try them. A folder of models has their files in "
        f"NAME/VERSION/, and may say in NAME/model.json how they are served. Needs {_INSTALL}.",
        epilog="examples:\n  gluonjit serve examples/fire-symbol.json examples/fire-0000.params "
        "--input data=batchx3x224x224 --port 8000\n"
        "  gluonjit serve digits=examples/lenet.py:net fire@2=examples/fire-symbol.json examples/fire-0000.params "
        "--input digits:data=batchx1x28x28 --input fire:data=batchx3x224x224 --grpc-port 8001\n"
        "  curl localhost:8000/v2/models/fire\n\n"
        "limits that are always the same:\n"
        + "".join(f"  {shown(value, about):>7}  {about.text}\n" for _, value, about in described() if not about.option),
    )
    p.add_argument(
        "models",
        nargs="+",
        metavar="[NAME[@VERSION]=]MODEL",
        help="a graph that MXNet wrote, and after it its parameters' file; an ONNX file; a library that "
        "`gluonjit build` made; FILE.py:NAME; or a folder NAME/VERSION/FILES of models",
    )
    p.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[MODEL:]NAME=SHAPE",
        help="an input's shape and element type, such as data=batchx3x224x224 or words=batchxlength:int32; words are "
        "sizes that requests choose. Libraries and most ONNX files have them already",
    )
    p.add_argument("--host", default="127.0.0.1", help="the address to listen at (default: %(default)s: this machine)")
    p.add_argument("--port", type=_port, default=8000, help="of HTTP; 0: any (default: %(default)s)")
    p.add_argument("--grpc-port", type=_port, metavar="PORT", help="of gRPC; 0: any (default: no gRPC)")
    add_threads(p)
    _add_batches(p.add_argument_group("batches"))
    _add_limits(p.add_argument_group("limits"))
    _add_life(p.add_argument_group("life"))
    p.set_defaults(run=_run)


def _add_batches(batches: argparse._ArgumentGroup) -> None:
    batches.add_argument(
        "--max-batch", type=at_least(1), default=32, metavar="N", help="the most rows of a call (default: %(default)s)"
    )
    batches.add_argument(
        "--delay",
        type=at_least(0, float),
        default=2.0,
        metavar="MS",
        help="milliseconds that a request waits for others to be computed with (default: %(default)s)",
    )
    batches.add_argument(
        "--batching",
        choices=("auto", "on", "off"),
        default="auto",
        help="whether requests are computed together: if the graph shows that it changes no answer, always, or never "
        "(default: %(default)s)",
    )


def _add_limits(limits: argparse._ArgumentGroup) -> None:
    limits.add_argument(
        "--limit",
        action="append",
        default=[],
        type=_limit,
        metavar="WORD=SIZE",
        help="the largest size of an input's dimension, such as length=512 (default: 1024)",
    )
    for name, default, about in described():
        if about.option:
            limits.add_argument(
                about.option,
                dest=name,
                type=at_least(about.low, type(default) if about.scale == 1 else float),
                default=default / about.scale if about.scale > 1 else default,
                metavar=about.unit,
                help=f"{about.text} (default: %(default)s)",
            )


def _add_life(life: argparse._ArgumentGroup) -> None:
    life.add_argument(
        "--reload",
        type=at_least(0, float),
        default=2.0,
        metavar="S",
        help="seconds between checks whether files have changed; 0: never (default: %(default)s)",
    )
    life.add_argument("--control", action="store_true", help="let requests load and unload models")
    life.add_argument(
        "--drain",
        type=at_least(0, float),
        default=1.0,
        metavar="S",
        help="seconds from a signal to end until no more connections are accepted (default: %(default)s)",
    )


def _port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text[:6]) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: a port is a number from 0 to 65535")
    return int(text)


def _limit(text: str) -> tuple[str, int]:
    word, equals, size = text.partition("=")
    if not equals or not word or not size.isascii() or not size.isdecimal() or not 0 < int(size[:18]):
        raise argparse.ArgumentTypeError(f"{text!r}: write it as length=512")
    return word, int(size)


def _run(arguments: argparse.Namespace) -> None:
    missing = [name for name in _NEEDS if importlib.util.find_spec(name) is None]
    if arguments.grpc_port is not None:
        missing += [name for name in _GRPC_NEEDS if not _is_there(name)]
    if missing:
        raise MXNetError(f"`gluonjit serve` needs {', '.join(missing)}: {_INSTALL}")
    import asyncio

    from gluonjit.tools.serving.http_server import Service
    from gluonjit.tools.serving.observations import Observations
    from gluonjit.tools.serving.served_models import ModelStore, Options
    from gluonjit.tools.serving.server import log_to_standard_error, return_memory, serve

    log_to_standard_error()
    return_memory()
    # How long a model's thread waits for the loop's, after its call, before it can begin the next one; by default 5 ms.
    sys.setswitchinterval(0.0005)
    options = Options(arguments.threads, _limits(arguments))
    observations = Observations()
    store = ModelStore(sources(arguments), options, observations.call)
    try:
        store.load_all()
        for served in store.all():
            together = f"batches of up to {served.source.max_batch}" if served.rows else f"alone: {served.why_alone}"
            memory = "" if served.most_memory is None else f"; at most {bytes_text(served.most_memory)} a call"
            print(f"{served.source.name}, version {served.source.version}: {together}{memory}", flush=True)
        service = Service(
            store,
            observations,
            control=arguments.control,
            reload=arguments.reload,
        )

        def ready(_server: Any, port: int, grpc_port: int | None) -> None:
            grpc = "" if grpc_port is None else f", gRPC at {arguments.host}:{grpc_port}"
            print(f"ready at http://{arguments.host}:{port}{grpc}", flush=True)

        asyncio.run(serve(service, arguments.host, arguments.port, arguments.grpc_port, arguments.drain, ready))
    finally:
        store.close()


def _limits(arguments: argparse.Namespace) -> Limits:
    given = {name: getattr(arguments, name) for name, _, about in described() if about.option}
    scale = {name: about.scale for name, _, about in described()}
    return Limits(**{name: int(x * scale[name]) if scale[name] > 1 else x for name, x in given.items()})


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of a package that is not there
        return False


def sources(arguments: argparse.Namespace) -> Callable[[], Sequence[Any]]:
    """The models that the command line names. MXNetError for anything else, and for inputs of other models."""
    from gluonjit.tools.serving.served_models import ModelFiles, in_folder

    batching = {"auto": None, "on": True, "off": False}[arguments.batching]
    common = ModelFiles("", 1, (), {}, batching, arguments.max_batch, arguments.delay / 1000, dict(arguments.limit))
    fixed: list[ModelFiles] = []
    folders: list[Path] = []
    for text in arguments.models:
        match = _MODEL.fullmatch(text)
        assert match is not None or not text
        name, version, file = match.groups() if match else (None, None, "")
        if file.endswith(".params") and name is None:
            if not fixed or len(fixed[-1].files) != 1 or not fixed[-1].files[0].endswith(".json"):
                raise MXNetError(f"{file}: a parameters' file follows its graph, model-symbol.json")
            fixed[-1] = replace(fixed[-1], files=(*fixed[-1].files, file))
        elif Path(file).is_dir():
            folders.append(Path(file))
        else:
            fixed.append(replace(common, name=name or _name(file), version=int(version or 1), files=(file,)))
    for k, source in enumerate(fixed):
        if any((source.name, source.version) == (other.name, other.version) for other in fixed[:k]):
            raise MXNetError(
                f"{source.name}, version {source.version}, is given twice: NAME@VERSION=MODEL tells them apart"
            )
    given = [_input(text) for text in arguments.input]

    def found() -> list[ModelFiles]:
        everything = [*fixed, *(s for folder in folders for s in in_folder(folder, common))]
        return [replace(s, inputs={**s.inputs, **_inputs_of(s.name, given)}) for s in everything]

    models = found()
    if not models:
        raise MXNetError(f"{', '.join(map(str, folders))}: there is no model in it")
    for model, name, _ in given:
        if model is not None and model not in [s.name for s in models]:
            near = did_you_mean(model, [s.name for s in models])
            raise MXNetError(f"--input {model}:{name}: there is no model {model!r}{near}")
    return found


def _name(file: str) -> str:
    if ".py:" in file:
        return file.rpartition(":")[2]
    name = Path(file).name.removesuffix("-symbol.json").removesuffix(".json").removesuffix(".onnx")
    if name.startswith("lib") and name.endswith(".so"):
        name = name[3:-3]
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name) or "model"


def _input(text: str) -> tuple[str | None, str, str]:
    """(model or None for all, input, shape)"""
    name, equals, shape = text.partition("=")
    model, colon, own = name.partition(":")
    if not equals or not name or (colon and not own):
        raise MXNetError(f"--input {text}: write it as data=batchx3x224x224, or MODEL:data=batchx3x224x224")
    try:
        input_type(shape)
    except argparse.ArgumentTypeError as e:
        raise MXNetError(f"--input {text}: {e}") from None
    return (model if colon else None), (own if colon else name), shape


def _inputs_of(model: str, given: Sequence[tuple[str | None, str, str]]) -> dict[str, str]:
    return {name: shape for only, name, shape in given if only in (None, model)}
