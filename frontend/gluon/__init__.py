"""Gluon: blocks, parameters and layers."""

from gluonjit.gluon import nn
from gluonjit.gluon.block import Block, HybridBlock
from gluonjit.gluon.parameter import Constant, DeferredInitializationError, Parameter, ParameterDict

__all__ = ["Block", "Constant", "DeferredInitializationError", "HybridBlock", "Parameter", "ParameterDict", "nn"]
