"""The one function of bottleneck that scripts use."""

from numpy import argpartition

__all__ = ["argpartition"]

__version__ = "0"
"""So that pandas, which uses it if it is there, finds it too old."""
