"""Asks real MXNet 1.9.1 for graphs fused by its oneDNN backend, quantized ones too, and what every node of them gives.

    oracle/bin/python tests/oracle/record_fused.py

in the venv that `record.py` describes. The integers depend on the CPU: without VNNI instructions oneDNN halves some
weights. They go to `tests/data/checkpoint/fused.npz`: `<case>/graph` and `<case>/params` (the files, as bytes),
`<case>/x`, and `<case>/<output>` for the outputs of the nodes that hold graphs or are quantized, and of the graph.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.contrib.quantization import quantize_model

TARGET = Path(__file__).resolve().parents[1] / "data" / "checkpoint" / "fused.npz"
RNG = np.random.RandomState(0)


def convolutions() -> Any:
    """BatchNorm with and without gamma, a sum, relu6, pooling, dense layers."""
    x = mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), num_filter=8, pad=(1, 1), name="c1")
    x = mx.sym.Activation(mx.sym.BatchNorm(x, fix_gamma=False, name="bn1"), act_type="relu")
    y = mx.sym.Convolution(x, kernel=(3, 3), num_filter=8, pad=(1, 1), no_bias=True, name="c2")
    x = mx.sym.Activation(mx.sym.BatchNorm(y, fix_gamma=True, name="bn2") + x, act_type="relu")
    x = mx.sym.clip(mx.sym.Convolution(x, kernel=(1, 1), num_filter=4, name="c3"), 0, 6)
    x = mx.sym.flatten(mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max"))
    x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=16, name="f1"), act_type="relu")
    return mx.sym.FullyConnected(x, num_hidden=5, name="f2")


def attention() -> Any:
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=24, flatten=False, name="qkv")
    y = mx.sym.softmax(mx.sym.contrib.interleaved_matmul_selfatt_qk(x, heads=2))
    y = mx.sym.contrib.interleaved_matmul_selfatt_valatt(x, y, heads=2)
    return mx.sym.FullyConnected(y, num_hidden=6, flatten=False, name="out")


def dense(act: str) -> Any:
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=7, no_bias=act == "abs", name="f1")
    x = mx.sym.abs(x) if act == "abs" else mx.sym.LeakyReLU(x, act_type=act, slope=0.3)
    return mx.sym.FullyConnected(x, num_hidden=3, name="f2")


def one(act: str | None = None, group: int = 1, before: str | None = None, added: bool = False) -> Any:
    """A convolution; perhaps one before it, to whose result (after an activation) it is added."""
    x = mx.sym.var("data")
    if added:
        x = mx.sym.Convolution(x, kernel=(1, 1), num_filter=8, name="c0")
        x = mx.sym.Activation(x, act_type=before) if before else x
    y = mx.sym.Convolution(x, kernel=(3, 3), num_filter=8, pad=(1, 1), num_group=group, name="c1")
    y = y + x if added else y
    if act in ("leaky", "gelu"):
        return mx.sym.LeakyReLU(y, act_type=act, slope=0.3)
    return mx.sym.Activation(y, act_type=act) if act else y


IMAGE, VECTOR, SEQUENCE = (2, 8, 6, 6), (4, 10), (5, 3, 12)
CASES: dict[str, tuple[Any, tuple[int, ...], dict[str, Any] | None]] = {
    "floats": (convolutions(), (2, 3, 8, 8), None),
    "attention of floats": (attention(), SEQUENCE, None),
    "calibrated": (convolutions(), (2, 3, 8, 8), {}),
    "not calibrated": (convolutions(), (2, 3, 8, 8), {"calib_mode": "none", "quantized_dtype": "int8"}),
    "by channel": (convolutions(), (2, 3, 8, 8), {"quantize_granularity": "channel-wise"}),
    "attention": (attention(), SEQUENCE, {}),
    "dense leaky": (dense("leaky"), VECTOR, {}),
    "dense gelu": (dense("gelu"), VECTOR, {}),
    "dense abs": (dense("abs"), VECTOR, {}),
    "leaky": (one("leaky"), IMAGE, {}),
    "gelu": (one("gelu"), IMAGE, {}),
    "groups": (one(group=4), IMAGE, {}),
    "depthwise": (one("relu", group=8), IMAGE, {}),
    "sum of int8": (one("relu", added=True), IMAGE, {}),
    "sum of uint8": (one(before="relu", added=True), IMAGE, {}),
}


def arrays(names: list[str], shapes: list[tuple[int, ...]], low: float, high: float) -> dict[str, Any]:
    return {n: mx.nd.array(RNG.uniform(low, high, s)) for n, s in zip(names, shapes) if n != "data"}


def record(name: str, found: dict[str, Any]) -> None:
    graph, shape, options = CASES[name]
    x = RNG.standard_normal(shape).astype(np.float32)
    shapes, _, states = graph.infer_shape(data=shape)
    args = arrays(graph.list_arguments(), shapes, -1, 1)
    aux = arrays(graph.list_auxiliary_states(), states, 0.5, 1.5)
    if options is None:
        graph = graph.get_backend_symbol("MKLDNN")
    else:
        options = {"calib_mode": "naive", "quantized_dtype": "auto", **options}
        data = mx.io.NDArrayIter(x, batch_size=len(x))
        graph, args, aux = quantize_model(
            graph.get_backend_symbol("MKLDNN_QUANTIZE"),
            args,
            aux,
            ctx=mx.cpu(),
            calib_data=data,
            num_calib_examples=len(x),
            label_names=None,
            **options,
        )
        graph = graph.get_backend_symbol("MKLDNN_QUANTIZE")
    args = {n: a for n, a in args.items() if n in graph.list_arguments()}
    inside = graph.get_internals()
    variables = set(inside.list_inputs())
    names = [n for n in inside.list_outputs() if n not in variables and ("quantize" in n or "sg_" in n)]
    names = list(dict.fromkeys([*names, *graph.list_outputs()]))
    outputs = mx.sym.Group([inside[n] for n in names]).bind(
        mx.cpu(), {**args, "data": mx.nd.array(x)}, aux_states={n: aux[n] for n in graph.list_auxiliary_states()}
    )
    found.update({f"{name}/{n}": y.asnumpy() for n, y in zip(names, outputs.forward())})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "p")
        mx.nd.save(str(path), {**{f"arg:{n}": a for n, a in args.items()}, **{f"aux:{n}": a for n, a in aux.items()}})
        found[f"{name}/params"] = np.frombuffer(path.read_bytes(), np.uint8)
    found[f"{name}/graph"] = np.frombuffer(graph.tojson().encode(), np.uint8)
    found[f"{name}/x"] = x


def main() -> None:
    os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"  # what is bound is what is recorded, and nothing more is fused
    found: dict[str, Any] = {}
    for name in CASES:
        record(name, found)
    np.savez_compressed(TARGET, **found)
    print(f"{TARGET}: {len(CASES)} cases, {TARGET.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
