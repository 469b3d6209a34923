"""KServe's own client, over HTTP and gRPC.

It runs in a process of its own: its messages of gRPC have the names of Triton's, and one process can hold either.
"""

import importlib.util
import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

_COMMON = """
    import asyncio, json, sys
    import httpx, grpc
    import numpy as np
    from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
    from kserve.protocol.infer_type import RequestedOutput

    port, grpc_port, output = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    x = np.array(json.loads(sys.argv[4]), np.float32)

    def asked(x=x, binary=True, model="net", name="data", datatype="FP32", **more):
        given = InferInput(name, list(x.shape), datatype)
        given.set_data_from_numpy(x, binary_data=binary)
        return InferRequest(model, [given], **more)

    def told(response):
        (y,) = response.outputs
        return [response.model_name, response.model_version, response.id, y.name, y.datatype, y.as_numpy().tolist()]
"""


@pytest.fixture
def client(server):
    """Runs a program of KServe's client; returns what it prints as JSON."""
    if importlib.util.find_spec("kserve") is None:
        pytest.skip("KServe's client is not installed: pip install kserve")
    output = server.ask("GET", "/v2/models/net")[2]["outputs"][0]["name"]

    def run(program, x):
        program = textwrap.dedent(_COMMON) + textwrap.dedent(program)
        arguments = [str(server.port), str(server.grpc_port), output, json.dumps(x.tolist())]
        done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        return output, json.loads(done.stdout.splitlines()[-1])

    return run


def test_http(client, rows, wanted):
    x = rows(3)
    output, found = client(
        """
        async def run():
            base, found = f"http://127.0.0.1:{port}", {}
            client = InferenceRESTClient(RESTConfig(protocol="v2"))
            found["health"] = [
                await client.is_server_live(base),
                await client.is_server_ready(base),
                await client.is_model_ready(base, "net"),
                await client.is_model_ready(base, "nett"),
            ]
            found["answers"] = []
            for request in (
                asked(),
                asked(binary=False),
                asked(request_id="7", parameters={"binary_data_output": True}),
                asked(binary=False, parameters={"binary_data_output": True}),
                asked(request_outputs=[RequestedOutput(output)]),
                asked(request_outputs=[RequestedOutput(output, {"binary_data": True})]),
                asked(binary=False, request_outputs=[RequestedOutput(output, {"binary_data": False})]),
            ):
                found["answers"].append(told(await client.infer(base, request, model_name="net")))
            found["errors"] = []
            for request in (asked(name="dat"), asked(x[:, :3].copy()), asked(x.astype(np.int32), datatype="INT32")):
                try:
                    await client.infer(base, request, model_name="net")
                except httpx.HTTPStatusError as e:
                    found["errors"].append([e.response.status_code, str(e)])
            return found

        print(json.dumps(asyncio.run(run())))
        """,
        x,
    )
    assert found["health"] == [True, True, True, False]
    _check_answers(found["answers"], 7, output, None, wanted(x))  # it does not read the version
    assert found["answers"][2][2] == "7"
    _check_errors(found["errors"], 400)


def test_grpc(client, rows, wanted):
    x = rows(3)
    output, found = client(
        """
        async def run():
            found = {}
            async with InferenceGRPCClient(f"127.0.0.1:{grpc_port}") as client:
                found["health"] = [
                    await client.is_server_live(),
                    await client.is_server_ready(),
                    await client.is_model_ready("net"),
                    await client.is_model_ready("nett"),
                ]
                found["answers"] = []
                for request in (
                    asked(),
                    asked(binary=False),
                    asked(request_id="7"),
                    asked(request_outputs=[RequestedOutput(output)]),
                ):
                    found["answers"].append(told(await client.infer(request)))
                found["errors"] = []
                for request in (asked(name="dat"), asked(x[:, :3].copy()), asked(x.astype(np.int32), datatype="INT32")):
                    try:
                        await client.infer(request)
                    except grpc.RpcError as e:
                        found["errors"].append([e.code().name, e.details()])
            return found

        print(json.dumps(asyncio.run(run())))
        """,
        x,
    )
    assert found["health"] == [True, True, True, False]
    _check_answers(found["answers"], 4, output, "7", wanted(x))
    assert found["answers"][2][2] == "7"
    _check_errors(found["errors"], "INVALID_ARGUMENT")


def _check_answers(answers, count, output, version, wanted):
    assert len(answers) == count
    for *names, _id, name, datatype, y in answers:
        assert (*names, name, datatype) == ("net", version, output, "FP32")
        np.testing.assert_array_equal(np.array(y, np.float32), wanted)


def _check_errors(errors, status):
    messages = ("there is no input 'dat'", "the model takes float32", "the model takes FP32")
    assert len(errors) == len(messages)
    for (found, text), message in zip(errors, messages):
        assert found == status and message in text
