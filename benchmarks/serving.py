"""`gluonjit serve` under load: its throughput beside that of the model alone, its latency, and what strangers do to it.

    python -m benchmarks.serving --model resnet50_v1 --seconds 120 --clients 64

The clients are one process with a connection each; a client sends its next request when it has the answer. "alone" is
`gluonjit.Predictor` called with batches of --batch rows, in a process of its own. Both are measured in turn, as the
machine's speed may change, and the best of each is compared. Then come hostile requests: each must be answered with a
4xx (or the connection ended, where nothing more can be said), and the server's memory must stay.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


def export(name: str, folder: Path) -> list[str]:
    """A zoo model with random parameters, as files."""
    import gluonjit as mx

    net = getattr(mx.gluon.model_zoo.vision, name)(classes=1000)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    net(mx.nd.ones((1, 3, 224, 224)))
    net.export(str(folder / "net"))
    return [str(folder / "net-symbol.json"), str(folder / "net-0000.params")]


SHAPE = "batchx3x224x224"


# ---- the model alone


def alone(files: list[str], batch: int, threads: int | None, seconds: list[float]) -> list[float]:
    """Rows per second, measured once for each of `seconds`, in another process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_alone, (files, batch, threads, seconds))


def _alone(files: list[str], batch: int, threads: int | None, seconds: list[float]) -> list[float]:
    import gluonjit as mx

    predictor = mx.Predictor(*files, inputs={"data": SHAPE}, threads=threads)
    x = {"data": np.random.default_rng(0).standard_normal((batch, 3, 224, 224)).astype(np.float32)}
    predictor(x)
    found = []
    for duration in seconds:
        begin, calls = time.perf_counter(), 0
        while time.perf_counter() - begin < duration:
            predictor(x)
            calls += 1
        found.append(calls * batch / (time.perf_counter() - begin))
    return found


# ---- the server


@contextlib.contextmanager
def serving(files: list[str], batch: int, threads: int | None) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """(the process, the port)"""
    command = [sys.executable, "-m", "gluonjit", "serve", f"net={files[0]}", files[1], "--input", f"data={SHAPE}"]
    command += ["--port", "0", "--max-batch", str(batch), "--delay", "5"]
    command += ["--threads", str(threads)] if threads else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout or ():
                if match := re.match(r"ready at http://127.0.0.1:(\d+)", line):
                    yield process, int(match[1])
                    break
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)


def resident(process: subprocess.Popen[str]) -> int:
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * 4096


