"""The primitives: the fixed vocabulary that passes and codegen understand. Importing this declares them all.

| file | primitives |
|---|---|
| `elementwise` | arithmetic, functions, comparisons, `select`, `cast` |
| `movement` | `broadcast reshape transpose slice reverse pad concat update_slice` |
| `gather` | `gather gather_nd scatter_add sort` |
| `reduction` | `reduce arg_reduce cumsum` |
| `contraction`, `convolution` | `dot_general`, `conv` |
| `depthwise_filters` | `depthwise_gradient` |
| `window` | `reduce_window` |
| `random_bits` | `random_bits` |
| `structural` | `constant iota extent`; `fused` and `prepare`, which hold regions |
| `control_flow` | `loop branch call with_gradient`, which hold regions, too |
| `host_call` | `host_call check_index`, which may call Python |

**`element(s, i, *operands, **attrs)`** gives one element of the result, over a handler `s` that decides what a scalar
is: code (codegen), a Python number (tests). `i` is a tuple of index expressions, one per axis. An index expression is
an int, an open extent (`ir/dims.py`), or an object with `+`, `-`, `*` by extents and by each other's sums, and `//` and
`%` by positive extents, which round toward minus infinity. An operand is called with an index tuple and gives a scalar;
`operand.type` is its TensorType, `operand.known` its elements, None if they are not known. For elementwise primitives
operands have the result's shape. Primitives without `element` have a kernel in codegen: `scatter_add`, `sort`,
`cumsum`, `depthwise_gradient`, `check_index`, `host_call`; ops with regions are made of these.

The handler has one method for each elementwise primitive, by the primitive's name (`s.add(a, b)`, `s.cast(a, dtype)`,
`s.select(c, a, b)`; for `and`, `or`, `not` use getattr), and these:

* `s.dtype(value)`: the DType of a scalar.
* `s.constant(number, dtype)`: a Python number as a scalar; integers wrap into the type.
* `s.array(ndarray)`: an operand whose elements are known.
* `s.index_value(index, dtype)`: an index as a scalar; `s.to_index(value)`: an integer scalar as an index.
* `s.lookup(table, index)`: an element of an integer ndarray, as an index.
* `s.in_range(index, low, high)`: bool scalar, low <= index < high.
* `s.guarded(cond, thunk, otherwise)`: thunk() where cond holds, else the scalar `otherwise`. What thunk loads is not
  touched where cond is false; `otherwise` is computed in any case.
* `s.reduce(op, extents, fn, dtype)`: the reduction of the scalars fn(k), of type `dtype`, for k over all index tuples
  below `extents`, in row-major order or any other. `op` is one of `reduce`'s, or 'argmax'/'argmin' over one extent,
  which gives an i64.
"""

from gluonjit.ir.primitives import (
    contraction,
    control_flow,
    convolution,
    depthwise_filters,
    elementwise,
    gather,
    host_call,
    movement,
    random_bits,
    reduction,
    structural,
    window,
)

__all__ = [
    "contraction",
    "control_flow",
    "convolution",
    "depthwise_filters",
    "elementwise",
    "host_call",
    "gather",
    "movement",
    "random_bits",
    "reduction",
    "structural",
    "window",
]
