"""The runtimes for MLServer and for Triton's Python back end. Where the servers are not installed, classes with their
interfaces stand in."""

import asyncio
import importlib
import json
import sys
import types
from types import SimpleNamespace

import numpy as np
import pytest

import gluonjit as mx


class Tensor:
    def __init__(self, name, x):
        self._name, self._x = name, x

    def name(self):
        return self._name

    def as_numpy(self):
        return self._x


class Request:
    def __init__(self, *tensors, outputs):
        self.tensors, self.outputs = tensors, outputs

    def requested_output_names(self):
        return self.outputs


@pytest.fixture
def triton(monkeypatch):
    """The module, with a stand-in for what only Triton's own processes have."""
    utils = types.ModuleType("triton_python_backend_utils")
    utils.Tensor = Tensor
    utils.TritonError = lambda message: message
    utils.InferenceResponse = lambda output_tensors=(), error=None: SimpleNamespace(outputs=output_tensors, error=error)
    utils.get_input_tensor_by_name = lambda request, name: next((t for t in request.tensors if t.name() == name), None)
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", utils)
    monkeypatch.delitem(sys.modules, "gluonjit.tools.serving.triton_model", raising=False)
    yield importlib.import_module("gluonjit.tools.serving.triton_model")
    sys.modules.pop("gluonjit.tools.serving.triton_model", None)


def test_triton(triton, exported, rows, tmp_path):
    (tmp_path / "1").mkdir()
    files = exported(tmp_path / "1" / "net", 3)
    predictor = mx.Predictor(*files, inputs={"data": "batchx4"})
    (output,) = [y.name for y in predictor.outputs]
    config = {
        "max_batch_size": 8,
        "input": [{"name": "data", "data_type": "TYPE_FP32", "dims": ["4"]}],
        "output": [{"name": output, "data_type": "TYPE_FP32", "dims": ["3"]}],
    }
    model = triton.TritonPythonModel()
    arguments = {"model_repository": str(tmp_path), "model_version": "1", "model_config": json.dumps(config)}
    model.initialize(arguments)
    calls = []
    run = model.predictor.model.run
    model.predictor.model.run = lambda arrays: calls.append(len(arrays["data"])) or run(arrays)
    requests = [Request(Tensor("data", rows(n)), outputs=[output]) for n in (3, 1, 2)]
    for n, response in zip((3, 1, 2), model.execute(requests)):
        (y,) = response.outputs
        assert y.name() == output and response.error is None
        np.testing.assert_allclose(y.as_numpy(), predictor({"data": rows(n)})[output], rtol=1e-5, atol=1e-6)
    assert calls == [6]
    wrong = Request(Tensor("data", rows(1)[:, :3]), outputs=[output])
    good, bad = model.execute([requests[0], wrong])
    assert good.error is None and "input data is float32[1, 3]" in bad.error
    (missing,) = model.execute([Request(outputs=[output])])
    assert "no array for data" in missing.error
    model.finalize()


@pytest.fixture
def mlserver(monkeypatch):
    """(the module, MLServer's module or a stand-in of what the runtime uses)"""
    name = "gluonjit.tools.serving.mlserver_model"
    try:
        library = importlib.import_module("mlserver")
        importlib.import_module("mlserver.types")
    except ImportError:
        library = _stand_in(monkeypatch)
    monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module(name), library
    sys.modules.pop(name, None)


def _stand_in(monkeypatch):
    class MLModel:
        def __init__(self, settings):
            self.settings, self.name, self.version = settings, settings.name, None

    class Codec:
        @staticmethod
        def decode_input(x):
            return np.array(x.data, np.float32).reshape(x.shape)

        @staticmethod
        def encode_output(name, x):
            return SimpleNamespace(
                name=name, datatype="FP32", shape=list(x.shape), data=SimpleNamespace(root=x.ravel())
            )

    async def uri(settings):
        return settings.parameters.uri

    made = {}
    for name in ("mlserver", "mlserver.codecs", "mlserver.errors", "mlserver.types", "mlserver.utils"):
        made[name] = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, made[name])
    root = made["mlserver"]
    root.MLModel = MLModel
    root.ModelSettings = root.ModelParameters = SimpleNamespace
    root.ModelSettings = lambda implementation, **more: SimpleNamespace(**more)
    made["mlserver.codecs"].NumpyCodec = Codec
    made["mlserver.errors"].InferenceError = type("InferenceError", (Exception,), {})
    for name in ("InferenceRequest", "InferenceResponse", "RequestInput", "RequestOutput"):
        setattr(
            made["mlserver.types"], name, lambda **fields: SimpleNamespace(**{"outputs": None, "id": None, **fields})
        )
    made["mlserver.utils"].get_model_uri = uri
    root.types, root.errors = made["mlserver.types"], made["mlserver.errors"]
    root.settings = SimpleNamespace(ModelParameters=lambda **fields: SimpleNamespace(**fields))
    return root


def test_mlserver(mlserver, exported, rows, tmp_path):
    module, library = mlserver
    if library.__spec__ is not None:
        importlib.import_module("mlserver.settings")
        importlib.import_module("mlserver.errors")
    files = exported(tmp_path / "net", 3)
    predictor = mx.Predictor(*files, inputs={"data": "batchx4"})
    (output,) = [y.name for y in predictor.outputs]
    parameters = library.settings.ModelParameters(uri=str(tmp_path), extra={"inputs": {"data": "batchx4"}})
    settings = library.ModelSettings(implementation=module.GluonjitModel, name="net", parameters=parameters)
    x = rows(3)

    def request(outputs=None, shape=(3, 4)):
        data = {"name": "data", "shape": list(shape), "datatype": "FP32", "data": x.ravel().tolist()}
        given = library.types.RequestInput(**data)
        asked = outputs and [library.types.RequestOutput(name=name) for name in outputs]
        return library.types.InferenceRequest(id="7", inputs=[given], outputs=asked)

    async def run():
        model = module.GluonjitModel(settings)
        assert await model.load()
        for outputs in (None, [output]):
            answer = await model.predict(request(outputs))
            (y,) = answer.outputs
            assert (answer.id, answer.model_name, y.name, list(y.shape)) == ("7", "net", output, [3, 3])
            found = np.float32(y.data.root).reshape(3, 3)
            np.testing.assert_allclose(found, predictor({"data": x})[output], rtol=1e-6)
        with pytest.raises(library.errors.InferenceError, match="no output 'y'"):
            await model.predict(request(["y"]))
        with pytest.raises(library.errors.InferenceError, match="input data is"):
            await model.predict(request(shape=(4, 3)))
        assert await model.unload()

    asyncio.run(run())
