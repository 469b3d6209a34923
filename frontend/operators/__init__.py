"""MXNet's operators: each is declared once, as attributes and one function that expands it into primitives.

A folder for each family; how an operator is declared is in the files beside them. Importing this package imports every
module in it, which declares all operators; a new file needs no registration.
`registry.get(name)` returns an operator by its name or an alias.
"""

import importlib
import pkgutil

for _module in sorted(m.name for m in pkgutil.walk_packages(__path__, f"{__name__}.")):
    importlib.import_module(_module)
for _module in ("sparse_names", "numpy_names"):
    importlib.import_module(f"{__name__}.names.{_module}").declare()
