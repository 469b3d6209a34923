"""The server speaks the Open Inference Protocol, to a plain HTTP client and to Triton's."""

import json
import re

import numpy as np
import pytest


@pytest.fixture(scope="module")
def output(server):
    return server.ask("GET", "/v2/models/net")[2]["outputs"][0]["name"]


def test_health_and_metadata(server, output):
    for path in ("live", "ready"):
        assert server.ask("GET", f"/v2/health/{path}")[0] == 200
    status, _, found = server.ask("GET", "/v2")
    assert status == 200 and found["name"] == "gluonjit" and "binary_tensor_data" in found["extensions"]
    for path in ("/v2/models/net", "/v2/models/net/versions/7"):
        assert server.ask("GET", f"{path}/ready")[0] == 200
        status, _, found = server.ask("GET", path)
        assert status == 200
        assert found == {
            "name": "net",
            "versions": ["1", "7"],
            "platform": "gluonjit",
            "inputs": [{"name": "data", "datatype": "FP32", "shape": [-1, 4]}],
            "outputs": [{"name": output, "datatype": "FP32", "shape": [-1, 3]}],
        }
    for path in ("/v2/models/nett", "/v2/models/net/versions/2", "/v2/models/net/versions/x", "/v3"):
        assert server.ask("GET", path)[0] == 404
    assert "did you mean 'net'" in server.ask("GET", "/v2/models/nett")[2]["error"]
    assert server.ask("PUT", "/v2/models/net/infer")[0] == 405


@pytest.mark.parametrize("count", [0, 1, 5, 32])
def test_json(server, rows, wanted, output, count):
    status, answer = server.infer(rows(count), id="my request")
    assert status == 200
    assert (answer["model_name"], answer["model_version"], answer["id"]) == ("net", "7", "my request")
    (y,) = answer["outputs"]
    assert (y["name"], y["datatype"], y["shape"]) == (output, "FP32", [count, 3])
    np.testing.assert_allclose(np.float32(y["data"]).reshape(count, 3), wanted(rows(count)), rtol=1e-6)


def test_numbers_in_one_list_and_versions(server, rows):
    x = rows(2)
    tensor = {"name": "data", "datatype": "FP32", "shape": [2, 4], "data": x.ravel().tolist()}
    status, _, answer = server.ask("POST", "/v2/models/net/versions/1/infer", json.dumps({"inputs": [tensor]}))
    assert status == 200 and answer["model_version"] == "1" and "id" not in answer
    assert answer["outputs"] == server.infer(x)[1]["outputs"]


@pytest.mark.parametrize("way", ["all", "one"])
def test_bytes_behind_json(server, rows, wanted, output, way):
    x = rows(3)
    request = {
        "inputs": [{"name": "data", "datatype": "FP32", "shape": [3, 4], "parameters": {"binary_data_size": x.nbytes}}]
    }
    if way == "all":
        request["parameters"] = {"binary_data_output": True}
    else:
        request["outputs"] = [{"name": output, "parameters": {"binary_data": True}}]
    head = json.dumps(request).encode()
    status, headers, body = server.ask(
        "POST", "/v2/models/net/infer", head + x.tobytes(), {"Inference-Header-Content-Length": str(len(head))}
    )
    assert status == 200 and headers["content-type"] == "application/octet-stream"
    length = int(headers["inference-header-content-length"])
    (y,) = json.loads(body[:length])["outputs"]
    assert y["parameters"] == {"binary_data_size": 36} and "data" not in y
    np.testing.assert_array_equal(np.frombuffer(body[length:], np.float32).reshape(3, 3), wanted(x))


def test_metrics(server, rows):
    server.infer(rows(2))
    server.infer(rows(2), id=5)
    server.ask("GET", "/v2/models/" + 40 * "x")
    status, headers, found = server.ask("GET", "/metrics")
    text = found.decode()
    assert status == 200 and headers["content-type"].startswith("text/plain")
    for line in (
        'gluonjit_requests_total{model="net",status="200",version="7"}',
        'gluonjit_requests_total{model="net",status="400",version="7"}',
        'gluonjit_call_rows_bucket{le="32.0",model="net",version="7"}',
        'gluonjit_waiting{model="net",version="7"} 0.0',
        "gluonjit_body_bytes 0.0",
    ):
        assert line in text
    assert "xxxx" not in text


def test_the_page_has_what_it_needs(server):
    status, headers, page = server.ask("GET", "/")
    assert status == 200 and headers["content-security-policy"].startswith("default-src 'none'")
    for asset in ("/page.js", "/page.css"):
        assert asset in page.decode() and server.ask("GET", asset)[0] == 200
    for content in (page, server.ask("GET", "/page.js")[2], server.ask("GET", "/page.css")[2]):
        assert not re.search(rb"""https?:|["'(]//""", content)  # nothing of other servers
    (first, _) = server.ask("GET", "/v2/load")[2]["models"]
    assert first["name"] == "net" and first["merged"] and first["limits"] == {"batch": 32}


