"""Every layer takes MXNet's arguments, in MXNet's order, with MXNet's defaults."""

import importlib
import inspect

import pytest

from gluonjit import gluon, initializer
from gluonjit.gluon import nn

from .truths import TRUTHS

CONV = (
    "layout={layout!r}, activation=None, use_bias=True, weight_initializer=None, bias_initializer='zeros', "
    "in_channels=0, **kwargs"
)
NORM = "beta_initializer='zeros', gamma_initializer='ones'"
BATCH_NORM = (
    "axis=1, momentum=0.9, epsilon=1e-05, center=True, scale=True, use_global_stats=False, "
    f"{NORM}, running_mean_initializer='zeros', running_variance_initializer='ones', in_channels=0, **kwargs"
)
BLOCK = "prefix=None, params=None"

NN = {
    "Activation": "activation, **kwargs",
    "AvgPool1D": (
        "pool_size=2, strides=None, padding=0, layout='NCW', ceil_mode=False, count_include_pad=True, **kwargs"
    ),
    "AvgPool2D": (
        "pool_size=(2, 2), strides=None, padding=0, ceil_mode=False, layout='NCHW', count_include_pad=True, **kwargs"
    ),
    "AvgPool3D": (
        "pool_size=(2, 2, 2), strides=None, padding=0, ceil_mode=False, layout='NCDHW', "
        "count_include_pad=True, **kwargs"
    ),
    "BatchNorm": BATCH_NORM,
    "BatchNormReLU": BATCH_NORM,
    "Block": BLOCK,
    "Conv1D": "channels, kernel_size, strides=1, padding=0, dilation=1, groups=1, " + CONV.format(layout="NCW"),
    "Conv1DTranspose": (
        "channels, kernel_size, strides=1, padding=0, output_padding=0, dilation=1, groups=1, "
        + CONV.format(layout="NCW")
    ),
    "Conv2D": (
        "channels, kernel_size, strides=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, "
        + CONV.format(layout="NCHW")
    ),
    "Conv2DTranspose": (
        "channels, kernel_size, strides=(1, 1), padding=(0, 0), output_padding=(0, 0), dilation=(1, 1), groups=1, "
        + CONV.format(layout="NCHW")
    ),
    "Conv3D": (
        "channels, kernel_size, strides=(1, 1, 1), padding=(0, 0, 0), dilation=(1, 1, 1), groups=1, "
        + CONV.format(layout="NCDHW")
    ),
    "Conv3DTranspose": (
        "channels, kernel_size, strides=(1, 1, 1), padding=(0, 0, 0), output_padding=(0, 0, 0), "
        "dilation=(1, 1, 1), groups=1, " + CONV.format(layout="NCDHW")
    ),
    "Dense": (
        "units, activation=None, use_bias=True, flatten=True, dtype='float32', weight_initializer=None, "
        "bias_initializer='zeros', in_units=0, **kwargs"
    ),
    "Dropout": "rate, axes=(), **kwargs",
    "ELU": "alpha=1.0, **kwargs",
    "Embedding": "input_dim, output_dim, dtype='float32', weight_initializer=None, sparse_grad=False, **kwargs",
    "Flatten": "**kwargs",
    "GELU": "**kwargs",
    "GlobalAvgPool1D": "layout='NCW', **kwargs",
    "GlobalAvgPool2D": "layout='NCHW', **kwargs",
    "GlobalAvgPool3D": "layout='NCDHW', **kwargs",
    "GlobalMaxPool1D": "layout='NCW', **kwargs",
    "GlobalMaxPool2D": "layout='NCHW', **kwargs",
    "GlobalMaxPool3D": "layout='NCDHW', **kwargs",
    "GroupNorm": f"num_groups=1, epsilon=1e-05, center=True, scale=True, {NORM}, {BLOCK}",
    "HybridBlock": BLOCK,
    "HybridLambda": "function, prefix=None",
    "HybridSequential": BLOCK,
    "InstanceNorm": f"axis=1, epsilon=1e-05, center=True, scale=False, {NORM}, in_channels=0, **kwargs",
    "Lambda": "function, prefix=None",
    "LayerNorm": f"axis=-1, epsilon=1e-05, center=True, scale=True, {NORM}, in_channels=0, {BLOCK}",
    "LeakyReLU": "alpha, **kwargs",
    "MaxPool1D": "pool_size=2, strides=None, padding=0, layout='NCW', ceil_mode=False, **kwargs",
    "MaxPool2D": "pool_size=(2, 2), strides=None, padding=0, layout='NCHW', ceil_mode=False, **kwargs",
    "MaxPool3D": "pool_size=(2, 2, 2), strides=None, padding=0, ceil_mode=False, layout='NCDHW', **kwargs",
    "ReflectionPad2D": "padding=0, **kwargs",
    "SELU": "**kwargs",
    "Sequential": BLOCK,
    "Swish": "beta=1.0, **kwargs",
}

