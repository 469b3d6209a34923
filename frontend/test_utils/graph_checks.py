"""Checks of symbols, blocks and optimizers: results, gradients, speed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gluonjit import autograd, symbol
from gluonjit import ndarray as nd
from gluonjit.context import current_context
from gluonjit.ndarray import NDArray
from gluonjit.symbol import Symbol
from gluonjit.test_utils.closeness import _numpy, assert_almost_equal, compare_ndarray_tuple, default_numeric_eps


def simple_forward(sym: Symbol, ctx: Any = None, is_train: bool = False, **inputs: Any) -> Any:
    """The symbol's results for inputs by name, as NumPy arrays: a list of them, or one."""
    executor = sym.bind(ctx or current_context(), args={name: nd.array(x) for name, x in inputs.items()})
    outputs = [x.asnumpy() for x in executor.forward(is_train=is_train)]
    return outputs[0] if len(outputs) == 1 else outputs


def check_symbolic_forward(
    sym: Symbol,
    location: Any,
    expected: Any,
    rtol: Any = None,
    atol: Any = None,
    aux_states: Any = None,
    ctx: Any = None,
    equal_nan: bool = False,
    dtype: Any = np.float32,
) -> list[NDArray]:
    """AssertionError unless the symbol computes `expected` from `location`; both are lists, or dicts by name.

    Inputs are cast to `dtype`; 'asnumpy' keeps their own.
    """
    ctx = ctx or current_context()
    arguments = _by_name(sym.list_arguments(), location, ctx, dtype)
    states = _by_name(sym.list_auxiliary_states(), aux_states or [], ctx, dtype)
    if isinstance(expected, Mapping):
        expected = [expected[name] for name in sym.list_outputs()]
    outputs = sym.bind(ctx, args=arguments, aux_states=states).forward(is_train=False)
    for name, expect, output in zip(sym.list_outputs(), expected, outputs):
        names = (f"EXPECTED_{name}", f"FORWARD_{name}")
        assert_almost_equal(expect, output, rtol, atol, names, equal_nan=equal_nan)
    return outputs


def _by_name(names: Sequence[str], values: Any, ctx: Any, dtype: Any) -> dict[str, NDArray]:
    if not isinstance(values, Mapping):
        values = dict(zip(names, values))
    if set(values) != set(names):
        raise ValueError(
            f"Symbol arguments and keys of the given location do not match. symbol args: {sorted(names)}, "
            f"location.keys(): {sorted(values)}"
        )
    return {
        name: x
        if isinstance(x, NDArray)
        else nd.array(x, ctx=ctx, dtype=np.asarray(x).dtype if dtype == "asnumpy" else dtype)
        for name, x in values.items()
    }


def numeric_grad(
    executor: Any,
    location: Mapping[str, Any],
    aux_states: Mapping[str, Any] | None = None,
    eps: float = 1e-4,
    use_forward_train: bool = True,
    dtype: Any = np.float32,
) -> dict[str, np.ndarray]:
    """Gradients of the sum of the executor's first output at `location`, by finite differences of step `eps`.

    Inputs that are not of floats get zeros. The executor's arguments are the same afterwards.
    """
    if dtype not in (np.float16, np.float32, np.float64):
        raise AssertionError(f"dtype must be float16, float32 or float64, got {dtype}")
    places = {name: np.array(_numpy(x), order="C") for name, x in location.items()}
    found = {name: np.zeros(x.shape, dtype) for name, x in places.items()}

    def total(name: str) -> np.ndarray:
        executor.arg_dict[name][:] = nd.array(places[name], dtype=dtype)
        for state, value in (aux_states or {}).items():
            executor.aux_dict[state][:] = value
        executor.forward(is_train=use_forward_train)
        return executor.outputs[0].asnumpy()

    for name, x in places.items():
        executor.arg_dict[name][:] = nd.array(x, dtype=dtype)
    for name, x in places.items():
        for k in range(x.size if x.dtype.kind == "f" else 0):
            before = x.flat[k]
            x.flat[k] = before + eps / 2
            above = total(name)
            x.flat[k] = before - eps / 2
            found[name].flat[k] = (above - total(name)).sum() / eps
            x.flat[k] = before
        executor.arg_dict[name][:] = nd.array(x, dtype=dtype)
    return found


