"""Accepting connections of HTTP, with an end to their number: when there are too many, idle ones are closed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
from collections.abc import Callable

from gluonjit.tools.serving.http_connection import Connection
from gluonjit.tools.serving.limits import Shares, client

_log = logging.getLogger("gluonjit.serve")

SPARE_FILES = 128
"""Descriptors that are for others than connections: files of models, what libraries open."""


def connections_possible(wanted: int, protocols: int) -> int:
    """How many connections of each protocol there may be. Asks for the descriptors that they need."""
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted * protocols + SPARE_FILES
    if files < needed and files != resource.RLIM_INFINITY:
        with contextlib.suppress(OSError, ValueError):
            files = needed if most == resource.RLIM_INFINITY else min(needed, most)
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return max(min(wanted, (files - SPARE_FILES) // protocols), 8)
    return wanted


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. OSError, with the address, if that is not possible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(1024)
        found.setblocking(False)
    except (OSError, OverflowError) as e:
        found.close()
        raise OSError(f"cannot listen at {host}:{port}: {e}") from None
    return found


class Listener:
    """Accepts connections, and knows which there are.

    asyncio's own server accepts what comes until descriptors run out, and then writes a traceback for each that waits.
    """

    def __init__(
        self,
        own: socket.socket,
        shares: Shares,
        make: Callable[[Callable[[Connection], None]], Connection],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`make` gives the protocol of a new connection, which calls the function that it gets at its end."""
        self._own, self._shares, self._make, self._loop = own, shares, make, loop
        self._clients: dict[Connection, str] = {}
        self._spare = os.open(os.devnull, os.O_RDONLY)
        self._tasks: set[asyncio.Task[None]] = set()
        loop.add_reader(own, self._accept)

    async def close(self) -> None:
        """Ends the socket that listens, and accepts first what waits at it, which would be reset."""
        self._loop.remove_reader(self._own)
        while self._accept():
            pass
        self._own.close()
        os.close(self._spare)
        await asyncio.gather(*self._tasks)

    def _accept(self) -> bool:
        """Whether there was a connection: one at a time, so that requests are answered in between."""
        try:
            found, address = self._own.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as e:
            if e.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                raise
            self._refuse_one(e)
            return False
        who = client(address[0])
        if not self._shares.fits(who, 1) and not self._make_room(who):
            found.close()
            return True
        found.setblocking(False)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # an answer's body does not wait for its head's ack
        connection = self._make(self._forget)
        self._clients[connection] = who
        self._shares.take(who, 1)
        task = self._loop.create_task(self._connect(connection, found))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _connect(self, connection: Connection, found: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: connection, found)
        except OSError:  # it has ended already
            self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        who = self._clients.pop(connection, None)
        if who is not None:
            self._shares.give(who, 1)

    def _make_room(self, who: str) -> bool:
        """Closes the connection that is longest without a request, of the client itself, if it has any, or else of the
        one that has most. False if they all have one."""
        if not self._shares.by_client[who] and self._clients:
            ((who, _),) = self._shares.by_client.most_common(1)
        idle = [c for c, of in self._clients.items() if of == who and c.has_no_request]
        if not idle:
            return False
        longest = min(idle, key=lambda c: c.idle_since)
        longest.transport.abort()
        self._forget(longest)
        return True

    def _refuse_one(self, why: OSError) -> None:
        """There is no descriptor: one that was kept for this accepts a connection and closes it, as clients must not
        wait for nothing; and an idle one makes room."""
        _log.error("a connection cannot be accepted: %s", why)
        os.close(self._spare)
        with contextlib.suppress(OSError):
            self._own.accept()[0].close()
        with contextlib.suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY)
        self._make_room("")
