"""Gluon 1.x models as native CPU code."""
