"""Running a server: its sockets, its end, and what it says."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from gluonjit.tools.serving.http_connection import Connection
from gluonjit.tools.serving.http_server import Service, application

_SPARE_FILES = 128


class Server(uvicorn.Server):
    """Ends in steps. When a signal comes, it is not ready any more, so that balancers send no more requests, and closes
    each connection after the answer; `drain` seconds later it stops listening, answers what it has accepted, and ends.
    """

    def __init__(self, service: Service, host: str, port: int, drain: float) -> None:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        super().__init__(
            uvicorn.Config(
                application(service),
                host=host,
                port=port,
                http=Connection,
                ws="none",
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=max(files - _SPARE_FILES, 64),
                timeout_graceful_shutdown=int(service.timeout + service.body_timeout) + 1,
                timeout_keep_alive=30,
            )
        )
        self.service, self.drain = service, drain
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

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closing a socket that listens resets connections that wait to be accepted: these are accepted first."""
        assert self._loop is not None
        waiting = [connection for own in sockets or () for connection in _accepted(own)]
        for server in self.servers:
            server.close()
        for connection in waiting:
            await self._loop.connect_accepted_socket(
                lambda: Connection(self.config, self.server_state, self.lifespan.state), connection
            )
        await super().shutdown(sockets)

    def _end(self) -> None:
        assert self._loop is not None
        self._loop.call_later(self.drain, setattr, self, "should_exit", True)


def _accepted(own: socket.socket) -> Iterator[socket.socket]:
    own.setblocking(False)
    while True:
        try:
            connection, _ = own.accept()
        except OSError:
            return
        connection.setblocking(False)
        yield connection


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. OSError with the address for one that cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(1024)
    except (OSError, OverflowError) as e:
        found.close()
        raise OSError(f"{host}:{port} cannot be had: {e}") from None
    return found


async def serve(
    service: Service,
    host: str,
    port: int,
    grpc_port: int | None,
    drain: float,
    ready: Callable[[Server, int, int | None], None] = lambda server, port, grpc_port: None,
) -> None:
    """Serves until a signal ends it. `ready` is called with the server and its ports when requests can come.
    `grpc_port`: None for no gRPC. OSError for a port that cannot be had."""
    own = listening(host, port)
    service.store.hand_over = asyncio.get_running_loop().call_soon_threadsafe
    grpc_server = None
    try:
        if grpc_port is not None:
            from gluonjit.tools.serving.grpc_server import make_server

            grpc_server, grpc_port = make_server(
                service, f"[{host}]:{grpc_port}" if ":" in host else f"{host}:{grpc_port}"
            )
            await grpc_server.start()
        server = Server(service, host, port, drain)
        announcing = asyncio.ensure_future(_announced(server, own.getsockname()[1], grpc_port, ready))
        try:
            await server.serve(sockets=[own])
        finally:
            announcing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await announcing
    finally:
        service.draining = True
        if grpc_server is not None:
            await grpc_server.stop(service.timeout)
        own.close()
        service.readers.shutdown(wait=False, cancel_futures=True)
        service.loader.shutdown(wait=False, cancel_futures=True)
        await asyncio.get_running_loop().run_in_executor(None, service.store.close)


async def _announced(server: Server, port: int, grpc_port: int | None, ready: Callable[..., None]) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    ready(server, port, grpc_port)


def log_to_standard_error() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logging.getLogger("gluonjit.serve").addHandler(handler)
