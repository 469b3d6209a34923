"""`mpirun`, for the tests of this folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MPIRUN = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


@pytest.fixture(scope="session")
def code(tmp_path_factory):
    """The object cache of all programs."""
    return tmp_path_factory.mktemp("code")


@pytest.fixture
def mpirun(root, tmp_path, code):
    """Runs a program in `n` processes."""
    pytest.importorskip("mpi4py", reason="the extra [mpi] is not installed")
    if MPIRUN is None:
        pytest.skip("there is no mpirun")
    # Open MPI asks before it runs as root, or more processes than there are cores.
    allowed = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "GLUONJIT_NUM_THREADS": "1",
        "GLUONJIT_CACHE": "1",
        "GLUONJIT_CACHE_DIR": str(code),
        "GLUONJIT_VERIFY_EACH": "0",
        "PYTHONPATH": str(root / "tests"),
    }

    def run(n, program, *words, **settings):
        path = tmp_path / "program.py"
        path.write_text(program)
        found = subprocess.run(
            [MPIRUN, "-n", str(n), sys.executable, *words, str(path)],
            env=os.environ | allowed | settings,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return found

    return run
