"""`gluon.Trainer` and `gluon.utils`."""

import contextlib
import hashlib
import signal
import sys
import tracemalloc

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import gluon, nd
from gluonjit.base import MXNetError
from gluonjit.contrib.amp.loss_scaler import LossScaler
from gluonjit.gluon import utils
from gluonjit.language.interrupts import Uninterrupted, Whole
from gluonjit.language.modes import Scope, leave_natively
from gluonjit.ndarray import NDArray
from gluonjit.runtime.mode import MODE
from gluonjit.runtime.native_exit import native_exit
from support import optimizer_cases


def dense():
    net = gluon.nn.Dense(3, in_units=2)
    net.initialize()
    return net


def test_a_trainer_can_be_made_and_asked(tmp_path):
    net = dense()
    schedule = mx.lr_scheduler.FactorScheduler(2, 0.5, base_lr=0.4)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.4, "lr_scheduler": schedule, "wd": 0.1})
    assert trainer.learning_rate == 0.4 and trainer.optimizer.wd == 0.1
    net.weight.lr_mult = 2
    assert sorted(trainer.optimizer._get_lrs([0, 1])) == [0.4, 0.8]
    with pytest.raises(UserWarning, match="LRScheduler"):
        trainer.set_learning_rate(0.1)
    plain = gluon.Trainer(list(net.collect_params().values()), mx.optimizer.SGD(momentum=0.9))
    plain.set_learning_rate(0.3)
    assert plain.learning_rate == 0.3
    plain.save_states(tmp_path / "states")
    other = gluon.Trainer(net.collect_params(), "sgd")
    other.load_states(tmp_path / "states")
    assert other.learning_rate == 0.3 and other.optimizer.momentum == 0.9 and len(other.optimizer.param_dict) == 2


# Training beside real MXNet (tests/oracle/record_training.py)


@pytest.fixture(scope="module")
def recorded(root):
    return np.load(root / "tests" / "data" / "training.npz")


def lenet(recorded, where, hybridize=False):
    """The net with the recorded parameters `where`."""
    net = optimizer_cases.lenet(mx)
    net.initialize()
    net(nd.array(optimizer_cases.batch(0)[0]))
    for name, param in net.collect_params().items():
        param.set_data(recorded[f"{where}/{name}"])
    if hybridize:
        net.hybridize()
    return net


@pytest.mark.parametrize(("training", "hybridize"), [("sgd", False), ("sgd", True), ("adam", False)])
def test_lenet_trains_as_in_mxnet(training, hybridize, recorded):
    net = lenet(recorded, f"{training}/before", hybridize)
    trainer = optimizer_cases.trainer(mx, net, training)
    losses = optimizer_cases.train(mx, net, trainer, range(optimizer_cases.LOSSES))
    np.testing.assert_allclose(losses, recorded[f"{training}/losses"], 1e-4)
    for name, value in optimizer_cases.values(net).items():
        np.testing.assert_allclose(value, recorded[f"{training}/after/{name}"], 1e-4, 1e-4)


@pytest.mark.parametrize("training", optimizer_cases.TRAININGS)
def test_training_goes_on_from_mxnets_file(training, recorded, tmp_path):
    net = lenet(recorded, f"{training}/half")
    (tmp_path / "states").write_bytes(recorded[f"{training}/states"].tobytes())
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    trainer.load_states(tmp_path / "states")
    half = optimizer_cases.LOSSES // 2
    losses = optimizer_cases.train(mx, net, trainer, range(half, 2 * half))
    np.testing.assert_allclose(losses, recorded[f"{training}/losses"][half:], 1e-4)


def test_going_on_from_a_file_gives_the_same_bits(recorded, tmp_path):
    nets = [lenet(recorded, "adam/before") for _ in range(2)]
    first = optimizer_cases.trainer(mx, nets[0], "adam")
    optimizer_cases.train(mx, nets[0], first, range(3))
    first.save_states(tmp_path / "states")
    nets[0].save_parameters(str(tmp_path / "params"))
    optimizer_cases.train(mx, nets[0], first, range(3, 6))
    nets[1].load_parameters(str(tmp_path / "params"))
    second = optimizer_cases.trainer(mx, nets[1], "adam")
    second.load_states(tmp_path / "states")
    optimizer_cases.train(mx, nets[1], second, range(3, 6))
    one, other = map(optimizer_cases.values, nets)
    assert all((x == y).all() for x, y in zip(one.values(), other.values()))


# Steps


