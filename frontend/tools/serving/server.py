"""Running a server: its sockets, its end, and what it says."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import uvicorn

from gluonjit.tools.serving.http_connection import Connection
from gluonjit.tools.serving.http_server import Service, application
from gluonjit.tools.serving.limits import Shares
from gluonjit.tools.serving.listening import Listener, connections_possible, listening


class Server(uvicorn.Server):
    """Ends in steps. When a signal comes, it is not ready any more, so that balancers send no more requests, and closes
    each connection after the answer; `drain` seconds later it stops listening, answers what it has accepted, and ends.
    """

    def __init__(self, service: Service, own: socket.socket, connections: int, drain: float) -> None:
        limits = service.limits
        super().__init__(
            uvicorn.Config(
                application(service),
                http=Connection,
                ws="none",
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=int(limits.timeout + limits.body_timeout) + 1,
                timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]
            )
        )
        self.service, self.drain, self._own = service, drain, own
        self._connections = Shares(connections, limits.client_share)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def _serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super()._serve(sockets)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """A second signal ends at once."""
        if self.service.draining or self._loop is None:
            self.force_exit = True
            self.should_exit = True
            return
        self.service.draining = True
        self._loop.call_soon_threadsafe(self._end)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Replaces uvicorn's, which lets asyncio accept connections."""
        assert self._loop is not None
        await self.lifespan.startup()
        self.servers = []
        self._listener = Listener(self._own, self._connections, self._connection, self._loop)
        self.started = True

    def _connection(self, lost: Callable[[Connection], None]) -> Connection:
        return Connection(self.config, self.server_state, self.lifespan.state, self.service.limits, lost)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._listener.close()
        await super().shutdown()

    def _end(self) -> None:
        assert self._loop is not None
        self._loop.call_later(self.drain, setattr, self, "should_exit", True)


async def serve(
    service: Service,
    host: str,
    port: int,
    grpc_port: int | None,
    drain: float,
    ready: Callable[[Server, int, int | None], None] = lambda server, port, grpc_port: None,
) -> None:
    """Serves until a signal ends it. `ready` is called with the server and its ports when requests can come.
    `grpc_port`: None for no gRPC. OSError for a port at which it cannot listen."""
    own = listening(host, port)
    connections = connections_possible(service.limits.connections, 1 if grpc_port is None else 2)
    service.store.hand_over = asyncio.get_running_loop().call_soon_threadsafe
    grpc_server = None
    try:
        if grpc_port is not None:
            from gluonjit.tools.serving.grpc_server import GrpcServer

            grpc_server = GrpcServer(service, host, grpc_port, connections)
            grpc_port = await grpc_server.start()
        server = Server(service, own, connections, drain)
        announcing = asyncio.ensure_future(_announced(server, own.getsockname()[1], grpc_port, ready))
        try:
            await server.serve()
        finally:
            announcing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await announcing
    finally:
        service.draining = True
        if grpc_server is not None:
            await grpc_server.stop(service.limits.timeout)
        own.close()
        service.readers.shutdown(wait=False, cancel_futures=True)
        service.processes.close()
        service.loader.shutdown(wait=False, cancel_futures=True)
        await asyncio.get_running_loop().run_in_executor(None, service.store.close)


async def _announced(server: Server, port: int, grpc_port: int | None, ready: Callable[..., None]) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    ready(server, port, grpc_port)


class _Seldom(logging.Filter):
    """Lets a number of records through in a number of seconds: strangers must not fill a disk."""

    most, seconds = 20, 60.0

    def __init__(self) -> None:
        super().__init__()
        self._begin, self._count = -self.seconds, 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now - self._begin > self.seconds:
            self._begin, self._count = now, 0
        self._count += 1
        if self._count == self.most:
            record.msg, record.args = f"{record.getMessage()}; more is not written for a minute", ()
        return self._count <= self.most


def return_memory() -> None:
    """Has glibc give long bodies' memory back to the system. It learns otherwise to keep blocks of up to 32 MB, in as
    many places as there are threads. Nothing happens where another library allocates."""
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, 2**20)
        mallopt(_ARENA_MAX, 4)


_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
"""Parameters of mallopt."""


def log_to_standard_error() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logging.getLogger("gluonjit.serve").addHandler(handler)
    for name in ("gluonjit.serve", "uvicorn.error", "asyncio", "grpc._cython.cygrpc"):
        logging.getLogger(name).addFilter(_Seldom())
