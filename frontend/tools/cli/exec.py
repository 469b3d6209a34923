"""`gluonjit exec`: runs a program written for MXNet, in which `import mxnet` gives gluonjit."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from types import ModuleType, TracebackType
from typing import Any

from gluonjit.context import use_cpus_for_gpus
from gluonjit.ir.types import IRError
from gluonjit.tools import removed_names


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "exec",
        help="run a Python program with gluonjit in place of MXNet",
        description="Runs a Python program in which `import mxnet` gives gluonjit. What NumPy and Python have "
        "removed since MXNet's time (np.int, collections.Iterable, float() of an array with one element) is restored.",
        epilog="example:\n  echo 'import mxnet as mx; print(mx.nd.ones((2, 3)) + 1)' > old.py; gluonjit exec old.py",
        usage="gluonjit exec [--gpus-are-cpus] [--no-numpy-aliases] (SCRIPT.py | -m MODULE) [ARGUMENT ...]",
    )
    p.add_argument("--gpus-are-cpus", action="store_true", help="mx.gpu(k) is mx.cpu(k)")
    p.add_argument("--no-numpy-aliases", action="store_true", help="leave NumPy as it is")
    p.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="run a module, as python -m")
    p.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT.py", help="the program, and its arguments")
    p.set_defaults(run=_run, usage_error=p.error, raw_output=True)


def _run(arguments: argparse.Namespace) -> None:
    from gluonjit.tools.dropin import install_as_mxnet

    words = arguments.module or arguments.script
    if not words:
        arguments.usage_error("say which script or module to run")
    if not arguments.module and not os.path.isfile(words[0]):
        raise IRError(f"{words[0]} is not a file" if os.path.exists(words[0]) else f"there is no file {words[0]}")
    if arguments.gpus_are_cpus:
        use_cpus_for_gpus()
    if not arguments.no_numpy_aliases:
        folder = os.getcwd() if arguments.module else os.path.dirname(os.path.abspath(words[0]))
        sys.meta_path.insert(0, removed_names.ProgramFinder(folder))
        removed_names.restore_numpy_behaviour()
    install_as_mxnet(numpy_aliases=not arguments.no_numpy_aliases)
    removed_names.restore_python_names()
    try:
        if arguments.module:
            _run_module(words)
        else:
            _run_script(words, not arguments.no_numpy_aliases)
    except (SystemExit, BrokenPipeError):
        raise
    except BaseException as e:
        e.__traceback__ = _user_traceback(e.__traceback__)
        if e.__traceback__ is None and isinstance(e, ImportError):  # no such module; not one that the program lacks
            raise IRError(str(e)) from None
        sys.excepthook(type(e), e, e.__traceback__)  # the program, or a kvstore of several processes, may have set one
        raise SystemExit(130 if isinstance(e, KeyboardInterrupt) else 1) from None


def _run_script(words: list[str], conversions: bool) -> None:
    sys.argv[:] = words
    sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
    if not conversions:
        runpy.run_path(words[0], run_name="__main__")
        return
    with open(words[0], "rb") as file:
        code = removed_names.compiled(file.read(), words[0])
    main = ModuleType("__main__")
    main.__dict__.update(__file__=words[0], __cached__=None)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _run_module(words: list[str]) -> None:
    sys.argv[:] = words
    sys.path.insert(0, os.getcwd())
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def _user_traceback(tb: TracebackType | None) -> TracebackType | None:
    """The traceback without the leading frames of this file and of `runpy`."""
    part = tb
    while part is not None and part.tb_frame.f_code.co_filename in _MACHINERY:
        part = part.tb_next
    return part


_MACHINERY = {__file__, runpy.__file__, "<frozen runpy>"}
