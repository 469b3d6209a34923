"""Records what real MXNet answers for models of a package, with the weights and inputs that `subjects.py` gives them.

It runs in a venv of its own (see tests/oracle/record.py), into which the package is installed beside MXNet:

    oracle/bin/python tests/field/reference.py --package gluoncv2 --names 'resnet18 mobilenet_w1' --out references
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import gradients
import subjects


def flatten(result: Any) -> list[np.ndarray]:
    if isinstance(result, (list, tuple)):
        return [x for part in result for x in flatten(part)]
    return [] if result is None else [result.asnumpy()]


def answer(package: subjects.Package, name: str, precise: bool) -> list[np.ndarray]:
    if precise:
        net = subjects.in_float64(package, name)
        with in_float64():
            return flatten(net(*subjects.as_ndarrays(package.inputs(name, net), "float64")))
    net = package.build(name)
    subjects.initialize(net)
    return flatten(net(*subjects.as_ndarrays(package.inputs(name, net))))


def instance_norm(x: Any, gamma: Any, beta: Any, eps: float = 1e-3, name: str | None = None) -> Any:
    """InstanceNorm composed of other operators: MXNet's own knows float32 only."""
    import mxnet as mx

    axes = tuple(range(2, x.ndim))
    centered = mx.nd.broadcast_sub(x, x.mean(axis=axes, keepdims=True))
    deviation = (centered.square().mean(axis=axes, keepdims=True) + eps).sqrt()
    gamma, beta = (v.reshape((1, -1, *(1 for _ in axes))) for v in (gamma, beta))
    return mx.nd.broadcast_add(mx.nd.broadcast_mul(mx.nd.broadcast_div(centered, deviation), gamma), beta)


@contextlib.contextmanager
def in_float64() -> Iterator[None]:
    """Computes in double precision, also what MXNet lacks in it."""
    import mxnet as mx

    with subjects.making_float64(), mock.patch.object(mx.nd, "InstanceNorm", instance_norm):
        yield


def record_gradients(package: subjects.Package, name: str, file: Path) -> None:
    """A sample of every gradient of a small model, in float32 and, unless an operator lacks it, in float64."""
    found = {}
    for kind, dtype in (("32", "float32"), ("64", "float64")):
        net, inputs = package.small(name)
        gradients.without_dropout(net)
        subjects.initialize(net)
        net.cast(dtype)
        subjects.seed()
        with in_float64() if dtype == "float64" else contextlib.nullcontext():
            try:
                got = gradients.gradients(net, subjects.as_ndarrays(inputs, dtype))
            except Exception as e:
                if dtype == "float32":
                    raise
                print(f"{name}: in float64 {str(e).splitlines()[0]}", flush=True)
                break
        found |= {f"{kind} {key}": gradients.sampled(key, x) for key, x in got.items()}
    np.savez(file, **found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", choices=sorted(subjects.PACKAGES), required=True)
    parser.add_argument("--names", required=True, help="names or patterns, separated by blanks")
    parser.add_argument("--out", type=Path, required=True, help="folder for an .npz of each model")
    parser.add_argument("--float64", action="store_true", help="in double precision, where scores are close")
    parser.add_argument("--backward", action="store_true", help="gradients of small models (see run.py)")
    arguments = parser.parse_args()
    package = subjects.PACKAGES[arguments.package]
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in package.names():
        kind = ".gradients" if arguments.backward else ".float64" if arguments.float64 else ""
        file = arguments.out / f"{name}{kind}.npz"
        if any(fnmatch.fnmatch(name, p) for p in package.drawn):
            continue
        if file.exists() or not any(fnmatch.fnmatch(name, p) for p in arguments.names.split()):
            continue
        try:
            if arguments.backward:
                record_gradients(package, name, file)
            else:
                np.savez(file, *answer(package, name, arguments.float64))
            print(f"{name}: recorded", flush=True)
        except Exception as e:
            print(f"{name}: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}", flush=True)


if __name__ == "__main__":
    main()
