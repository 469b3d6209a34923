"""How MXNet numbers the element types: in `.params` files, and in a variable's attribute `__dtype__`."""

from __future__ import annotations

TYPE_FLAGS = {
    "float32": 0,
    "float64": 1,
    "float16": 2,
    "uint8": 3,
    "int32": 4,
    "int8": 5,
    "int64": 6,
    "bool": 7,
    "bfloat16": 12,
}
