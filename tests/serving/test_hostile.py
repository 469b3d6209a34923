"""Requests of strangers: each is refused, none takes memory, and the server goes on."""

import contextlib
import gc
import json
import random
import socket
import struct
import time
from pathlib import Path

import numpy as np
import pytest

from gluonjit.runtime.arenas import give_back
from support.soak import tries

TENSOR = {"name": "data", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}


def resident():
    """The process's memory in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def with_(**changes):
    return json.dumps({"inputs": [{**TENSOR, **changes}]}).encode()


def bytes_behind(head, rest, length=None):
    head = json.dumps(head).encode()
    return head + rest, {"Inference-Header-Content-Length": str(len(head) if length is None else length)}


def binary(size, rest, **changes):
    tensor = {k: v for k, v in {**TENSOR, **changes}.items() if k != "data"}
    return bytes_behind({"inputs": [{**tensor, "parameters": {"binary_data_size": size}}]}, rest)


BODIES = {
    # a name of what is wrong: the body
    "nothing": b"",
    "no JSON": b"{",
    "no UTF-8": b'{"inputs": "\xff\xfe"}',
    "NaN": b'{"inputs": [{"name": "data", "datatype": "FP32", "shape": [1, 4], "data": [NaN, 1, 2, 3]}]}',
    "Infinity": b'{"inputs": [{"name": "data", "datatype": "FP32", "shape": [1, 4], "data": [-Infinity, 1, 2, 3]}]}',
    "too large a number": with_(data=[1, 2, 3, 1e39]),
    "a number that overflows": b'{"inputs": [{"name":"data","datatype":"FP32","shape":[1,4],"data":[1e999,1,2,3]}]}',
    "too many digits": b'{"inputs": [{"name":"data","datatype":"FP32","shape":[1,4],"data":[' + b"9" * 9999 + b"]}]}",
    "a huge integer": with_(data=[10**300, 1, 2, 3]),
    "deep": b"[" * 60000,
    "deep data": b'{"inputs": [{"name": "data", "datatype": "FP32", "shape": [1, 4], "data": '
    + b"[" * 500
    + b"]" * 500
    + b"}]}",
    "deep objects": b'{"a":' * 12000 + b"1" + b"}" * 12000,
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "no inputs": b"{}",
    "no list of inputs": b'{"inputs": {}}',
    "no input": b'{"inputs": []}',
    "inputs that are none": b'{"inputs": [1]}',
    "many inputs": json.dumps({"inputs": [TENSOR] * 500}).encode(),
    "an input twice": json.dumps({"inputs": [TENSOR, TENSOR]}).encode(),
    "another name": with_(name="x"),
    "a long name": with_(name="x" * 10000),
    "a name that is none": with_(name=["data"]),
    "another type": with_(datatype="INT32"),
    "texts": with_(datatype="BYTES", data=["a"] * 4),
    "no type": with_(datatype=None),
    "a type that is none": with_(datatype={"a": 1}),
    "no shape": with_(shape=None),
    "a negative size": with_(shape=[-1, 4]),
    "a broken size": with_(shape=[1.0, 4]),
    "a flag as size": with_(shape=[True, 4]),
    "another rank": with_(shape=[4]),
    "many axes": with_(shape=[1] * 1000),
    "a huge size": with_(shape=[2**62, 4]),
    "a size beyond": with_(shape=[2**64, 4]),
    "a size beyond all": with_(shape=[10**400, 4]),
    "another size": with_(shape=[1, 5], data=[1] * 5),
    "more rows than there are": with_(shape=[2, 4]),
    "too many rows": with_(shape=[33, 4], data=[0] * 132),
    "no data": with_(data=None),
    "an object of data": with_(data={"0": 1}),
    "data of texts": with_(data=["1", "2", "3", "4"]),
    "data of flags": with_(data=[True] * 4),
    "data of nulls": with_(data=[None] * 4),
    "data of objects": with_(data=[{}] * 4),
    "ragged data": with_(data=[[1, 2, 3], [4]]),
    "data of another form": with_(data=[[1, 2], [3, 4]]),
    "an id that is none": json.dumps({"id": 1, "inputs": [TENSOR]}).encode(),
    "a long id": json.dumps({"id": "x" * 1000, "inputs": [TENSOR]}).encode(),
    "parameters that are none": json.dumps({"parameters": [], "inputs": [TENSOR]}).encode(),
    "a flag that is none": json.dumps({"parameters": {"binary_data_output": 1}, "inputs": [TENSOR]}).encode(),
    "shared memory": with_(parameters={"shared_memory_region": "a", "shared_memory_byte_size": 16}),
    "another output": json.dumps({"inputs": [TENSOR], "outputs": [{"name": "y"}]}).encode(),
    "an output that is none": json.dumps({"inputs": [TENSOR], "outputs": [None]}).encode(),
    "many outputs": json.dumps({"inputs": [TENSOR], "outputs": [{"name": "y"}] * 2000}).encode(),
    "no list of outputs": json.dumps({"inputs": [TENSOR], "outputs": "y"}).encode(),
    "bytes that are not there": with_(data=None, parameters={"binary_data_size": 16}),
}
BEHIND = {
    "bytes and data": bytes_behind({"inputs": [{**TENSOR, "parameters": {"binary_data_size": 16}}]}, b"\0" * 16),
    "fewer bytes": binary(12, b"\0" * 12),
    "more bytes": binary(20, b"\0" * 20),
    "bytes left": binary(16, b"\0" * 17),
    "more than follow": binary(16, b"\0" * 8),
    "a negative number of bytes": binary(-16, b"\0" * 16),
    "a broken number of bytes": binary(16.0, b"\0" * 16),
    "a flag of bytes": binary(True, b"\0" * 16),
    "a huge number of bytes": binary(2**63, b"\0" * 16),
    "bytes of a huge shape": binary(16, b"\0" * 16, shape=[2**62, 4]),
    "a header beyond the body": bytes_behind({"inputs": [TENSOR]}, b"", 10**6),
    "a huge header": bytes_behind({"inputs": [TENSOR]}, b"", 10**30),
    "a negative header": bytes_behind({"inputs": [TENSOR]}, b"", -1),
    "a header of other digits": bytes_behind({"inputs": [TENSOR]}, b"", "\N{SUPERSCRIPT TWO}"),
}


@pytest.mark.parametrize("name", [*BODIES, *BEHIND])
def test_refused(server, name):
    body, headers = BEHIND[name] if name in BEHIND else (BODIES[name], {})
    status, _, answer = server.ask("POST", "/v2/models/net/infer", body, headers)
    assert status in (400, 413) and answer["error"], (status, answer)
    assert len(answer["error"]) < 1500
    assert server.service.used == 0


def exchanged(server, sent, finish=True, timeout=5):
    """All that the server answers to these bytes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout) as connection:
        with contextlib.suppress(OSError):  # the server may have ended the connection
            connection.sendall(sent)
            if finish:
                connection.shutdown(socket.SHUT_WR)
        found = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65536):
                found += part
        return found


