"""ncnn: Winograd and packed layouts on, as is its default, float16 and bfloat16 off; a batch is a loop over images."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.model import Model
from benchmarks.peers import Loaded
from benchmarks.peers.ncnn_model import ncnn_model


def load(model: Model, threads: int) -> Loaded:
    import ncnn

    net = model.net()
    if len(net.outputs) > 1:
        raise NotImplementedError("benchmarks/peers/ncnn_model.py writes nets with one output")
    made = ncnn_model(net)
    engine = ncnn.Net()
    for precision in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage"):
        setattr(engine.opt, f"use_{precision}", False)
    engine.opt.num_threads = threads
    engine.opt.blob_allocator = blobs = ncnn.UnlockedPoolAllocator()
    engine.opt.workspace_allocator = workspace = ncnn.PoolAllocator()
    param, weights = (_file(model.folder, name) for name in ("ncnn.param", "ncnn.bin"))
    param.write_text(made.param)
    weights.write_bytes(made.weights)
    if engine.load_param(str(param)) or engine.load_model(str(weights)):
        raise RuntimeError("ncnn cannot read the model")
    param.unlink()
    weights.unlink()

    arrays = list(model.inputs().values())
    shape = (made.runs, *made.shape(arrays[0].shape))
    # Clones, as a Mat of an ndarray's own memory crashes where a layer wants to work in place.
    runs = [[ncnn.Mat(x).clone() for x in inputs] for inputs in zip(*(x.reshape(shape) for x in arrays))]

    def call(runs):
        results = []
        for mats in runs:
            extractor = engine.create_extractor()
            for name, mat in zip(made.inputs, mats):
                extractor.input(name, mat)
            results.append(extractor.extract(made.output)[1])
        return results

    def to_numpy(results):
        return [np.stack([np.array(mat) for mat in results]).reshape(net.shapes[net.outputs[0]])]

    call.keep = (blobs, workspace)
    return Loaded(call, [runs], to_numpy, ncnn.__version__)


def _file(folder: Path, name: str) -> Path:
    import os

    return folder / f"{os.getpid()}-{name}"
