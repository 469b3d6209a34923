"""MXNet's names for the lists of `operator_lists`; what is appended to them has an effect."""

from gluonjit.contrib.amp.lists import symbol_bf16, symbol_fp16

__all__ = ["symbol_bf16", "symbol_fp16"]