def check_speed(
    sym: Symbol,
    location: Mapping[str, np.ndarray] | None = None,
    ctx: Any = None,
    N: int = 20,
    grad_req: Any = None,
    typ: str = "whole",
    **kwargs: Any,
) -> float:
    """Seconds for a call, the average of `N`, with `location` or random inputs of the shapes in `kwargs`.

    `typ` 'forward' is inference, 'whole' forward in training mode and backward.
    """
    if typ not in ("whole", "forward"):
        raise ValueError('typ can only be "whole" or "forward".')
    if location is not None and not isinstance(location, dict):
        raise AssertionError(f'Expect dict, get "location"={location}')
    shapes = kwargs if location is None else {name: x.shape for name, x in location.items()}
    executor = sym.simple_bind(ctx or current_context(), grad_req=grad_req or "write", **shapes)
    if location is None:
        location = {name: np.random.normal(size=x.shape) for name, x in executor.arg_dict.items()}
    for name, value in location.items():
        executor.arg_dict[name][:] = value.astype(executor.arg_dict[name].dtype)

    def call() -> None:
        executor.forward(is_train=typ == "whole")
        if typ == "whole":
            executor.backward(executor.outputs)

    call()
    started = time.perf_counter()
    for _ in range(N):
        call()
    return (time.perf_counter() - started) / N


def check_consistency(
    sym: Symbol | Sequence[Symbol],
    ctx_list: Sequence[Mapping[str, Any]],
    scale: float = 1.0,
    grad_req: Any = "write",
    arg_params: dict[str, Any] | None = None,
    aux_params: dict[str, Any] | None = None,
    rtol: Any = None,
    atol: Any = None,
    raise_on_err: bool = True,
    ground_truth: Mapping[str, Any] | None = None,
    equal_nan: bool = False,
    use_uniform: bool = False,
    rand_type: Any = np.float64,
) -> Mapping[str, Any]:
    """AssertionError unless a symbol has equal results, and gradients (unless `grad_req` is 'null'), for all of
    `ctx_list`; returns the reference.

    Entries of `ctx_list` are arguments of `simple_bind`: a context, shapes and a `type_dict`. The reference is the one
    whose first output has the widest type, unless `ground_truth` is given. Gradients are those for the outputs
    themselves as head gradients, in training mode. Without tolerances, the narrower type decides them.
    """
    if len(ctx_list) < 2:
        raise AssertionError("check_consistency compares: it needs at least two entries in ctx_list")
    symbols = [sym] * len(ctx_list) if isinstance(sym, Symbol) else list(sym)
    for other in symbols[1:]:
        if [other.list_arguments(), other.list_outputs()] != [symbols[0].list_arguments(), symbols[0].list_outputs()]:
            raise AssertionError("all symbols must have the same arguments and outputs")
    executors = [s.simple_bind(grad_req=grad_req, **options) for s, options in zip(symbols, ctx_list, strict=True)]
    arg_params = {} if arg_params is None else arg_params
    aux_params = {} if aux_params is None else aux_params
    for name, x in sorted(executors[0].arg_dict.items()):
        if name not in arg_params:
            size = x.shape
            draw = np.random.uniform(-0.92 * scale, 0.92 * scale, size) if use_uniform else None
            arg_params[name] = (np.random.normal(size=size, scale=scale) if draw is None else draw).astype(rand_type)
    for name in executors[0].aux_dict:
        aux_params.setdefault(name, 0)
    for executor in executors:
        for name, x in executor.arg_dict.items():
            x[:] = arg_params[name]
        for name, x in executor.aux_dict.items():
            x[:] = aux_params[name]
        executor.forward(is_train=False)
    widest = int(np.argmax([np.dtype(executor.outputs[0].dtype).itemsize for executor in executors]))
    names = symbols[0].list_outputs()
    truth = _copied(executors[widest].output_dict) if ground_truth is None else dict(ground_truth)
    _compare(executors, names, widest, truth, "Predict", rtol, atol, raise_on_err, equal_nan)
    if grad_req != "null":
        heads = [nd.array(truth[name], dtype=np.float64) for name in names]
        for executor in executors:
            executor.forward(is_train=True)
            executor.backward([x.astype(y.dtype) for x, y in zip(heads, executor.outputs)])
        if ground_truth is None:
            truth = _copied({**executors[widest].output_dict, **_given(executors[widest].grad_dict)})
        wanted = list(_given(executors[0].grad_dict))
        _compare(executors, [*names, *wanted], widest, truth, "Train", rtol, atol, raise_on_err, equal_nan)
    return truth


