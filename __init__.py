"""Makes a clone that is called `gluonjit` the package of that name for Python that runs in the folder above it.

There Python finds this folder before the installed package. Without this file it would take the folder for a package
that is empty. The modules are those of the five folders that pyproject.toml names. Nothing else imports this file, and
wheels are made without it.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

if __name__ == "gluonjit":
    _root = Path(__file__).parent
    _spec = spec_from_file_location(
        __name__, _root / "frontend/__init__.py", submodule_search_locations=[str(_root / "frontend"), str(_root)]
    )
    assert _spec is not None and _spec.loader is not None
    sys.modules[__name__] = _module = module_from_spec(_spec)
    _spec.loader.exec_module(_module)
