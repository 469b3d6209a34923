"""Integers in place of floats."""
