"""`_sparse_X`: MXNet's aliases of operators that also support sparse arrays.

`_sparse_X` is `X`: which rule runs depends on the operands (`ndarray/sparse_operators.py`).
"""

from __future__ import annotations

from gluonjit.operators.registry import OPERATORS

NAMES = (
    "ElementWiseSum Embedding FullyConnected LinearRegressionOutput LogisticRegressionOutput MAERegressionOutput "
    "_contrib_round_ste _contrib_sign_ste abs add_n arccos arccosh arcsin arcsinh arctan arctanh broadcast_add "
    "broadcast_div broadcast_minus broadcast_mul broadcast_plus broadcast_sub cast_storage cbrt ceil clip concat cos "
    "cosh degrees dot elemwise_add elemwise_div elemwise_mul elemwise_sub exp expm1 fix floor gamma gammaln log log10 "
    "log1p log2 make_loss mean negative norm radians relu rint round rsqrt sigmoid sign sin sinh slice sqrt square "
    "stop_gradient sum tan tanh trunc where zeros_like"
).split()


def declare() -> None:
    """Adds the aliases; must be called after all operators are declared."""
    for name in NAMES:
        op = OPERATORS[name]
        op.aliases = (*op.aliases, f"_sparse_{name}")
        OPERATORS[f"_sparse_{name}"] = op
