"""`benchmarks` is a folder at the top, which is not on sys.path: what makes it importable without the other folders."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def make_importable() -> None:
    if "benchmarks" not in sys.modules:
        spec = importlib.machinery.ModuleSpec("benchmarks", None, is_package=True)
        spec.submodule_search_locations = [str(FOLDER)]
        sys.modules["benchmarks"] = importlib.util.module_from_spec(spec)
