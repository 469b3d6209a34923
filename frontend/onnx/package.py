"""The package `onnx`, which reads and writes the files. It is optional."""

from __future__ import annotations

from typing import Any


def require_onnx() -> Any:
    """The package; ImportError that says how to get it."""
    try:
        import onnx
    except ImportError as e:
        raise ImportError('ONNX files need the package onnx: pip install "gluonjit[onnx]"') from e
    import onnx.checker
    import onnx.helper
    import onnx.numpy_helper

    return onnx
