"""Models for Triton's Python back end. A model's `model.py` is one line:

    from gluonjit.tools.serving.triton_model import TritonPythonModel

Its files are beside `model.py`, as in a folder of `gluonjit serve`; shapes and types are those of `config.pbtxt`, whose
parameter `threads` says how many threads a call may use.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import triton_python_backend_utils as triton

from gluonjit.tools.serving.batching import joined, parted
from gluonjit.tools.serving.inference_protocol import DATATYPES
from gluonjit.tools.serving.predictor import Predictor
from gluonjit.tools.serving.served_models import files_in


class TritonPythonModel:
    """What the back end calls. Requests that Triton gives at once are computed together where rows are independent."""

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        folder = Path(args["model_repository"]) / args["model_version"]
        files = files_in(folder)
        inputs = {x["name"]: _shape(x, config.get("max_batch_size", 0) > 0) for x in config["input"]}
        threads = config.get("parameters", {}).get("threads", {}).get("string_value")
        declared = None if files[0].endswith(".so") else inputs
        self.predictor = Predictor(*files, inputs=declared, threads=int(threads) if threads else None)
        self.rows = self.predictor.model.rows is not None
        self.inputs = [x.name for x in self.predictor.inputs]

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        given = [self._arrays(request) for request in requests]
        if self.rows and len(given) > 1 and len({_rest(arrays) for arrays in given}) == 1:
            try:
                results = self.predictor(joined(given))
                parts = parted(results, [len(next(iter(arrays.values()))) for arrays in given])
                return [self._response(request, part) for request, part in zip(requests, parts)]
            except ValueError:  # no shape that the model takes: each request is told so
                return [self._alone(request, arrays) for request, arrays in zip(requests, given)]
        return [self._alone(request, arrays) for request, arrays in zip(requests, given)]

    def finalize(self) -> None:
        del self.predictor

    def _arrays(self, request: Any) -> dict[str, Any]:
        tensors = {name: triton.get_input_tensor_by_name(request, name) for name in self.inputs}
        return {name: tensor.as_numpy() for name, tensor in tensors.items() if tensor is not None}

    def _alone(self, request: Any, arrays: dict[str, Any]) -> Any:
        try:
            return self._response(request, self.predictor(arrays))
        except Exception as e:  # the request's own answer, beside those of others
            return triton.InferenceResponse(error=triton.TritonError(f"{type(e).__name__}: {e}"))

    def _response(self, request: Any, results: dict[str, Any]) -> Any:
        names = [name for name in request.requested_output_names() if name in results]
        return triton.InferenceResponse(output_tensors=[triton.Tensor(name, results[name]) for name in names])


def _shape(x: dict[str, Any], batched: bool) -> str:
    """A shape as `Predictor` takes it; -1 is a word of its own."""
    sizes = [str(n) if int(n) >= 0 else f"{x['name'].lower()}_{k}" for k, n in enumerate(x["dims"])]
    dtype = DATATYPES[x["data_type"].removeprefix("TYPE_")]
    return f"{'x'.join(['batch', *sizes] if batched else sizes) or 'scalar'}:{dtype}"


def _rest(arrays: dict[str, Any]) -> Any:
    return tuple((name, x.dtype, x.shape[1:]) for name, x in arrays.items())
