"""`gluonjit serve` under load: its throughput beside that of the model alone, its latency, and what strangers do to it.

The clients are one process with a connection each; a client sends its next request when it has the answer. "alone" is
`gluonjit.Predictor` called with batches of --batch rows, in a process of its own. Both are measured in turn, as the
machine's speed may change, and the best of each is compared. Clients and server share the cores, so the CPU that each
of them takes for a request is printed, too; that of the server by its threads. Then come hostile requests: each must be
answered with a 4xx (or the connection ended, where nothing more can be said), and the server's memory must stay.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.command_line import parser


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


def alone(files: list[str], batch: int, threads: int | None, seconds: float) -> tuple[float, float]:
    """(rows per second, seconds of CPU per row), in another process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_alone, (files, batch, threads, seconds))


def _alone(files: list[str], batch: int, threads: int | None, seconds: float) -> tuple[float, float]:
    import gluonjit as mx

    predictor = mx.Predictor(*files, inputs={"data": SHAPE}, threads=threads)
    x = {"data": np.random.default_rng(0).standard_normal((batch, 3, 224, 224)).astype(np.float32)}
    predictor(x)
    begin, cpu, calls = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - begin < seconds:
        predictor(x)
        calls += 1
    rows = calls * batch
    return rows / (time.perf_counter() - begin), (time.process_time() - cpu) / rows


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


