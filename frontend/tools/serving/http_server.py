"""The HTTP side of `gluonjit serve`: an ASGI application of Starlette's."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gluonjit._version import version
from gluonjit.tools.serving import inference_protocol
from gluonjit.tools.serving.batching import Arrays, Closed, Full
from gluonjit.tools.serving.http_connection import CONNECTION
from gluonjit.tools.serving.inference_protocol import EXTENSIONS, HEADER_LENGTH, Inference, Refused
from gluonjit.tools.serving.json_process import Processes
from gluonjit.tools.serving.limits import Overdrawn, Shares, client, held
from gluonjit.tools.serving.observations import Observations
from gluonjit.tools.serving.served_models import ModelStore, Served

_log = logging.getLogger("gluonjit.serve")

_JSON_COST = 8
"""The most memory that JSON, its copies and its numbers take together, in bytes per byte of JSON: two characters may be
a number."""
_WRITTEN_NUMBER = 64
"""Bytes that a number of an answer takes while it is written as JSON and joined."""
_SMALL = 16 * 1024
"""The most bytes that are parsed on the event loop's thread; longer ones are parsed on another."""
_SENT = 256 * 1024
"""Bytes of an answer that are sent at a time."""

_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:"


class Service:
    """What HTTP and gRPC share: the models, the limits and the observations."""

    def __init__(
        self,
        store: ModelStore,
        observations: Observations,
        *,
        control: bool = False,
        reload: float = 0.0,
    ) -> None:
        """`control`: whether models may be loaded and unloaded by requests; `reload`: seconds between looks whether
        files have changed, 0: never."""
        self.store, self.observations = store, observations
        self.limits = store.options.limits
        self.control, self.reload = control, reload
        self.memory = Shares(self.limits.memory, self.limits.client_share)
        """Bytes of requests and answers that are here."""
        self.draining = False
        """Whether the server is about to end: it is not ready, and connections are closed after their answer."""
        self.readers = ThreadPoolExecutor(2, "gluonjit reader")
        self.processes = Processes(2)
        self.loader = ThreadPoolExecutor(1, "gluonjit loader")

    def metadata(self, served: Served) -> dict[str, Any]:
        source = served.source
        return {
            "name": source.name,
            "versions": self.store.versions(source.name),
            "platform": "gluonjit",
            "inputs": [inference_protocol.metadata(x) for x in served.inputs],
            "outputs": [inference_protocol.metadata(x) for x in served.outputs or ()],
        }

    @property
    def used(self) -> int:
        return self.memory.used

    @contextlib.contextmanager
    def held(self, client: str) -> Iterator[Callable[[int], None]]:
        """Gives a function that counts bytes as used. It raises Refused if these would be too many."""
        with held(self.memory, client) as take:

            def taking(more: int) -> None:
                try:
                    take(more)
                except Overdrawn:
                    raise Refused(
                        429, "too many requests at once: their bodies fill the server's memory; try again"
                    ) from None

            yield taking

    async def infer(
        self, name: str, wanted: str | None, read: Callable[[Served], Awaitable[Inference]], client: str
    ) -> Any:
        """(the version that answered, the request, its results). `read` gives the request to the version."""
        served = self.store.get(name, wanted)
        request = await read(served)
        inference_protocol.check_outputs(request.outputs, [y.name for y in served.outputs or ()] or None)
        arrays = served.checked(request.arrays)
        with held(served.places, client) as take:
            try:
                take(1)
                return served, request, await self._computed(served, wanted, arrays)
            except (Full, Overdrawn):
                raise Refused(429, f"too many requests wait for model {served.source.name}; try again") from None

    async def _computed(self, served: Served, wanted: str | None, arrays: Arrays) -> Arrays:
        timeout = self.limits.timeout
        for _ in range(3):
            try:
                future = served.batcher.submit(arrays, timeout)
                break
            except Closed:  # it has been exchanged since the request came
                served = self.store.get(served.source.name, wanted)
                arrays = served.checked(arrays)
        else:
            raise Refused(503, f"model {served.source.name} is being exchanged; try again")
        try:
            return await _result(future)
        except TimeoutError:
            raise Refused(504, f"model {served.source.name} was busy for {timeout:g} seconds; try again") from None
        except MemoryError:
            raise Refused(503, "not enough memory for this request") from None

    async def watch(self) -> None:
        """Loads models whose files have changed, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.reload)
            try:
                for problem in await loop.run_in_executor(self.loader, self.store.reload_changed):
                    _log.error("%s", problem)
            except Exception as e:  # a folder that cannot be read now may be there again
                _log.error("the models' files cannot be looked at: %s", e)


async def _result(future: Future[Arrays]) -> Arrays:
    """`asyncio.wrap_future`, for a future that is set by this thread: it wakes the loop with a write to itself."""
    waiter = asyncio.get_running_loop().create_future()

    def wake(_: Future[Arrays]) -> None:
        if not waiter.done():
            waiter.set_result(None)

    future.add_done_callback(wake)
    try:
        await waiter
    except asyncio.CancelledError:
        future.cancel()
        raise
    return future.result()


def application(service: Service) -> Starlette:
    """The routes. Models must be loaded already."""

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        watcher = asyncio.create_task(service.watch()) if service.reload else None
        yield
        if watcher is not None:
            watcher.cancel()

    handlers = _Handlers(service)
    model = "/v2/models/{model}"
    one_version = model + "/versions/{version}"
    routes = [
        *(Route(path + "/infer", handlers.infer, methods=["POST"]) for path in (model, one_version)),  # most requests'
        Route("/", handlers.page),
        Route("/page.js", functools.partial(handlers.asset, "page.js", "text/javascript")),
        Route("/page.css", functools.partial(handlers.asset, "page.css", "text/css")),
        Route("/metrics", handlers.metrics),
        Route("/v2", handlers.server),
        Route("/v2/health/live", handlers.live),
        Route("/v2/health/ready", handlers.ready),
        Route("/v2/load", handlers.load_now),
        Route("/v2/repository/index", handlers.index, methods=["POST"]),
        Route("/v2/repository/models/{model}/load", handlers.load, methods=["POST"]),
        Route("/v2/repository/models/{model}/unload", handlers.unload, methods=["POST"]),
    ]
    for path in (model, one_version):
        routes += [Route(path, handlers.model), Route(path + "/ready", handlers.model_ready)]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _http_error})
    app.state.service = service
    return app


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = error.detail
    if error.status_code == 404:
        detail += "; paths are those of the Open Inference Protocol, as /v2/models/NAME/infer; / is a page for people"
    elif error.status_code == 405:
        detail += f": {request.method}; this path takes {(error.headers or {}).get('Allow', 'other methods')}"
    return JSONResponse({"error": detail}, error.status_code, headers=error.headers)


def _answers(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The handler, with its errors as answers."""

    @functools.wraps(handler)
    async def answering(self: _Handlers, request: Request) -> Response:
        try:
            response = await handler(self, request)
        except Refused as e:
            response = JSONResponse({"error": str(e)}, e.status)
            if e.status in (429, 503, 504):
                response.headers["retry-after"] = "1"
            if e.status in (408, 411, 413, 415, 429):  # the rest of the body is not read
                response.headers["connection"] = "close"
        except ClientDisconnect:
            response = Response(status_code=400)
        except Exception as e:
            _log.exception("%s", e)
            response = JSONResponse({"error": f"the model failed: {type(e).__name__}: {str(e)[:1000]}"}, 500)
        if self.service.draining:
            response.headers["connection"] = "close"
        return response

    return answering