def _given(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: x for name, x in arrays.items() if x is not None}


def _copied(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: x.copy() for name, x in arrays.items()}


def _compare(
    executors: Sequence[Any],
    names: Sequence[str],
    reference: int,
    truth: Mapping[str, Any],
    stage: str,
    rtol: Any,
    atol: Any,
    raise_on_err: bool,
    equal_nan: bool,
) -> None:
    """Compares executors' outputs and gradients with the truth."""
    for k, executor in enumerate(executors):
        found = {**_given(executor.grad_dict), **executor.output_dict}
        for name in names if k != reference else ():
            try:
                assert_almost_equal(found[name], truth[name], rtol=rtol, atol=atol, equal_nan=equal_nan)
            except AssertionError as e:
                print(f"{stage} Err: ctx {k} vs ctx {reference} at {name}")
                if raise_on_err:
                    raise
                print(e)


def compare_optimizer(
    opt1: Any,
    opt2: Any,
    shape: Any,
    dtype: Any,
    w_stype: str = "default",
    g_stype: str = "default",
    rtol: float = 1e-4,
    atol: float = 1e-5,
    compare_states: bool = True,
    ntensors: int = 1,
) -> None:
    """AssertionError unless both optimizers make the same of random weights and gradients.

    `shape` is one weight's; or a list of `ntensors`, which `opt2` updates at once and `opt1` one by one.
    """
    for stype in (w_stype, g_stype):
        if stype not in ("default", "row_sparse", "csr"):
            raise ValueError(f"storage type {stype} is not supported yet")
    shapes = shape if isinstance(shape, list) else [shape]
    if len(shapes) != ntensors:
        raise AssertionError(f"there are {len(shapes)} shapes for {ntensors} tensors")
    weights, gradients = (
        [nd.random.uniform(shape=s, dtype=dtype).tostype(stype) for s in shapes] for stype in (w_stype, g_stype)
    )
    copies, same_gradients = ([x.copy() for x in arrays] for arrays in (weights, gradients))
    states = [opt2.create_state_multi_precision(k, w) for k, w in enumerate(copies)]
    if isinstance(shape, list):
        opt2.update_multi_precision(list(range(ntensors)), copies, same_gradients, states)
    else:
        opt2.update_multi_precision(0, copies[0], same_gradients[0], states[0])
    for k, (weight, gradient) in enumerate(zip(weights, gradients)):
        state = opt1.create_state_multi_precision(k, weight)
        opt1.update_multi_precision(k, weight, gradient, state)
        if compare_states:
            compare_ndarray_tuple(state, states[k], rtol, atol)
        assert_almost_equal(weight, copies[k], rtol=rtol, atol=atol)


