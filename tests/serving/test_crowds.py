"""Clients that want more than their share of connections, memory and time; a polite one is answered beside them."""

import contextlib
import functools
import json
import os
import socket
import threading
import time
import tracemalloc

import numpy as np
import pytest

pytest.importorskip("httptools", reason="the extra [serve] is not installed")

from gluonjit.ir.dims import named
from gluonjit.tools.serving.described import Described
from gluonjit.tools.serving.inference_protocol import Refused, read
from gluonjit.tools.serving.limits import Limits, Shares, client, described
from gluonjit.tools.serving.server import _Seldom

HOSTILE = "127.0.0.2"


def document(data, shape, datatype="FP32"):
    tensor = {"name": "x", "datatype": datatype, "shape": list(shape)}
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return b'{"inputs": [' + json.dumps(tensor)[:-1].encode() + b', "data": ' + text + b"}]}"


def read_array(data, shape, dtype=np.float32, datatype="FP32"):
    body = document(data, shape, datatype)
    return read(body, None, [Described("x", np.dtype(dtype), tuple(named("n") for _ in shape))], Limits()).arrays["x"]


@pytest.mark.parametrize(
    ("dtype", "datatype"), [(np.float32, "FP32"), (np.float64, "FP64"), (np.int8, "INT8"), (np.int64, "INT64")]
)
@pytest.mark.parametrize("shape", [(3, 4), (1,), (2, 3, 1), (300, 40), (0, 4), (2, 0)])
def test_lists_are_what_json_says(dtype, datatype, shape):
    """Flat, nested, and with spaces; longer than the pieces in which they are converted, and shorter."""
    x = (np.random.default_rng(7).standard_normal(shape) * 40).astype(dtype)
    for data in (x.tolist(), x.ravel().tolist(), json.dumps(x.tolist(), indent=1).encode()):
        found = read_array(data, shape, dtype, datatype)
        assert found.dtype == dtype and found.shape == shape
        np.testing.assert_array_equal(found, x)
    flags = x > 0
    np.testing.assert_array_equal(read_array(flags.tolist(), shape, np.bool_, "BOOL"), flags)


@pytest.mark.parametrize(
    "data",
    [b"[1,2,3]", b"[1,2,3,4,5]", b"[1,,2,3]", b"[1,2,3,]", b"[1 2,3,4,5]", b"[[1,2],[3]]", b"[[1,2],[3,4]],[5]"]
    + [b"[[1,2],3[4]]", b"[1[2],[3,4]]", b"[[1,2]3,[4]]", b"[[],[]]", b"[[1,2,3,4]]", b"[[[1,2],[3,4]]]", b"[+1,2,3,4]"]
    + [b"[0x1,2,3,4]", b"[1,2,3,tru]", b"[true,2,3,4]", b"[1.,2,3,4]", b"[1,2,3,1e999]", b"[1,2,3,-1e39]", b"[,,,]"]
    + [
        b"[" * 4 + b"1,2,3,4" + b"]" * 4,
        b"[1,2,3,4",
        b"[1,2,3,4]]",
        b"[" + b" " * 9999 + b"1,2,3," + b"4" * 9000 + b"]",
    ],
)
def test_lists_that_are_none(data):
    with pytest.raises(Refused):
        read_array(data, (2, 2))


def test_refused_before_it_takes_memory():
    """NumPy would make fixed-width text of these: 1.2 GB of 60 KB. Nor are lists of objects parsed."""
    bodies = [
        document(["x" * 30000] + ["b"] * 7000, (7001,)),
        document([["x"] * 100] * 100, (100, 100)),
        b'{"inputs": [' + b"{}," * 10**6 + b"{}]}",
        b'{"id": "' + b"\\u0041" * 10**6 + b'"}',
        b"[" * 10**6,
        document(b"[" + b"1" * 10**6 + b"]", (1,)),
        document([1], (2**62,)),
        document([[]], (2**62, 0)),
    ]
    inputs = [Described("x", np.dtype(np.float32), (named("n"),)), Described("y", np.dtype(np.float32), (named("n"),))]
    for body in bodies:
        tracemalloc.start()
        try:
            with pytest.raises(Refused):
                read(body, None, inputs, Limits())
            assert tracemalloc.get_traced_memory()[1] < 4 * 2**20, body[:50]
        finally:
            tracemalloc.stop()


