"""A workload as files that every engine reads: graph and weights as MXNet exports them, inputs, reference output.

    model-symbol.json, model-0000.params   as `mxnet.mod.Module.save_checkpoint` writes them
    inputs.npz                             by the names of the graph's inputs
    reference.npz                          the outputs in float64, by NumPy, operator by operator
    facts.json                             workload, batch, width, flop, bytes

`python -m benchmarks.model W4 FOLDER` makes them, in a process of its own; they are made again when the code that
defines them has changed.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_VERSION = 2
"""To be raised when the files' meaning changes."""


@dataclass(frozen=True)
class Model:
    folder: Path

    @property
    def prefix(self) -> Path:
        return self.folder / "model"

    @property
    def facts(self) -> dict[str, Any]:
        return json.loads((self.folder / "facts.json").read_text())

    def inputs(self) -> dict[str, np.ndarray]:
        """In the order in which the model takes them."""
        with np.load(self.folder / "inputs.npz") as archive:
            return {name: archive[name] for name in archive.files}

    def reference(self) -> list[np.ndarray]:
        with np.load(self.folder / "reference.npz") as archive:
            return list(archive.values())

    def net(self) -> Any:
        """The graph as a `benchmarks.graph.Net`."""
        from benchmarks.graph import read

        return read(self.prefix, {name: x.shape for name, x in self.inputs().items()})


def model(key: str, top: Path, batch: int | None = None, width: int = 1, reference: bool = True) -> Model:
    """The workload's files in a folder of their own below `top`, made if need be."""
    name = "-".join([key, *([f"batch{batch}"] if batch else []), *([f"width{width}"] if width != 1 else [])])
    found = Model(top / name)
    stamp = _stamp()
    try:
        facts = found.facts
        if facts["stamp"] == stamp and (facts["reference"] or not reference):
            return found
    except (OSError, ValueError, KeyError):
        pass  # not made yet, or not to the end
    options = json.dumps({"key": key, "batch": batch, "width": width, "reference": reference, "stamp": stamp})
    subprocess.run([sys.executable, "-m", "benchmarks.model", str(found.folder), options], check=True)
    return found


def _stamp() -> str:
    from gluonjit import __version__

    source = (Path(__file__).parent / "workloads.py").read_bytes()
    return hashlib.sha256(b"%d %s " % (_VERSION, __version__.encode()) + source).hexdigest()


def _write(folder: Path, key: str, batch: int | None, width: int, reference: bool, stamp: str) -> None:
    import gluonjit as mx
    from benchmarks.workloads import make, results

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "facts.json").unlink(missing_ok=True)
    net, arrays = make(key, batch, width)
    names = ["data"] if len(arrays) == 1 else [f"data{k}" for k in range(len(arrays))]
    made = Model(folder)
    graph = mx.sym.Group(results(net(*map(mx.sym.var, names))))
    aux = set(graph.list_auxiliary_states())
    params = {name: p.data() for name, p in net.collect_params().items()}
    mx.model.save_checkpoint(
        str(made.prefix),
        0,
        graph,
        {name: x for name, x in params.items() if name not in aux},
        {name: x for name, x in params.items() if name in aux},
    )
    np.savez(folder / "inputs.npz", **dict(zip(names, arrays)))
    if reference:
        net.cast("float64")
        net.hybridize(backend="numpy")
        answers = results(net(*(mx.nd.array(x, dtype="float64") for x in arrays)))
        np.savez(folder / "reference.npz", *(y.asnumpy() for y in answers))
    plain = made.net()
    facts = {"stamp": stamp, "workload": key, "batch": batch, "width": width, "reference": reference}
    facts |= {"flop": plain.flop(), "bytes": plain.nbytes()}
    (folder / "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    _write(Path(sys.argv[1]), **json.loads(sys.argv[2]))
