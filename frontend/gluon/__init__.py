"""Gluon: blocks, parameters, layers, losses, and models made of them."""

from gluonjit.gluon import contrib, loss, model_zoo, nn, rnn
from gluonjit.gluon.block import Block, HybridBlock
from gluonjit.gluon.parameter import Constant, DeferredInitializationError, Parameter, ParameterDict
from gluonjit.gluon.rnn.sequences import tensor_types
from gluonjit.gluon.symbol_block import SymbolBlock

__all__ = [
    "Block",
    "Constant",
    "DeferredInitializationError",
    "HybridBlock",
    "Parameter",
    "ParameterDict",
    "SymbolBlock",
    "contrib",
    "loss",
    "model_zoo",
    "nn",
    "rnn",
    "tensor_types",
]
