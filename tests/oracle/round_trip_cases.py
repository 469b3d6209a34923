"""Models that go to real MXNet as exported files and come back: every layer of `gluon.nn` and `gluon.rnn`, and more.

A case is (build, inputs): `build(mx)` makes the block, not initialized, from either package. `run` exports one.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

TESTS = Path(__file__).resolve().parents[1]
sys.path.append(str(TESTS))

from gluon import oracle_cases  # noqa: E402

from support import zoo  # noqa: E402

Case = tuple[Callable[[Any], Any], Sequence[np.ndarray]]

LINE, IMAGE, VOLUME = (2, 4, 9), (2, 4, 8, 8), (1, 4, 6, 6, 6)

LAYERS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "Activation relu": (lambda nn: nn.Activation("relu"), IMAGE),
    "Activation softsign": (lambda nn: nn.Activation("softsign"), IMAGE),
    "AvgPool1D": (lambda nn: nn.AvgPool1D(3, 2, 1, ceil_mode=True), LINE),
    "AvgPool2D": (lambda nn: nn.AvgPool2D(3, 2, 1, count_include_pad=False), IMAGE),
    "AvgPool3D": (lambda nn: nn.AvgPool3D(2), VOLUME),
    "BatchNorm": (lambda nn: nn.BatchNorm(), IMAGE),
    "BatchNorm axis": (lambda nn: nn.BatchNorm(axis=-1, scale=False, epsilon=1e-3), IMAGE),
    "BatchNormReLU": (lambda nn: nn.BatchNormReLU(), IMAGE),
    "Conv1D": (lambda nn: nn.Conv1D(6, 3, padding=1, activation="tanh"), LINE),
    "Conv1DTranspose": (lambda nn: nn.Conv1DTranspose(6, 3, strides=2, output_padding=1), LINE),
    "Conv2D": (lambda nn: nn.Conv2D(6, (3, 2), strides=2, padding=1, groups=2, use_bias=False), IMAGE),
    "Conv2D dilation": (lambda nn: nn.Conv2D(6, 3, dilation=2, in_channels=4), IMAGE),
    "Conv2DTranspose": (lambda nn: nn.Conv2DTranspose(6, 3, strides=2, padding=1), IMAGE),
    "Conv3D": (lambda nn: nn.Conv3D(3, 3, padding=1), VOLUME),
    "Conv3DTranspose": (lambda nn: nn.Conv3DTranspose(3, 2, strides=2), VOLUME),
    "Dense": (lambda nn: nn.Dense(5, activation="sigmoid"), IMAGE),
    "Dense, last axis": (lambda nn: nn.Dense(5, flatten=False, use_bias=False), IMAGE),
    "Dropout": (lambda nn: nn.Dropout(0.5, axes=(1,)), IMAGE),
    "ELU": (lambda nn: nn.ELU(0.7), IMAGE),
    "Flatten": (lambda nn: nn.Flatten(), IMAGE),
    "GELU": (lambda nn: nn.GELU(), IMAGE),
    "GlobalAvgPool1D": (lambda nn: nn.GlobalAvgPool1D(), LINE),
    "GlobalAvgPool2D": (lambda nn: nn.GlobalAvgPool2D(), IMAGE),
    "GlobalAvgPool3D": (lambda nn: nn.GlobalAvgPool3D(), VOLUME),
    "GlobalMaxPool1D": (lambda nn: nn.GlobalMaxPool1D(), LINE),
    "GlobalMaxPool2D": (lambda nn: nn.GlobalMaxPool2D(), IMAGE),
    "GlobalMaxPool3D": (lambda nn: nn.GlobalMaxPool3D(), VOLUME),
    "GroupNorm": (lambda nn: nn.GroupNorm(2), IMAGE),
    "HybridLambda": (lambda nn: nn.HybridLambda("tanh"), IMAGE),
    "HybridLambda of a function": (lambda nn: nn.HybridLambda(lambda F, x: F.concat(x, -x, dim=1)), IMAGE),
    "HybridSequential": (lambda nn: _sequential(nn), IMAGE),
    "InstanceNorm": (lambda nn: nn.InstanceNorm(), IMAGE),
    "LayerNorm": (lambda nn: nn.LayerNorm(), IMAGE),
    "LeakyReLU": (lambda nn: nn.LeakyReLU(0.2), IMAGE),
    "MaxPool1D": (lambda nn: nn.MaxPool1D(2), LINE),
    "MaxPool2D": (lambda nn: nn.MaxPool2D(3, 2, ceil_mode=True), IMAGE),
    "MaxPool3D": (lambda nn: nn.MaxPool3D(2), VOLUME),
    "PReLU": (lambda nn: nn.PReLU(), IMAGE),
    "ReflectionPad2D": (lambda nn: nn.ReflectionPad2D(2), IMAGE),
    "SELU": (lambda nn: nn.SELU(), IMAGE),
    "Swish": (lambda nn: nn.Swish(1.5), IMAGE),
}


def _sequential(nn: Any) -> Any:
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Conv2D(3, 1), nn.BatchNorm(), nn.Activation("relu"), nn.Dense(2))
    return net


ZOO = ["alexnet", "densenet121", "inceptionv3", "mobilenetv2_1.0", "resnet18_v1", "resnet18_v2", "resnet50_v1"]
ZOO += ["squeezenet1.0", "vgg11", "vgg16"]


NAMES = ["Embedding", *LAYERS, *(name for name, known in oracle_cases.CASES.items() if known.hybrid), *ZOO]


def _embedding(mx: Any) -> Any:
    return mx.gluon.nn.Embedding(10, 4)


def _layer(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda mx: make(mx.gluon.nn)


def _model(name: str) -> Callable[[Any], Any]:
    return lambda mx: mx.gluon.model_zoo.vision.get_model(name)


def case(name: str) -> Case:
    """The case of this name."""
    if name == "Embedding":
        return _embedding, [np.arange(6, dtype=np.float32).reshape(2, 3)]
    if name in LAYERS:
        make, shape = LAYERS[name]
        return _layer(make), [np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape).astype("f4")]
    if name in ZOO:
        size = 299 if name == "inceptionv3" else 224
        return _model(name), [zoo.image((1, 3, size, size)).astype(np.float32)]
    known = oracle_cases.CASES[name]
    return known.build, known.inputs()


def export(mx: Any, name: str, prefix: str) -> None:
    """Makes a model, gives its parameters the values that belong to their names, runs it and exports it.

    What it gave is beside it, in `<prefix>.npz`: inputs as `x<k>`, outputs as `y<k>`.
    """
    build, inputs = case(name)
    with mx.name.NameManager():
        net = build(mx)
    arrays = [mx.nd.array(x) for x in inputs]
    net.initialize()
    net(*arrays)  # completes the shapes
    value = zoo.weights if name in ZOO else oracle_cases.weight
    # Before a model is compiled: MXNet cannot write to weights that it has brought into a layout of its own.
    fresh = _again(mx, build, net)
    for key, param in fresh._collect_params_with_prefix().items():
        param.set_data(mx.nd.array(value(key, param.shape)))
    fresh.hybridize()
    outputs = flat(fresh(*arrays))
    fresh.export(prefix)
    results = {f"y{k}": y.asnumpy() for k, y in enumerate(outputs)}
    np.savez(f"{prefix}.npz", **results, **{f"x{k}": x for k, x in enumerate(inputs)})


def _again(mx: Any, build: Callable[[Any], Any], net: Any) -> Any:
    """The same model once more, with the shapes of the first."""
    with mx.name.NameManager():
        fresh = build(mx)
    for param, known in zip(fresh.collect_params().values(), net.collect_params().values()):
        param.shape = known.shape
    fresh.initialize()
    return fresh


def imported(mx: Any, prefix: str) -> float:
    """Runs an exported model; how far its outputs are from those beside it, relative to the largest value."""
    recorded = np.load(f"{prefix}.npz")
    graph = mx.sym.load(f"{prefix}-symbol.json")
    params = mx.nd.load(f"{prefix}-0000.params")
    known = {name[4:] for name in params} if params else set()
    names = [name for name in graph.list_arguments() if name not in known]
    count = sum(key.startswith("x") for key in recorded.files)
    values = {f"data{k}" if len(names) > 1 else "data": recorded[f"x{k}"] for k in range(count)}
    if len(values) < len(names):  # states that a recurrent layer made itself
        held = {name[4:]: array.shape for name, array in (params or {}).items() if name[4:] in graph.list_inputs()}
        shapes, _, _ = graph.infer_shape(**held, **{name: x.shape for name, x in values.items()})
        found = dict(zip(graph.list_arguments(), shapes))
        values.update({name: np.zeros(found[name], np.float32) for name in names if name not in values})
    block = mx.gluon.SymbolBlock.imports(f"{prefix}-symbol.json", names, f"{prefix}-0000.params")
    outputs = flat(block(*(mx.nd.array(values[name]) for name in names)))
    apart = 0.0
    for k, y in enumerate(outputs):
        got, wanted = y.asnumpy().astype(np.float64), recorded[f"y{k}"].astype(np.float64)
        if got.shape != wanted.shape:
            return float("inf")
        apart = max(apart, float(np.abs(got - wanted).max() / max(np.abs(wanted).max(), 1e-30)))
    return apart if len(outputs) == sum(name.startswith("y") for name in recorded.files) else float("inf")


def flat(value: Any) -> list[Any]:
    return [y for item in value for y in flat(item)] if isinstance(value, (list, tuple)) else [value]


def slug(name: str) -> str:
    """A file name for a case."""
    return "".join(c if c.isalnum() else "_" for c in name)
