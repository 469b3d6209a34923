"""What MXNet keeps in `mxnet.base`: the error classes users catch, and a few type aliases."""

from __future__ import annotations

import numpy as np


class MXNetError(RuntimeError):
    """The error MXNet raises for what its engine refuses."""


class NotImplementedForSymbol(MXNetError):
    """A method that only NDArray has was called on a Symbol."""

    def __init__(self, function: object, alias: str | None, *args: object) -> None:
        super().__init__()
        self.function = getattr(function, "__name__", str(function))
        self.alias = alias
        self.args = tuple(str(type(a)) for a in args)

    def __str__(self) -> str:
        text = f"Function {self.function}"
        if self.alias:
            text += f' (namely operator "{self.alias}")'
        if self.args:
            text += f" with arguments ({', '.join(self.args)})"
        return text + " is not implemented for Symbol and only available in NDArray."


class TraceError(MXNetError):
    """Something in `hybrid_forward` cannot be compiled; the message shows the user's line and what to write instead."""


class CheckpointError(MXNetError, ValueError):
    """A model file is malformed; the message names the file, the place in it and what was expected."""


string_types = (str,)
numeric_types = (float, int, np.generic)
integer_types = (int, np.int32, np.int64)
