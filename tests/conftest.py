"""What every test may use."""

import gc
import os
from pathlib import Path

import pytest

from gluonjit.codegen.text import compile_parts
from support import top_benchmarks
from support.limits import end_when_stuck, leaving_no_trace, limited

ROOT = Path(__file__).resolve().parents[1]


def pytest_configure(config):
    # The user's own cache is none of our business. See `compiled_fast` and `object_cache`.
    os.environ["GLUONJIT_CACHE"] = "0"
    os.environ["GLUONJIT_VERIFY_EACH"] = "1"
    top_benchmarks.make_importable()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """What collection makes lives until the end, so the garbage collector should not scan it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


SECONDS = 600
"""On the clock, that a test may take: many times what any of them takes on a busy machine."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    end_when_stuck(SECONDS + 60)
    with limited(SECONDS):
        return (yield)


@pytest.fixture(autouse=True)
def leaves_no_trace():
    with leaving_no_trace():
        yield


FRONT_END = {"checkpoint", "dropin", "frontend", "gluon", "module", "onnx_files", "reference", "rnn"}
"""Folders whose tests often compile the same graphs, and are not about how that is done. All others compile anew."""
NOT_ABOUT_CODE = FRONT_END - {"gluon", "reference"}
"""Folders whose tests judge graphs rather than the code that is generated for them. Operators and whole models are
judged as users run them."""


@pytest.fixture(autouse=True)
def compiled_fast(request, tmp_path_factory, leaves_no_trace):
    """For all tests of `NOT_ABOUT_CODE`, LLVM's level of optimization that takes half the time; what it makes at the
    usual one, the others judge. For those of `FRONT_END`, moreover, an object cache, empty at first, and passes that
    are verified as users' are."""
    where = request.path.relative_to(ROOT / "tests").parts[0]
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with pytest.MonkeyPatch.context() as changes:
        if where in NOT_ABOUT_CODE:
            changes.setattr(compile_parts, "_LEVELS", dict.fromkeys(compile_parts._LEVELS, 0))
        if where in FRONT_END:
            changes.delenv("GLUONJIT_CACHE")
            changes.delenv("GLUONJIT_VERIFY_EACH")
            changes.setenv("GLUONJIT_CACHE_DIR", str(folder / "compiled"))
        yield


@pytest.fixture
def object_cache(tmp_path, monkeypatch) -> Path:
    """An object cache of the test's own, empty; the folder that its entries will lie in."""
    monkeypatch.delenv("GLUONJIT_CACHE", raising=False)
    monkeypatch.setenv("GLUONJIT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "objects"


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The `shared` folder beside the project: files too big or too foreign for the repository, so often missing."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the folder `shared` beside the project, which is not here")
    return folder
