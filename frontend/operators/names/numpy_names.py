"""Aliases of `mx.nd` operators in `mx.np` and `mx.npx`: `_npx_fully_connected` is FullyConnected."""

from __future__ import annotations

from gluonjit.operators.registry import OPERATORS

NAMES = {
    # `_npx_`: activations and layers, then detection, then shapes and indices.
    "_npx_activation": "Activation",
    "_npx_batch_dot": "batch_dot",
    "_npx_batch_flatten": "Flatten",
    "_npx_batch_norm": "BatchNorm",
    "_npx_convolution": "Convolution",
    "_npx_deconvolution": "Deconvolution",
    "_npx_dropout": "Dropout",
    "_npx_embedding": "Embedding",
    "_npx_erf": "erf",
    "_npx_erfinv": "erfinv",
    "_npx_fully_connected": "FullyConnected",
    "_npx_gamma": "gamma",
    "_npx_gammaln": "gammaln",
    "_npx_layer_norm": "LayerNorm",
    "_npx_leaky_relu": "LeakyReLU",
    "_npx_log_softmax": "log_softmax",
    "_npx_pooling": "Pooling",
    "_npx_rnn": "RNN",
    "_npx_sequence_mask": "SequenceMask",
    "_npx_softmax": "softmax",
    "_npx_multibox_detection": "_contrib_MultiBoxDetection",
    "_npx_multibox_prior": "_contrib_MultiBoxPrior",
    "_npx_multibox_target": "_contrib_MultiBoxTarget",
    "_npx_roi_pooling": "ROIPooling",
    "_npx_arange_like": "_contrib_arange_like",
    "_npx_cast": "Cast",
    "_npx_gather_nd": "gather_nd",
    "_npx_one_hot": "one_hot",
    "_npx_pick": "pick",
    "_npx_reshape_like": "reshape_like",
    "_npx_shape_array": "shape_array",
    "_npx_slice": "slice",
    "_npx_topk": "topk",
    # `_npi_` and `_np_`
    "_np_repeat": "repeat",
    "_npi_argsort": "argsort",
    "_npi_boolean_mask": "_contrib_boolean_mask",
    "_npi_cast": "Cast",
    "_npi_cholesky": "_linalg_potrf",
    "_npi_clip": "clip",
    "_npi_expand_dims": "expand_dims",
    "_npi_full": "_full",
    "_npi_gather_nd": "gather_nd",
    "_npi_histogram": "_histogram",
    "_npi_hypot_scalar": "_hypot_scalar",
    "_npi_inv": "_linalg_inverse",
    "_npi_linspace": "_linspace",
    "_npi_maximum": "broadcast_maximum",
    "_npi_maximum_scalar": "_maximum_scalar",
    "_npi_minimum": "broadcast_minimum",
    "_npi_minimum_scalar": "_minimum_scalar",
    "_npi_random_randint": "_random_randint",
    "_npi_rnn_param_concat": "_rnn_param_concat",
    "_npi_scatter_set_nd": "_scatter_set_nd",
    "_npi_shuffle": "_shuffle",
    "_npi_slice": "slice",
    "_npi_slice_assign": "_slice_assign",
    "_npi_slice_assign_scalar": "_slice_assign_scalar",
    "_npi_sort": "sort",
    "_npi_split": "_split_v2",
    "_npi_swapaxes": "SwapAxis",
    "_npi_take": "take",
    "_npi_tile": "tile",
}


def declare() -> None:
    """Adds the aliases; must be called after all operators are declared."""
    for name, known in NAMES.items():
        op = OPERATORS[known]
        op.aliases = (*op.aliases, name)
        OPERATORS[name] = op
