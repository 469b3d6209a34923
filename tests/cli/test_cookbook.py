"""docs/cookbook.md, followed literally: its files make a package, which is installed by pip; its commands run."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from support import documents

INSTALLED = {found.name.lower() for found in metadata.distributions()}
"""Not by `find_spec`: looking for pip turns off setuptools' own distutils, for all that comes later."""

pytestmark = pytest.mark.skipif(
    not {"pip", "setuptools"} <= INSTALLED, reason="builds and installs a package with pip and setuptools"
)


def test_the_cookbook(root: Path, tmp_path: Path):
    document = root / "docs" / "cookbook.md"
    package, site = tmp_path / "package", tmp_path / "site"
    files = documents.files(document)
    assert len(files) == 9
    for name, content in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (commands,) = (block for block in documents.blocks(document) if block.language == "sh")
    others = ("PYTEST", "COV", "GLUONJIT_LLVM_LEVEL")  # it looks at assembly
    env = {k: v for k, v in os.environ.items() if not k.startswith(others)}
    env |= {"PYTHONPATH": str(site), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    said = {}
    for line in documents.commands(commands):
        program, *words = line.split()
        # Into a folder beside the environment that the tests run in, with what is installed there already.
        more = ["--quiet", "--target", str(site), "--no-deps", "--no-build-isolation"] if program == "pip" else []
        more += ["-p", "no:cacheprovider"] if program == "pytest" else []
        done = subprocess.run(
            [sys.executable, "-m", program, *words, *more], cwd=package, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        said[line] = done.stdout + done.stderr
        if program == "pip":  # what is tested is what was installed
            (package / "gluon_extras").rename(tmp_path / "sources")
    installed, tested, passes, primitives, opt = said.values()
    assert "6 passed" in tested
    assert passes.startswith("find-abs: Replaces max(x, -x) by |x|.")
    assert primitives.startswith("log_cosh(x)\n\nlog(cosh(x)), without overflow")
    assert "find-abs" in opt and "maximum 2 → 0" in opt
