"""`gluonjit build`: a model as a C library."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.common.quantities import bytes_text, seconds_text
from gluonjit.tools.cli.models import add_model, add_no_winograd, calling, load_model


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "build",
        help="make a C library of a model",
        description="Makes a library that runs the model without Python: libNAME.a and libNAME.so, NAME.h, a program "
        "main.c that repeats a stored call (check.bin), and files for CMake and pkg-config. The program compares all "
        "bits of the results; with --target all but rounding, as the code of this machine has computed what is stored. "
        "The library holds the parameters, and needs nothing but the C library and threads. A word in place of a size "
        "leaves that size to each call.",
        epilog="examples:\n  gluonjit build examples/fire-symbol.json examples/fire-0000.params "
        "--input data=1x3x224x224 -o out\n"
        "  cc -Wall out/main.c -Iout out/libnet.a -pthread -o check && ./check out/check.bin\n"
        "  gluonjit build examples/lenet.py:net --input batchx1x28x28 --target x86-64-v4 --target x86-64-v3 --static",
    )
    add_model(p)
    p.add_argument(
        "-o", "--output", default="out", metavar="FOLDER", help="the folder to write to (default: %(default)s)"
    )
    p.add_argument("--name", default="net", help="of the library and of its functions (default: %(default)s)")
    p.add_argument(
        "--target",
        action="append",
        help="a machine to compile for, such as x86-64-v3 or aarch64; of several, the library uses the first one that "
        "the processor can run (default: host)",
    )
    p.add_argument("--static", action="store_true", help="make the static library alone, for which no linker is needed")
    p.add_argument(
        "--unpacked",
        action="store_true",
        help="keep the parameters as they are, which takes less room: a net is created more slowly, as it packs them",
    )
    p.add_argument(
        "--weights-file",
        action="store_true",
        help="put the parameters into a file of their own, NAME.weights, which a net maps when it is created",
    )
    p.add_argument(
        "--predict-api",
        action="store_true",
        help="make MXNet's C interface for prediction (c_predict_api.h, MXPredCreate …) on top: libmxnet.so, and its "
        "source; for a graph and parameters in files",
    )
    add_no_winograd(p)
    p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    from gluonjit.c_library.library import check_folder, compile_library, write
    from gluonjit.c_library.library_source import source_of
    from gluonjit.language.modes import predict_mode
    from gluonjit.passes.pipelines import pipeline

    check_folder(Path(arguments.output), arguments.name)
    block, given = load_model(arguments)
    start = time.perf_counter()
    with calling(arguments.model, given):
        source = source_of(block, given, arguments.name, arguments.dynamic)
    targets = arguments.target or ["host"]
    if arguments.predict_api and arguments.weights_file:
        raise MXNetError("--predict-api has the parameters in the library: leave out --weights-file")
    steps = pipeline(not arguments.no_winograd)
    library = compile_library(source, targets, steps, not arguments.unpacked, arguments.weights_file)
    block.hybridize(winograd=not arguments.no_winograd, dynamic=arguments.dynamic)
    with predict_mode(), calling(arguments.model, given):
        found = block(*given)
    results = [x.asnumpy() for x in (found if isinstance(found, (list, tuple)) else [found])]
    inputs = [x.asnumpy() for x in given]
    files = None
    if arguments.predict_api:
        if arguments.static or arguments.params is None:
            raise MXNetError("--predict-api takes a graph and its parameters in files, and a linker (no --static)")
        files = Path(arguments.model).read_bytes(), Path(arguments.params).read_bytes()
    # What the code of other targets computes, to the last bit, cannot be known here.
    exact = targets[0] == "host"
    written = write(library, Path(arguments.output), inputs, results, not arguments.static, files, exact)
    print(f"{library.model.version}, in {seconds_text(time.perf_counter() - start)}:")
    for path in written:
        print(f"  {path}  {bytes_text(path.stat().st_size)}")