def check_symbolic_backward(
    sym: Symbol,
    location: Any,
    out_grads: Any,
    expected: Any,
    rtol: Any = None,
    atol: Any = None,
    aux_states: Any = None,
    grad_req: Any = "write",
    ctx: Any = None,
    grad_stypes: Any = None,
    equal_nan: bool = False,
    dtype: Any = np.float32,
) -> dict[str, Any]:
    """AssertionError unless `expected` are the gradients at `location` for the heads' gradients `out_grads`.

    Each is a list or a dict by name. A gradient that is added to (`grad_req`) starts from random numbers.
    `grad_stypes`: storage types by name. Returns the gradients by name.
    """
    ctx = ctx or current_context()
    names = sym.list_arguments()
    arguments = _by_name(names, location, ctx, dtype)
    states = _by_name(sym.list_auxiliary_states(), aux_states or [], ctx, dtype)
    if not isinstance(expected, Mapping):
        expected = dict(zip(names, expected))
    if isinstance(grad_req, str):
        grad_req = dict.fromkeys(names, grad_req)
    elif not isinstance(grad_req, Mapping):
        grad_req = dict(zip(names, grad_req))
    before = {name: np.random.normal(size=np.shape(_numpy(x))) for name, x in expected.items()}
    grads = {name: nd.array(x, ctx=ctx, dtype=arguments[name].dtype) for name, x in before.items()}
    _cast(grads, grad_stypes)
    executor = sym.bind(ctx, arguments, args_grad=grads, aux_states=states, grad_req=grad_req)
    executor.forward(is_train=True)
    heads: Any = None
    if out_grads is not None:
        if isinstance(out_grads, Mapping):
            out_grads = [out_grads[name] for name in sym.list_outputs()]
        elif isinstance(out_grads, (NDArray, np.ndarray)):
            out_grads = [out_grads]
        heads = [
            g if g is None or isinstance(g, NDArray) else nd.array(g, ctx=ctx, dtype=x.dtype)
            for g, x in zip(out_grads, executor.outputs)
        ]
    executor.backward(heads)
    for name, expect in expected.items():
        request = grad_req.get(name, "null")
        start = grads[name].asnumpy() if request == "write" else before[name].astype(arguments[name].dtype)
        given = np.asarray(_numpy(expect))
        wanted = {"write": given, "add": given + start, "null": start}[request]
        shown = (f"EXPECTED_{name}", f"BACKWARD_{name}")
        assert_almost_equal(wanted, grads[name].asnumpy(), rtol, atol, shown, equal_nan=equal_nan)
    return grads


def check_numeric_gradient(
    sym: Symbol,
    location: Any,
    aux_states: Any = None,
    numeric_eps: float | None = None,
    rtol: Any = None,
    atol: Any = None,
    grad_nodes: Any = None,
    use_forward_train: bool = True,
    ctx: Any = None,
    grad_stype_dict: Any = None,
    dtype: Any = np.float32,
) -> None:
    """AssertionError unless the gradients at `location` are the slopes that finite differences show.

    They are those of a random linear function of the first output. `grad_nodes` names the arguments to check (default:
    all), or gives their `grad_req`; `grad_stype_dict`: storage types by name.
    """
    if dtype not in (np.float16, np.float32, np.float64):
        raise AssertionError(f"dtype must be float16, float32 or float64, got {dtype}")
    ctx = ctx or current_context()
    step = default_numeric_eps()[np.dtype(dtype)] if numeric_eps is None else numeric_eps
    names = sym.list_arguments()
    places = {name: x.astype(dtype) for name, x in _by_name(names, location, ctx, dtype).items()}
    states = _by_name(sym.list_auxiliary_states(), aux_states or [], ctx, dtype)
    starts = {name: x.copy() for name, x in states.items()}
    if grad_nodes is None:
        grad_nodes = names
    requests = dict(grad_nodes) if isinstance(grad_nodes, Mapping) else dict.fromkeys(grad_nodes, "write")
    for name in requests:
        if name not in names:
            raise ValueError(f"grad_nodes: the symbol has no argument {name}; it has {', '.join(names)}")
    before = {name: np.random.normal(0, 0.01, places[name].shape) for name in requests}
    grads = {name: nd.array(x, ctx=ctx, dtype=dtype) for name, x in before.items()}
    _cast(grads, grad_stype_dict)
    weighted = symbol.make_loss(symbol.elemwise_mul(sym[0], symbol.var("__random_proj")), name="__weighted")
    bound = sym[0].bind(ctx, dict(places), aux_states=states)
    weights = nd.array(np.random.uniform(0.1, 1.1, bound.forward()[0].shape), ctx=ctx, dtype=dtype)
    _restore(states, starts)
    arguments = {**places, "__random_proj": weights}
    executor = weighted.bind(ctx, arguments, args_grad=grads, grad_req=requests, aux_states=states)
    executor.forward(is_train=True)
    executor.backward([nd.ones(executor.outputs[0].shape, ctx=ctx, dtype=dtype)])
    found = {name: g.asnumpy() for name, g in grads.items()}
    _restore(states, starts)
    plain = weighted.bind(ctx, arguments, aux_states=states)
    checked = {name: arguments[name] for name in requests}
    slopes = numeric_grad(plain, checked, starts, step, use_forward_train, dtype)
    for name, request in requests.items():
        start = before[name].astype(dtype)
        wanted = {"write": slopes[name], "add": slopes[name] + start, "null": start}[request]
        assert_almost_equal(wanted, found[name], rtol, atol, (f"NUMERICAL_{name}", f"BACKWARD_{name}"))


