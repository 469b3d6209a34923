"""`FullyConnected` and `Embedding`: layers that consist of a weight matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gluonjit.ir.graph import Emitter
from gluonjit.ir.types import I32, I64, DType, dtype_of
from gluonjit.operators.attributes import boolean, dtype, integer
from gluonjit.operators.registry import Shape, operator
from gluonjit.operators.support import Shapes, merge, parameters, require_same_dtype, require_shape


def weight_inputs(attrs: Mapping[str, Any]) -> tuple[str, ...]:
    """Input names of a layer with `no_bias`."""
    return ("data", "weight") if attrs["no_bias"] else ("data", "weight", "bias")


def _dense_parameters(attrs: Mapping[str, Any], data: Shape) -> Sequence[Shape | None]:
    features = data[1:] if attrs["flatten"] else data[-1:]
    # An unknown dimension is 0, and so is the product with it, which then is unknown, too.
    return [(attrs["num_hidden"], math.prod(features)), (attrs["num_hidden"],)]


def _complete_dense(attrs: Mapping[str, Any], shapes: Shapes) -> Shapes:
    bias = shapes[-1] if len(shapes) == 3 else None
    if bias is None or len(bias) != 2:
        return parameters(_dense_parameters)(attrs, shapes)
    return [*parameters(_dense_parameters)(attrs, shapes[:2]), merge(bias, (attrs["num_hidden"], 1))]


def _infer_dense_inputs(attrs: Mapping[str, Any], inputs: Shapes, outputs: Shapes) -> Shapes:
    """Infers the data's leading axes from the output, such as the batch size of a begin state."""
    data, out = inputs[0], outputs[0]
    if data is None or out is None or len(data) < 2:
        return inputs
    known = (out[0], *(0,) * (len(data) - 1)) if attrs["flatten"] else (*out[:-1], 0)
    return [merge(data, known), *inputs[1:]]


@operator(
    "FullyConnected",
    inputs=weight_inputs,
    attrs={
        "num_hidden": integer(low=1, doc="rows of the weight: length of the result"),
        "no_bias": boolean(False, doc="whether there is no input `bias`"),
        "flatten": boolean(True, doc="whether all axes but the first are merged"),
    },
    complete=_complete_dense,
    infer_inputs=_infer_dense_inputs,
)
def fully_connected(
    b: Emitter, data: Any, weight: Any, bias: Any = None, *, num_hidden: int, no_bias: bool, flatten: bool
) -> Any:
    """data · weightᵀ + bias

    Shapes: data (batch, …), weight (num_hidden, k), bias (num_hidden,) or (num_hidden, 1) -> (batch, num_hidden)

    The data are flattened to (batch, k) first. With `flatten=False`, data (…, k) keep their leading axes, and the
    result is (…, num_hidden). MXNetError if the weight or the bias has another shape.

    >>> data, weight = mx.nd.array([[1, 2]]), mx.nd.array([[1, 0], [0, 1], [1, 1]])
    >>> mx.nd.FullyConnected(data, weight, mx.nd.array([10, 20, 30]), num_hidden=3).asnumpy()
    array([[11., 22., 33.]], dtype=float32)
    """
    require_same_dtype(data, weight)
    if bias is not None:
        require_same_dtype(data, bias)
    return dense(b, data, weight, bias, num_hidden=num_hidden, flatten=flatten)


def dense(
    b: Emitter,
    data: Any,
    weight: Any,
    bias: Any,
    *,
    num_hidden: int,
    flatten: bool,
    dtype: DType | None = None,
    **_no_bias: Any,
) -> Any:
    """`fully_connected` with results, and a bias, of the type `dtype`: None for that of the data."""
    if flatten and len(data.shape) != 2:
        columns = math.prod(data.shape[1:])
        data = b.reshape(data, shape=(math.prod(data.shape[:1]), columns))
    last = len(data.shape) - 1
    require_shape(weight, (num_hidden, data.shape[last]), "weight")
    out = b.dot_general(data, weight, contract=((last,), (1,)), dtype=dtype)
    if bias is None:
        return out
    if tuple(bias.shape) == (num_hidden, 1):  # as sparse biases have it, which are no vectors
        bias = b.reshape(bias, shape=(num_hidden,))
    require_shape(bias, (num_hidden,), "bias")
    return out + bias


def _embedding_shapes(attrs: Mapping[str, Any], inputs: Shapes) -> Shapes:
    return [inputs[0], merge(inputs[1], (attrs["input_dim"], attrs["output_dim"]))]


def _infer_embedding_inputs(attrs: Mapping[str, Any], inputs: Shapes, outputs: Shapes) -> Shapes:
    return [inputs[0] if outputs[0] is None else merge(inputs[0], outputs[0][:-1]), inputs[1]]


def _lookup(name: str, **last: Any) -> Any:
    attrs = {
        "input_dim": integer(low=1, doc="rows of the weight: how many indices there are"),
        "output_dim": integer(low=1, doc="columns of the weight: length of a row"),
        "dtype": dtype("float32", doc="has no effect: the result has the weight's type"),
        **last,
    }
    return operator(
        name,
        inputs=("data", "weight"),
        attrs=attrs,
        complete=_embedding_shapes,
        infer_inputs=_infer_embedding_inputs,
    )


@_lookup("Embedding", sparse_grad=boolean(False, doc="whether the gradient of the weight is row_sparse in symbols"))
def embedding(b: Emitter, data: Any, weight: Any, *, input_dim: int, output_dim: int, **_training: Any) -> Any:
    """The rows of the weight at the indices in the data, which are truncated and clipped

    Shapes: data (any), weight (input_dim, output_dim) -> (*data.shape, output_dim)

    >>> weight = mx.nd.array([[0, 0], [1, 10], [2, 20]])
    >>> mx.nd.Embedding(mx.nd.array([2, 0]), weight, input_dim=3, output_dim=2).asnumpy()
    array([[ 2., 20.],
           [ 0.,  0.]], dtype=float32)
    """
    require_shape(weight, (input_dim, output_dim), "weight")
    index = dtype_of(data)
    if not index.is_integer:
        data = b.cast(data, dtype=I64 if index.bits == 64 else I32)
    return b.gather(weight, data, axis=0, mode="clip")


@_lookup("_contrib_SparseEmbedding", deterministic=boolean(False, doc="has no effect: results never vary"))
def sparse_embedding(b: Emitter, data: Any, weight: Any, **attrs: Any) -> Any:
    """`Embedding` with a sparse gradient

    Shapes: data (any), weight (input_dim, output_dim) -> (*data.shape, output_dim)

    >>> weight = mx.nd.array([[0, 0], [1, 10], [2, 20]])
    >>> mx.nd.contrib.SparseEmbedding(mx.nd.array([2, 0]), weight, input_dim=3, output_dim=2).asnumpy()
    array([[ 2., 20.],
           [ 0.,  0.]], dtype=float32)
    """
    return embedding.expand(b, data, weight, **attrs)