def fresh(param, value=1.0):
    """Writes a gradient as `backward` does."""
    for x in param.list_data():
        x.grad[:] = value
        x._fresh_grad = True


def test_the_gradient_is_divided_by_the_batch():
    net = dense()
    before = net.weight.data().asnumpy()
    trainer = gluon.Trainer(net.collect_params(), mx.optimizer.SGD(learning_rate=0.5, rescale_grad=4.0))
    fresh(net.weight), fresh(net.bias)
    trainer.step(2)
    np.testing.assert_allclose(net.weight.data().asnumpy(), before - 1.0, 1e-6)
    fresh(net.weight), fresh(net.bias)
    trainer.allreduce_grads()
    trainer.update(8)
    np.testing.assert_allclose(net.weight.data().asnumpy(), before - 1.25, 1e-6)


def test_stale_gradients():
    net = dense()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0})
    before = {name: p.data().asnumpy() for name, p in net.collect_params().items()}
    fresh(net.weight)
    with pytest.raises(UserWarning, match=r"Gradient of Parameter `dense\d*_bias` on context cpu\(0\) has not been "):
        trainer.step(1)
    assert all((p.data().asnumpy() == before[name]).all() for name, p in net.collect_params().items())
    trainer.step(1, ignore_stale_grad=True)
    np.testing.assert_allclose(net.weight.data().asnumpy(), before[net.weight.name] - 1, 1e-6)
    assert (net.bias.data().asnumpy() == before[net.bias.name]).all()
    with pytest.raises(UserWarning, match="only use a subset of the Parameters"):
        trainer.step(1)
    net.bias.grad_req = net.weight.grad_req = "null"
    trainer.step(1)


@pytest.mark.parametrize("on_store", [True, False])
def test_a_step_with_stale_gradients_changes_nothing(on_store):
    """Neither on a store, nor where gradients of several contexts are summed first."""
    contexts = [mx.cpu(0), mx.cpu(1)]
    used, unused = (gluon.Parameter(name, shape=(2,)) for name in ("used", "unused"))
    for param in (used, unused):
        param.initialize("ones", ctx=contexts)
    rule = {"learning_rate": 1.0, "momentum": 0.5}
    trainer = gluon.Trainer([used, unused], "sgd", rule, update_on_kvstore=on_store)

    def backward(*params):
        with mx.autograd.record():
            heads = [sum(param.data(ctx).sum() for param in params) for ctx in contexts]
        mx.autograd.backward(heads)

    backward(used)
    for _ in range(2):
        with pytest.raises(UserWarning, match=r"Gradient of Parameter `unused` on context cpu\(0\) has not been"):
            trainer.step(1)
    assert [used.data(ctx).asnumpy().tolist() for ctx in contexts] == [[1, 1]] * 2
    assert used.grad(contexts[0]).asnumpy().tolist() == [1, 1] and trainer.optimizer.num_update == 0
    trainer.step(1, ignore_stale_grad=True)
    assert used.data(contexts[1]).asnumpy().tolist() == [-1, -1]
    backward(used, unused)
    trainer.step(1)
    backward(used)
    before = [param.data(contexts[0]).asnumpy() for param in (used, unused)]
    if on_store:  # as in MXNet: a gradient that was computed once is fresh for ever
        trainer.step(1)
        assert (unused.data(contexts[0]).asnumpy() != before[1]).all()
    else:
        with pytest.raises(UserWarning, match="only use a subset"):
            trainer.step(1)
        assert (used.data(contexts[0]).asnumpy() == before[0]).all()


class Drops(mx.optimizer.Optimizer):
    """An optimizer of a user's: weight - gradient."""

    def create_state(self, index, weight):
        return None

    def update(self, index, weight, grad, state):
        assert not isinstance(weight, mx.np.ndarray) and not isinstance(grad, mx.np.ndarray)
        weight[:] = weight - grad


@pytest.mark.parametrize("optimizer", [mx.optimizer.SGD, Drops])
def test_arrays_of_mx_np_stay_so_in_a_step(optimizer):
    with mx.util.np_array(True):
        net = dense()
        weight, grad = net.weight.data(), net.weight.grad()
        trainer = gluon.Trainer(net.collect_params(), optimizer(learning_rate=1))
        before = weight.asnumpy()
        with mx.autograd.record():
            loss = net(mx.np.ones((1, 2))).sum()
        loss.backward()
        trainer.step(1)
        assert net.weight.data() is weight and net.weight.grad() is grad
        assert all(type(x) is mx.np.ndarray for x in (weight, grad))
        np.testing.assert_allclose(weight.asnumpy(), before - 1, rtol=1e-6)