POST = b"POST /v2/models/net/infer HTTP/1.1\r\nhost: a\r\n"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\0\1\2\3\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (POST + b"content-length: x\r\n\r\n", 400),
        (POST + b"content-length: -5\r\n\r\n", 400),
        (POST + b"content-length: 5\r\ncontent-length: 6\r\n\r\n", 400),
        (POST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + b"content-length: 99999999999999999\r\n\r\n", 413),
        (POST + b"content-length: 99999999999999999999999999\r\n\r\n", 400),
        (POST + b"content-length: 1000000\r\n\r\n", 413),
        (POST + b"transfer-encoding: chunked\r\n\r\n" + (b"10000\r\n" + b" " * 65536 + b"\r\n") * 8, 413),
        (POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n", 400),
        (POST + b"content-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc", 415),
        (POST + b"inference-header-content-length: 99999999999\r\ncontent-length: 3\r\n\r\nabc", 413),
        (b"GET /" + b"a" * 100000, 431),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20000, 431),
        (b"POST /v2/repository/index HTTP/1.1\r\ncontent-length: 100000\r\n\r\n", 413),
        (b"POST /v2/models/%2e%2e%2f%00/infer HTTP/1.1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", 404),
    ],
    ids=lambda x: None if isinstance(x, bytes) else str(x),
)
def test_refused_at_once(server, sent, status):
    """Before the body is there, and whatever it will be."""
    answer = exchanged(server, sent, finish=False)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:200]


