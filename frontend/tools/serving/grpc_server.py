"""The gRPC side of `gluonjit serve`: `inference.GRPCInferenceService`, on the event loop of the HTTP side."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
from google.protobuf.message import DecodeError

from gluonjit._version import version
from gluonjit.files.array_names import shown
from gluonjit.tools.serving import inference_protocol
from gluonjit.tools.serving.batching import Arrays
from gluonjit.tools.serving.grpc_connections import Connections, Peer, peer_of
from gluonjit.tools.serving.grpc_messages import METHODS, SERVICE, message
from gluonjit.tools.serving.grpc_wire import Malformed, cost
from gluonjit.tools.serving.http_server import Service, controlled
from gluonjit.tools.serving.inference_protocol import EXTENSIONS, Asked, Inference, Refused
from gluonjit.tools.serving.limits import Limits, Shares, client
from gluonjit.tools.serving.served_models import Served

_log = logging.getLogger("gluonjit.serve")

_SMALL = 16 * 1024
_PIECE = 4096
"""Numbers that are converted at a time."""
_LOOKS = 0.5
"""Seconds between two counts of the connections."""

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


class GrpcServer:
    def __init__(self, service: Service, host: str, port: int, connections: int) -> None:
        """OSError for an address at which the server cannot listen."""
        self.service = service
        limits = service.limits
        self._calls = Shares(limits.calls, limits.client_share)
        self._reading: dict[asyncio.Future[Any], str] = {}
        """The clients of calls whose message has not arrived, the oldest call first."""
        self._server = grpc.aio.server(maximum_concurrent_rpcs=limits.calls, options=_options(limits, connections))
        methods = _Methods(service)
        # For clients each method takes one message and returns one. Because they are declared as streams, the server
        # decides when it waits for messages, and so for how long.
        handlers = {
            name: grpc.stream_stream_rpc_method_handler(
                self._answering(name, message(f"{name}Request").FromString, getattr(methods, name)),
                response_serializer=message(f"{name}Response").SerializeToString,
            )
            for name in METHODS
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            self.port = self._server.add_insecure_port(address)
        except RuntimeError as e:
            raise OSError(f"cannot listen at {address}: {e}") from None
        if self.port == 0:
            raise OSError(f"cannot listen at {address}")
        self._connections = Connections(self.port, connections, limits.client_share)

    async def start(self) -> int:
        """The port."""
        await self._server.start()
        self._watching = asyncio.create_task(self._watch())
        return self.port

    async def stop(self, grace: float) -> None:
        self._watching.cancel()
        await self._server.stop(grace)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOKS)
            await asyncio.get_running_loop().run_in_executor(self.service.loader, self._connections.limit)

    def _answering(
        self, name: str, parse: Callable[[bytes], Any], method: Callable[[Any, _Call], Awaitable[Any]]
    ) -> Callable[[Any, Any], Awaitable[None]]:
        async def answering(_requests: Any, context: Any) -> None:
            peer = peer_of(context.peer())
            call = _Call(client(peer[0]), context, peer)
            self._connections.calls[peer] += 1
            try:
                await self._answer(name, parse, method, call)
            except Refused as e:
                await context.abort(_CODES.get(e.status, grpc.StatusCode.UNKNOWN), str(e))
            except Exception as e:
                if isinstance(e, grpc.aio.AbortError):
                    raise
                _log.exception("%s", e)
                await context.abort(grpc.StatusCode.INTERNAL, f"the model failed: {type(e).__name__}: {str(e)[:1000]}")
            finally:
                self._connections.calls[peer] -= 1
                if not self._connections.calls[peer]:
                    del self._connections.calls[peer]

        return answering

    async def _answer(
        self, name: str, parse: Callable[[bytes], Any], method: Callable[[Any, _Call], Awaitable[Any]], call: _Call
    ) -> None:
        service, limits = self.service, self.service.limits
        if not self._calls.fits(call.client, 1):
            self._make_room(call.client)
        with contextlib.ExitStack() as stack:
            self._calls.take(call.client, 1)
            stack.callback(self._calls.give, call.client, 1)
            call.take = stack.enter_context(service.held(call.client))
            body = await self._message(call)
            if body is grpc.aio.EOF:
                raise Refused(400, "there is no message")
            if name != "ModelInfer" and len(body) > limits.json_rest:
                raise Refused(413, f"the message has {len(body)} bytes; the most for {name} is {limits.json_rest}")
            call.take(len(body))
            try:
                task = functools.partial(cost, body, f"{name}Request", limits.fields)
                if len(body) > _SMALL:
                    call.take(await asyncio.get_running_loop().run_in_executor(service.readers, task))
                else:
                    call.take(task())
                request = parse(body)
            except (Malformed, DecodeError) as e:
                raise Refused(400, str(e) if isinstance(e, Malformed) else "this is not the method's message") from None
            call.size = len(body)
            del body
            answer = await method(request, call)
            try:
                await asyncio.wait_for(call.context.write(answer), limits.body_timeout)
            except asyncio.TimeoutError:
                self._connections.end(call.peer)

    async def _message(self, call: _Call) -> Any:
        reading = asyncio.ensure_future(call.context.read())
        self._reading[reading] = call.client
        try:
            done, _ = await asyncio.wait([reading], timeout=self.service.limits.body_timeout)
        finally:
            self._reading.pop(reading, None)
            reading.cancel()
        if not done:
            raise Refused(504, f"the message did not arrive within {self.service.limits.body_timeout:g} seconds")
        if reading.cancelled():
            raise Refused(429, "the message had not arrived when other calls needed its place")
        return reading.result()

    def _make_room(self, who: str) -> None:
        """Ends the call of that client which waits longest for its message. Refused if there is none."""
        waits = next((reading for reading, of in self._reading.items() if of == who), None)
        if waits is None:
            raise Refused(429, "too many calls at once; try again")
        waits.cancel()
        del self._reading[waits]


@dataclass
class _Call:
    client: str
    context: Any
    peer: Peer
    take: Callable[[int], None] = lambda more: None
    """Counts bytes as used."""
    size: int = 0
    """Bytes of the message."""


def _options(limits: Limits, connections: int) -> list[tuple[str, int]]:
    """The options of gRPC's server; `grpc_types.h` explains them."""
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", limits.largest_message),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", limits.calls),
        ("grpc.server.max_pending_requests", limits.calls),
        ("grpc.server.max_pending_requests_hard_limit", 2 * limits.calls),
        ("grpc.max_metadata_size", limits.head_bytes),
        ("grpc.absolute_max_metadata_size", limits.head_bytes),
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.server_handshake_timeout_ms", int(1000 * limits.head_seconds)),
        ("grpc.http2.settings_timeout", int(1000 * limits.head_seconds)),
        ("grpc.max_connection_idle_ms", int(1000 * limits.idle_seconds)),
        # Clients that are gone without a word; and those that ask too often whether the server is there.
        ("grpc.keepalive_time_ms", int(1000 * limits.idle_seconds)),
        ("grpc.keepalive_timeout_ms", int(1000 * limits.head_seconds)),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", int(1000 * limits.head_seconds)),
        ("grpc.http2.max_ping_strikes", 2),
    ]