def test_the_index(server):
    found = server.ask("POST", "/v2/repository/index", "{}")[2]
    assert [(m["name"], m["version"], m["state"]) for m in found] == [("net", "1", "READY"), ("net", "7", "READY")]
    assert server.ask("POST", "/v2/repository/index")[2] == found
    status, _, answer = server.ask("POST", "/v2/repository/models/net/unload")
    assert status == 403 and "--control" in answer["error"]


# ---- Triton's clients


@pytest.fixture(params=["http", "grpc"])
def triton(request, server):
    """(the client's module, a client)"""
    library = pytest.importorskip(f"tritonclient.{request.param}", reason="tritonclient is not installed")
    port = server.port if request.param == "http" else server.grpc_port
    with library.InferenceServerClient(f"127.0.0.1:{port}") as client:
        yield library, client


def _is_http(library):
    return library.__name__.endswith("http")


def test_triton_health_and_metadata(triton, output):
    library, client = triton
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("net")
    assert client.is_model_ready("net", "7") and not client.is_model_ready("nett")
    options = {} if _is_http(library) else {"as_json": True}
    assert client.get_server_metadata(**options)["name"] == "gluonjit"
    found = client.get_model_metadata("net", **options)
    assert found["versions"] == ["1", "7"] and found["outputs"][0]["name"] == output
    index = client.get_model_repository_index(**options)
    assert [m["version"] for m in (index if _is_http(library) else index["models"])] == ["1", "7"]


@pytest.mark.parametrize("count", [0, 1, 9])
def test_triton_inference(triton, rows, wanted, output, count):
    library, client = triton
    if count == 0 and not _is_http(library):
        pytest.skip("Triton's gRPC client sends no bytes for no elements")
    x = rows(count)
    given = library.InferInput("data", x.shape, "FP32")
    given.set_data_from_numpy(x)
    for outputs in (None, [library.InferRequestedOutput(output)]):
        found = client.infer("net", [given], outputs=outputs, request_id="7")
        y = found.as_numpy(output)
        assert y.dtype == np.float32 and y.shape == (count, 3)
        np.testing.assert_array_equal(y, wanted(x))
    if _is_http(library):
        given.set_data_from_numpy(x, binary_data=False)
        asked = [library.InferRequestedOutput(output, binary_data=False)]
        np.testing.assert_allclose(client.infer("net", [given], outputs=asked).as_numpy(output), wanted(x), rtol=1e-6)


def test_triton_errors(triton, rows):
    library, client = triton
    utils = pytest.importorskip("tritonclient.utils")
    for name, model, x, message in (
        ("data", "nett", rows(1), "did you mean 'net'"),
        ("dat", "net", rows(1), "no input 'dat'"),
        ("data", "net", rows(1)[:, :3].copy(), "the model takes float32"),
        ("data", "net", rows(1).astype(np.int32), "the model takes FP32"),
        ("data", "net", rows(33), "at most 32"),
    ):
        given = library.InferInput(name, x.shape, "INT32" if x.dtype == np.int32 else "FP32")
        given.set_data_from_numpy(x)
        with pytest.raises(utils.InferenceServerException, match=message):
            client.infer(model, [given])
    given = library.InferInput("data", [1, 4], "FP32")
    given.set_data_from_numpy(rows(1))
    with pytest.raises(utils.InferenceServerException, match="no output 'y'"):
        client.infer("net", [given], outputs=[library.InferRequestedOutput("y")])
    with pytest.raises(utils.InferenceServerException, match="--control"):
        client.unload_model("net")


def test_grpc_numbers_in_typed_lists(server, rows, wanted):
    """As KServe's client sends them."""
    grpc = pytest.importorskip("grpc")
    from gluonjit.tools.serving.grpc_messages import SERVICE, message

    x = rows(2)
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/ModelInfer",
            request_serializer=message("ModelInferRequest").SerializeToString,
            response_deserializer=message("ModelInferResponse").FromString,
        )

        def asked(**contents):
            tensor = {"name": "data", "datatype": "FP32", "shape": [2, 4], "contents": contents}
            return message("ModelInferRequest")(model_name="net", inputs=[tensor])

        answer = call(asked(fp32_contents=x.ravel()))
        np.testing.assert_array_equal(np.frombuffer(answer.raw_output_contents[0], np.float32).reshape(2, 3), wanted(x))
        for contents in ({"fp32_contents": x.ravel()[:7]}, {"int_contents": range(8)}, {}):
            with pytest.raises(grpc.RpcError) as e:
                call(asked(**contents))
            assert e.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_grpc_messages_are_those_of_the_protocol():
    """Numbers and types of all fields, by Triton's description of them."""
    pytest.importorskip("google.protobuf")
    theirs = pytest.importorskip("tritonclient.grpc.service_pb2", reason="tritonclient is not installed").DESCRIPTOR
    from gluonjit.tools.serving.grpc_messages import MESSAGES, message

    def fields(descriptor):
        return {f.name: (f.number, f.type, f.message_type and f.message_type.name) for f in descriptor.fields}

    for name in MESSAGES:
        outer, _, inner = name.rpartition(".")
        other = theirs.message_types_by_name[outer or inner]
        other = other.nested_types_by_name[inner] if outer else other
        own = fields(message(name).DESCRIPTOR)
        assert own == {key: value for key, value in fields(other).items() if key in own}, name
