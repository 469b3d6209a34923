"""MXNet's operators: each is declared once, as attributes and one function that expands it into primitives.

Importing this package imports every module in it, which declares all operators; a new file needs no registration.
`registry.get(name)` returns an operator by its name or an alias.
"""

import importlib
import pkgutil

for _module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")
for _module in ("sparse_names", "numpy_names"):
    importlib.import_module(f"{__name__}.{_module}").declare()
