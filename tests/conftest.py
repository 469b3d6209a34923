"""What every test may use."""

import contextlib
import gc
import os
from pathlib import Path

import pytest

from support import top_benchmarks
from support.batches import batched
from support.limits import end_when_stuck, leaving_no_trace, limited

ROOT = Path(__file__).resolve().parents[1]


TESTS = ROOT / "tests"


def pytest_configure(config):
    # The user's own cache is none of our business. See `compiling` and `object_cache`.
    os.environ["GLUONJIT_CACHE"] = "0"
    # Workers and other processes share the cores, on which more threads of NumPy's products would spin in turn.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    top_benchmarks.make_importable()
    _begin_elsewhere(config)


def _begin_elsewhere(config):
    """Has each worker of pytest-xdist begin to collect in another folder. Of the 17 s that it takes a new clone, 12 go
    into compiling the tests, which one worker then does for all."""
    worker = getattr(config, "workerinput", None)
    if worker is not None and [ROOT / arg for arg in config.args] == [TESTS]:
        folders = sorted(str(path) for path in TESTS.iterdir() if path.is_dir() and path.name[0] not in "._")
        start = int(worker["workerid"].removeprefix("gw")) * len(folders) // worker["workercount"]
        config.args = folders[start:] + folders[:start]


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    """All workers must have the same order: that of paths, but what takes long comes first, so that no worker begins
    it when others have nothing left to do. They run cases in batches, of those that -k and -m leave."""
    items.sort(key=lambda item: (item.get_closest_marker("slow") is None, item.path))
    yield
    if hasattr(config, "workerinput"):
        items[:] = batched(items, shared=("leaves_no_trace", "compiled_folder", "request", "tmp_path_factory"))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """What collection makes lives until the end, so the garbage collector should not scan it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        _freeze()
        gc.set_threshold(50_000, 20, 20)
        gc.enable()


SECONDS = 600
"""On the clock, that a test may take: many times what any of them takes on a busy machine."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    end_when_stuck(SECONDS + 60)
    with limited(SECONDS), compiling(item.path):
        result = yield
    if nextitem is not None and nextitem.path != item.path:
        _freeze()
    return result


def _freeze():
    """What is alive after a file's tests mostly lives until the end, in caches: millions of objects, which `gc.collect`
    in a later test would take two seconds to look at. Those that it has frozen are not looked at, so this is fast."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def leaves_no_trace():
    with leaving_no_trace():
        yield


FRONT_END = set(
    "benchmarks checkpoint cli codes dropin execution frontend gluon image language metric module ndarray".split()
    + "notebook onnx_files optimizer profiling reference rnn serving symbol trace".split()
)
"""Folders whose tests often compile the same graphs, and are not about how that is done. All others compile anew."""
VERIFIED = {"codegen", "ir", "passes"}
"""Folders for whose tests each pass is verified. They run every pass, on every primitive; elsewhere, as for users, the
graph that comes out of the last pass is."""
FAST = (
    FRONT_END
    | {"autodiff", "distributed", "field", "operators", "passes", "runtime"}
    | {
        f"codegen/test_{name}.py"
        for name in "control loops open_convolutions open_loops open_products random_gradients sequential".split()
        + "sorting_network views weight_gradient winograd".split()
    }
)
"""Folders and files whose tests judge graphs, calls, operators and processes, not machine code: LLVM works at level 0
for them, which takes half the time and gives the same bits. So every test of theirs has GLUONJIT_LLVM_LEVEL=0, and so
do the processes that it starts."""
AS_USERS_RUN = {
    "gluon/test_reference_models.py",
    "gluon/test_trained_models.py",
    "reference/test_gluon_models.py",
    "reference/test_ref.py",
}
"""Files of those folders that judge models against MXNet in the code that users get. That is also what `codegen` judges
random programs in, among others; kernels that are run by themselves are compiled at level 0."""


@contextlib.contextmanager
def compiling(test_file: Path):
    """For tests of `FRONT_END`, an object cache, empty at first; for those of `VERIFIED`, passes that are verified; for
    those that are `FAST`, and not `AS_USERS_RUN`, LLVM's level 0. For fixtures of modules and sessions it holds
    as well, which is why it is no fixture: those of a test begin after them."""
    path = test_file.relative_to(TESTS)
    with pytest.MonkeyPatch.context() as changes:
        if path.parts[0] in FRONT_END:
            changes.delenv("GLUONJIT_CACHE")
        if path.parts[0] in VERIFIED:
            changes.setenv("GLUONJIT_VERIFY_EACH", "1")
        if not FAST.isdisjoint((path.parts[0], path.as_posix())) and path.as_posix() not in AS_USERS_RUN:
            changes.setenv("GLUONJIT_LLVM_LEVEL", "0")
        yield


@pytest.fixture(scope="session", autouse=True)
def compiled_folder(tmp_path_factory):
    """Where all workers keep what they compile for tests of `FRONT_END`."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with pytest.MonkeyPatch.context() as changes:
        changes.setenv("GLUONJIT_CACHE_DIR", str(folder / "compiled"))
        yield


@pytest.fixture
def object_cache(tmp_path, monkeypatch) -> Path:
    """An object cache of the test's own, empty; the folder that its entries will lie in."""
    monkeypatch.delenv("GLUONJIT_CACHE", raising=False)
    monkeypatch.setenv("GLUONJIT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "objects"


@pytest.fixture
def lowered(monkeypatch) -> list[str]:
    """The kinds of the kernels that are lowered, as they are: none that the object cache has."""
    from gluonjit.codegen import program

    kinds: list[str] = []
    real = program.lower_kernel

    def lower(name, *rest):
        kinds.append(name.partition("_")[2])
        real(name, *rest)

    monkeypatch.setattr(program, "lower_kernel", lower)
    return kinds


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
