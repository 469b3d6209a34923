"""What every test may use."""

import gc
import os
from pathlib import Path

import pytest

from gluonjit.codegen import compile_parts
from support.limits import end_when_stuck, leaving_no_trace, limited

ROOT = Path(__file__).resolve().parents[1]


def pytest_configure(config):
    # The user's own cache is none of our business. See `compiled_once` and `object_cache`.
    os.environ["GLUONJIT_CACHE"] = "0"
    os.environ["GLUONJIT_VERIFY_EACH"] = "1"


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


@pytest.fixture(autouse=True)
def compiled_once(request, tmp_path_factory, leaves_no_trace):
    """For all tests of `FRONT_END`, an object cache, empty at first; passes that are verified as users' are; and LLVM's
    level of optimization that compiles in half the time. What it makes at the usual level, all other tests judge."""
    if request.path.relative_to(ROOT / "tests").parts[0] not in FRONT_END:
        yield
        return
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("GLUONJIT_CACHE")
        environment.delenv("GLUONJIT_VERIFY_EACH")
        environment.setenv("GLUONJIT_CACHE_DIR", str(folder / "compiled"))
        environment.setattr(compile_parts, "_LEVELS", dict.fromkeys(compile_parts._LEVELS, 0))
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
