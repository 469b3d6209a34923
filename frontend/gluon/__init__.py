"""Gluon: blocks, parameters, layers, losses, and models made of them."""

import typing as _typing

from gluonjit.gluon import loss, nn, rnn, utils
from gluonjit.gluon.block import Block, HybridBlock
from gluonjit.gluon.parameter import Constant, DeferredInitializationError, Parameter, ParameterDict
from gluonjit.gluon.rnn.sequences import tensor_types
from gluonjit.gluon.symbol_block import SymbolBlock
from gluonjit.gluon.trainer import Trainer
from gluonjit.language import mxnet_names as _mxnet_names

if _typing.TYPE_CHECKING:
    from gluonjit.gluon import contrib, data, model_zoo

__all__ = [
    "Block",
    "Constant",
    "DeferredInitializationError",
    "HybridBlock",
    "Parameter",
    "ParameterDict",
    "SymbolBlock",
    "Trainer",
    "contrib",
    "data",
    "loss",
    "model_zoo",
    "nn",
    "rnn",
    "tensor_types",
    "utils",
]

_LATER = ("contrib", "data", "model_zoo")
"""The packages in this one that are imported when they are first used, as many programs do without."""

_mxnet_names.explain(__name__, _LATER)
for _module in (
    "block",
    "parameter",
    "nn",
    "nn.basic_layers",
    "nn.conv_layers",
    "rnn",
    "rnn.rnn_cell",
    "rnn.rnn_layer",
    "loss",
):
    _mxnet_names.explain(f"{__name__}.{_module}")
