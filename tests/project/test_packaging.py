"""The import name and the folders differ, so nothing but a test keeps wheel, list of packages and source together."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

pytest.importorskip("setuptools", minversion="77", reason="builds a wheel")


@pytest.fixture(scope="module")
def config(root) -> dict:
    return tomllib.loads((root / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def roots(config) -> dict[str, str]:
    """folder -> import name, such as ir -> gluonjit.ir"""
    return {folder: name for name, folder in config["tool"]["setuptools"]["package-dir"].items()}


@pytest.fixture(scope="module")
def modules(root, roots) -> set[str]:
    """Every source file, as the path that it must have once installed: gluonjit/ir/types.py"""
    return {
        "/".join([*name.split("."), *path.relative_to(root / folder).parts])
        for folder, name in roots.items()
        for path in (root / folder).rglob("*.py")
    }


def test_every_package_is_listed(config, modules):
    packages = {path.rpartition("/")[0].replace("/", ".") for path in modules}
    listed = config["tool"]["setuptools"]["packages"]
    assert listed == sorted(packages), "`packages` in pyproject.toml lists each folder that holds modules, sorted"


def test_every_package_has_an_init(modules):
    """A folder without one imports here, as a namespace package, and nowhere else."""
    folders = {path.rpartition("/")[0] for path in modules}
    assert [folder for folder in sorted(folders) if f"{folder}/__init__.py" not in modules] == []


def test_frontend_leaves_the_other_roots_names_alone(root, roots):
    """frontend/runtime.py and runtime/ would both be gluonjit.runtime."""
    taken = {path.stem for path in (root / "frontend").iterdir()}
    assert taken.isdisjoint(roots), "a name in frontend/ is the name of a folder at the top"


def test_the_folder_above_a_clone_named_gluonjit(root, tmp_path):
    """Python finds the clone there before the editable install, and took it for an empty package."""
    (tmp_path / "gluonjit").symlink_to(root)
    program = "import gluonjit.ir.graph, gluonjit as mx; print(mx.nd.__name__, mx.ir.graph.Graph.__module__)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("gluonjit.ndarray gluonjit.ir.graph\n", "")


def test_wheel_built_from_the_sdist_holds_every_module(root, roots, modules, tmp_path):
    """One build checks both: what the sdist lacks, a wheel built from it lacks, too."""
    tree = tmp_path / "tree"
    tree.mkdir()
    # A copy without build/, where setuptools keeps files that the source no longer has.
    for folder in roots:
        shutil.copytree(root / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ["pyproject.toml", "README.md", "LICENSE"]:
        shutil.copy(root / file, tree)

    build("sdist", tree, tmp_path)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        # Pythons older than the filter need none, newer ones warn without.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        archive.extractall(tmp_path)
    build("wheel", tmp_path / sdist.name.removesuffix(".tar.gz"), tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())

    assert {name for name in names if name.endswith(".py")} == modules
    assert any(name.endswith("/LICENSE") for name in names) and "gluonjit/py.typed" in names
    stubs = {path.relative_to(root / "frontend").as_posix() for path in (root / "frontend").rglob("*.pyi")}
    stubs |= {path.relative_to(root).as_posix() for path in (root / "ir").rglob("*.pyi")}
    assert stubs and {f"gluonjit/{path}" for path in stubs} <= set(names)
    reporting = {name.removeprefix("gluonjit/tools/reporting/") for name in names}
    assert {"page.css", "graph.js", "third_party/dagre.min.js", "third_party/dagre.LICENSE"} <= reporting


def build(what: str, tree: Path, out: Path) -> None:
    """Asks the build backend itself: pip would fetch a second setuptools from the network."""
    code = f"from setuptools import build_meta; build_meta.build_{what}({str(out)!r})"
    run = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
