"""ONNX Runtime: all graph optimizations, as many threads as asked for, its own default of spinning."""

from __future__ import annotations

from benchmarks.model import Model
from benchmarks.peers import Loaded
from benchmarks.peers.onnx_model import onnx_file


def load(model: Model, threads: int) -> Loaded:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(onnx_file(model), options, providers=["CPUExecutionProvider"])
    return Loaded(session.run, [None, model.inputs()], lambda y: y, onnxruntime.__version__)
