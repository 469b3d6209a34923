"""LiteRT (TensorFlow Lite) with its XNNPACK delegate; images channels-last, as its users have them."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np

from benchmarks.model import Model
from benchmarks.peers import Loaded
from benchmarks.peers.litert_model import images, litert_model


def load(model: Model, threads: int) -> Loaded:
    from ai_edge_litert.interpreter import Interpreter

    net = model.net()
    if len(net.outputs) > 1:
        raise NotImplementedError("benchmarks/peers/litert_model.py writes nets with one output")
    interpreter = Interpreter(model_content=litert_model(net), num_threads=threads)
    interpreter.allocate_tensors()
    places = [detail["index"] for detail in interpreter.get_input_details()]
    result = interpreter.get_output_details()[0]["index"]
    last = images(net)
    inputs = [
        np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if name in last else x for name, x in model.inputs().items()
    ]

    def call(*arrays):
        for place, x in zip(places, arrays):
            interpreter.set_tensor(place, x)
        interpreter.invoke()
        return interpreter.get_tensor(result)

    return Loaded(call, inputs, lambda y: [y], version("ai-edge-litert"))
