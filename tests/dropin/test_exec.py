"""`gluonjit exec`: a program for MXNet, as a user starts it."""

import subprocess
import sys

import pytest


@pytest.fixture
def run(tmp_path):
    def run(*arguments, **files):
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        command = [sys.executable, "-m", "gluonjit", "exec", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    return run


SCRIPT = """
import sys
import mxnet as mx
import numpy as np
from helper import double
class Own: pass
if __name__ == "__main__":
    print(sys.argv, double(mx.nd.ones(2)).asnumpy(), np.array([1], np.int).dtype.kind)
    import pickle
    print(type(pickle.loads(pickle.dumps(Own()))).__name__, sys.modules["__main__"].Own is Own)
"""
HELPER = "from mxnet import nd\ndef double(x):\n    return nd.broadcast_add(x, x)\n"


def test_script_and_arguments(run):
    done = run("script.py", "--epochs", "3", "-m", script=SCRIPT, helper=HELPER)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["['script.py', '--epochs', '3', '-m'] [2. 2.] i", "Own True"]


def test_module(run):
    done = run("-m", "script", "-x", script=SCRIPT, helper=HELPER)
    assert done.returncode == 0, done.stderr
    assert "'-x'] [2. 2.] i" in done.stdout


def test_numpy_may_stay_as_it_is(run):
    done = run("--no-numpy-aliases", "script.py", script="import numpy as np\nprint('int' in np.__dict__)")
    assert done.stdout == "False\n", done.stderr


OLD = """
import collections, inspect, io, sys
import numpy as np
import mxnet
print(isinstance([], collections.Iterable), inspect.getargspec(lambda a, b=1: 0).args)
print(np.array([[1], [1, 2]]).dtype, np.fromstring(b"\\x01\\x00", "int16"), np.fromstring("1 2", sep=" "))
print(float(np.array([1.5])), type(float(2)) is float, {"mxnet.ndarray", "mxnet.gluon"} <= set(sys.modules))
np.save(io.BytesIO(), [np.ones(1), np.ones(2)], allow_pickle=True)
print(np.lib.arraysetops.unique([2, 2]), np.asscalar(np.array([3])), np.VisibleDeprecationWarning.__name__)
print(np.array([-1], "uint8"), np.asfarray([1], "int8").dtype)
try:
    float("text")
except ValueError:
    print("kept")
import helper, package.part, installed.part
"""
NUMBERS = """
import math, numpy as np
from math import exp as e
x, a, names = np.array([[7]]), np.zeros((2, 2)), [0]
a[0, 1:] = a[1, 1] = 1
a[1, 0] = x * 2
names[0] = x
a[0, 0] -= x[0]  # read before what is added is known
def k():
    a[0, 0] = 9
    return x
a[0, 0] += k()
print("%s %d" % (x, x), "%(x)r %(x).1f" % {"x": x}, a[0, 0])
a[0, 0] -= x * 0
a[0, 0], names[:] = 0, [names[0]]
print(int(x), math.sqrt(x) == 7**0.5, e(x * 0), "%d %.1f" % (x, x), "%d" % x, a.tolist(), names[0] is x)
try:
    a[0] = [1, 2, 3]
except ValueError as error:
    print(str(error)[:9])
"""
NUMBERS_SAID = ["[[7]] 7 array([[7]]) 7.0 0.0", "7 True 1.0 7 7.0 7 [[0.0, 1.0], [14.0, 1.0]] True"]


def test_what_numpy_and_python_have_removed(run, tmp_path):
    """In the program, the modules beside it and installed packages that import MXNet, with one line that says so."""
    for folder, text in (("package", ""), ("site-packages/installed", "import mxnet")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").write_text(text)
        (tmp_path / folder / "part.py").write_text(NUMBERS)
    program = f"import sys\nsys.path.append({str(tmp_path / 'site-packages')!r})\n{OLD}"
    for arguments in (("script.py",), ("-m", "script")):
        done = run(*arguments, script=program, helper=NUMBERS)
        first = ["True ['a', 'b']", "object [1] [1. 2.]", "1.5 True True", "[2] 3 VisibleDeprecationWarning"]
        said = [*first, "[255] float64", "kept", *[*NUMBERS_SAID, "could not"] * 3]
        assert done.stdout.splitlines() == said, done.stderr
        assert done.stderr.count("have removed") == 1 and "collections.Iterable" in done.stderr


def test_rewritten_modules_are_kept_apart_from_pythons_own(run, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    first = "import numpy as np\ndef number():\n    return float(np.ones(1)) + 1\n"
    program = "import number\nprint(number.number())"
    for source, result in ((first, "2.0"), (first, "2.0"), (first.replace("+ 1", "+ 2"), "3.0")):
        done = run("program.py", program=program, number=source)
        assert done.stdout.splitlines() == [result], done.stderr
        assert [file.suffixes for file in (tmp_path / "__pycache__").iterdir()] == [
            [f".{sys.implementation.cache_tag}", ".opt-gluonjit0", ".pyc"]
        ]
    kept = next((tmp_path / "__pycache__").iterdir())
    kept.write_bytes(kept.read_bytes()[:-20])  # as if a disk had been full
    done = run("program.py", program=program, number=source)
    assert done.stdout.splitlines() == ["3.0"], done.stderr


def test_gpus_may_be_cpus(run):
    program = """
import mxnet as mx
from mxnet.gluon import nn, utils
contexts = [mx.gpu(k) for k in range(2)]
net = nn.Dense(2, in_units=3)
net.initialize(ctx=contexts)
parts = utils.split_and_load(mx.nd.ones((4, 3)), contexts)
print([str(net(x).context) for x in parts], mx.nd.zeros(2, ctx=mx.gpu()).context, mx.context.num_gpus())
"""
    done = run("--gpus-are-cpus", "script.py", script=program)
    assert done.stdout == "['cpu(0)', 'cpu(1)'] cpu(0) 0\n", done.stderr
    assert "gluonjit exec --gpus-are-cpus" in run("script.py", script=program).stderr


def test_exit_status(run):
    assert run("script.py", script="import sys; sys.exit(7)").returncode == 7
    assert run("script.py", script="raise SystemExit").returncode == 0


def test_an_error_shows_the_programs_own_lines(run):
    program = "import mxnet as mx\ndef f(x):\n    return mx.nd.dot(x, mx.nd.ones((3, 3)))\nf(mx.nd.ones((2, 2)))\n"
    done = run("script.py", script=program)
    assert done.returncode == 1
    first, second, *_ = done.stderr[done.stderr.index("Traceback") :].splitlines()
    assert first.startswith("Traceback") and "script.py" in second and "line 4" in second
    assert "runpy" not in done.stderr and "execute.py" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ((), 2, "usage: gluonjit exec"),
        (("nothing.py",), 1, "error: there is no file nothing.py"),
        (("-m", "nothing.module"), 1, "No module named 'nothing'"),
    ],
)
def test_mistakes(run, arguments, status, words):
    done = run(*arguments)
    assert done.returncode == status and words in done.stderr and "Traceback" not in done.stderr
