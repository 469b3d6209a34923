"""Long JSON is read by processes of their own: Python's threads would take the event loop's time, call by call."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, Any

from gluonjit.tools.serving import inference_protocol
from gluonjit.tools.serving.described import Described
from gluonjit.tools.serving.inference_protocol import Inference, Refused
from gluonjit.tools.serving.limits import Limits

_SIZE = struct.Struct("<Q")
_NICE = 5
"""How much these processes lower their priority (`os.nice`), so that the event loop comes first."""


class Processes:
    """At most `count` processes, which are started when they are needed."""

    def __init__(self, count: int) -> None:
        self._free: queue.SimpleQueue[subprocess.Popen[bytes] | None] = queue.SimpleQueue()
        self._all: list[subprocess.Popen[bytes]] = []
        for _ in range(count):
            self._free.put(None)

    def read(self, body: Any, header_length: str | None, inputs: Sequence[Described], limits: Limits) -> Inference:
        """As `inference_protocol.read`. Waits for a free process; other threads run meanwhile."""
        process = self._free.get()
        try:
            if process is None:
                process = subprocess.Popen(
                    [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
                self._all.append(process)
            assert process.stdin is not None and process.stdout is not None
            _send(process.stdin, (header_length, list(inputs), limits), body)
            found, _ = _received(process.stdout)
        except (OSError, EOFError):
            if process is not None:
                process.kill()
                self._all.remove(process)
            process = None
            raise Refused(503, "the body was too much for the process that reads it; try again") from None
        finally:
            self._free.put(process)
        if isinstance(found, tuple) and not isinstance(found, Inference):
            raise Refused(*found)
        return found

    def close(self) -> None:
        for process in self._all:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def _send(pipe: IO[bytes], what: Any, body: Any = b"") -> None:
    """The arrays in `what` are sent as they are, without a copy."""
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(what, protocol=5, buffer_callback=buffers.append)
    parts = [text, body, *(b.raw() for b in buffers)]
    pipe.write(_SIZE.pack(len(parts)) + b"".join(_SIZE.pack(memoryview(part).nbytes) for part in parts))
    for part in parts:
        pipe.write(part)
    pipe.flush()


def _received(pipe: IO[bytes]) -> tuple[Any, bytearray]:
    """(what was sent, the body). EOFError at the end."""
    (count,) = _SIZE.unpack(_whole(pipe, _SIZE.size))
    sizes = [size for (size,) in _SIZE.iter_unpack(_whole(pipe, count * _SIZE.size))]
    text, body, *buffers = [_whole(pipe, size) for size in sizes]
    return pickle.loads(text, buffers=buffers), body


def _whole(pipe: IO[bytes], size: int) -> bytearray:
    found = bytearray(size)
    view = memoryview(found)
    while view:
        read = pipe.readinto(view)  # type: ignore[attr-defined]
        if not read:
            raise EOFError
        view = view[read:]
    return found


def _work() -> None:
    """The process's life, until its input ends, which is when the server does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    taken, given = sys.stdin.buffer, sys.stdout.buffer
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            (header_length, inputs, limits), body = _received(taken)
            try:
                found: Any = inference_protocol.read(body, header_length, inputs, limits)
            except Refused as e:
                found = (e.status, str(e))
            _send(given, found)
            del body, found


if __name__ == "__main__":
    _work()
