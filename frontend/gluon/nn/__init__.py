"""Gluon's neural network layers."""

from gluonjit.gluon.block import Block, HybridBlock
from gluonjit.gluon.nn.activations import ELU, GELU, SELU, Activation, LeakyReLU, PReLU, Swish
from gluonjit.gluon.nn.basic_layers import Dense, Dropout, Embedding, Flatten
from gluonjit.gluon.nn.containers import HybridLambda, HybridSequential, Lambda, Sequential
from gluonjit.gluon.nn.conv_layers import Conv1D, Conv1DTranspose, Conv2D, Conv2DTranspose, Conv3D, Conv3DTranspose
from gluonjit.gluon.nn.norm_layers import BatchNorm, BatchNormReLU, GroupNorm, InstanceNorm, LayerNorm
from gluonjit.gluon.nn.pool_layers import (
    AvgPool1D,
    AvgPool2D,
    AvgPool3D,
    GlobalAvgPool1D,
    GlobalAvgPool2D,
    GlobalAvgPool3D,
    GlobalMaxPool1D,
    GlobalMaxPool2D,
    GlobalMaxPool3D,
    MaxPool1D,
    MaxPool2D,
    MaxPool3D,
    ReflectionPad2D,
)
from gluonjit.gluon.symbol_block import SymbolBlock

__all__ = [
    "ELU",
    "GELU",
    "SELU",
    "Activation",
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "BatchNorm",
    "BatchNormReLU",
    "Block",
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAvgPool1D",
    "GlobalAvgPool2D",
    "GlobalAvgPool3D",
    "GlobalMaxPool1D",
    "GlobalMaxPool2D",
    "GlobalMaxPool3D",
    "GroupNorm",
    "HybridBlock",
    "HybridLambda",
    "HybridSequential",
    "InstanceNorm",
    "Lambda",
    "LayerNorm",
    "LeakyReLU",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "PReLU",
    "ReflectionPad2D",
    "Sequential",
    "Swish",
    "SymbolBlock",
]