def test_a_body_that_ends_early(server):
    before = server.ask("GET", "/v2/load")[2]["models"][1]["errors"]
    assert exchanged(server, POST + b"content-length: 500\r\n\r\n{}").startswith(b"HTTP/1.1 400 ")
    while server.ask("GET", "/v2/load")[2]["models"][1]["errors"] == before:
        time.sleep(0.01)
    assert server.service.used == 0


def test_a_client_that_has_said_everything(server):
    """It has closed its side of the connection, and is answered."""
    body = json.dumps({"inputs": [TENSOR]}).encode()
    found = exchanged(server, POST + b"content-length: %d\r\n\r\n" % len(body) + body)
    assert found.startswith(b"HTTP/1.1 200 ") and b"connection: close" in found
    assert exchanged(server, POST).startswith(b"HTTP/1.1 400 ")
    assert exchanged(server, b"") == b""


def test_many_requests_ahead_of_their_answers(server):
    """They end the connection, before they take memory and time from others."""
    live = b"GET /v2/health/live HTTP/1.1\r\n\r\n"
    closing = live.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    assert exchanged(server, 9 * live + closing).count(b" 200 OK") == 10
    assert exchanged(server, 5000 * live).count(b" 200 OK") < 5000
    assert server.ask("GET", "/v2/health/live")[0] == 200


def test_slow_bodies_and_headers(starting, files):
    with starting([{"name": "net", "files": files}], body_timeout=0.3, head_seconds=0.3) as server:
        for sent in (b"", b"GET / HT", b"GET / HTTP/1.1\r\na:", POST + b"content-length: 10\r\n\r\n{"):
            assert exchanged(server, sent, finish=False).startswith(b"HTTP/1.1 408 "), sent
        assert server.service.used == 0
        # An answer came early, and the rest of the body never: the connection is not kept for it.
        sent = POST.replace(b"/net/", b"/nett/") + b"content-length: 10\r\n\r\n{"
        assert exchanged(server, sent, finish=False).startswith(b"HTTP/1.1 404 ")
        assert server.infer(np.ones((1, 4)))[0] == 200


def test_full(starting, files):
    """A queue, and the memory for bodies, have an end; what was accepted is answered."""
    import threading

    with starting([{"name": "net", "files": files}], queue=2, memory=100000) as server:
        (served,) = server.store.all()
        go, run = threading.Event(), served.batcher._run
        served.batcher._run = lambda arrays: go.wait(20) and run(arrays)
        found = []
        threads = [threading.Thread(target=lambda: found.append(server.infer(np.ones((32, 4))))) for _ in range(8)]
        for thread in threads:
            thread.start()
        while sum(status == 429 for status, _ in found) < 5:
            time.sleep(0.01)
        status, headers, answer = server.ask("POST", "/v2/models/net/infer", b" " * 15000)
        assert status == 429 and headers["retry-after"] and "memory" in answer["error"]
        go.set()
        [thread.join() for thread in threads]
        statuses = [status for status, _ in found]
        assert sorted(set(statuses)) == [200, 429] and statuses.count(200) >= 2
        assert server.service.used == 0


def test_a_request_that_waits_too_long(starting, files):
    import threading

    with starting([{"name": "net", "files": files}], timeout=0.5) as server:
        (served,) = server.store.all()
        runs, go, run = threading.Event(), threading.Event(), served.batcher._run
        served.batcher._run = lambda arrays: (runs.set(), go.wait(20), run(arrays))[2]
        found = []
        threads = [threading.Thread(target=lambda: found.append(server.infer(np.ones((1, 4))))) for _ in range(2)]
        threads[0].start()
        assert runs.wait(20)
        threads[1].start()
        while served.batcher.waiting < 2:
            time.sleep(0.01)
        time.sleep(0.6)  # so long that the time of the second one is over
        go.set()
        [thread.join() for thread in threads]
        status, answer = max(found, key=lambda one: one[0])
        assert status == 504 and "0.5 seconds" in answer["error"]


