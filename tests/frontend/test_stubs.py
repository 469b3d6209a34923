"""Type stubs: they are up to date, and a type checker learns from them what it should."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gluonjit.language.namespace import SUBMODULES
from gluonjit.tools import stubs

PROGRAM = Path(__file__).with_name("typed_program.py")


def test_up_to_date():
    assert not list(stubs.outdated()), "run python -m gluonjit.tools.stubs"


@pytest.mark.parametrize("package", ["ndarray", "symbol"])
@pytest.mark.parametrize("place", ["", *SUBMODULES])
def test_every_public_name_is_there(package, place):
    """Names that `dir` lists, but for helpers of the sources."""
    module = importlib.import_module(f"gluonjit.{package}{place and '.'}{place}")
    text = stubs.stubs()[f"{package}/{place or '__init__'}.pyi"]
    declared = set(re.findall(r"^def (\w+)|^(\w+)(?::| =)|^from \S+ import (\w+) as \3$", text, re.M))
    declared = {name for names in declared for name in names if name}
    functions = {name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")}
    helpers = {"Any", "Flavour", "populate", "lazy_packages"}
    assert functions - helpers <= declared
    assert all(hasattr(module, name) for name in declared - {"_DType", "_numpy"})


@pytest.mark.parametrize("name", ["numpy", "numpy.linalg", "numpy.random", "numpy_extension"])
def test_every_public_name_of_numpy_is_there(name):
    module = importlib.import_module(f"gluonjit.{name}")
    text = stubs.stubs()[name.replace(".", "/") + ("/__init__.pyi" if name == "numpy" else ".pyi")]
    declared = set(re.findall(r"^def (\w+)|^(\w+)(?::| =)|^from \S+ import (\w+) as \3$", text, re.M))
    declared = {found for pair in declared for found in pair if found}
    assert {n for n in dir(module) if callable(getattr(module, n)) and n[0] != "_"} - {"Any"} <= declared
    assert all(hasattr(module, n) for n in declared)


def test_what_a_type_checker_says_of_a_program(tmp_path, root):
    """As the installed package has it: the project's folders under the name that they are installed as."""
    package = tmp_path / "gluonjit"
    package.mkdir()
    for path in (root / "frontend").iterdir():
        (package / path.name).symlink_to(path)
    for name in ("ir", "passes", "codegen", "runtime"):
        (package / name).symlink_to(root / name)
    config = tmp_path / "mypy.ini"
    inner = ",".join(f"gluonjit.{name}.*" for name in "codegen ir onnx operators passes runtime tools".split())
    # No type in the program comes from these, and reading them takes a third of the time.
    config.write_text(
        "[mypy]\nfollow_imports = silent\nignore_missing_imports = True\n" + f"[mypy-{inner}]\nfollow_imports = skip\n"
    )
    (tmp_path / "program.py").write_text(PROGRAM.read_text())
    arguments = ["--config-file", str(config), "--cache-dir", str(tmp_path / "cache"), "--no-error-summary"]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *arguments, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1 and not ran.stderr, ran.stderr
    found: dict[int, str] = {}
    for line in ran.stdout.splitlines():
        if m := re.match(r"program\.py:(\d+): (?:error|note): (.*)", line):
            found.setdefault(int(m[1]), m[2])
    for number, line in enumerate(PROGRAM.read_text().splitlines(), 1):
        if m := re.search(r"# error: (.*)", line):
            assert found.pop(number, "").startswith(m[1]), line
        elif m := re.search(r"# is (.*)", line):
            assert found.pop(number, "") == f'Revealed type is "{m[1]}"', line
    assert found == {}