def _cast(grads: dict[str, NDArray], stypes: Mapping[str, str] | None) -> None:
    """Casts the arrays of gradients to these storage types."""
    for name, stype in (stypes or {}).items():
        if name in grads and stype != "default":
            grads[name] = grads[name].tostype(stype)


def _restore(states: Mapping[str, NDArray], values: Mapping[str, NDArray]) -> None:
    for name, x in states.items():
        x[:] = values[name]


def check_gluon_hybridize_consistency(
    net_builder: Callable[..., Any],
    data_l: list[NDArray],
    numpy_func: Callable[..., Any] | None = None,
    test_grad: bool = True,
    rtol: float = 1e-4,
    atol: float = 1e-4,
) -> None:
    """AssertionError unless a block gives one answer, hybridized or not, and `numpy_func` gives it, too.

    `net_builder(prefix=)` makes the block. With `test_grad`, gradients by parameters and data must be equal, too.
    """
    first = net_builder(prefix="net_")
    first.initialize()
    first(*data_l)
    second = net_builder(prefix="net_")
    second.initialize()
    second(*data_l)
    for name, param in second.collect_params().items():
        param.set_data(first.collect_params()[name].data())
    second.hybridize()
    answers = []
    for net in (first, second):
        inputs = [x.copy() for x in data_l]
        if not test_grad:
            answers.append({"output": net(*inputs).asnumpy()})
            continue
        for x in inputs:
            x.attach_grad()
        with autograd.record():
            y = net(*inputs)
        y.backward()
        params = net.collect_params().items()
        answers.append({"output": y.asnumpy()})
        answers[-1].update({name: p.grad().asnumpy() for name, p in params if p.grad_req != "null"})
        answers[-1].update({f"data {k}": x.grad.asnumpy() for k, x in enumerate(inputs)})
    for name, value in answers[0].items():
        assert_almost_equal(answers[1][name], value, rtol=rtol, atol=atol, names=(f"HYBRID_{name}", name))
    expected = answers[0]["output"]
    if numpy_func is not None:
        assert_almost_equal(expected, numpy_func(*(x.asnumpy() for x in data_l)), rtol=rtol, atol=atol)


def same_symbol_structure(sym1: Symbol, sym2: Symbol) -> bool:
    """Whether two graphs have the same operators in the same order."""
    first, second = ([node["op"] for node in json.loads(s.tojson())["nodes"]] for s in (sym1, sym2))
    return first == second