def test_a_step_on_the_store_is_skipped_after_an_overflow():
    contexts = [mx.cpu(0), mx.cpu(1)]
    param = gluon.Parameter("w", shape=(2,))
    param.initialize("ones", ctx=contexts)
    trainer = gluon.Trainer([param], "sgd", {"learning_rate": 1.0}, update_on_kvstore=True)
    trainer._amp_loss_scaler = LossScaler()
    with mx.autograd.record():
        heads = [(param.data(ctx) * float("inf")).sum() for ctx in contexts]
    mx.autograd.backward(heads)
    trainer.step(1)
    assert param.data(contexts[0]).asnumpy().tolist() == [1, 1]


def test_shapes_may_be_unknown_until_the_first_step(tmp_path):
    net = gluon.nn.Dense(3)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0, "momentum": 0.5})
    with pytest.raises(MXNetError, match="initialization was deferred"):
        trainer.step(1)
    x = nd.ones((2, 4))
    with mx.autograd.record():
        loss = net(x).sum()
    loss.backward()
    before = net.weight.data().asnumpy()
    trainer.step(2)
    np.testing.assert_allclose(net.weight.data().asnumpy(), before - 1, 1e-5)
    trainer.save_states(tmp_path / "states")


CONTEXTS = [mx.cpu(0), mx.cpu(1)]


def copies():
    net = gluon.nn.Dense(3, in_units=2)
    net.initialize(ctx=CONTEXTS)
    return net


@pytest.mark.parametrize("settings", [{}, {"update_on_kvstore": False}, {"kvstore": "store"}])
def test_contexts_share_their_gradients(settings, tmp_path):
    net = copies()
    before = net.weight.data(mx.cpu(0)).asnumpy()
    if "kvstore" in settings:
        settings = {"kvstore": mx.kv.create("local")}
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 1.0, "momentum": 0.5}, **settings)
    for _ in range(2):
        for x, c in zip(utils.split_and_load(np.ones((4, 2), np.float32), CONTEXTS), (1, 2)):
            with mx.autograd.record():
                loss = (net(x) * c).sum()
            loss.backward()
        trainer.step(6)
    one, other = (x.asnumpy() for x in net.weight.list_data())
    assert (one == other).all()
    np.testing.assert_allclose(one, before - 1 - 1.5, 1e-5)  # each gradient is 2 + 4
    trainer.save_states(tmp_path / "states")
    again = gluon.Trainer(net.collect_params(), "sgd", update_on_kvstore=settings.get("update_on_kvstore"))
    again.load_states(tmp_path / "states")
    assert again.learning_rate == 1.0 and again.optimizer.param_dict[0] is trainer._params[0]
    if settings.get("update_on_kvstore", True):
        with pytest.raises(AssertionError, match=r"update\(\) when parameters are updated on kvstore is not supported"):
            trainer.update(1)
        with pytest.raises(AssertionError, match=r"allreduce_grads\(\) when parameters are updated on kvstore"):
            trainer.allreduce_grads()
    else:
        fresh(net.weight), fresh(net.bias)
        trainer.allreduce_grads()
        assert net.weight.grad(mx.cpu(1)).asnumpy().tolist() == [[2.0, 2.0]] * 3
        trainer.update(1)


def test_the_environment_chooses_where_to_update(monkeypatch):
    monkeypatch.setenv("MXNET_UPDATE_ON_KVSTORE", "0")
    net = copies()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    fresh(net.weight), fresh(net.bias)
    trainer.allreduce_grads()
    with pytest.raises(TypeError, match="kvstore must be KVStore, str or None"):
        gluon.Trainer(net.collect_params(), "sgd", kvstore=3).allreduce_grads()
    with pytest.raises(MXNetError, match="Unknown KVStore type"):
        gluon.Trainer(net.collect_params(), "sgd", kvstore="locl").allreduce_grads()


class Halfway(mx.optimizer.Optimizer):
    """A user's optimizer, with a state."""

    def create_state(self, index, weight):
        return nd.zeros(weight.shape)

    def update(self, index, weight, grad, state):
        state += grad
        weight -= state


def interrupting(function):
    """The function, followed by Ctrl-C."""

    def hooked(*args, **kwargs):
        found = function(*args, **kwargs)
        signal.raise_signal(signal.SIGINT)
        return found

    return hooked


