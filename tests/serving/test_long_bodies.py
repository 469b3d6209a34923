"""Bodies that the connection reads to where they stay."""

import json
import re
import socket
import time

import numpy as np
import pytest


def request(x, padding, more=b""):
    """A request with its tensor as bytes, behind JSON of that much space."""
    tensor = {"name": "data", "datatype": "FP32", "shape": x.shape, "parameters": {"binary_data_size": x.nbytes}}
    text = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode() + b" " * padding
    head = b"POST /v2/models/net/infer HTTP/1.1\r\nhost: a\r\n%scontent-length: %d\r\n" % (more, len(text) + x.nbytes)
    return head + b"inference-header-content-length: %d\r\n\r\n" % len(text) + text + x.tobytes()


def answers(connection, count):
    """The arrays of so many answers."""
    stream = connection.makefile("rb")
    found = []
    for _ in range(count):
        status = stream.readline()
        while b" 100 " in status:
            stream.readline()
            status = stream.readline()
        assert b" 200 " in status, status
        headers = {}
        while (line := stream.readline()) != b"\r\n":
            name, _, value = line.partition(b": ")
            headers[name.lower()] = int(value) if value.strip().isdigit() else value
        body = stream.read(headers[b"content-length"])
        found.append(np.frombuffer(body[headers[b"inference-header-content-length"] :], np.float32).reshape(-1, 3))
    return found


@pytest.fixture
def taken(monkeypatch):
    """How many bodies were read so."""
    from gluonjit.tools.serving.http_connection import Connection

    counts, read = [], Connection.long_body

    async def counted(self, *args):
        body = await read(self, *args)
        counts.append(body is not None)
        return body

    monkeypatch.setattr(Connection, "long_body", counted)
    return counts


def connected(server):
    return socket.create_connection(("127.0.0.1", server.port), 20)


@pytest.mark.parametrize("piece", [10**6, 30011])
def test_one_after_the_other(server, rows, wanted, taken, piece):
    """Long and short ones on one connection; behind each the next request's, at once."""
    given = [(rows(32), 40000), (rows(3), 40001), (rows(2), 0), (rows(5), 41003), (rows(1), 1)]
    sent = b"".join(request(x, padding) for x, padding in given)
    with connected(server) as connection:
        for k in range(0, len(sent), piece):
            connection.sendall(sent[k : k + piece])
            if piece < len(sent):
                time.sleep(0.002)
        for (x, _), y in zip(given, answers(connection, len(given)), strict=True):
            np.testing.assert_array_equal(y, wanted(x))
    assert any(taken)
    assert server.service.used == 0


def test_a_client_that_asks_first(server, rows, wanted):
    with connected(server) as connection:
        connection.sendall(request(rows(32), 40000, b"expect: 100-continue\r\n"))
        np.testing.assert_array_equal(answers(connection, 1)[0], wanted(rows(32)))


def test_a_client_that_goes(server, rows):
    for finish in (socket.SHUT_WR, None):
        with connected(server) as connection:
            connection.sendall(request(rows(32), 40000)[:38000])
            if finish is not None:
                connection.shutdown(finish)
                assert b" 400 " in connection.recv(1000)
    end = time.monotonic() + 20
    while server.service.used:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert server.infer(rows(1))[0] == 200


def test_a_client_that_is_slow(starting, files, rows):
    with starting([{"name": "net", "files": files}], body_timeout=0.3) as server:
        with connected(server) as connection:
            connection.sendall(request(rows(32), 40000)[:38000])
            assert re.match(rb"HTTP/1.1 408 .*\r\nconnection: close\r\n", connection.recv(1000), re.S)
            connection.sendall(bytes(1000))
        assert server.service.used == 0
        assert server.infer(rows(1))[0] == 200
