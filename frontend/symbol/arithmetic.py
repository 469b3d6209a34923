"""Which operators stand behind `+`, `>` and their like on symbols, and how their nodes are named."""

from __future__ import annotations

from typing import NamedTuple


class Sign(NamedTuple):
    """One arithmetic sign.

    `both` is for two symbols, `scalar` for symbol and number, `reverse` for number and symbol; after each comes the
    hint from which MXNet makes the node's name (it calls most of them by an old CamelCase alias, in lower case).
    Imperatively, arrays of different shapes take `broadcast_<key>`.
    """

    both: str
    both_hint: str
    scalar: str
    scalar_hint: str
    reverse: str
    reverse_hint: str


ARITHMETIC = {
    "add": Sign("elemwise_add", "_plus", "_plus_scalar", "_plusscalar", "_plus_scalar", "_plusscalar"),
    "sub": Sign("elemwise_sub", "_minus", "_minus_scalar", "_minusscalar", "_rminus_scalar", "_rminusscalar"),
    "mul": Sign("elemwise_mul", "_mul", "_mul_scalar", "_mulscalar", "_mul_scalar", "_mulscalar"),
    "div": Sign("elemwise_div", "_div", "_div_scalar", "_divscalar", "_rdiv_scalar", "_rdivscalar"),
    "mod": Sign("_mod", "_mod", "_mod_scalar", "_modscalar", "_rmod_scalar", "_rmodscalar"),
    "power": Sign("_power", "_power", "_power_scalar", "_powerscalar", "_rpower_scalar", "_rpower_scalar"),
    "maximum": Sign("_maximum", "_maximum", "_maximum_scalar", "_maximumscalar", "_maximum_scalar", "_maximumscalar"),
    "minimum": Sign("_minimum", "_minimum", "_minimum_scalar", "_minimumscalar", "_minimum_scalar", "_minimumscalar"),
    "hypot": Sign("_hypot", "_hypot", "_hypot_scalar", "_hypotscalar", "_hypot_scalar", "_hypotscalar"),
    # A comparison with the number on the left arrives mirrored: Python turns 2 > x into x < 2.
    **{
        name: Sign(f"_{name}", f"_{name}", f"_{name}_scalar", f"_{name}_scalar", "", "")
        for name in ("equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal")
    },
}
"""By the name of the broadcasting operator without `broadcast_`."""
