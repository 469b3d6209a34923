"""`gluonjit serve` as a process: its examples, its errors, and its end."""

import contextlib
import http.client
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from gluonjit.tools import cli
from gluonjit.tools.cli import make_parser


def _examples():
    actions = [a for a in make_parser()._actions if isinstance(a.choices, dict)]
    lines = [line.strip() for line in actions[0].choices["serve"].epilog.splitlines()]
    return [line for line in lines if line.startswith("gluonjit serve")]


@contextlib.contextmanager
def serving(*arguments, cwd=None):
    """(the process, the port, that of gRPC or None)"""
    pytest.importorskip("uvicorn", reason="the extra [serve] is not installed")
    pytest.importorskip("grpc", reason="the extra [serve] is not installed")
    command = [sys.executable, "-m", "gluonjit", "serve", *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd) as process:
        try:
            said = []
            for line in process.stdout:
                said.append(line)
                if match := re.match(r"ready at http://127.0.0.1:(\d+)(?:, gRPC at 127.0.0.1:(\d+))?", line):
                    yield process, int(match[1]), match[2] and int(match[2])
                    break
            else:
                raise AssertionError("".join(said))
        finally:
            process.kill()


@pytest.mark.parametrize("example", _examples())
def test_examples_in_the_help_can_be_pasted(example, root):
    arguments = shlex.split(example)[2:] + (["--grpc-port", "0"] if "--grpc-port" in example else [])
    with serving(*arguments, cwd=root) as (process, port, grpc_port):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as client:
            client.request("POST", "/v2/repository/index")
            assert all(m["state"] == "READY" for m in json.loads(client.getresponse().read()))
        assert (grpc_port is not None) == ("--grpc-port" in example)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_a_signal_under_load_loses_no_request(files, rows, wanted):
    """Every request that is sent until the port is closed is answered, and the server ends by itself.

    Between the last look at the port and its end, the system may make a connection that it then resets: one at most, as
    whatever else waits has been accepted.
    """
    x = rows(3)
    head = {"inputs": [{"name": "data", "datatype": "FP32", "shape": [3, 4], "data": x.tolist()}]}
    body, answered, lost, refused = json.dumps(head), [], [], []
    with serving("net=" + files[0], files[1], "--input", "data=batchx4", "--drain", "1") as (process, port, _):

        def work():
            while True:
                client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
                try:
                    client.connect()
                except OSError:
                    refused.append(1)
                    return
                with contextlib.closing(client):
                    while True:
                        try:
                            client.request("POST", "/v2/models/net/infer", body)
                            response = client.getresponse()
                            answer = json.loads(response.read())
                        except (OSError, http.client.HTTPException) as e:
                            lost.append(e)
                            break
                        answered.append((response.status, answer["outputs"][0]["data"]))
                        if response.headers.get("connection") == "close":
                            break

        threads = [threading.Thread(target=work) for _ in range(8)]
        [t.start() for t in threads]
        while len(answered) < 50:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        [t.join() for t in threads]
    assert len(refused) == 8 and len(answered) > 50
    assert len(lost) <= 1 and all(isinstance(e, ConnectionResetError) for e in lost)
    assert {status for status, _ in answered} == {200}
    for _, data in answered:
        np.testing.assert_allclose(np.float32(data).reshape(3, 3), wanted(x), rtol=1e-5, atol=1e-6)


@pytest.fixture
def failing(capsys):
    """What the command says; it ends with status 1."""
    pytest.importorskip("uvicorn", reason="the extra [serve] is not installed")

    def run(*arguments):
        assert cli.main(["serve", *arguments]) == 1
        return capsys.readouterr().err

    return run


def test_what_is_no_model(failing, files, tmp_path):
    assert "say which shapes it takes: --input net:data=" in failing(*files)
    assert "missing.so: No such file" in failing("missing.so")
    assert "follows its graph" in failing(files[1])
    assert "given twice" in failing(*files, *files)
    assert "did you mean 'net'" in failing(*files, "--input", "nett:data=batchx4")
    assert "did you mean 'data'" in failing(*files, "--input", "dat=batchx4")
    assert "is not a shape" in failing(*files, "--input", "data=batch?4")
    assert "there is no model in it" in failing(str(tmp_path))
    (tmp_path / "empty").mkdir()
    assert "holds no model" in failing(str(tmp_path))
    (tmp_path / "empty" / "model.json").write_text('{"input": {}}')
    assert "did you mean 'inputs'" in failing(str(tmp_path))
    (tmp_path / "empty" / "model.json").write_text('{"max_batch": true}')
    assert "max_batch is True" in failing(str(tmp_path))
    (tmp_path / "empty" / "model.json").write_text("[" * 100000)
    assert "not JSON" in failing(str(tmp_path))


def test_a_port_that_is_taken(failing, files):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"cannot listen at 127.0.0.1:{port}" in failing(*files, "--input", "data=batchx4", "--port", port)


def test_without_the_extra(monkeypatch, capsys, files):
    import importlib.util

    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "starlette" else there(name))
    assert cli.main(["serve", *files]) == 1
    assert 'pip install "gluonjit[serve]"' in capsys.readouterr().err


def test_a_folder_of_models(exported, tmp_path):
    for version in (1, 10, 9):
        (tmp_path / "net" / str(version)).mkdir(parents=True)
        exported(tmp_path / "net" / str(version) / "net", version)
    settings = {"inputs": {"data": "batchx4"}, "max_batch": 4, "delay_ms": 0}
    (tmp_path / "net" / "model.json").write_text(json.dumps(settings))
    with serving(str(tmp_path)) as (_, port, _):
        client = http.client.HTTPConnection("127.0.0.1", port)
        client.request("GET", "/v2/models/net")
        assert json.loads(client.getresponse().read())["versions"] == ["1", "9", "10"]
        client.request("GET", "/v2/load")
        assert {m["limits"]["batch"] for m in json.loads(client.getresponse().read())["models"]} == {4}
        client.close()


def test_nothing_of_the_server_is_imported_by_other_commands():
    code = (
        "import sys\nfrom gluonjit.tools.cli import main\nmain(['ops', 'Dropout'])\nprint('starlette' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert done.stdout.endswith("False\n")