def test_a_message_is_counted_before_it_is_parsed():
    pytest.importorskip("google.protobuf")
    from gluonjit.tools.serving.grpc_messages import message
    from gluonjit.tools.serving.grpc_wire import Malformed, cost

    limits = Limits()
    tensor = {"name": "x", "shape": [1, 4], "contents": {"int64_contents": [1] * 1000}}
    plain = message("ModelInferRequest")(inputs=[tensor], raw_input_contents=[b"\0" * 1000]).SerializeToString()
    assert 16 * 1000 < cost(plain, "ModelInferRequest", limits.fields) < 40000
    many = [
        {"outputs": [{}] * 10**5},
        {"inputs": [{"contents": {"bytes_contents": [b""] * 10**5}}]},
        {"raw_input_contents": [b""] * 10**5},
    ]
    for more in many:
        text = message("ModelInferRequest")(**more).SerializeToString()
        with pytest.raises(Malformed, match="16384 fields"):
            cost(text, "ModelInferRequest", limits.fields)
    for text in (plain[:-1], b"\x2a\xff", b"\xff" * 20, b"\x0b", b"\x2a\x02\x08", b"\x2a\xff\xff\xff\xff\x7f"):
        with pytest.raises(Malformed):
            cost(text, "ModelInferRequest", limits.fields)


def test_shares():
    """One client may have most of what there is; others still find something."""
    shares = Shares(100, 0.75)
    for k in range(3):
        while shares.fits(str(k), 1):
            shares.take(str(k), 1)
    assert shares.by_client["0"] == 75 and shares.used < 100 and shares.fits("another", 1)
    shares.give("0", 75)
    assert shares.fits("1", 40)
    assert client("::ffff:10.0.0.1") == "10.0.0.1"
    assert client("2001:db8::1") == client("2001:db8::ffff:1") != client("2001:db8:0:1::1")


def test_versions_and_surrogates(server):
    for version in ("9" * 19, "9" * 5018, "%ED%A0%80", "7" + "0" * 18):
        assert server.ask("GET", f"/v2/models/net/versions/{version}")[0] == 404
    tensor = {"name": "data", "datatype": "FP32", "shape": [1, 4]}
    for wrong in ({"parameters": {"binary_data_size": "\ud800"}}, {"name": "\ud800"}, {"datatype": "\ud800"}):
        status, _, answer = server.ask(
            "POST", "/v2/models/net/infer", json.dumps({"inputs": [{**tensor, **wrong}]}).encode()
        )
        assert status == 400 and answer["error"]


def connected(port, address):
    return socket.create_connection(("127.0.0.1", port), 5, (address, 0))


def ended(connection):
    connection.setblocking(False)
    try:
        return not connection.recv(1000)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_idle_connections(starting, files, rows):
    """They make room, those of the client that has most and longest of them; none of another client."""
    with starting([{"name": "net", "files": files}], connections=12) as server, contextlib.ExitStack() as stack:
        polite = stack.enter_context(connected(server.port, "127.0.0.1"))

        def asked():
            polite.sendall(b"GET /v2/health/live HTTP/1.1\r\n\r\n")
            found = b""
            while not found.endswith(b"}"):
                part = polite.recv(1000)
                assert part
                found += part
            return found

        assert b" 200 " in asked()
        crowd = [stack.enter_context(connected(server.port, HOSTILE)) for _ in range(40)]
        assert server.infer(rows(1))[0] == 200
        assert sum(not ended(x) for x in crowd) <= 9
        assert b" 200 " in asked()


def test_idle_connections_of_grpc(starting, files):
    grpc = pytest.importorskip("grpc")
    from gluonjit.tools.serving.grpc_messages import SERVICE

    def works(call):
        with contextlib.suppress(grpc.RpcError):
            return call(b"", timeout=5) is not None
        return False

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("connections of gRPC are found on Linux only")
    with starting([{"name": "net", "files": files}], connections=12) as server, contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(connected(server.grpc_port, HOSTILE)) for _ in range(40)]
        channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}"))
        call = channel.unary_unary(f"/{SERVICE}/ServerLive")
        end = time.monotonic() + 20
        while not works(call):
            assert time.monotonic() < end
        while sum(not ended(x) for x in crowd) > 9:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert works(call)