class _Methods:
    """A method for each of METHODS."""

    def __init__(self, service: Service) -> None:
        self.service, self.store = service, service.store

    async def ServerLive(self, _request: Any, _call: _Call) -> Any:
        return message("ServerLiveResponse")(live=True)

    async def ServerReady(self, _request: Any, _call: _Call) -> Any:
        return message("ServerReadyResponse")(ready=not self.service.draining)

    async def ModelReady(self, request: Any, _call: _Call) -> Any:
        try:
            self.store.get(request.name, request.version)
        except Refused:
            return message("ModelReadyResponse")(ready=False)
        return message("ModelReadyResponse")(ready=True)

    async def ServerMetadata(self, _request: Any, _call: _Call) -> Any:
        return message("ServerMetadataResponse")(name="gluonjit", version=version, extensions=EXTENSIONS)

    async def ModelMetadata(self, request: Any, _call: _Call) -> Any:
        return message("ModelMetadataResponse")(**self.service.metadata(self.store.get(request.name, request.version)))

    async def RepositoryIndex(self, request: Any, _call: _Call) -> Any:
        found = await asyncio.get_running_loop().run_in_executor(self.service.readers, self.store.index)
        models = [m for m in found if not request.ready or m["state"] == "READY"]
        return message("RepositoryIndexResponse")(models=models)

    async def RepositoryModelLoad(self, request: Any, _call: _Call) -> Any:
        await controlled(self.service, request.model_name, request.parameters, self.store.load)
        return message("RepositoryModelLoadResponse")()

    async def RepositoryModelUnload(self, request: Any, _call: _Call) -> Any:
        parameters = {key: value for key, value in request.parameters.items() if key != "unload_dependents"}
        await controlled(self.service, request.model_name, parameters, self.store.unload)
        return message("RepositoryModelUnloadResponse")()

    async def ModelInfer(self, request: Any, call: _Call) -> Any:
        begin = time.perf_counter()
        served = self.store.get(request.model_name, request.model_version)
        name, label, status = served.source.name, str(served.source.version), "500"
        try:
            answer = await self._infer(request, call)
            status = "200"
        except Refused as e:
            status = str(e.status)
            raise
        finally:
            self.service.observations.request(name, label, status, time.perf_counter() - begin)
        return answer

    async def _infer(self, request: Any, call: _Call) -> Any:
        loop = asyncio.get_running_loop()
        limits = self.service.limits

        async def read(served: Served) -> Inference:
            if call.size <= _SMALL or request.raw_input_contents:
                return _read(request, served, limits)
            return await loop.run_in_executor(self.service.readers, _read, request, served, limits)

        served, found, results = await self.service.infer(request.model_name, request.model_version, read, call.client)
        call.take(sum(4 * y.nbytes for y in results.values()))
        return _write(served, found, results)


