"""A connection of the server: uvicorn's, with limits on what comes before a body, and after an early answer; and
with long bodies that are read to where they stay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httptools
import numpy as np
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gluonjit.tools.serving.limits import KB, Limits

CONNECTION = "gluonjit.connection"
"""The extension of a request's scope whose "is" is its Connection."""
GRACE = 1.0
"""Seconds in which requests may still come on connections that are open when the server ends."""


class Connection(HttpToolsProtocol, asyncio.BufferedProtocol):
    idle_since = 0.0
    """When its last request was answered, in seconds of the event loop."""
    _chunks = 0
    _chunk_bytes = 0
    _timer: asyncio.TimerHandle | None = None
    _reader_timer: asyncio.TimerHandle | None = None
    """Runs while answers wait for a client that does not read them."""
    _header_bytes = 0
    _in_headers = True
    """Whether the next bytes are of a first line or of headers."""
    _body: memoryview | None = None
    """The memory of a long body that is still to be filled."""
    _body_complete: asyncio.Future[None]
    _take: Callable[[int], None]

    def __init__(self, config: Any, state: Any, app_state: Any, limits: Limits, lost: Callable[[Connection], None]):
        """`lost` is called at its end."""
        super().__init__(config, state, app_state)
        self.limits, self._lost = limits, lost

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.idle_since = self.loop.time()
        self._buffer = memoryview(bytearray(self.limits.head_bytes))
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._reader_timer is not None:
            self._reader_timer.cancel()
        super().connection_lost(exc)
        self._lost(self)
        if self._body is not None:
            self._fail_body(ClientDisconnect())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer if self._body is None else self._body

    def buffer_updated(self, nbytes: int) -> None:
        if self._body is None:
            self.data_received(bytes(self._buffer[:nbytes]))
            return
        self._body = self._body[nbytes:]
        try:
            self._take(nbytes)
        except Exception as e:
            self._fail_body(e)
        if not self._body:
            self._end_body()
            self.on_message_complete()
            if not self._body_complete.done():
                self._body_complete.set_result(None)

    async def long_body(
        self, scope: Any, length: int, lead: int, seconds: float, take: Callable[[int], None]
    ) -> memoryview | None:
        """The body of a request, which has `length` bytes, after `lead` others: the kernel writes it to its place,
        while uvicorn and ASGI copy it five times. None if it must be read as usual. `take` is told of bytes that came.

        Raises asyncio.TimeoutError if it is not there after so many `seconds`, ClientDisconnect, and what `take` does.
        """
        cycle = self.cycle
        if cycle.scope is not scope or not cycle.more_body or cycle.waiting_for_100_continue or cycle.disconnected:
            return None
        body = np.empty(lead + length, np.uint8).data[lead:]
        here = len(cycle.body)
        take(here)
        body[:here] = cycle.body
        cycle.body.clear()
        self._body, self._body_complete, self._take = body[here:], self.loop.create_future(), take
        self.flow.resume_reading()
        timer = self.loop.call_later(seconds, self._fail_body, asyncio.TimeoutError())
        try:
            await self._body_complete
        finally:
            timer.cancel()
            self._body = None
        return body

    def _end_body(self) -> None:
        """The parser has not seen the body's end: the next request needs a new one."""
        self._body = None
        self.parser = httptools.HttpRequestParser(self)

    def _fail_body(self, why: Exception) -> None:
        if not self._body_complete.done():
            self._body_complete.set_exception(why)

    def data_received(self, data: bytes) -> None:
        if self._in_headers:
            self._header_bytes += len(data)
            if self._timer is None:
                self._await_headers()
            # What comes in one piece with the end of the headers may be the body's.
            if self._header_bytes > self.limits.head_bytes + len(data):
                self._refuse_head()
                return
        super().data_received(data)
        if self._in_headers and self._header_bytes > self.limits.head_bytes and not self.transport.is_closing():
            self._refuse_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers = True
        self._chunks = self._chunk_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= self.limits.headers:
            raise ValueError("too many headers")  # becomes an error of the parser's, and this calls the next method
        super().on_header(name, value)

    def send_400_response(self, msg: str) -> None:
        if self._in_headers and self.headers and len(self.headers) >= self.limits.headers:
            self._refuse_head()
        else:
            super().send_400_response(msg)

    def _refuse_head(self) -> None:
        self._refuse(b"431 Request Header Fields Too Large", b"the headers are too long")

    def on_chunk_header(self) -> None:
        """Counts a chunk, which costs as much as a kilobyte of a body does."""
        self._chunks += 1
        if self._chunks > self.limits.chunks + self._chunk_bytes // KB:
            raise ValueError("too many small chunks")

    def on_body(self, body: bytes) -> None:
        self._chunk_bytes += len(body)
        super().on_body(body)

    def on_headers_complete(self) -> None:
        if (
            len(self.pipeline) >= self.limits.ahead
        ):  # thousands fit into what is read at once; the parser's error ends it
            raise ValueError("too many requests ahead of their answers")
        self._in_headers, self._header_bytes = False, 0
        self._stop_timer()
        self.scope["extensions"] = {CONNECTION: {"is": self}}
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_headers, self._header_bytes = True, 0
        self._stop_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.idle_since = self.loop.time()
        if not self._in_headers and not self.transport.is_closing():  # answered early: the body is still coming
            self._stop_timer()
            self._timer = self.loop.call_later(self.limits.head_seconds, self.transport.abort)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """The client sends no more. It may still read: the answer to what it has sent, or what is wrong with it."""
        if self._in_headers and not self._header_bytes:
            if self.cycle is None or self.cycle.response_complete:
                return None
            self.cycle.keep_alive = False
            return True
        if not self.transport.is_closing() and (self._in_headers or not self.cycle.response_started):
            self._refuse(b"400 Bad Request", b"the request ended early")
        return None

    def shutdown(self) -> None:
        """The server ends. A request may be on its way on a connection that is idle, or new: its answer closes it."""
        if self.is_idle:
            self.loop.call_later(GRACE, self._close_if_idle)
        else:
            super().shutdown()

    @property
    def is_idle(self) -> bool:
        return not self._header_bytes and self.has_no_request

    @property
    def has_no_request(self) -> bool:
        """Whether no request has arrived completely, so that there is nothing to answer."""
        return self.transport is not None and (self.cycle is None or self.cycle.response_complete)

    def _close_if_idle(self) -> None:
        if self.is_idle and not self.transport.is_closing():
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._reader_timer is None:
            self._reader_timer = self.loop.call_later(self.limits.head_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None
        super().resume_writing()

    def _await_headers(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self.limits.head_seconds, self._too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        if not self.transport.is_closing():
            self._refuse(b"408 Request Timeout", b"the headers did not come in time")

    def _refuse(self, status: bytes, message: bytes) -> None:
        self._stop_timer()
        self.transport.write(
            b"HTTP/1.1 %s\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
            % (status, len(message), message)
        )
        self.transport.close()