@pytest.fixture
def ctrl_c():
    """Python's handler of Ctrl-C, which a process that was started in the background does not have."""
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, old)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(("owner", "name"), [(mx.optimizer.Updater, "_prepare"), (NDArray, "_wrote")])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adagrad", "ftrl", Halfway])
def test_ctrl_c_waits_for_the_end_of_a_step(optimizer, owner, name, monkeypatch):
    """Rows, dense weights, states and counts are those of after the step, wherever in it the signal arrives."""
    settings = {"momentum": 0.5} if optimizer == "sgd" else {}

    def trained(interrupted):
        params = gluon.ParameterDict()
        table = params.get("table", shape=(6, 2), init="ones", grad_stype="row_sparse")
        weight = params.get("weight", shape=(2, 2), init="ones")
        params.initialize()
        made = Halfway() if optimizer is Halfway else mx.optimizer.create(optimizer, **settings)
        trainer = gluon.Trainer(params, made)
        for k in range(2):
            with mx.autograd.record():
                y = nd.dot(nd.Embedding(nd.array([1, 4]), table.data(), 6, 2, sparse_grad=True), weight.data())
            y.backward()
            if k and interrupted:
                hooked = interrupting(getattr(owner, name))
                with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                    patch.setattr(owner, name, hooked)
                    trainer.step(1)
            else:
                trainer.step(1)
        (updater,) = trainer._updaters
        return [p.data().asnumpy().tolist() for p in (table, weight)], updater.get_states(dump_optimizer=True)

    assert trained(True) == trained(False)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_does_not_wait_for_a_step_that_is_gone():
    """An error of another signal's handler may come just when the context is left."""

    def broken():
        Uninterrupted().__enter__()

    old = signal.getsignal(signal.SIGINT)
    broken()
    assert signal.getsignal(signal.SIGINT) is not old
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is old


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_a_generator_that_has_ended():
    """The frame where the signal arrived does not tell any more who called it, when an inner context hands it on."""

    def numbers():
        signal.raise_signal(signal.SIGINT)
        yield 1

    done = []
    with pytest.raises(KeyboardInterrupt), Uninterrupted():
        with Uninterrupted():
            done += numbers()
        done.append(2)
    assert done == [1, 2]


def _nested():
    with mx.autograd.record():
        with mx.autograd.pause(train_mode=True):
            pass
        with mx.autograd.predict_mode():
            pass


class TimeIsUp(Exception):
    pass


def _time_is_up(*_args):
    raise TimeIsUp


@pytest.mark.parametrize(
    ("number", "handler", "error"),
    [
        (signal.SIGINT, signal.default_int_handler, KeyboardInterrupt),
        (signal.SIGUSR1, _time_is_up, TimeIsUp),
        (signal.SIGTERM, _time_is_up, TimeIsUp),
    ],
    ids=["SIGINT", "SIGUSR1", "SIGTERM"],
)
@pytest.mark.parametrize("natively", [False, True], ids=["guarded", "native"])
def test_errors_of_signal_handlers_restore_modes_wherever_they_come(number, handler, error, natively, monkeypatch):
    """At each call and line in turn: also at the first one of `__exit__`, where no `try` could restore anything."""
    leave_natively(native_exit)
    if not natively:
        for name in ("__enter__", "__exit__"):
            monkeypatch.setattr(Scope, name, getattr(Whole, name))
    before, old = sys.gettrace(), signal.signal(number, handler)

    def interrupted_at(n):
        """Whether there is an n-th place."""
        left = n

        def follow(frame, event, _):
            nonlocal left
            # Not between the lines of the program: there Python looks for signals after calls alone.
            if event in ("call", "line") and frame.f_code is not _nested.__code__:
                left -= 1
                if not left:
                    signal.raise_signal(number)
            return follow

        sys.settrace(follow)
        try:
            _nested()
        finally:
            sys.settrace(before)
        return left <= 0

    places = 0
    while True:
        places += 1
        try:
            if not interrupted_at(places):
                break
            pytest.fail("the signal was lost")
        except error:
            pass
        assert not mx.autograd.is_recording() and not mx.autograd.is_training() and not MODE[0]
        assert signal.getsignal(number) is handler
    signal.signal(number, old)
    assert places > (40 if natively else 100)


