"""The models that real MXNet 1.9.1 exported and ran: `<case>/` with

    model-symbol.json, model-0000.params    as `export` writes them
    structured.params                       as `save_parameters` does
    in*.npy, out*.npy, meta.json            what went in and came out, names, shapes, tolerance
    train.npz                               a step in train mode: see test_gradients.py

They are in tests/data/ref.tar.xz, except for some large files, which are in the folder `shared` beside the project.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.operators.registry import OPERATORS
from gluonjit.symbol.graph import post_order
from support import reference

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "mxnet" / "ref"

NAMES = reference.names()


class Case:
    """One model."""

    def __init__(self, name):
        self.name = name
        self.meta = json.loads(self.path("meta.json").read_text())

    def path(self, file):
        """Where a file is; skips the test when it is nowhere."""
        for folder in (reference.folder(), SHARED):
            if (folder / self.name / file).exists():
                return folder / self.name / file
        pytest.skip(f"needs {self.name}/{file} from the folder `shared` beside the project, which is not here")

    @property
    def symbol(self):
        """The exported graph; skips the test when there is no such operator."""
        rows = json.loads(self.path("model-symbol.json").read_text())["nodes"]
        missing = {row["op"] for row in rows} - {"null", *OPERATORS}
        if missing:
            pytest.skip(f"there is no operator {', '.join(sorted(missing))} yet")
        return mx.sym.load(self.path("model-symbol.json"))

    @property
    def inputs(self):
        return [np.load(self.path(f"in{k}.npy")) for k in range(len(self.meta["in_shapes"]))]

    @property
    def outputs(self):
        return [np.load(self.path(f"out{k}.npy")) for k in range(len(self.meta["out_shapes"]))]

    @property
    def arrays(self):
        """Everything that the exported graph reads, by name."""
        params = mx.nd.load(self.path("model-0000.params"))
        arrays = {name.partition(":")[2]: array for name, array in params.items()} if params else {}
        arrays |= {n: mx.nd.array(x, dtype=x.dtype) for n, x in zip(self.meta["input_names"], self.inputs)}
        # A recurrent layer makes its first states itself: its graph has more inputs than its caller gives.
        left = [name for name in self.meta["input_names"] if name not in arrays]
        if left:
            shapes, *_ = self.symbol.infer_shape(**{name: x.shape for name, x in arrays.items()})
            states = dict(zip(self.symbol.list_arguments(), shapes))
            arrays |= {name: mx.nd.zeros(states[name]) for name in left}
        return arrays


def invoked(symbol, arrays):
    """The outputs of a graph, every node of which is a call of `mx.nd`."""
    internals = symbol.get_internals()
    shapes = dict(zip(internals._heads, internals.infer_shape(**{name: x.shape for name, x in arrays.items()})[1]))
    values = {}
    for node in post_order(symbol._heads):
        if node.op is None:
            results = [arrays[node.name]]
        else:
            attrs = node.attrs
            if not node.inputs and "shape" in attrs:  # of `_zeros` and its like it may have dimensions to be inferred
                attrs = {**attrs, "shape": shapes[node, 0]}
            results = mx.nd.invoke(node.op, [values[entry] for entry in node.inputs], attrs)
            results = results if isinstance(results, list) else [results]
        values.update({(node, k): array for k, array in enumerate(results)})
    return [values[head] for head in symbol._heads]
