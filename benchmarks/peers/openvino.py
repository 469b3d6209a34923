"""OpenVINO: hint LATENCY, one stream, float32, inputs and outputs shared rather than copied."""

from __future__ import annotations

from benchmarks.model import Model
from benchmarks.peers import Loaded
from benchmarks.peers.onnx_model import onnx_file


def load(model: Model, threads: int) -> Loaded:
    import openvino

    core = openvino.Core()
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = core.compile_model(core.read_model(onnx_file(model)), "CPU", options)
    request = compiled.create_infer_request()
    inputs = list(model.inputs().values())

    def call(arrays):
        return request.infer(arrays, share_inputs=True, share_outputs=True)

    return Loaded(call, [inputs], lambda y: [y[x] for x in compiled.outputs], openvino.__version__)
