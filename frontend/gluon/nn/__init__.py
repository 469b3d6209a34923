"""Gluon's neural network layers."""