def request(rows: int = 1) -> bytes:
    """A request with its tensor as bytes."""
    x = np.random.default_rng(rows).standard_normal((rows, 3, 224, 224)).astype(np.float32)
    tensor = {"name": "data", "datatype": "FP32", "shape": x.shape, "parameters": {"binary_data_size": x.nbytes}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return (
        b"POST /v2/models/net/infer HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n"
        b"inference-header-content-length: %d\r\n\r\n" % (len(head) + x.nbytes, len(head))
    ) + (head + x.tobytes())


async def _client(port: int, sent: bytes, until: float, times: list[float], statuses: Counter[Any]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < until:
        begin = time.perf_counter()
        writer.write(sent)
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(re.search(rb"\ncontent-length: (\d+)", head)[1]))  # type: ignore[index]
        times.append(time.perf_counter() - begin)
        statuses[int(head[9:12])] += 1
    writer.close()


def load(port: int, clients: int, seconds: float) -> tuple[float, list[float], Counter[Any]]:
    """(requests per second, seconds of each, how many had which status)"""
    times: list[float] = []
    statuses: Counter[Any] = Counter()
    sent = request()

    async def run() -> None:
        until = time.perf_counter() + seconds
        ended = await asyncio.gather(
            *(_client(port, sent, until, times, statuses) for _ in range(clients)), return_exceptions=True
        )
        statuses.update(type(e).__name__ for e in ended if e is not None)

    begin = time.perf_counter()
    asyncio.run(run())
    return len(times) / (time.perf_counter() - begin), times, statuses


# ---- strangers

_VALUES: list[Any] = [None, True, -1, 0, 1e308, 2**63, 10**300, "x", "x" * 5000, [], {}, [[]], [1] * 5000, {"a": {}}]
_FIELDS = ("name", "datatype", "shape", "data", "parameters")


def hostile(rng: random.Random) -> bytes:
    """The bytes of one wrong request: of wrong JSON, shapes, types, sizes, lengths or HTTP."""
    tensor: dict[str, Any] = {"name": "data", "datatype": "FP32", "shape": [1, 3, 224, 224], "data": [0]}
    document: Any = {"inputs": [tensor]}
    headers = []
    rest = b""
    kind = rng.randrange(8)
    if kind == 0:
        tensor[rng.choice(_FIELDS)] = rng.choice(_VALUES)
    elif kind == 1:
        document = rng.choice([*_VALUES, {"inputs": rng.choice(_VALUES)}])
    elif kind == 2:
        tensor["shape"] = [rng.choice([-1, 0, 1, 3, 224, 2**31, 2**62, 2**64]) for _ in range(rng.randrange(40))]
    elif kind == 3:
        size = rng.choice([-1, 0, 4, 2**31, 2**63, 1.5, None])
        tensor = {**tensor, "parameters": {"binary_data_size": size}}
        del tensor["data"]
        document, rest = {"inputs": [tensor]}, rng.randbytes(rng.randrange(100))
    text = json.dumps(document).encode()
    if kind == 4:
        text = rng.choice([b"[", b'{"a":', b'{"inputs":[']) * rng.randrange(1, 2000)
    elif kind == 5:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice([b"NaN", b"\xff", b"1" * 6000, b"Infinity", b""]) + text[at + 1 :]
    if kind == 3 or rng.random() < 0.1:
        length = len(text) if kind == 3 and rng.random() < 0.7 else rng.choice([-1, 0, 10**6, 10**30, "x"])
        headers.append(f"inference-header-content-length: {length}")
    body = text + rest
    length = len(body)
    if kind == 6:
        length = rng.choice([-1, 10**9, 10**17, 10**30, "x", len(body) + 1, max(len(body) - 1, 0)])
    if kind == 7:
        headers.append("transfer-encoding: chunked")
        wrong = b"%x\r\n" % rng.choice([2**60, 2**70, 0]) + b"zz\r\n"
        body = rng.choice([b"zz\r\n", wrong, b"5\r\n" + body + b"\r\n"])
    else:
        headers.append(f"content-length: {length}")
    head = "\r\n".join(["POST /v2/models/net/infer HTTP/1.1", "host: a", "connection: close", *headers])
    return head.encode() + b"\r\n\r\n" + body


def answer(port: int, sent: bytes) -> int | str:
    """The status; or how the connection ended."""
    with socket.create_connection(("127.0.0.1", port), 90) as connection:
        try:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            found = connection.recv(65536)
        except OSError as e:
            return type(e).__name__
    return int(found[9:12]) if found.startswith(b"HTTP/1.1 ") else "ended"


def slow(port: int, count: int) -> Counter[Any]:
    """Bodies that never come, all at a time."""
    head = b"POST /v2/models/net/infer HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{"
    connections = [socket.create_connection(("127.0.0.1", port), 90) for _ in range(count)]
    for connection in connections:
        connection.sendall(head)
    found: Counter[Any] = Counter()
    for connection in connections:
        found[int(connection.recv(4096)[9:12])] += 1
        connection.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50_v1")
    parser.add_argument("--seconds", type=float, default=120.0, help="of load, in --rounds parts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--hostile", type=int, default=1000)
    arguments = parser.parse_args()
    part = arguments.seconds / arguments.rounds
    with tempfile.TemporaryDirectory() as folder:
        files = export(arguments.model, Path(folder))
        with serving(files, arguments.batch, arguments.threads) as (process, port):
            load(port, arguments.clients, 3)
            rates, alone_rates, times, statuses = [], [], [], Counter[Any]()
            for _ in range(arguments.rounds):
                alone_rates += alone(files, arguments.batch, arguments.threads, [part / 2])
                rate, own, found = load(port, arguments.clients, part)
                rates.append(rate)
                times += own
                statuses += found
            print(f"{arguments.model}, {arguments.clients} clients, batches of up to {arguments.batch}:")
            print(f"  alone     {max(alone_rates):8.1f} rows/s  of {', '.join(f'{r:.1f}' for r in alone_rates)}")
            print(f"  served    {max(rates):8.1f} rows/s  of {', '.join(f'{r:.1f}' for r in rates)}")
            print(f"  ratio     {max(rates) / max(alone_rates):8.2f}")
            p50, p99 = np.percentile(times, (50, 99))
            print(f"  latency   {p50 * 1e3:8.0f} ms p50  {p99 * 1e3:.0f} ms p99")
            print(f"  answers   {dict(statuses)}")
            rng = random.Random(0)
            for _ in range(100):
                answer(port, hostile(rng))
            before = resident(process)
            refused: Counter[Any] = Counter(answer(port, hostile(rng)) for _ in range(arguments.hostile))
            refused += slow(port, 50)
            growth = (resident(process) - before) / 2**20
            print(f"  hostile   {dict(refused)}, memory {growth:+.1f} MB")
            print(f"  after it  {dict(load(port, arguments.clients, 3)[2])}")


if __name__ == "__main__":
    main()
