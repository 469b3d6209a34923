"""Gluon: blocks, parameters, layers, losses, and models made of them."""

from gluonjit.gluon import contrib, data, loss, model_zoo, nn, rnn, utils
from gluonjit.gluon.block import Block, HybridBlock
from gluonjit.gluon.parameter import Constant, DeferredInitializationError, Parameter, ParameterDict
from gluonjit.gluon.rnn.sequences import tensor_types
from gluonjit.gluon.symbol_block import SymbolBlock
from gluonjit.gluon.trainer import Trainer
from gluonjit.language import mxnet_names as _mxnet_names

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

for _module in (
    "",
    ".block",
    ".parameter",
    ".nn",
    ".nn.basic_layers",
    ".nn.conv_layers",
    ".rnn",
    ".rnn.rnn_cell",
    ".rnn.rnn_layer",
    ".loss",
    ".contrib",
    ".contrib.nn",
    ".contrib.rnn",
    ".model_zoo",
    ".model_zoo.vision",
):
    _mxnet_names.explain(__name__ + _module)
