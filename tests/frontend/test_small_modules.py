"""Modules and private names of MXNet that published programs use."""

import ctypes

import pytest

import gluonjit as mx
from gluonjit.contrib import autograd as old_autograd


def test_gradients_in_the_old_way():
    x = mx.nd.array([3])
    gradients, loss = old_autograd.grad_and_loss(lambda x, y: x * y, argnum=0)(x, x + 1)
    assert gradients[0].asscalar() == 4 and loss.asscalar() == 12
    with old_autograd.train_section():
        assert mx.autograd.is_recording() and mx.autograd.is_training()
        with old_autograd.test_section():
            assert not mx.autograd.is_recording()
        assert mx.autograd.is_recording()
    assert not mx.autograd.is_recording() and not mx.autograd.is_training()


def test_private_names_of_parameters_and_modules():
    p = mx.gluon.Parameter("w", shape=(2,))
    assert p._ctx_map is None and p._grad is None
    p._load_init(mx.nd.array([1, 2]), [mx.cpu(0), mx.cpu(2)])
    assert p._ctx_map == [[], [0, None, 1]] and len(p._grad) == 2 and p.data(mx.cpu(2)).asnumpy().tolist() == [1, 2]

    p = mx.gluon.Parameter("v", shape=(2,), init="zeros")
    assert p._data is None
    p.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    p._data = [mx.nd.ones(2), mx.nd.ones(2, ctx=mx.cpu(1)) * 2]
    assert [x.asnumpy().tolist() for x in p.list_data()] == [[1, 1], [2, 2]]

    module = mx.mod.BucketingModule(lambda key: (mx.sym.var("data") * 2, ["data"], None), default_bucket_key=3)
    module.bind([("data", (4, 3))])
    assert module._curr_bucket_key == 3 and module._curr_module._exec_group.batch_size == 4


def test_helpers_for_c():
    base = mx.base
    assert base.c_str("é").value == "é".encode() and base.c_array(base.mx_uint, [1, 2])[:] == [1, 2]
    numbers = base.c_array(base.mx_float, [1, 2, 3, 4])
    pointer = ctypes.cast(numbers, base.mx_float_p)
    base.ctypes2numpy_shared(pointer, (2, 2))[1, 0] = 7
    assert numbers[2] == 7
    array = mx.nd.ones(2)
    assert base.c_handle_array([array])[0] == array.handle.value and base.check_call(0) is None
    with pytest.raises(mx.MXNetError, match="status -1"):
        base.check_call(-1)
    with pytest.raises(mx.MXNetError, match="MXSymbolGetName is a function of MXNet's C library"):
        base._LIB.MXSymbolGetName(None)
    head = "Parameters\n----------\n"
    assert base.build_param_doc(["a", "a"], ["int", "int"], ["a number", ""]) == head + "a : int\n    a number\n"


def test_element_types_of_arrays():
    assert mx.nd.ones(2).astype(mx.nd.ones(1, dtype="int32")).dtype.__name__ == "int32"


def test_the_operator_of_a_symbol_without_its_inputs():
    """As `amp` of MXNet wraps operators; the names are MXNet's."""
    fc = mx.sym.FullyConnected(mx.sym.var("x") * 2, num_hidden=3, name="fc")
    again = fc._gen_atomic_symbol()(*fc.get_children())
    again._set_attr(name="fc")
    assert again.list_arguments() == ["x", "fc_weight", "fc_bias"] and again.list_outputs() == ["fc_output"]
    assert again.attr_dict()["fc"] == {"num_hidden": "3"}
    norm = mx.sym.BatchNorm(mx.sym.var("x"), name="bn")
    other = norm._gen_atomic_symbol()(*norm.get_children(), name="u")
    assert other.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    for wrong in (mx.sym.var("x"), mx.sym.Group([fc, norm])):
        with pytest.raises(mx.MXNetError, match="needs the result of an operator"):
            wrong._gen_atomic_symbol()


def test_the_lists_of_amp_are_those_that_it_reads():
    from gluonjit.contrib.amp.lists import symbol_bf16, symbol_fp16

    amp = mx.contrib.amp
    assert amp.lists.symbol_fp16 is symbol_fp16 and symbol_fp16.FP16_FUNCS is amp.list_lp16_ops("float16")
    assert symbol_fp16.CONDITIONAL_FP32_FUNCS is amp.list_conditional_fp32_ops("float16")
    assert ("Activation", "act_type", ["softrelu"]) in symbol_fp16.CONDITIONAL_FP32_FUNCS
    assert symbol_bf16.BF16_FUNCS == ["Convolution", "FullyConnected"]
