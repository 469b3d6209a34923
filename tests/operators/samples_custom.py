"""Samples of `Custom`: operators in Python. Call `define` before running them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .samples import floats, integers, sample, special


def define(mx: Any) -> None:
    """Registers the operators with MXNet, or what takes its place."""

    class Folded(mx.operator.CustomOp):
        """`scale` times x, and the sum of x along `axis`: by NumPy."""

        def __init__(self, scale: float, axis: int) -> None:
            super().__init__()
            self.scale, self.axis = scale, axis

        def forward(self, is_train: bool, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
            x = in_data[0].asnumpy()
            self.assign(out_data[0], req[0], mx.nd.array(x * self.scale, dtype=x.dtype))
            self.assign(out_data[1], req[1], mx.nd.array(x.sum(self.axis), dtype=x.dtype))

    @mx.operator.register("tests_folded")
    class FoldedProp(mx.operator.CustomOpProp):
        def __init__(self, scale: str = "1", axis: str = "0") -> None:
            super().__init__(need_top_grad=False)
            self.scale, self.axis = float(scale), int(axis)

        def list_outputs(self) -> list[str]:
            return ["scaled", "total"]

        def infer_shape(self, in_shape: Any) -> Any:
            axis = self.axis % len(in_shape[0])
            total = [n for k, n in enumerate(in_shape[0]) if k != axis]
            return in_shape, [in_shape[0], total], []

        def create_operator(self, ctx: Any, in_shapes: Any, in_dtypes: Any) -> Any:
            return Folded(self.scale, self.axis)

    class Chosen(mx.operator.CustomOp):
        """Where the first is greater, the second, else the third: by operators of MXNet."""

        def forward(self, is_train: bool, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
            first, second, third = in_data
            self.assign(out_data[0], req[0], mx.nd.where(first > second, second, third) + (1 if is_train else 0))

    @mx.operator.register("tests_chosen")
    class ChosenProp(mx.operator.CustomOpProp):
        def list_arguments(self) -> list[str]:
            return ["first", "second", "third"]

        def create_operator(self, ctx: Any, in_shapes: Any, in_dtypes: Any) -> Any:
            return Chosen()


@sample("Custom")
def folded(rng):
    return [floats(rng, 2, 3, 4)], {"op_type": "tests_folded", "scale": 2.5, "axis": int(rng.randint(-3, 3))}


@sample("Custom")
def folded_special(rng):
    return [special()], {"op_type": "tests_folded", "axis": -1}


@sample("Custom")
def folded_integers(rng):
    return [integers(rng, 4, 2)], {"op_type": "tests_folded", "scale": 3, "axis": 1}


@sample("Custom")
def chosen(rng):
    return [floats(rng, 3, 2) for _ in range(3)], {"op_type": "tests_chosen"}


@sample("Custom", training=True)
def chosen_in_training(rng):
    x = [floats(rng, 5) for _ in range(3)]
    x[0][0], x[1][1], x[2][2] = np.nan, np.inf, -np.inf
    return x, {"op_type": "tests_chosen"}