METHODS = {
    "Block.apply": "fn",
    "Block.cast": "dtype",
    "Block.collect_params": "select=None",
    "Block.hybridize": "active=True, **kwargs",
    "Block.register_child": "block, name=None",
    "Block.register_forward_hook": "hook",
    "Block.register_forward_pre_hook": "hook",
    "Block.register_op_hook": "callback, monitor_all=False",
    "Block.summary": "*inputs",
    "HybridBlock.forward": "x, *args",
    "HybridBlock.hybrid_forward": "F, x, *args, **kwargs",
    "HybridBlock.hybridize": (
        "active=True, backend=None, clear=True, static_alloc=False, static_shape=False, inline_limit=2, "
        "forward_bulk_size=None, backward_bulk_size=None, **kwargs"
    ),
    "HybridBlock.infer_shape": "*args",
    "HybridBlock.infer_type": "*args",
    "HybridBlock.optimize_for": (
        "x, *args, backend=None, clear=False, static_alloc=False, static_shape=False, inline_limit=2, "
        "forward_bulk_size=None, backward_bulk_size=None, **kwargs"
    ),
    "Parameter.cast": "dtype",
    "Parameter.data": "ctx=None",
    "Parameter.grad": "ctx=None",
    "Parameter.list_row_sparse_data": "row_id",
    "Parameter.reset_ctx": "ctx",
    "Parameter.set_data": "data",
    "ParameterDict.get": "name, **kwargs",
    "ParameterDict.get_constant": "name, value=None",
    "ParameterDict.setattr": "name, value",
    "ParameterDict.update": "other",
    "Parameter.__init__": (
        "name, grad_req='write', shape=None, dtype=<class 'numpy.float32'>, lr_mult=1.0, wd_mult=1.0, init=None, "
        "allow_deferred_init=False, differentiable=True, stype='default', grad_stype='default'"
    ),
    "ParameterDict.__init__": "prefix='', shared=None",
    "Constant.__init__": "name, value",
}


def shown(function, skip_self=False):
    parameters = list(inspect.signature(function).parameters.values())[int(skip_self) :]
    return ", ".join(str(p.replace(annotation=inspect.Parameter.empty)) for p in parameters)


def without_machine(function):
    """As recorded: defaults that depend on the machine are left out."""
    parameters = inspect.signature(function).parameters.values()
    return ", ".join(
        p.name if p.name in ("ctx", "root") else str(p.replace(annotation=inspect.Parameter.empty)) for p in parameters
    )


@pytest.mark.parametrize("path", TRUTHS["signatures"])
def test_module(path):
    module = importlib.import_module(f"gluonjit.gluon.{path}")
    recorded = TRUTHS["signatures"][path]
    assert {name: without_machine(getattr(module, name)) for name in recorded} == recorded
    assert set(recorded) <= set(module.__all__)


@pytest.mark.parametrize("layer", NN)
def test_layer(layer):
    assert shown(getattr(nn, layer)) == NN[layer]


def test_no_layer_is_missing():
    assert {*NN, "PReLU", "SymbolBlock"} == set(nn.__all__)
    assert list(inspect.signature(nn.PReLU).parameters) == ["alpha_initializer", "in_channels", "kwargs"]


@pytest.mark.parametrize("method", METHODS)
def test_method(method):
    owner, name = method.split(".")
    assert shown(getattr(getattr(gluon, owner), name), skip_self=True) == METHODS[method]


@pytest.mark.parametrize("owner", ["Block", "HybridBlock", "ParameterDict"])
def test_initialize(owner):
    parameters = inspect.signature(getattr(gluon, owner).initialize).parameters
    assert list(parameters)[1:] == ["init", "ctx", "verbose", "force_reinit"]
    assert parameters["init"].default == initializer.Uniform()


class Own(gluon.HybridBlock):
    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        if width is None:
            raise TypeError("the width must be a number")


class Popping(nn.Dense):
    def __init__(self, **kwargs):
        kwargs.pop("unknown")
        super().__init__(3, **kwargs)


@pytest.mark.parametrize(
    ("make", "block", "wrong", "right"),
    [
        (lambda: nn.Dense(10, activaton="relu"), "Dense", "activaton", "activation"),
        (lambda: nn.Conv2D(8, kernal_size=3), "Conv2D", "kernal_size", "kernel_size"),
        (lambda: nn.Conv2D(8, 3, stride=2), "Conv2D", "stride", "strides"),
        (lambda: gluon.loss.L2Loss(batch_axes=1), "L2Loss", "batch_axes", "batch_axis"),
        (lambda: gluon.rnn.LSTMCell(3, hidden=2), "LSTMCell", "hidden", "hidden_size"),
        (lambda: Own(2, widht=3), "Own", "widht", "width"),
    ],
)
def test_misspelt_keywords(make, block, wrong, right):
    with pytest.raises(TypeError) as error:
        make()
    assert str(error.value) == f"{block}() got an unexpected keyword argument {wrong!r}; did you mean {right!r}?"


def test_other_errors_of_constructors_stay():
    with pytest.raises(TypeError, match="^the width must be a number$"):
        Own(None)
    with pytest.raises(TypeError, match="got multiple values for argument 'units'"):
        Popping(unknown=1, units=2)