def test_numbers_that_json_lacks(server):
    """NaN may come as bytes; it does not go as JSON."""
    body, headers = binary(16, struct.pack("<4f", 1, float("nan"), 2, 3))
    status, _, answer = server.ask("POST", "/v2/models/net/infer", body, headers)
    assert status == 400 and "binary_data" in answer["error"]
    request = json.loads(body[:-16])
    body, headers = bytes_behind({**request, "parameters": {"binary_data_output": True}}, body[-16:])
    status, _, answer = server.ask("POST", "/v2/models/net/infer", body, headers)
    assert status == 200 and np.isnan(np.frombuffer(answer[-12:], np.float32)).any()


def mutated(rng):
    """A body and its headers, with something changed."""
    name = rng.choice([*BODIES, *BEHIND])
    body, headers = BEHIND[name] if name in BEHIND else (BODIES[name], {})
    body, headers = bytearray(body), dict(headers)
    for _ in range(rng.randrange(4)):
        kind, at = rng.randrange(4), rng.randrange(len(body) + 1)
        if kind == 0:
            body[at : at + 1] = rng.randbytes(1)
        elif kind == 1:
            del body[at : at + rng.randrange(50)]
        elif kind == 2:
            body[at:at] = rng.choice([b"[", b"]", b"{", b"9" * 40, b"-", b"1e400", b"null", b'"', b"\0"])
        elif headers:
            headers = {key: str(int(rng.random() * 2 * len(body))) for key in headers}
    return bytes(body), headers


def test_random_requests_and_memory(server, rows, wanted):
    """As benchmarks/serving.py does it with more."""
    rng = random.Random(7)
    statuses, used = set(), []
    count = tries(100)
    for k in range(count):
        body, headers = mutated(rng)
        statuses.add(server.ask("POST", "/v2/models/net/infer", body, headers)[0])
        if k in (count * 2 // 5, count - 1):
            gc.collect()
            give_back()
            used.append(resident())
    assert statuses <= {200, 400, 413} and 400 in statuses
    assert used[1] < used[0] + 8 * 2**20
    assert server.service.used == 0
    status, answer = server.infer(rows(2))
    np.testing.assert_allclose(np.float32(answer["outputs"][0]["data"]).reshape(2, 3), wanted(rows(2)), rtol=1e-6)


def test_grpc(server):
    grpc = pytest.importorskip("grpc")
    from gluonjit.tools.serving.grpc_messages import SERVICE, message

    tensor = {"name": "data", "datatype": "FP32", "shape": [1, 4]}
    raw = b"\0" * 16
    wrong = [
        {},
        {"inputs": []},
        {"inputs": [tensor]},
        {"inputs": [tensor, tensor], "raw_input_contents": [raw, raw]},
        {"inputs": [tensor], "raw_input_contents": [raw, raw]},
        {"inputs": [tensor], "raw_input_contents": [raw + raw]},
        {"inputs": [{**tensor, "shape": [2**62, 4]}], "raw_input_contents": [raw]},
        {"inputs": [{**tensor, "shape": [-1, 4]}], "raw_input_contents": [raw]},
        {"inputs": [{**tensor, "shape": [1] * 1000}], "raw_input_contents": [raw]},
        {"inputs": [{**tensor, "datatype": "FP16"}], "raw_input_contents": [raw]},
        {"inputs": [{**tensor, "name": "x" * 1000}], "raw_input_contents": [raw]},
        {"inputs": [{**tensor, "contents": {"fp32_contents": [1] * 4}}], "raw_input_contents": [raw]},
        {"inputs": [{**tensor, "contents": {"bytes_contents": [b"a"] * 4}}]},
        {"inputs": [{**tensor, "parameters": {"shared_memory_region": {"string_param": "a"}}}]},
        {"inputs": [tensor], "raw_input_contents": [raw], "outputs": [{"name": "y"}]},
        {"inputs": [tensor], "raw_input_contents": [raw], "id": "x" * 1000},
    ]
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        call = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        sent = [message("ModelInferRequest")(model_name="net", **x).SerializeToString() for x in wrong]
        codes = set()
        for body in [*sent, b"\xff" * 100, sent[3][:-3], b"\0" * (9 * 2**20)]:
            with pytest.raises(grpc.RpcError) as e:
                call(body, timeout=10)
            codes.add(e.value.code())
        assert codes <= {
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.RESOURCE_EXHAUSTED,
        }
        assert server.service.used == 0
        right = message("ModelInferRequest")(model_name="net", inputs=[tensor], raw_input_contents=[raw])
        assert call(right.SerializeToString())
