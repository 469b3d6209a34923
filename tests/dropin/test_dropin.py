"""`install_as_mxnet`: programs for MXNet find gluonjit. Each runs in a process of its own: it cannot be undone."""

import subprocess
import sys
import textwrap


def python(program, *arguments, cwd=None):
    """Runs a program; gives the lines it prints."""
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def installed(program, **settings):
    keywords = ", ".join(f"{k}={v!r}" for k, v in settings.items())
    return python(f"import gluonjit\ngluonjit.install_as_mxnet({keywords})\n{textwrap.dedent(program)}")


def test_modules_are_the_same_objects():
    lines = installed(
        """
        import mxnet as mx
        import mxnet.gluon.nn as nn
        from mxnet.gluon.data.vision import transforms
        from mxnet import nd, sym, gluon
        import gluonjit.gluon.data.vision.transforms, gluonjit.ndarray
        print(mx is gluonjit, nn is gluonjit.gluon.nn, transforms is gluonjit.gluon.data.vision.transforms)
        print(nd is gluonjit.ndarray is mx.ndarray, gluon is mx.gluon, mx.nd.NDArray is gluonjit.nd.NDArray)
        import mxnet.ndarray.op, mxnet.sym
        print(mxnet.ndarray.op is gluonjit.ndarray.op, mxnet.sym is gluonjit.symbol)
        print(gluonjit.gluon.nn.__spec__.name, gluonjit.gluon.nn.__name__)
        """
    )
    assert lines == ["True True True", "True True True", "True True", "gluonjit.gluon.nn gluonjit.gluon.nn"]


def test_private_modules_that_are_cut_otherwise():
    assert installed(
        """
        from mxnet.gluon.nn.basic_layers import BatchNorm, HybridSequential
        from mxnet.gluon.nn.conv_layers import MaxPool2D
        from mxnet.gluon.block import HybridBlock
        from mxnet.gluon.parameter import ParameterDict
        from mxnet.symbol.symbol import Symbol
        from mxnet.ndarray.ndarray import NDArray
        import mxnet as mx
        print(BatchNorm is mx.gluon.nn.BatchNorm, MaxPool2D is mx.gluon.nn.MaxPool2D)
        """
    ) == ["True True"]


def test_private_modules_that_were_not_imported():
    assert installed(
        """
        import mxnet as mx
        print(mx.gluon.nn.conv_layers.GlobalAvgPool2D is mx.gluon.nn.GlobalAvgPool2D)
        print(hasattr(mx.gluon.nn.conv_layers, "Blob"))
        """
    ) == ["True", "False"]


MISSING = [
    ("import mxnet.rtc", "No module named 'mxnet.rtc': MXNet 1.9.1 has it, gluonjit lacks it, as it compiles code"),
    ("import mxnet.nonsense", "No module named 'mxnet.nonsense'"),
    ("from mxnet import rtc", "cannot import name 'rtc' from 'gluonjit': MXNet 1.9.1 has it, gluonjit lacks it"),
    (
        "from mxnet.ndarray.contrib import count_sketch",
        "cannot import name 'count_sketch' from 'gluonjit.ndarray.contrib': MXNet 1.9.1 has it, gluonjit lacks it",
    ),
    (
        "from mxnet.callback import save_checkpoint_later",
        "there is no 'save_checkpoint_later' in 'gluonjit.callback'; did you mean 'save_checkpoint'?",
    ),
    (
        "import mxnet; mxnet.nd.contrib.fft",
        "module 'gluonjit.ndarray.contrib' has no attribute 'fft': MXNet 1.9.1 has",
    ),
    (
        "import mxnet; mxnet.tvmop",
        "module 'gluonjit' has no attribute 'tvmop': MXNet 1.9.1 has it",
    ),
    (
        "import mxnet; mxnet.gluon.nn.Dens",
        "module 'gluonjit.gluon.nn' has no attribute 'Dens'; did you mean",
    ),
]
"""(statement, how its error begins)"""


def test_what_is_missing_says_so():
    lines = installed(
        f"""
        for statement in {[statement for statement, _ in MISSING]}:
            try:
                exec(statement)
            except (ImportError, AttributeError) as e:
                print(type(e).__name__, e)
        """
    )
    for line, (statement, message) in zip(lines, MISSING, strict=True):
        kind, _, text = line.partition(" ")
        assert text.startswith(message), text
        if "did you mean" in message or "import mxnet." in statement:
            expected = "ModuleNotFoundError"
        else:
            expected = "ImportError"
        assert kind == ("AttributeError" if ";" in statement else expected)


def test_refuses_beside_the_real_one(tmp_path):
    (tmp_path / "mxnet").mkdir()
    (tmp_path / "mxnet" / "__init__.py").write_text("__version__ = '1.9.1'\n")
    lines = python(
        """
        import sys, gluonjit
        sys.path.insert(0, sys.argv[1])
        import mxnet
        try:
            gluonjit.install_as_mxnet()
        except gluonjit.MXNetError as e:
            print(e)
        """,
        str(tmp_path),
    )
    assert "mxnet has been imported already" in lines[0] and str(tmp_path) in lines[0]


def test_goes_before_one_on_disk(tmp_path):
    (tmp_path / "mxnet").mkdir()
    (tmp_path / "mxnet" / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    assert python(
        """
        import sys, gluonjit
        sys.path.insert(0, sys.argv[1])
        gluonjit.install_as_mxnet()
        gluonjit.install_as_mxnet()
        import mxnet
        print(mxnet is gluonjit, sum(type(f).__module__ == "gluonjit.tools.dropin" for f in sys.meta_path))
        """,
        str(tmp_path),
    ) == ["True 1"]


def test_numpy_names():
    program = "import numpy as np\nprint(hasattr(np, 'int') and np.int is int, hasattr(np, 'object'))"
    assert installed(program, numpy_aliases=True) == ["True True"]
    assert installed("import warnings; warnings.simplefilter('ignore')\n" + program) == ["False False"]
    everything = """
    import numpy as np
    from gluonjit.tools.removed_names import NUMPY_NAMES
    print(all(hasattr(np, name) for name in NUMPY_NAMES), np.float_(1).dtype, np.product([2, 3]), np.Inf)
    """
    assert installed(everything, numpy_aliases=True) == ["True float64 6 inf"]


def test_pickles_name_gluonjit():
    assert installed(
        """
        import pickle, pickletools
        from mxnet import nd
        data = pickle.dumps(nd.ones(2))
        print(b"mxnet" in data, b"gluonjit" in data, pickle.loads(data).asnumpy())
        """
    ) == ["False True [1. 1.]"]
