"""Real MXNet, which needs an interpreter of its own (`--mxnet`), so nothing of gluonjit is imported here."""

from __future__ import annotations

from benchmarks.model import Model
from benchmarks.peers import Loaded


def load(model: Model, threads: int) -> Loaded:
    import mxnet as mx

    inputs = model.inputs()
    block = mx.gluon.SymbolBlock.imports(f"{model.prefix}-symbol.json", list(inputs), f"{model.prefix}-0000.params")
    block.hybridize(static_alloc=True, static_shape=True)

    def call(*args):
        returned = block(*args)
        returned = returned if isinstance(returned, list) else [returned]
        for y in returned:
            y.wait_to_read()
        return returned

    return Loaded(
        call,
        [mx.nd.array(x) for x in inputs.values()],
        lambda returned: [y.asnumpy() for y in returned],
        mx.__version__,
    )
