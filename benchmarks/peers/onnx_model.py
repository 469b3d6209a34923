"""A workload's model as an ONNX file, for those engines that read it: what `mx.onnx.export_model` writes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.model import Model


def onnx_file(model: Model) -> Path:
    """`model.onnx` beside the model's other files, made if need be, in a process of its own: those of engines need not
    have gluonjit in memory."""
    path, made_from = model.folder / "model.onnx", Path(f"{model.prefix}-0000.params")
    if not path.exists() or path.stat().st_mtime < made_from.stat().st_mtime:
        subprocess.run([sys.executable, "-m", "benchmarks.peers.onnx_model", str(model.folder)], check=True)
    return path


def write(
    model: Model, path: Path, shapes: Mapping[str, tuple[int, ...]], dims: Mapping[int, str] | None = None
) -> None:
    """Writes the model for inputs of these shapes.

    `dims`: sizes that no dimension has by itself → names. The file takes any size in their places."""
    import gluonjit as mx

    names = [name for name in mx.sym.load(f"{model.prefix}-symbol.json").list_inputs() if name in shapes]
    dims = dims or {}
    mx.onnx.export_model(
        f"{model.prefix}-symbol.json",
        f"{model.prefix}-0000.params",
        [shapes[name] for name in names],
        np.float32,
        path,
        dynamic=bool(dims),
        dynamic_input_shapes=[tuple(dims.get(n, n) for n in shapes[name]) for name in names],
    )


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    found = Model(folder)
    write(found, folder / "model.onnx", {name: x.shape for name, x in found.inputs().items()})
