"""The operators and module contents of MXNet 1.9.1, to tell a name that is missing here from a misspelt one.

Both lists were generated from the real MXNet (`tests/oracle/names.py`). Names are written without the leading `mxnet.`,
and modules by their full names: `ndarray.contrib`, not `nd.contrib`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from gluonjit.ir.opdef import did_you_mean

VERSION = "1.9.1"

SHORT = {
    "img": "image",
    "init": "initializer",
    "kv": "kvstore",
    "mod": "module",
    "mon": "monitor",
    "nd": "ndarray",
    "np": "numpy",
    "npx": "numpy_extension",
    "rnd": "random",
    "sym": "symbol",
    "viz": "visualization",
}
"""Second names of top-level modules: `mx.nd` is `mx.ndarray`."""


_INSTEAD = {
    "library": ", as it loads operators compiled for MXNet's library: write them in Python (mx.operator.CustomOp)",
    "rtc": ", as it compiles code for GPUs; use operators of mx.nd, or mx.operator.CustomOp",
    "space": ", as it describes kernels of TVM for MXNet's library",
    "torch": ", as it calls Lua Torch; call PyTorch from mx.operator.CustomOp",
    "th": ", as it calls Lua Torch; call PyTorch from mx.operator.CustomOp",
    "tvmop": ", as it loads kernels of TVM for MXNet's library; hybridized blocks are compiled here",
    **dict.fromkeys(
        ("calib_graph", "quantize_graph", "quantize_model", "quantize_model_mkldnn", "quantize_net", "quantize_net_v2"),
        "; float models run as they are, quantized ones that MXNet made do, too",
    ),
    **dict.fromkeys(
        ("dgl_csr_neighbor_uniform_sample", "dgl_csr_neighbor_non_uniform_sample"),
        ": draw neighbours with NumPy from graph.indices and graph.indptr; nd.contrib.dgl_subgraph has their edges",
    ),
    **dict.fromkeys(
        ("dgl_adjacency", "dgl_graph_compact", "dgl_subgraph", "edge_id"),
        ", as arrays in graphs are dense: nd.contrib has it for csr arrays",
    ),
    "getnnz": ", as arrays in graphs are dense: count elements with (x != 0).sum(), or call nd.contrib.getnnz before",
}
"""What to do without a name that is missing."""


_NODES = {
    **dict.fromkeys(("_npi_eig", "_npi_eigvals"), "its values are those of NumPy: call mx.np.linalg.eig on arrays"),
    "_npi_multinomial": "draw with mx.np.random.multinomial on arrays",
}
"""Operators in MXNet's files that are missing here, with what to do."""


def lacks(operator: str) -> str:
    """Why an operator that MXNet has is missing here; empty for a name that MXNet does not have, as far as is known."""
    if operator in _NODES or operator in operators():
        return f"MXNet {VERSION} has it, gluonjit lacks it; {_NODES.get(operator, '')}".rstrip("; ")
    return ""


@cache
def operators() -> dict[str, tuple[str, ...]]:
    """The aliases of every operator, by its name, without gradient operators; for `mx.np`, the public functions."""
    return {name: tuple(aliases) for name, *aliases in _table("operators.txt")}


@cache
def modules() -> dict[str, frozenset[str]]:
    """The public names in each module, operators aside. The top module's name is `.`."""
    return {name: frozenset(content) for name, *content in _table("names.txt")}


@cache
def private_attributes() -> dict[str, list[str]]:
    """The classes that have an attribute with an underscore, by the attribute's name."""
    found: dict[str, list[str]] = {}
    for name, *content in _table("private.txt"):
        for attribute in content:
            found.setdefault(attribute, []).append(name)
    return found


@cache
def unnamed_inputs() -> frozenset[str]:
    """The operators whose inputs are unnamed in MXNet, which shows them as `input0`, `input1`, …"""
    return _node_names()["unnamed_inputs"]


@cache
def named_results() -> frozenset[str]:
    """The operators whose results have names in MXNet."""
    return _node_names()["named_results"]


@cache
def _node_names() -> dict[str, frozenset[str]]:
    return {name: frozenset(content) for name, *content in _table("node_names.txt")}


def _table(file: str) -> Iterable[list[str]]:
    from importlib import resources

    text = resources.files(__name__).joinpath(file).read_text(encoding="utf-8")
    return (line.split() for line in text.splitlines() if not line.startswith("#"))


@cache
def place_of(name: str) -> tuple[str, str]:
    """Sub-module and function name of the operator `name`: `_contrib_foo` → ('contrib', 'foo')."""
    for place in ("contrib", "linalg", "sparse", "image"):
        if name.startswith(f"_{place}_"):
            return place, name[len(place) + 2 :]
    if name.startswith("_random_") and name.endswith("_like"):
        return "random", name[len("_random_") :]
    return ("_internal" if name.startswith("_") else "op"), name


@cache
def _functions() -> frozenset[tuple[str, str]]:
    """(sub-module, name) of each operator's function: ('contrib', 'box_nms'), ('op', 'relu')."""
    return frozenset(place_of(name) for op, aliases in operators().items() for name in (op, *aliases))