class _Handlers:
    def __init__(self, service: Service) -> None:
        self.service = service
        self.store = service.store

    # ---- health and metadata

    @_answers
    async def live(self, _request: Request) -> Response:
        return JSONResponse({"live": True})

    @_answers
    async def ready(self, _request: Request) -> Response:
        ready = not self.service.draining
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    @_answers
    async def server(self, _request: Request) -> Response:
        return JSONResponse({"name": "gluonjit", "version": version, "extensions": list(EXTENSIONS)})

    @_answers
    async def model(self, request: Request) -> Response:
        return JSONResponse(self.service.metadata(self._served(request)))

    @_answers
    async def model_ready(self, request: Request) -> Response:
        served = self._served(request)
        return JSONResponse({"name": served.source.name, "ready": True})

    @_answers
    async def load_now(self, _request: Request) -> Response:
        """What the page shows: not part of the protocol."""
        found = [
            {
                "name": served.source.name,
                "version": str(served.source.version),
                "waiting": served.batcher.waiting,
                "merged": served.rows is not None,
                "why": served.why_alone,
                "limits": dict(served.limits),
                **self.service.observations.totals(served.source.name, str(served.source.version)),
            }
            for served in self.store.all()
        ]
        return JSONResponse({"models": found, "body_bytes": self.service.used})

    @_answers
    async def metrics(self, _request: Request) -> Response:
        waiting = {(s.source.name, str(s.source.version)): s.batcher.waiting for s in self.store.all()}
        text, kind = self.service.observations.text(waiting, self.service.used)
        return Response(text, headers={"content-type": kind})

    def _served(self, request: Request) -> Served:
        return self.store.get(request.path_params["model"], request.path_params.get("version"))

    # ---- the page

    @_answers
    async def page(self, _request: Request) -> Response:
        return _asset("page.html", "text/html; charset=utf-8")

    async def asset(self, name: str, kind: str, _request: Request) -> Response:
        return _asset(name, kind)

    # ---- the repository

    @_answers
    async def index(self, request: Request) -> Response:
        found = await self._control(request)
        loop = asyncio.get_running_loop()
        models = await loop.run_in_executor(self.service.readers, self.store.index)
        return JSONResponse([m for m in models if not found.get("ready") or m["state"] == "READY"])

    @_answers
    async def load(self, request: Request) -> Response:
        return await self._controlled(request, self.store.load)

    @_answers
    async def unload(self, request: Request) -> Response:
        return await self._controlled(request, self.store.unload)

    async def _controlled(self, request: Request, change: Callable[[str], None]) -> Response:
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
            raise Refused(403, "pages of other servers may not load and unload models")
        body = await self._control(request)
        await controlled(self.service, request.path_params["model"], body.get("parameters"), change)
        return Response()

    async def _control(self, request: Request) -> dict[str, Any]:
        """The document of a request that has no tensors."""
        limits = self.service.limits
        with self.service.held(_client(request)) as take:
            return inference_protocol.control(await self._body(request, limits.json_rest, take), limits)

    # ---- inference

    @_answers
    async def infer(self, request: Request) -> Response:
        begin = time.perf_counter()
        name, wanted = request.path_params["model"], request.path_params.get("version")
        status = "500"
        served = self.store.get(name, wanted)  # a model that is not there has no place in the metrics
        name, label = served.source.name, str(served.source.version)
        try:
            response = await self._infer(request, served, wanted)
            status = str(response.status_code)
        except Refused as e:
            status = str(e.status)
            raise
        except ClientDisconnect:
            status = "499"
            raise
        finally:
            self.service.observations.request(name, label, status, time.perf_counter() - begin)
        return response

    async def _infer(self, request: Request, served: Served, wanted: str | None) -> Response:
        service = self.service
        headers = request.headers
        if headers.get("content-encoding", "identity") != "identity":
            raise Refused(415, "bodies must not be compressed")
        text_length = headers.get(HEADER_LENGTH)
        limit = served.largest_body
        if text_length is None:
            limit = min(limit, service.limits.json)
        elif not text_length.isascii() or not text_length.isdecimal() or len(text_length) > 18:
            raise Refused(400, f"{HEADER_LENGTH} must be a number of bytes")
        elif int(text_length) > service.limits.json:
            raise Refused(413, f"{HEADER_LENGTH} is {text_length}; the server reads at most {service.limits.json}")
        length = _content_length(headers.get("content-length"), limit)
        client = _client(request)
        with contextlib.ExitStack() as stack:
            take = stack.enter_context(service.held(client))
            body = await self._long_body(request, length, text_length, take) or await self._body(request, limit, take)
            text = len(body) if text_length is None else min(int(text_length), len(body))
            take(_JSON_COST * text)

            async def read(version: Served) -> Inference:
                given = (body, text_length, version.inputs, service.limits)
                if text <= _SMALL:
                    return inference_protocol.read(*given)
                return await asyncio.get_running_loop().run_in_executor(service.readers, service.processes.read, *given)

            answered, found, results = await service.infer(served.source.name, wanted, read, client)
            take(sum(3 * y.nbytes + (0 if found.binary else _WRITTEN_NUMBER * y.size) for y in results.values()))
            parts, json_length = await self._written(answered, found, results)
            out = {"content-type": "application/json" if json_length is None else "application/octet-stream"}
            if json_length is not None:
                out[HEADER_LENGTH] = str(json_length)
            if sum(map(len, parts)) <= _SENT:
                return Response(b"".join(parts), headers=out)
            return _LongAnswer(parts, out, stack.pop_all(), service.limits.body_timeout)

    async def _written(self, served: Served, request: Inference, results: Arrays) -> Any:
        task = functools.partial(
            inference_protocol.write, served.source.name, str(served.source.version), request, results
        )
        if sum(y.nbytes for y in results.values()) <= _SMALL:
            return task()
        return await asyncio.get_running_loop().run_in_executor(self.service.readers, task)

    async def _long_body(
        self, request: Request, length: int | None, text_length: str | None, take: Callable[[int], None]
    ) -> memoryview | None:
        """A body that is worth it, in memory where the bytes of tensors after JSON are aligned; None for others."""
        connection = request.scope.get("extensions", {}).get(CONNECTION)
        if connection is None or length is None or length <= _SMALL:
            return None
        lead = -int(text_length or 0) % 16
        try:
            return await connection["is"].long_body(request.scope, length, lead, self.service.limits.body_timeout, take)
        except asyncio.TimeoutError:
            raise self._late() from None

    def _late(self) -> Refused:
        return Refused(408, f"the body did not arrive within {self.service.limits.body_timeout:g} seconds")

    async def _body(self, request: Request, limit: int, take: Callable[[int], None]) -> bytearray:
        """The body; Refused where it is longer than `limit`, or does not come in time. `take` counts its bytes as the
        server's while they come."""
        _content_length(request.headers.get("content-length"), limit)
        try:
            return await asyncio.wait_for(self._read(request, limit, take), self.service.limits.body_timeout)
        except asyncio.TimeoutError:
            raise self._late() from None

    async def _read(self, request: Request, limit: int, take: Callable[[int], None]) -> bytearray:
        body = bytearray()
        async for chunk in request.stream():
            if len(body) + len(chunk) > limit:
                raise Refused(413, f"the body is longer than {limit} bytes, the most for this model")
            take(len(chunk))
            body += chunk
        return body


