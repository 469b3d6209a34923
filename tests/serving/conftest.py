"""A small model, and servers of it."""

import asyncio
import contextlib
import http.client
import json
import threading

import numpy as np
import pytest

import gluonjit as mx
from gluonjit.gluon import nn


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """A small net's graph and parameters."""
    return export(tmp_path_factory.mktemp("net") / "net", 3)


def export(path, seed):
    mx.random.seed(seed)
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(8, activation="relu", in_units=4), nn.Dense(3))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    net(mx.nd.ones((2, 4)))
    net.export(str(path))
    return f"{path}-symbol.json", f"{path}-0000.params"


@pytest.fixture(scope="session")
def exported():
    return export


class Running:
    """A server on a thread of this process, and a plain client of it."""

    def __init__(self, store, **options):
        from gluonjit.tools.serving.http_server import Service
        from gluonjit.tools.serving.observations import Observations
        from gluonjit.tools.serving.server import serve

        observations = Observations()
        store._observe = observations.call
        store.load_all()
        self.store, self.service = store, Service(store, observations, **options)
        started = threading.Event()

        def ready(server, port, grpc_port):
            self.server, self.port, self.grpc_port = server, port, grpc_port
            started.set()

        def run():
            asyncio.run(serve(self.service, "127.0.0.1", 0, 0, 0.0, ready))

        self.thread = threading.Thread(target=run)
        self.thread.start()
        assert started.wait(20)

    def stop(self):
        self.server.handle_exit(15, None)
        self.thread.join(20)
        assert not self.thread.is_alive()

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, the answer: parsed if it is JSON)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            found = response.read()
        if response.headers.get("content-type") == "application/json":
            found = json.loads(found)
        return response.status, response.headers, found

    def infer(self, x, model="net", **more):
        data = {"name": "data", "datatype": "FP32", "shape": list(x.shape), "data": x.tolist()}
        status, _, answer = self.ask("POST", f"/v2/models/{model}/infer", json.dumps({"inputs": [data], **more}))
        return status, answer


@pytest.fixture(scope="session")
def starting():
    pytest.importorskip("starlette", reason="the extra [serve] is not installed")
    pytest.importorskip("uvicorn", reason="the extra [serve] is not installed")
    pytest.importorskip("httptools", reason="the extra [serve] is not installed")
    pytest.importorskip("prometheus_client", reason="the extra [serve] is not installed")
    pytest.importorskip("grpc", reason="the extra [serve] is not installed")
    return contextlib.contextmanager(_started)


def _started(sources, *, control=False, reload=0.0, **limits):
    from gluonjit.tools.serving.limits import Limits
    from gluonjit.tools.serving.served_models import ModelFiles, ModelStore, Options

    made = [ModelFiles(**{"inputs": {"data": "batchx4"}, "version": 1, **source}) for source in sources]
    running = Running(ModelStore(lambda: made, Options(limits=Limits(**limits))), control=control, reload=reload)
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="module")
def server(starting, files):
    with starting([{"name": "net", "files": files}, {"name": "net", "version": 7, "files": files}]) as running:
        yield running


@pytest.fixture(scope="session")
def rows():
    def made(count):
        return np.random.default_rng(count).standard_normal((count, 4)).astype(np.float32)

    return made


@pytest.fixture(scope="session")
def wanted(files):
    """The model's answers, by a predictor."""
    predictor = mx.Predictor(*files, inputs={"data": "batchx4"})
    return lambda x: next(iter(predictor({"data": x}).values()))