def full_name(dotted: str) -> str:
    """`nd.contrib` → `ndarray.contrib`, `nd.np.mean` → `ndarray.numpy.mean`."""
    head, dot, rest = dotted.partition(".")
    head = SHORT.get(head, head)
    inner, inner_dot, last = rest.partition(".")
    if head in ("ndarray", "symbol") and inner in ("np", "npx"):
        rest = SHORT[inner] + inner_dot + last
    return head + dot + rest


def has_module(dotted: str) -> bool:
    return full_name(dotted) in modules()


def has(dotted: str) -> bool:
    """Whether MXNet has `dotted`, such as `gluon.nn.Dense`, `nd.relu` or `sym.contrib.box_nms`."""
    module, _, name = full_name(dotted).rpartition(".")
    if has_module(dotted) or name in modules().get(module or ".", ()):
        return True
    return is_operator(dotted)


def is_operator(dotted: str) -> bool:
    """Whether `dotted` is an operator's function in `ndarray` or `symbol`, such as `nd.contrib.box_nms`."""
    module, _, name = full_name(dotted).rpartition(".")
    package, _, place = module.partition(".")
    return package in ("ndarray", "symbol") and (place or "op", name) in _functions()


def lacking(name: str) -> str:
    """What is said of a name of MXNet's that is missing, with what to do instead."""
    return f"MXNet {VERSION} has it, gluonjit lacks it{_INSTEAD.get(name, '')}"


def no_attribute(module: str, name: str, near: Iterable[str] = ()) -> AttributeError:
    """The error for a missing `module.name`: says that MXNet has the name, or suggests a similar one of `near`."""
    text = f"module {module!r} has no attribute {name!r}"
    if not name.startswith("__"):
        if has(f"{module.partition('.')[2]}.{name}".lstrip(".")):
            text += f": {lacking(name)}"
        elif _is_numpys(module, name):
            text += f": {_NUMPYS}"
        else:
            text += did_you_mean(name, near)
    return AttributeError(text, name=None)  # with a name, Python would add a suggestion of its own


_NUMPYS = f"NumPy has it, MXNet {VERSION} does not; NumPy's takes arrays of `x.asnumpy()`"


def _is_numpys(module: str, name: str) -> bool:
    """Whether NumPy has the name in the module that `gluonjit.numpy`, or one in it, stands for."""
    _, found, inside = f"{module}.".partition(".numpy.")
    return bool(found) and name in dir(sys.modules.get(f"numpy.{inside}".rstrip("."), None))


def check_import(fullname: str) -> None:
    """Raises ImportError for a module that Python did not find, if MXNet has the name and gluonjit lacks it, or if
    there is a similar one."""
    module, _, name = fullname.rpartition(".")
    package = sys.modules.get(module)
    if has(fullname.partition(".")[2]):
        if getattr(package, name, None) is None:
            raise ImportError(f"cannot import name {name!r} from {module!r}: {lacking(name)}", name=fullname)
    elif package is not None and _is_numpys(module, name):
        raise ModuleNotFoundError(f"there is no {name!r} in {module!r}: {_NUMPYS}")
    elif package is not None and not name.startswith("_"):
        near = did_you_mean(name, (known for known in dir(package) if not known.startswith("_")))
        if "did you mean" in near:
            # With its name in the exception, `from module import name` would ignore it, and say less.
            raise ModuleNotFoundError(f"there is no {name!r} in {module!r}{near}")


def as_package(module: str) -> None:
    """Makes this module a package for Python, so that a missing submodule reaches the finder `gluonjit._Lacking`."""
    sys.modules[module].__dict__.setdefault("__path__", [])


def forward(module: str, implementation: ModuleType) -> Callable[[str], Any]:
    """The `__getattr__` of a module that re-exports `implementation`: it also finds the private names there."""
    as_package(module)

    def find(name: str) -> Any:
        if name in implementation.__dict__ and not name.startswith("__"):
            return implementation.__dict__[name]
        raise no_attribute(module, name, (n for n in implementation.__dict__ if not n.startswith("_")))

    return find


def explain(module: str, later: Collection[str] = ()) -> None:
    """Makes the AttributeError of an imported module tell whether MXNet has the missing name. The submodules `later`
    are imported when they are first used.

    Programs import from MXNet's inner modules, whose contents are distributed differently here: a name that MXNet has
    in `gluon.nn.conv_layers` is also looked up in `gluon.nn`.
    """
    namespace = sys.modules[module].__dict__

    def __getattr__(name: str) -> Any:
        if name in later:
            return import_module(f"{module}.{name}")
        package = module.rpartition(".")[0]
        if package not in ("", "gluonjit") and not name.startswith("_") and has(f"{module.partition('.')[2]}.{name}"):
            found = getattr(import_module(package), name, None)
            if found is not None and not isinstance(found, ModuleType):
                namespace[name] = found
                return found
        raise no_attribute(module, name, (n for n in namespace if not n.startswith("_")))

    namespace.setdefault("__getattr__", __getattr__)
    if later:
        namespace["__dir__"] = lambda: sorted({*namespace, *later})
    as_package(module)
