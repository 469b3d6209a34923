"""docs/serving.md: its commands and programs run, in their order."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request

import pytest

import gluonjit as mx
from gluonjit.tools.cli import make_parser
from gluonjit.tools.cli.serve import sources
from gluonjit.tools.serving.predictor import Predictor


@pytest.fixture
def document(root, monkeypatch):
    monkeypatch.chdir(root)
    return (root / "docs" / "serving.md").read_text()


def test_it_runs(document, monkeypatch):
    programs = re.findall(r"```python\n(.*?)```", document, re.S)
    assert len(programs) == 4
    # The number of threads would stay as it is for the tests that follow.
    monkeypatch.setattr(mx, "Predictor", lambda *files, threads, **more: Predictor(*files, **more))
    names = {"__name__": "serving"}
    for program in programs[:2]:
        exec(compile(program, "docs/serving.md", "exec"), names)
    for name in ("uvicorn", "starlette", "grpc", "tritonclient.http"):
        pytest.importorskip(name, reason="the extra [serve] or tritonclient is not installed")
    (command,) = re.findall(r"^gluonjit (serve .* --port 8000 --grpc-port 8001)$", document, re.M)
    arguments = [*shlex.split(command), "--port", "0", "--grpc-port", "0"]
    with subprocess.Popen([sys.executable, "-m", "gluonjit", *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            said = next(line for line in process.stdout if "ready at" in line)
            (port,) = re.findall(r"ready at http://127.0.0.1:(\d+)", said)
            (curl,) = re.findall(r"```\n(curl .*?)```", document, re.S)
            for path in re.findall(r"^curl localhost:8000(\S+)$", curl, re.M):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as response:
                    assert response.status == 200
            if shutil.which("curl"):
                command = ["sh", "-ec", curl.replace("localhost:8000", f"127.0.0.1:{port}")]
                said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                assert '"shape":[1,' in said.replace(" ", "").partition('"outputs"')[2]
            for program in programs[2:]:
                exec(compile(program.replace("localhost:8000", f"127.0.0.1:{port}"), "docs/serving.md", "exec"), names)
            names["client"].close()
        finally:
            process.terminate()


def test_several_models(document):
    (command,) = re.findall(r"^gluonjit (serve digits=.*?)\n```", document, re.M | re.S)
    found = sources(make_parser().parse_args(shlex.split(command.replace("\\\n", " "))))()
    assert [(model.name, model.version, [*model.inputs]) for model in found] == [
        ("digits", 1, ["data"]),
        ("fire", 2, ["data"]),
    ]
    for model in found:
        Predictor(*model.files, inputs=model.inputs)  # which looks for the files


def test_the_settings_of_mlserver_are_right(document):
    (text,) = re.findall(r"```json\n(.*?)```", document, re.S)
    settings = json.loads(text)
    module, _, name = settings["implementation"].rpartition(".")
    assert (module, name) == ("gluonjit.tools.serving.mlserver_model", "GluonjitModel")
    assert settings["parameters"]["extra"]["inputs"]


def test_every_option_is_one(document):
    actions = [a for a in make_parser()._actions if isinstance(a.choices, dict)]
    known = {option for action in actions[0].choices["serve"]._actions for option in action.option_strings}
    assert set(re.findall(r"--[a-z][a-z-]+", document)) <= known