def cpu_seconds(process: subprocess.Popen[str]) -> dict[int, float]:
    """Of the process's threads, by their numbers."""
    found = {}
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        found[int(task.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def request(rows: int = 1) -> bytes:
    """A request with its tensor as bytes."""
    x = np.random.default_rng(rows).standard_normal((rows, 3, 224, 224)).astype(np.float32)
    tensor = {"name": "data", "datatype": "FP32", "shape": x.shape, "parameters": {"binary_data_size": x.nbytes}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return (
        b"POST /v2/models/net/infer HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n"
        b"inference-header-content-length: %d\r\n\r\n" % (len(head) + x.nbytes, len(head))
    ) + (head + x.tobytes())


class _Client:
    """A connection that sends its next request when it has the answer. Costs little: the request's bytes are made once,
    and the kernel takes them from a file in memory."""

    def __init__(self, port: int, request: int, size: int) -> None:
        """`request`: a file with `size` bytes."""
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.request, self.size = request, size
        self.start()

    def start(self) -> None:
        self.sent, self.answer, self.left = 0, b"", -1
        self.begin = time.perf_counter()

    def write(self) -> bool:
        """Whether all is sent."""
        with contextlib.suppress(BlockingIOError):
            self.sent += os.sendfile(self.socket.fileno(), self.request, self.sent, self.size - self.sent)
        return self.sent == self.size

    def read(self) -> int | None:
        """The status, when all of the answer is there. OSError at the connection's end."""
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionResetError
        if self.left < 0:
            self.answer += data
            head, end, rest = self.answer.partition(b"\r\n\r\n")
            if not end:
                return None
            self.left = int(re.search(rb"\ncontent-length: (\d+)", head)[1]) - len(rest)  # type: ignore[index]
        else:
            self.left -= len(data)
        return int(self.answer[9:12]) if self.left == 0 else None


class Load(NamedTuple):
    """What clients saw."""

    rate: float
    """Requests per second."""
    times: list[float]
    """Seconds of each."""
    statuses: Counter[Any]
    seconds: float
    """Of the clients' CPU."""


def load(port: int, clients: int, seconds: float) -> Load:
    """One process with that many connections. Its requests begin within `seconds`."""
    times: list[float] = []
    statuses: Counter[Any] = Counter()
    sent = request()
    file = os.memfd_create("request")
    os.write(file, sent)
    selector = selectors.DefaultSelector()
    for _ in range(clients):
        client = _Client(port, file, len(sent))
        selector.register(client.socket, selectors.EVENT_WRITE, client)
    begin, cpu = time.perf_counter(), time.process_time()
    while selector.get_map():
        for key, _ in selector.select():
            client = key.data
            try:
                if key.events == selectors.EVENT_WRITE:
                    if client.write():
                        selector.modify(client.socket, selectors.EVENT_READ, client)
                    continue
                status = client.read()
                if status is None:
                    continue
                statuses[status] += 1
                times.append(time.perf_counter() - client.begin)
                if time.perf_counter() - begin < seconds:
                    client.start()
                    selector.modify(client.socket, selectors.EVENT_WRITE, client)
                    continue
            except OSError as e:
                statuses[type(e).__name__] += 1
            selector.unregister(client.socket)
            client.socket.close()
    os.close(file)
    return Load(len(times) / (time.perf_counter() - begin), times, statuses, time.process_time() - cpu)


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
    p = parser("serving", __doc__, "--model resnet50_v1 --seconds 120 --clients 64")
    p.add_argument("--model", default="resnet50_v1", help="of the zoo (default: %(default)s)")
    p.add_argument("--seconds", type=float, default=120.0, help="of load, in --rounds parts (default: %(default)s)")
    p.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    p.add_argument("--clients", type=int, default=64, help="connections (default: %(default)s)")
    p.add_argument("--batch", type=int, default=32, help="the most rows of a call (default: %(default)s)")
    p.add_argument("--threads", type=int, help="of a call (default: all cores)")
    p.add_argument("--hostile", type=int, default=1000, help="hostile requests (default: %(default)s)")
    arguments = p.parse_args()
    part = arguments.seconds / arguments.rounds
    with tempfile.TemporaryDirectory() as folder:
        files = export(arguments.model, Path(folder))
        with serving(files, arguments.batch, arguments.threads) as (process, port):
            load(port, arguments.clients, 3)
            rates, alone_rates, alone_cpu, times, statuses = [], [], [], [], Counter[Any]()
            clients_cpu, server_cpu = 0.0, Counter[int]()
            for _ in range(arguments.rounds):
                rate, cpu = alone(files, arguments.batch, arguments.threads, part / 2)
                alone_rates.append(rate)
                alone_cpu.append(cpu)
                before = cpu_seconds(process)
                found = load(port, arguments.clients, part)
                server_cpu.update(cpu_seconds(process))
                server_cpu.subtract(before)
                rates.append(found.rate)
                times += found.times
                statuses += found.statuses
                clients_cpu += found.seconds
            print(f"{arguments.model}, {arguments.clients} clients, batches of up to {arguments.batch}:")
            print(f"  alone     {max(alone_rates):8.1f} rows/s  of {', '.join(f'{r:.1f}' for r in alone_rates)}")
            print(f"  served    {max(rates):8.1f} rows/s  of {', '.join(f'{r:.1f}' for r in rates)}")
            print(f"  ratio     {max(rates) / max(alone_rates):8.2f}")
            p50, p99 = np.percentile(times, (50, 99))
            print(f"  latency   {p50 * 1e3:8.0f} ms p50  {p99 * 1e3:.0f} ms p99")
            print(f"  answers   {dict(statuses)}")
            each = 1e3 / len(times)
            loop = server_cpu.pop(process.pid) * each
            others = ", ".join(f"{s * each:.2f}" for s in server_cpu.values() if s * each >= 0.005)
            print("  CPU of a request, in ms:")
            print(f"    clients {clients_cpu * each:8.2f}")
            print(
                f"    server  {server_cpu.total() * each + loop:8.2f}  (event loop {loop:.2f}, other threads {others})"
            )
            print(f"    alone   {min(alone_cpu) * 1e3:8.2f}")
            rng = random.Random(0)
            for _ in range(100):
                answer(port, hostile(rng))
            before = resident(process)
            refused: Counter[Any] = Counter(answer(port, hostile(rng)) for _ in range(arguments.hostile))
            refused += slow(port, 50)
            growth = (resident(process) - before) / 2**20
            print(f"  hostile   {dict(refused)}, memory {growth:+.1f} MB")
            print(f"  after it  {dict(load(port, arguments.clients, 3).statuses)}")


if __name__ == "__main__":
    main()
