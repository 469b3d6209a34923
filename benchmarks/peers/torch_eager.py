"""PyTorch, operator by operator, in inference mode."""

from __future__ import annotations

from benchmarks.model import Model
from benchmarks.peers import Loaded
from benchmarks.peers.torch_graph import torch_module


def load(model: Model, threads: int) -> Loaded:
    import torch

    torch.set_num_threads(threads)
    module = torch_module(model.net())
    inputs = [torch.from_numpy(x) for x in model.inputs().values()]
    return Loaded(torch.inference_mode()(module), inputs, lambda y: [x.numpy() for x in y], torch.__version__)