def test_calls_whose_message_does_not_come(starting, files):
    """They make room for others, and end some time."""
    grpc = pytest.importorskip("grpc")
    from gluonjit.tools.serving.grpc_messages import SERVICE

    with starting([{"name": "net", "files": files}], calls=8, body_timeout=1.0) as server:
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
            go = threading.Event()

            def nothing():
                go.wait(20)
                yield b""

            open_calls = [channel.stream_unary(f"/{SERVICE}/ServerLive").future(nothing()) for _ in range(7)]
            assert channel.unary_unary(f"/{SERVICE}/ServerLive")(b"", timeout=10)
            codes = {call.code() for call in open_calls}
            go.set()
        assert codes <= {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED}


def test_small_chunks_and_many_headers(server):
    """Each costs the server as much as a kilobyte."""
    post = b"POST /v2/models/net/infer HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
    for sent, status in (
        (post + b"1\r\n \r\n" * 5000, b" 400 "),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200, b" 431 "),
    ):
        with connected(server.port, "127.0.0.1") as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(sent)
            assert status in connection.recv(1000)


def test_a_crowd_leaves_nothing(starting, files, rows):
    """Hostile clients at both protocols, all at once; descriptors and threads are those of before then, and a polite
    client has been answered each time."""
    tensor = {"name": "data", "datatype": "FP32", "shape": [1, 4], "data": ["x" * 500] * 4}
    garbage = json.dumps({"inputs": [tensor]}).encode()
    post = b"POST /v2/models/net/infer HTTP/1.1\r\ncontent-length: %d\r\n\r\n"
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
    sent = [
        b"",
        b"GET / HTTP",
        post % 5000 + b"{",
        post % len(garbage) + garbage,
        b"\0" * 100,
        b"GET / HTTP/1.1\r\n\r\n" * 99,
    ]
    with starting([{"name": "net", "files": files}], connections=24, head_seconds=1.0, body_timeout=1.0) as server:
        assert server.infer(rows(1))[0] == 200
        count, threads = len(os.listdir("/dev/fd")), threading.active_count()
        stop = threading.Event()

        def hostile(port, texts):
            while not stop.is_set():
                with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
                    for text in texts * 3:
                        stack.enter_context(connected(port, HOSTILE)).sendall(text)
                    stop.wait(0.05)

        crowd = [
            threading.Thread(target=hostile, args=(server.port, sent)),
            threading.Thread(
                target=hostile, args=(server.grpc_port, [b"", preface, preface + bytes(500), b"GET / HTTP/1.1\r\n\r\n"])
            ),
        ]
        for thread in crowd:
            thread.start()
        try:
            assert all(server.infer(rows(1))[0] == 200 for _ in range(30))
        finally:
            stop.set()
            for thread in crowd:
                thread.join()
        end = time.monotonic() + 20
        while len(os.listdir("/dev/fd")) > count + 2 or threading.active_count() > threads + 2 or server.service.used:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_processes_that_read(server, rows, wanted):
    """Long JSON is theirs; one that was killed fails one request, and is started anew."""
    body = document(rows(3).tolist(), (3, 4)).replace(b'"x"', b'"data"') + b" " * 20000
    post = functools.partial(server.ask, "POST", "/v2/models/net/infer")
    for _ in range(3):
        status, _, answer = post(body)
        found = np.float32(answer["outputs"][0]["data"]).reshape(3, 3)
        np.testing.assert_allclose(found, wanted(rows(3)), rtol=1e-6)
    assert post(body.replace(b"[[", b"[[["))[0] == 400
    for process in server.service.processes._all:
        process.kill()
        process.wait()
    statuses = [post(body)[0] for _ in range(5)]
    assert set(statuses) == {200, 503} and statuses[-1] == 200


def test_what_is_logged_has_an_end():
    import logging

    seldom = _Seldom()
    records = [logging.LogRecord("x", logging.ERROR, "", 0, "no %s", ("descriptor",), None) for _ in range(1000)]
    written = [record for record in records if seldom.filter(record)]
    assert len(written) == seldom.most and "minute" in written[-1].getMessage()


def test_every_limit_is_in_the_help(capsys):
    from gluonjit.tools.cli import main

    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert all(about.text in said for _, _, about in described())
