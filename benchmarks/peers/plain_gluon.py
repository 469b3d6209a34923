"""Gluon programs that do not hybridize: in gluonjit, and in real MXNet, whose process imports nothing of ours."""

from __future__ import annotations

from typing import Any

from benchmarks.model import Model
from benchmarks.peers import Loaded
from benchmarks.plain_programs import PROGRAMS


def ours(model: Model, threads: int) -> Loaded:
    import gluonjit as mx
    from gluonjit._version import version

    mx.set_num_threads(threads)
    return _load(mx, model, version)


def mxnet(model: Model, threads: int) -> Loaded:
    import mxnet as mx

    return _load(mx, model, mx.__version__)


def _load(mx: Any, model: Model, version: str) -> Loaded:
    run = PROGRAMS[model.facts["program"]].make(mx)

    def call() -> Any:
        result = run()
        mx.nd.waitall()
        return result

    return Loaded(call, [], lambda result: [result.asnumpy()], version)