def _read(request: Any, served: Served, limits: Limits) -> Inference:
    known = {x.name: x for x in served.inputs}
    raw = request.raw_input_contents
    if len(request.inputs) > len(known):
        raise Refused(400, f"{len(request.inputs)} inputs are given; there are at most {len(known)}")
    if raw and len(raw) != len(request.inputs):
        raise Refused(400, f"{len(raw)} raw_input_contents for {len(request.inputs)} inputs")
    arrays: dict[str, np.ndarray] = {}
    for k, tensor in enumerate(request.inputs):
        x = inference_protocol.known_input(tensor.name, known, arrays)
        shape = inference_protocol.checked_shape(list(tensor.shape[: limits.rank + 1]), x, limits)
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
    if len(request.outputs) > limits.outputs:
        raise Refused(400, f"{len(request.outputs)} outputs are given; there are at most {limits.outputs}")
    for asked in request.outputs:
        _check_parameters(asked.parameters)
        if "classification" in asked.parameters:
            raise Refused(400, "classification of outputs is not supported")
        outputs.append(Asked(asked.name, True))
    inference_protocol.check_id(request.id, limits)
    return Inference(arrays, request.id, outputs, True)


def _from_contents(values: Any, x: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The array of an input that was sent in `contents`. Floats are taken as they are, NaN among them."""
    if len(values) != math.prod(shape):
        raise Refused(400, f"input {shown(x.name)}: data has {len(values)} elements, not {list(shape)}")
    pieces = (values[k : k + _PIECE] for k in range(0, len(values), _PIECE))
    return inference_protocol.from_numbers(pieces, x, shape, finite=False)


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
