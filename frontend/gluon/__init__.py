"""Gluon: blocks, parameters, layers and losses."""
