"""MXNet's operators: each declared once, as attributes and one function that expands it into primitives.

Importing this package declares them all, for it imports every module in it: a new file of operators is found by being
here. `registry.get(name)` finds an operator by its name or an alias.
"""

import importlib
import pkgutil

for _module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
    importlib.import_module(f"{__name__}.{_module}")
for _module in ("sparse_names", "numpy_names"):
    importlib.import_module(f"{__name__}.{_module}").declare()