@pytest.mark.parametrize("natively", [False, True], ids=["guarded", "native"])
def test_scopes_restore_the_modes_of_before(natively, monkeypatch):
    """Each those that it has found, in whatever order they end, also one that is entered twice, or within a trace."""
    leave_natively(native_exit)
    if not natively:
        for name in ("__enter__", "__exit__"):
            monkeypatch.setattr(Scope, name, getattr(Whole, name))

    def now():
        return mx.autograd.is_recording(), mx.autograd.is_training(), int(MODE[0])

    scope = mx.autograd.record(train_mode=0)
    with scope:
        with mx.autograd.train_mode():
            with scope:
                assert now() == (True, False, 1)
            assert now() == (True, True, 2)
        assert now() == (True, False, 1)
    assert now() == (False, False, 0)
    with pytest.raises(KeyError), scope:
        raise KeyError
    with contextlib.ExitStack() as stack:
        stack.enter_context(scope)
        assert now() == (True, False, 1)
    assert now() == (False, False, 0)
    first, second = mx.autograd.record(), mx.autograd.pause(train_mode=True)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert now() == (False, False, 0)
    second.__exit__(None, None, None)
    assert now() == (True, True, 2)
    with mx.autograd.pause():
        assert now() == (False, False, 0)
    mx.autograd.set_recording(False)
    mx.autograd.set_training(False)
    assert now() == (False, False, 0)


def test_all_signals_that_waited_are_handled():
    """Also those behind one whose handler raises an error."""

    class Raising(Whole):
        def _set(self):
            self.coming = [signal.SIGUSR1, signal.SIGUSR2]

        def _restore(self):
            while self.coming:
                signal.raise_signal(self.coming.pop(0))

    handled = []
    old = [signal.signal(signal.SIGUSR1, _time_is_up)]
    old.append(signal.signal(signal.SIGUSR2, lambda number, _: handled.append(number)))
    try:
        with pytest.raises(TimeIsUp), Raising():
            pass
        signal.signal(signal.SIGUSR1, lambda number, _: handled.append(number))
        with Raising():
            pass
    finally:
        for number, handler in zip((signal.SIGUSR1, signal.SIGUSR2), old):
            signal.signal(number, handler)
    assert handled == [signal.SIGUSR2, signal.SIGUSR1, signal.SIGUSR2]


def test_errors_of_signal_handlers_leave_whole_steps():
    """Other signals do not wait, but a compiled step is one call: parameters of before or after it, on all contexts."""
    params = gluon.ParameterDict()
    own = [params.get(f"p{k}", shape=(50 * k + 1, 40), init="zeros") for k in range(8)]
    params.initialize(ctx=CONTEXTS)
    trainer = gluon.Trainer(params, "sgd", {"learning_rate": 1.0, "momentum": 0.5}, update_on_kvstore=False)

    def step():
        for p in own:
            fresh(p)
        trainer.update(1)

    def interrupt(number, frame):
        raise KeyboardInterrupt

    step()
    interrupted = 0
    # An error while they are changed or restored may leave others.
    errors, ctrl_c = np.geterr(), signal.getsignal(signal.SIGINT)
    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        for k in range(60):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-4 * (k + 1))
                while True:
                    step()
            except KeyboardInterrupt:
                interrupted += 1
            values = {float(v) for p in own for x in p.list_data() for v in np.unique(x.asnumpy())}
            assert len(values) == 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        signal.signal(signal.SIGINT, ctrl_c)
        np.seterr(**errors)
    assert interrupted == 60


# What it refuses, and other functions


@pytest.mark.parametrize("update_on_kvstore", [False, True])
def test_a_file_that_is_no_states_is_named(tmp_path, update_on_kvstore):
    net = dense()
    net.save_parameters(tmp_path / "net.params")
    store = mx.kv.create("local")
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore=store, update_on_kvstore=update_on_kvstore)
    with pytest.raises(mx.MXNetError, match=r"net\.params: not the states of an optimizer, but a file of parameters"):
        trainer.load_states(tmp_path / "net.params")


