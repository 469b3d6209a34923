"""Convolutions of `gluon.contrib`."""

from gluonjit.gluon.contrib.cnn.conv_layers import DeformableConvolution, ModulatedDeformableConvolution

__all__ = ["DeformableConvolution", "ModulatedDeformableConvolution"]