class _LongAnswer(Response):
    """Is sent in pieces, as the client takes them, so that its memory is counted until it has gone."""

    def __init__(
        self, parts: Sequence[bytes], headers: dict[str, str], memory: contextlib.ExitStack, seconds: float
    ) -> None:
        super().__init__(headers={**headers, "content-length": str(sum(map(len, parts)))})
        self.parts, self.memory, self.seconds = parts, memory, seconds

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        with self.memory:
            try:
                await asyncio.wait_for(self._send(send), self.seconds)
            except asyncio.TimeoutError:
                scope["extensions"][CONNECTION]["is"].transport.abort()
                await asyncio.sleep(0)  # for the server to know of it

    async def _send(self, send: Any) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for part in self.parts:
            for k in range(0, len(part), _SENT):
                await send({"type": "http.response.body", "body": part[k : k + _SENT], "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _client(request: Request) -> str:
    return client(request.client.host) if request.client else ""


async def controlled(service: Service, name: str, parameters: Any, change: Callable[[str], None]) -> None:
    """Loads or unloads a model by a request. Refused where that is not allowed."""
    if not service.control:
        raise Refused(403, "models are loaded and unloaded by requests only if the server is started with --control")
    if parameters:
        raise Refused(400, "models are loaded as their files say: parameters are not supported")
    await asyncio.get_running_loop().run_in_executor(service.loader, change, name)


def _content_length(text: str | None, limit: int) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal():
        raise Refused(400, "Content-Length must be a number")
    if len(text) > 18 or int(text) > limit:
        raise Refused(413, f"the body has {text[:40]} bytes; the most for this model is {limit}")
    return int(text)


@functools.lru_cache
def _content(name: str) -> bytes:
    return (resources.files("gluonjit.tools.serving") / name).read_bytes()


def _asset(name: str, kind: str) -> Response:
    headers = {
        "content-type": kind,
        "content-security-policy": _POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
    return Response(_content(name), headers=headers)