def test_what_a_trainer_refuses():
    params = dense().collect_params()
    with pytest.raises(ValueError, match="must be a list or dict of Parameters, got <class 'int'>"):
        gluon.Trainer(3, "sgd")
    with pytest.raises(ValueError, match="got list of <class 'int'>"):
        gluon.Trainer([3], "sgd")
    with pytest.raises(ValueError, match="Cannot find optimizer adm; did you mean 'adam'"):
        gluon.Trainer(params, "adm")
    with pytest.raises(ValueError, match=r"Pass net\.collect_params\(\)"):
        gluon.Trainer(dense(), "sgd")
    with pytest.raises(TypeError, match=r"^SGD\(\) got an unexpected .* 'momentun'; did you mean 'momentum'\?$"):
        gluon.Trainer(params, "sgd", {"momentun": 0.9})
    with pytest.raises(TypeError, match=r"'lr'; known: learning_rate, beta1, "):
        gluon.Trainer(params, "adam", {"lr": 0.1})
    with pytest.raises(AssertionError, match="optimizer_params must be None"):
        gluon.Trainer(params, mx.optimizer.SGD(), {"wd": 1})
    with pytest.raises(ZeroDivisionError, match="leave empty batches out"):
        gluon.Trainer(params, "sgd").step(0)
    for size in (None, "2"):
        with pytest.raises(TypeError, match="batch_size is a number"):
            gluon.Trainer(params, "sgd").step(size)
    with pytest.raises(RuntimeError, match="has not been initialized"):
        gluon.Trainer(gluon.nn.Dense(3, in_units=2).collect_params(), "sgd")


@pytest.mark.parametrize("size", [4, 4.0, np.int64(4), nd.array([4]), mx.np.array(4)], ids=lambda s: type(s).__name__)
def test_batch_sizes_may_be_arrays(size):
    trainer = gluon.Trainer(dense().collect_params(), "sgd")
    trainer.step(size, ignore_stale_grad=True)
    assert trainer.optimizer.rescale_grad.__class__ is float and trainer.optimizer.rescale_grad == 0.25


def test_uneven_splits():
    with pytest.raises(ValueError, match="num_slice is a number of parts"):
        utils.split_data(nd.ones((3, 2)), 0)
    with pytest.raises(ValueError, match="cannot be evenly split into 2 slices along axis 0"):
        utils.split_data(nd.ones((3, 2)), 2)
    with pytest.raises(ValueError, match="cannot be split into 4"):
        utils.split_data(nd.ones((3, 2)), 4, even_split=False)


def test_norms_that_are_not_finite():
    x = nd.array([np.inf, 1])
    with pytest.warns(UserWarning, match="nan or inf is detected"):
        assert utils.clip_global_norm([x], 1.0) == np.inf
    assert utils.clip_global_norm([nd.array([3, 4])], 1.0, check_isfinite=False).asnumpy().tolist() == [5.0]


def test_a_norm_takes_no_array_of_float64():
    x = nd.ones((1000, 300)) * 1e20  # whose squares float32 does not have
    tracemalloc.start()
    try:
        norm = utils.clip_global_norm([x, x.T], np.inf)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert norm == pytest.approx(1e20 * 6e5**0.5, rel=1e-7)
    assert most < x.size * 8


def test_clipping_takes_no_array_of_results():
    x = nd.ones((1000, 300))
    want = x * (0.5 / (utils.clip_global_norm([x], np.inf) + 1e-8))
    tracemalloc.start()
    try:
        utils.clip_global_norm([x], 0.5)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < x.size
    np.testing.assert_array_equal(x.asnumpy(), want.asnumpy())


def test_clipping_what_may_not_be_written():
    x = nd.ones((2,))
    x.writable = False
    with pytest.raises(ValueError, match="readonly"):
        utils.clip_global_norm([x], 0.5)


@pytest.mark.parametrize("scale", [1, 1e-25])  # float32 has no square of the latter
def test_a_norm_is_that_of_float64(scale):
    x = np.random.default_rng(0).standard_normal((70, 33)).astype(np.float32) * np.float32(scale)
    want = np.linalg.norm(x.astype(np.float64).ravel())
    assert utils.clip_global_norm([nd.array(x), nd.zeros((2,))], np.inf) == pytest.approx(want, rel=1e-7)


def test_nothing_is_downloaded(tmp_path):
    url = "https://example.org/files/weights.params"
    with pytest.raises(MXNetError, match=f"downloads nothing; fetch {url} and save it as .*weights.params"):
        utils.download(url, tmp_path)
    file = tmp_path / "weights.params"
    file.write_bytes(b"contents")
    sha1 = hashlib.sha1(b"contents").hexdigest()
    assert utils.download(url, tmp_path, sha1_hash=sha1) == utils.download(url, str(file)) == str(file)
    assert utils.check_sha1(file, sha1) and not utils.check_sha1(file, sha1[:8])
    with pytest.raises(MXNetError, match="is not the expected one"):
        utils.download(url, tmp_path, sha1_hash="0" * 40)
    utils.replace_file(file, tmp_path / "moved")
    assert (tmp_path / "moved").read_bytes() == b"contents" and not file.exists()
    assert utils._get_repo_file_url("a", "b.zip").endswith("/a/b.zip")
