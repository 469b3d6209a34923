"""The gRPC side of `gluonjit serve`: `inference.GRPCInferenceService`, on the event loop of the HTTP side."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
import numpy as np
from google.protobuf.message import DecodeError

from gluonjit._version import version
from gluonjit.files.array_names import shown
from gluonjit.tools.serving import inference_protocol
from gluonjit.tools.serving.batching import Arrays
from gluonjit.tools.serving.grpc_messages import METHODS, SERVICE, message
from gluonjit.tools.serving.http_server import Service, controlled
from gluonjit.tools.serving.inference_protocol import EXTENSIONS, Asked, Inference, Refused
from gluonjit.tools.serving.served_models import Served

_log = logging.getLogger("gluonjit.serve")

MOST_CALLS = 128
"""Calls at a time; more are refused."""
_SMALL = 64 * 1024

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_CONTENTS = {
    # datatype: the field of its elements, for requests that have no raw bytes
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
    "INT8": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}


def make_server(service: Service, address: str) -> tuple[Any, int]:
    """(the server, which has not started, its port). The largest message is such that MOST_CALLS of them fit into the
    memory for bodies. OSError for an address that cannot be had."""
    largest = min(service.store.options.max_body, service.memory // MOST_CALLS)
    server = grpc.aio.server(
        maximum_concurrent_rpcs=MOST_CALLS,
        options=[
            ("grpc.max_receive_message_length", largest),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
            ("grpc.max_concurrent_streams", MOST_CALLS),
            ("grpc.max_metadata_size", 32 * 1024),
        ],
    )
    methods = _Methods(service)
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            functools.partial(_answer, message(f"{name}Request").FromString, getattr(methods, name)),
            response_serializer=message(f"{name}Response").SerializeToString,
        )
        for name in METHODS
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as e:
        raise OSError(f"{address} cannot be had: {e}") from None
    if port == 0:
        raise OSError(f"{address} cannot be had")
    return server, port


async def _answer(
    parse: Callable[[bytes], Any], method: Callable[[Any], Awaitable[Any]], body: bytes, context: Any
) -> Any:
    try:
        try:
            request = parse(body)
        except DecodeError:
            raise Refused(400, "this is not the method's message") from None
        return await method(request)
    except Refused as e:
        await context.abort(_CODES.get(e.status, grpc.StatusCode.UNKNOWN), str(e))
    except Exception as e:
        _log.exception("%s", e)
        await context.abort(grpc.StatusCode.INTERNAL, f"the model failed: {type(e).__name__}: {str(e)[:1000]}")


class _Methods:
    """One for each of METHODS."""

    def __init__(self, service: Service) -> None:
        self.service, self.store = service, service.store

    async def ServerLive(self, _request: Any) -> Any:
        return message("ServerLiveResponse")(live=True)

    async def ServerReady(self, _request: Any) -> Any:
        return message("ServerReadyResponse")(ready=not self.service.draining)

    async def ModelReady(self, request: Any) -> Any:
        try:
            self.store.get(request.name, request.version)
        except Refused:
            return message("ModelReadyResponse")(ready=False)
        return message("ModelReadyResponse")(ready=True)

    async def ServerMetadata(self, _request: Any) -> Any:
        return message("ServerMetadataResponse")(name="gluonjit", version=version, extensions=EXTENSIONS)

    async def ModelMetadata(self, request: Any) -> Any:
        return message("ModelMetadataResponse")(**self.service.metadata(self.store.get(request.name, request.version)))

    async def RepositoryIndex(self, request: Any) -> Any:
        found = await asyncio.get_running_loop().run_in_executor(self.service.readers, self.store.index)
        models = [m for m in found if not request.ready or m["state"] == "READY"]
        return message("RepositoryIndexResponse")(models=models)

    async def RepositoryModelLoad(self, request: Any) -> Any:
        await controlled(self.service, request.model_name, request.parameters, self.store.load)
        return message("RepositoryModelLoadResponse")()

    async def RepositoryModelUnload(self, request: Any) -> Any:
        parameters = {key: value for key, value in request.parameters.items() if key != "unload_dependents"}
        await controlled(self.service, request.model_name, parameters, self.store.unload)
        return message("RepositoryModelUnloadResponse")()

    async def ModelInfer(self, request: Any) -> Any:
        begin = time.perf_counter()
        served = self.store.get(request.model_name, request.model_version)
        name, label, status = served.source.name, str(served.source.version), "500"
        size = request.ByteSize()
        try:
            with self.service.held(size):
                answer = await self._infer(request, size)
            status = "200"
        except Refused as e:
            status = str(e.status)
            raise
        finally:
            self.service.observations.request(name, label, status, time.perf_counter() - begin)
        return answer

    async def _infer(self, request: Any, size: int) -> Any:
        loop = asyncio.get_running_loop()

        async def read(served: Served) -> Inference:
            if size <= _SMALL or request.raw_input_contents:
                return _read(request, served)
            return await loop.run_in_executor(self.service.readers, _read, request, served)

        served, found, results = await self.service.infer(request.model_name, request.model_version, read)
        return _write(served, found, results)


def _read(request: Any, served: Served) -> Inference:
    known = {x.name: x for x in served.inputs}
    raw = request.raw_input_contents
    if len(request.inputs) > len(known):
        raise Refused(400, f"{len(request.inputs)} inputs are given; there are at most {len(known)}")
    if raw and len(raw) != len(request.inputs):
        raise Refused(400, f"{len(raw)} raw_input_contents for {len(request.inputs)} inputs")
    arrays: dict[str, np.ndarray] = {}
    for k, tensor in enumerate(request.inputs):
        x = inference_protocol.known_input(tensor.name, known, arrays)
        shape = inference_protocol.checked_shape(list(tensor.shape), x)
        inference_protocol.check_datatype(tensor.datatype, x)
        _check_parameters(tensor.parameters)
        if raw:
            if tensor.HasField("contents"):
                raise Refused(400, f"input {shown(x.name)} has both contents and raw bytes")
            arrays[x.name] = inference_protocol.from_bytes(raw[k], x, shape)
            continue
        field = _CONTENTS.get(tensor.datatype)
        if field is None:
            raise Refused(400, f"input {shown(x.name)}: {tensor.datatype} is sent in raw_input_contents")
        others = [f.name for f, _ in tensor.contents.ListFields() if f.name != field]
        if others:
            raise Refused(400, f"input {shown(x.name)} is {tensor.datatype}, which is sent in {field}, not {others[0]}")
        arrays[x.name] = _from_contents(getattr(tensor.contents, field), x, shape)
    outputs = []
    for asked in request.outputs:
        _check_parameters(asked.parameters)
        if "classification" in asked.parameters:
            raise Refused(400, "classification of outputs is not supported")
        outputs.append(Asked(asked.name, True))
    if len(request.id) > inference_protocol.MAX_NAME:
        raise Refused(400, f"id must be a text of at most {inference_protocol.MAX_NAME} characters")
    return Inference(arrays, request.id, outputs, True)


def _from_contents(values: Any, x: Any, shape: tuple[int, ...]) -> np.ndarray:
    """As `from_numbers`; floats are those that were sent, NaN among them."""
    if x.dtype.kind != "f":
        return inference_protocol.from_numbers(list(values), x, shape)
    found = np.fromiter(values, x.dtype, len(values))
    if found.size != int(np.prod(shape, dtype=object)):
        raise Refused(400, f"input {shown(x.name)}: data has {found.size} elements, not {list(shape)}")
    return found.reshape(shape)


def _check_parameters(parameters: Mapping[str, Any]) -> None:
    if any(key.startswith("shared_memory") for key in parameters):
        raise Refused(400, "shared memory is not supported")


def _write(served: Served, request: Inference, results: Arrays) -> Any:
    names = inference_protocol.selected(request.outputs, results)
    return message("ModelInferResponse")(
        model_name=served.source.name,
        model_version=str(served.source.version),
        id=request.id or "",
        outputs=[
            {
                "name": name,
                "datatype": inference_protocol.datatype(results[name].dtype),
                "shape": results[name].shape,
            }
            for name in names
        ],
        raw_output_contents=[inference_protocol.to_bytes(results[name]) for name in names],
    )
