"""Steps of training that run as one native call: the same results as steps call by call, whatever a program does in
between.

Two networks with the same parameters take the same steps, with the same things done in between; one of their trainers
has no step observed, so that none is replayed."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gluonjit as mx
from gluonjit import autograd, gluon
from gluonjit.base import MXNetError
from gluonjit.gluon import nn
from gluonjit.ndarray import NDArray, deferred
from gluonjit.runtime import executable
from support.soak import tries

SEEN = 4
"""Steps after which they are replayed."""


class Twin:
    """A network with its trainer. `outcomes` is all that its program has looked at."""

    def __init__(self, replays: bool, optimizer: str = "sgd", hybridized: bool = True, **settings: Any) -> None:
        mx.random.seed(3)
        self.net = nn.HybridSequential(prefix="net_")
        with self.net.name_scope():
            self.net.add(nn.Dense(8, in_units=6), nn.BatchNorm(), nn.Activation("relu"), nn.Dropout(0.25))
            self.net.add(nn.Dense(4))
        self.net.initialize(mx.init.Xavier())
        self.net(mx.nd.zeros((5, 6)))  # completes shapes
        self.reader = nn.Dense(4, in_units=8, params=self.net[4].params, prefix="reader_")
        """A block that reads parameters of the network, too."""
        self.loss = gluon.loss.L2Loss(prefix="loss_")
        if hybridized:
            self.net.hybridize()
            self.loss.hybridize()
            self.reader.hybridize()
        self.trainer = gluon.Trainer(self.net.collect_params(), optimizer, {"learning_rate": 0.125, **settings})
        if not replays:
            self.trainer._steps_left = 0
        self.params = [*self.net.collect_params().values()]
        self.batches = [self.batch(5, seed) for seed in range(3)]
        self.outcomes: list[Any] = []
        self.views: list[NDArray] = []

    @staticmethod
    def batch(rows: int, seed: int = 0) -> tuple[NDArray, NDArray]:
        rng = np.random.default_rng(seed)
        return mx.nd.array(rng.normal(size=(rows, 6))), mx.nd.array(rng.normal(size=(rows, 4)))

    @property
    def trained(self) -> list[gluon.Parameter]:
        return [p for p in self.params if p.grad_req != "null"]

    def look(self, *arrays: NDArray) -> None:
        self.outcomes += [x.asnumpy() for x in arrays]

    def look_at_all(self) -> None:
        self.look(*(p.data() for p in self.params), *(p.grad() for p in self.trained))


def step(twin: Twin, x: NDArray, y: NDArray, act: Callable[..., None] = lambda *_: None) -> NDArray:
    """A step of training; `act(point, twin, x, y, out, loss)` is called between its calls."""
    with autograd.record():
        out = twin.net(x)
        act(0, twin, x, y, out, None)
        loss = twin.loss(out, y)
        act(1, twin, x, y, out, loss)
    act(2, twin, x, y, out, loss)
    loss.backward()
    act(3, twin, x, y, out, loss)
    twin.trainer.step(x.shape[0])
    act(4, twin, x, y, out, loss)
    return loss


def ready(**settings: Any) -> Twin:
    """A twin whose next step is replayed."""
    twin = Twin(True, **settings)
    for k in range(SEEN):
        mx.random.seed(k)
        step(twin, *twin.batches[0])
    assert twin.trainer._replay is not None
    return twin


def assert_same(a: Any, b: Any) -> None:
    assert len(a) == len(b)
    for x, y in zip(a, b):
        if isinstance(x, np.ndarray):
            assert np.array_equal(x, y, equal_nan=True)
        else:
            assert x == y


def launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The native calls from now on, of graphs and of chains, appended as they come."""
    from gluonjit.runtime import threads

    found: list[int] = []
    run = threads.run
    monkeypatch.setattr(threads, "run", lambda function, *rest: (found.append(function), run(function, *rest)))
    return found


def test_a_step_is_one_native_call(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = ready()
    calls = launches(monkeypatch)
    loss = step(twin, *twin.batches[1])
    assert len(calls) == 1
    mx.nd.waitall()
    assert deferred.now.held is not None, "programs wait at each step"
    before = twin.net.explain().parts_of_steps
    assert before and f"{before} as parts of whole steps" in str(twin.net.explain())
    assert type(loss) is NDArray and np.isfinite(loss.asnumpy()).all()
    assert type(twin.params[0].data()) is NDArray and type(twin.params[0].grad()) is NDArray
    step(twin, *twin.batches[1], lambda point, *_: twin.look(twin.params[0].grad()) if point == 3 else None)
    assert len(calls) == 3  # the gradients, which were asked for, and then the update
    step(twin, *twin.batches[2])
    assert len(calls) == 4


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "nag", "rmsprop"])
def test_replayed_steps_have_the_same_bits(optimizer: str) -> None:
    twins = [Twin(replays, optimizer, wd=0.01) for replays in (True, False)]
    for k in range(12):
        for twin in twins:
            mx.random.seed(k)
            if k == 8:
                twin.trainer.set_learning_rate(0.03)
            twin.look(step(twin, *twin.batches[k % 3]))
            twin.look_at_all()
    assert twins[0].trainer._replay is not None and twins[1].trainer._replay is None
    assert_same(*(twin.outcomes for twin in twins))


def _write_to_view(t: Twin, *_: Any) -> None:
    for view in t.views:
        view[:] = 0.5


def _read_on_another_thread(t: Twin, *_: Any) -> None:
    thread = threading.Thread(target=t.look_at_all)
    thread.start()
    thread.join()


def _swap_grad_req(t: Twin, *_: Any) -> None:
    t.params[0].grad_req = "add" if t.params[0].grad_req == "write" else "write"


ACTIONS: dict[str, Callable[..., Any]] = {
    "nothing": lambda *_: None,
    "read out": lambda t, x, y, out, loss: t.look(out),
    "read loss": lambda t, x, y, out, loss: loss is not None and t.look(loss),
    "read all": lambda t, *_: t.look_at_all(),
    "read on another thread": _read_on_another_thread,
    "shapes": lambda t, x, y, out, loss: t.outcomes.append(
        (x.shape, out.shape, out.dtype, x.context, len(x), out.size)
    ),
    "write to a parameter": lambda t, *_: t.params[0].data().__setitem__(slice(None), 0.25),
    "set a parameter": lambda t, *_: t.params[1].set_data(mx.nd.ones(8) * 0.1),
    "write to x": lambda t, x, *_: x.__setitem__(slice(None), x * 0.5),
    "write to y": lambda t, x, y, *_: y.__setitem__(slice(None), 1),
    "write to a gradient": lambda t, *_: t.params[0].grad().__setitem__(slice(None), 0.5),
    "view of a parameter": lambda t, *_: t.views.append(t.params[0].data()[1:3]),
    "view of x": lambda t, x, *_: t.views.append(x[0:2]),
    "write to views": _write_to_view,
    "waitall": lambda *_: mx.nd.waitall(),
    "zero the gradients": lambda t, *_: t.net.collect_params().zero_grad(),
    "predict": lambda t, x, *_: t.look(t.net(t.batches[2][0])),
    "predict in a pause": lambda t, x, *_: _paused(t),
    "learning rate": lambda t, *_: t.trainer.set_learning_rate(0.0625),
    "momentum": lambda t, *_: setattr(t.trainer._optimizer, "momentum", 0.5),
    "multiplier": lambda t, *_: setattr(t.params[0], "lr_mult", 0.5),
    "deep copy": lambda t, x, y, out, loss: t.look(copy.deepcopy(out), copy.copy(t.params[0].data())),
    "pickle": lambda t, x, y, out, loss: t.look(pickle.loads(pickle.dumps(out))),
    "detach": lambda t, x, y, out, loss: t.look(out.detach() * 2),
    "arithmetic": lambda t, x, y, out, loss: t.look((out * 2).sum()),
    "arithmetic behind another": lambda t, x, y, out, loss: t.look(y - out, t.params[1].data() * t.params[1].data()),
    "another loss": lambda t, x, y, out, loss: t.look(gluon.loss.L1Loss()(out, y)),
    "op hook": lambda t, *_: t.loss.register_op_hook(lambda name, op, z: t.outcomes.append(name)),
    "factor of the loss": lambda t, *_: setattr(t.loss, "_weight", 3.0 - t.loss._weight),
    "hybridized anew": lambda t, x, *_: (t.net.hybridize(), t.look(t.net(x))),
    "attach_grad": lambda t, x, *_: x.attach_grad(),
    "another backward": lambda t, x, y, out, loss: loss is not None and loss.backward(retain_graph=True),
    "grad_req": _swap_grad_req,
    "states": lambda t, *_: t.trainer._updaters[0].set_states(t.trainer._updaters[0].get_states()),
    "read a state": lambda t, *_: t.look(*_states(t)),
    "write to a state": lambda t, *_: [x.__setitem__(slice(None), 0.125) for x in _states(t)],
    "view of a state": lambda t, *_: t.views.extend(x[:1] for x in _states(t)),
    "save and load states": lambda t, *_: _reloaded(t),
    "another network on its parameters": lambda t, x, *_: t.look(t.reader(x[:, :1] * mx.nd.ones((1, 8)))),
    "hook": lambda t, *_: t.net.register_forward_hook(lambda block, inputs, out: t.look(out)).detach(),
    "stop": lambda *_: (_ for _ in ()).throw(InterruptedError),
}


def _states(t: Twin) -> list[NDArray]:
    return [x for x in t.trainer._updaters[0].states.values() if isinstance(x, NDArray)][:2]


def _reloaded(t: Twin) -> None:
    with tempfile.NamedTemporaryFile() as file:
        t.trainer.save_states(file.name)
        t.trainer.load_states(file.name)


def _paused(t: Twin) -> None:
    with autograd.pause():
        t.look(t.net(t.batches[2][0]))


def program(twin: Twin, seed: int, steps: int) -> None:
    """Steps with random actions in between, in a third of the steps."""
    rng = random.Random(seed)
    for k in range(steps):
        mx.random.seed(k)
        x, y = Twin.batch(7, k) if rng.random() < 0.1 else twin.batches[rng.randrange(3)]
        chosen = {
            rng.randrange(5): rng.choice([*ACTIONS]) for _ in range(rng.randrange(3) if rng.random() < 0.4 else 0)
        }

        def act(point: int, twin: Twin, *arrays: Any, chosen: dict[int, str] = chosen) -> None:
            if point in chosen:
                ACTIONS[chosen[point]](twin, *arrays)

        try:
            loss = step(twin, x, y, act)
            if rng.random() < 0.5:
                twin.look(loss)
        except (MXNetError, InterruptedError, UserWarning) as e:
            twin.outcomes.append((type(e).__name__, str(e).partition("\n")[0]))
        if rng.random() < 0.2:
            twin.look_at_all()
    twin.look_at_all()


@pytest.mark.parametrize("seed", range(tries(3)))
def test_random_programs(seed: int) -> None:
    twins = [Twin(replays, momentum=0.5 * (seed % 2)) for replays in (True, False)]
    for twin in twins:
        program(twin, seed, 40)
    assert_same(*(twin.outcomes for twin in twins))


@pytest.mark.parametrize("point", range(5))
def test_every_action(point: int, twins: tuple[Twin, Twin]) -> None:
    """At one point of a step that is replayed up to there; another step follows."""
    for action in ACTIONS.values():
        if twins[0].trainer._replay is None:
            twins[0].trainer._steps_left = 1
        for twin in twins:
            twin.outcomes.clear()
            twin.views.clear()
            for at in (None, None, point, None):
                mx.random.seed(point)
                try:
                    step(twin, *twin.batches[0], lambda here, *rest, at=at, act=action: here == at and act(*rest))
                except (MXNetError, InterruptedError, UserWarning) as e:
                    twin.outcomes.append((type(e).__name__, str(e).partition("\n")[0]))
            twin.look_at_all()
        assert_same(*(twin.outcomes for twin in twins))


@pytest.fixture
def twins() -> tuple[Twin, Twin]:
    found = Twin(True), Twin(False)
    for k in range(SEEN + 1):
        for twin in found:
            mx.random.seed(k)
            step(twin, *twin.batches[0])
    assert found[0].trainer._replay is not None
    return found


def test_calls_are_noted_natively() -> None:
    """If the arguments are arrays of their own and results of this step, and with no reference more or less."""
    twin = ready()
    links = twin.trainer._replay._links
    natively: list[list[bool]] = [[], []]
    for link, calls in zip(links, natively):

        def noted(*args: Any, note: Any = link.note, calls: Any = calls) -> Any:
            result = note(*args)
            calls.append(result is not None)
            return result

        link.note = noted
    x, y = twin.batches[0]

    def references() -> list[int]:
        gc.collect()
        kinds = NDArray, deferred.deferred_class(NDArray), x._array.dtype, None
        return [sys.getrefcount(a) for a in (x, y, x._array, *kinds)]

    step(twin, x, y)
    before = references()
    for _ in range(100):
        step(twin, x, y)
    assert all(abs(a - b) < 50 for a, b in zip(before, references()))
    assert [*map(all, natively)] == [True, True]
    step(twin, x[0:5], y)  # a view, and then the result of a call that was noted in Python
    assert [calls[-1] for calls in natively] == [False, True]
    step(twin, *twin.batch(3))
    x.attach_grad()
    step(twin, x, y)
    assert natively[0][-3:] == [False] * 3
    assert links[0].note(x) is links[0].note() is links[0].note(x, y) is links[0].note(3) is None


def test_the_result_of_an_earlier_step_is_another_array(twins: tuple[Twin, Twin]) -> None:
    for twin in twins:
        x, y = twin.batches[0]
        out = None
        for k in range(3):
            mx.random.seed(k)
            with autograd.record():
                now = twin.net(x if k != 1 else x[0:5])
                loss = twin.loss(now if out is None or k == 2 else out, y)
            if k != 1:
                loss.backward()
                twin.trainer.step(5)
            twin.look(loss, now)
            out = now
    assert_same(*(twin.outcomes for twin in twins))


def test_writes_are_noted_though_nobody_looks(twins: tuple[Twin, Twin]) -> None:
    """Those of the first of several steps in a row: who could see a difference would have to look in between."""
    for twin in twins:
        x, y = twin.batches[0]
        for count in (1, 3):
            with autograd.record():
                squares = twin.params[0].data() ** 2
            for k in range(count):
                mx.random.seed(k)
                step(twin, x, y)
            with pytest.raises(MXNetError, match="was written to"):
                squares.backward()
            for k in range(count):
                mx.random.seed(k)
                step(twin, x, y)
            with pytest.raises(UserWarning, match="stale"):
                twin.trainer.step(5)
            twin.look_at_all()
    assert_same(*(twin.outcomes for twin in twins))


def test_arrays_that_are_passed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """To one call, and to two of them: the second finds it deferred."""

    class Sum(gluon.HybridBlock):
        def hybrid_forward(self, F: Any, a: Any, b: Any, c: Any) -> Any:
            return (a * b - c) ** 2

    outcomes = []
    for replays in (True, False):
        mx.random.seed(1)
        net, loss = nn.Dense(4, in_units=4), Sum()
        net.initialize()
        net.hybridize()
        loss.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        trainer._steps_left = trainer._steps_left if replays else 0
        x, y = (mx.nd.array(np.random.default_rng(k).normal(size=(3, 4))) for k in range(2))
        found = []
        for k in range(SEEN + 3):
            with autograd.record():
                out = loss(net(x), y, y if k % 2 else x)
            out.backward()
            trainer.step(3)
            found += [type(x), type(y), out.asnumpy(), x.asnumpy()]
        assert (trainer._replay is not None and trainer._replay.count > 0) == replays
        outcomes.append([*found, net.weight.data().asnumpy()])
    assert_same(*outcomes)


def test_gradients_that_are_clipped_cost_a_second_call(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = ready()

    def clip(point: int, t: Twin, *_: Any) -> None:
        if point == 3:
            t.look(t.params[0].grad())

    for _ in range(12):
        step(twin, *twin.batches[0], clip)
    calls = launches(monkeypatch)
    step(twin, *twin.batches[0], clip)
    assert len(calls) == 2


def test_programs_that_look_too_early_are_replayed_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = ready()
    for _ in range(3):
        step(twin, *twin.batches[0], lambda point, t, x, y, out, loss: t.look(out) if point == 0 else None)
    assert twin.trainer._replay is None
    step(twin, *twin.batches[0])


def said_of_steps(block: gluon.Block) -> str:
    """What `explain()` says of the steps of the only trainer."""
    (line,) = [line for line in str(block.explain()).splitlines() if line.startswith("  steps of training: ")]
    return line.removeprefix("  steps of training: ")


def test_explain_says_whether_steps_are_replayed() -> None:
    twin = Twin(True)
    assert not twin.net.explain().steps
    step(twin, *twin.batches[0])
    assert said_of_steps(twin.net) == "not replayed: none has been observed yet, the fourth one will be"
    for _ in range(SEEN + 1):
        step(twin, *twin.batches[0])
    assert twin.net.explain().steps == [(True, 2, "")] and said_of_steps(twin.net) == "2 replayed"
    assert not twin.loss.explain().steps, "it has no parameters of the trainer"
    step(twin, *Twin.batch(7))
    assert said_of_steps(twin.net).startswith("2 replayed; not the last ones: net is passed an array of another shape")
    step(twin, *twin.batches[0], lambda point, t, x, *_: t.outcomes.append(len(x)))
    assert said_of_steps(twin.net) == "3 replayed"
    for _ in range(3):
        step(twin, *twin.batches[0], lambda point, t, x, y, out, loss: t.look(out) if point == 0 else None)
    said = said_of_steps(twin.net)
    assert said.startswith("no longer replayed, 3 were: in 3 steps in turn, the last time at") and __file__ in said
    assert "an array of the step is looked at before `backward`" in said
    (steps,) = twin.net.explain().steps
    assert not steps.are_replayed and steps.replayed == 3


@pytest.mark.parametrize(
    "change, steps, why",
    [
        (lambda t: t.net.hybridize(), 8, "in 8 steps in turn, its blocks are not called as in the step observed"),
        (lambda t: setattr(t.params[0], "grad_req", "add"), 1, "a parameter has got another array, gradient or"),
    ],
)
def test_explain_says_what_has_ended_a_replay(change: Callable[[Twin], Any], steps: int, why: str) -> None:
    twin = ready()
    change(twin)
    for _ in range(steps):
        step(twin, *twin.batches[0])
    assert twin.net.explain().steps[0].why_not.startswith(why)


def _with_operators(t: Twin, x: NDArray, y: NDArray) -> None:
    with autograd.record():
        loss = (t.net(x) - y).mean()
    loss.backward()
    t.trainer.step(1)


def _in_halves(t: Twin, x: NDArray, y: NDArray) -> None:
    with autograd.record():
        loss = t.loss(t.net(x), y)
    loss.backward()
    t.trainer.allreduce_grads()
    t.trainer.update(1)


def _with_options(t: Twin, x: NDArray, y: NDArray) -> None:
    with autograd.record():
        loss = t.loss(t.net(x), y)
    loss.backward(retain_graph=True)
    t.trainer.step(1)


def _with_two_updates(t: Twin, x: NDArray, y: NDArray) -> None:
    step(t, x, y)
    t.trainer.step(1, ignore_stale_grad=True)


def _of_plain_blocks(t: Twin, x: NDArray, y: NDArray) -> None:
    t.net.hybridize(False)
    t.loss.hybridize(False)
    step(t, x, y)


def _added_up(t: Twin, x: NDArray, y: NDArray) -> None:
    t.params[0].grad_req = "add"
    step(t, x, y)


def _with_plain_network(t: Twin, x: NDArray, y: NDArray) -> None:
    t.net.hybridize(False)
    step(t, x, y)


@pytest.mark.parametrize(
    "taken, why",
    [
        (_with_operators, "`backward` does not begin at the result of net, its last hybridized block: hybridize the"),
        (_in_halves, "`allreduce_grads` and `update` are called apart: call `step` instead"),
        (_with_options, "`backward` is called with more than one array or with options"),
        (_with_two_updates, "no `backward` comes between it and the step before"),
        (_of_plain_blocks, "no hybridized block is called in it: hybridize the network and the loss"),
        (_with_plain_network, "operators outside of hybridized blocks take part in the gradient"),
        (_added_up, 'a gradient has grad_req="add"'),
    ],
)
def test_explain_says_why_steps_are_not_replayed(taken: Callable[..., None], why: str) -> None:
    twin = Twin(True)
    for _ in range(SEEN):
        taken(twin, *twin.batches[0])
    assert said_of_steps(twin.net).startswith(f"not replayed: {why}")


def test_explain_says_that_a_chain_would_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gluonjit.execution.step_chain.MOST_BYTES", 64)
    twin = Twin(True)
    for _ in range(SEEN):
        step(twin, *twin.batches[0])
    assert "would be kept from step to step, and 64 B at most are" in said_of_steps(twin.net)


def test_blocks_that_are_hybridized_anew_are_observed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = ready()
    first = twin.trainer._replay
    twin.net.hybridize()
    for _ in range(20):
        step(twin, *twin.batches[0])
    assert twin.trainer._replay not in (None, first)
    calls = launches(monkeypatch)
    step(twin, *twin.batches[0])
    assert len(calls) == 1


def test_the_loss_may_be_a_part_of_the_block() -> None:
    class WithLoss(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.loss = nn.Dense(3, in_units=6), gluon.loss.L2Loss()

        def hybrid_forward(self, F: Any, x: Any, y: Any) -> Any:
            return self.loss(self.net(x), y)

    block = WithLoss()
    block.initialize()
    block.hybridize()
    trainer = gluon.Trainer(block.collect_params(), "sgd", {"learning_rate": 0.5})
    x, y = mx.nd.ones((4, 6)), mx.nd.ones((4, 3))
    losses = []
    for _ in range(8):
        with autograd.record():
            loss = block(x, y)
        loss.backward()
        trainer.step(4)
        losses.append(float(loss.mean().asscalar()))
    assert trainer._replay is not None
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0] / 8


def test_two_trainers_in_turn() -> None:
    """Each has the steps of its own network replayed."""
    first, second = Twin(True), Twin(True)
    other = Twin(False)
    for k in range(SEEN + 4):
        for twin in (first, second, other):
            mx.random.seed(k)
            step(twin, *twin.batches[k % 3])
    assert first.trainer._replay is not None and second.trainer._replay is not None
    for twin in (first, second, other):
        twin.look_at_all()
    assert_same(first.outcomes, other.outcomes)
    assert_same(second.outcomes, other.outcomes)


def test_two_networks_share_their_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Twin(True), Twin(True)
    second.loss = first.loss
    for _ in range(SEEN + 1):
        for twin in (first, second):
            step(twin, *twin.batches[0])
    calls = launches(monkeypatch)
    for twin in (first, second):
        step(twin, *twin.batches[0])
    assert len(calls) == 2


@pytest.mark.parametrize("change", ["factor", "request", "values", "input"])
def test_a_change_at_the_end_of_the_observed_step(change: str) -> None:
    """What the calls of that step did is not what those of the next one do."""
    twins = [Twin(replays) for replays in (True, False)]
    for twin in twins:
        for k in range(SEEN + 4):
            mx.random.seed(k)
            x, y = twin.batch(5, k)
            if k == SEEN - 1 and change == "input":
                x.attach_grad()
                twin.views.append(x)

            def act(point: int, twin: Twin, *_: Any, last: bool = k == SEEN - 1) -> None:
                if last and point == 3 and change == "factor":
                    twin.loss._weight = 2.0
                elif last and point == 3 and change == "request":
                    twin.net[0].collect_params().setattr("grad_req", "add")
                elif last and point == 3 and change == "values":
                    twin.net[0].initialize(mx.init.One(), force_reinit=True)

            try:
                twin.look(step(twin, x, y, act))
            except UserWarning as e:
                twin.outcomes.append(str(e))
        twin.look_at_all()
        twin.look(*(x.grad for x in twin.views))
    assert_same(*(twin.outcomes for twin in twins))


def test_a_parameter_outside_of_the_chain_is_stale() -> None:
    twin = ready()
    other = nn.Dense(3, in_units=2)
    other.initialize()
    other.collect_params().setattr("grad_req", "null")
    params = gluon.ParameterDict()
    params.update(twin.net.collect_params())
    params.update(other.collect_params())
    twin.trainer = gluon.Trainer(params, "sgd")
    for _ in range(SEEN + 1):
        step(twin, *twin.batches[0])
    assert twin.trainer._replay is not None
    other.collect_params().setattr("grad_req", "write")
    with pytest.raises(UserWarning, match="has not been updated by backward"):
        step(twin, *twin.batches[0])


def test_other_threads_wait_for_the_step() -> None:
    """One reads a gradient, or fills the batch anew, as soon as `backward` has returned."""
    net, loss_of = nn.Dense(256, in_units=256), gluon.loss.L2Loss()
    net.initialize()
    net.hybridize()
    loss_of.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.0})
    values = [np.full((128, 256), k, np.float32) for k in (1, 2)]
    x, y = mx.nd.array(values[0]), mx.nd.zeros((128, 256))
    found: list[np.ndarray] = []

    def read_and_fill() -> None:
        found.append(net.weight.grad().asnumpy())
        x[:] = 9

    for k in range(SEEN + 30):
        x[:] = values[k % 2]
        with autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        thread = threading.Thread(target=read_and_fill)
        thread.start()
        trainer.step(128)
        thread.join()
        assert np.array_equal(found[-1], found[k % 2])
    assert trainer._replay is not None


def test_numpy_arrays() -> None:
    twins = [Twin(replays) for replays in (True, False)]
    for k in range(SEEN + 3):
        for twin in twins:
            mx.random.seed(k)
            x, y = (z.as_np_ndarray() for z in twin.batches[k % 3])
            loss = step(twin, x, y)
            assert isinstance(loss, mx.np.ndarray)
            twin.look(loss)
    assert_same(*(twin.outcomes for twin in twins))


def test_memory_that_others_share_is_copied() -> None:
    """A view, or NumPy's array, may be written to before the step runs."""
    twins = [Twin(replays) for replays in (True, False)]
    for twin in twins:
        memory = np.ones((5, 6), np.float32)
        for k in range(SEEN + 3):
            mx.random.seed(k)
            source = mx.nd.array(memory)
            view = source.reshape((5, 6))
            with autograd.record():
                loss = twin.loss(twin.net(view), twin.batches[0][1])
            loss.backward()
            source[:] = 7
            twin.trainer.step(5)
            twin.look(loss)
        twin.look_at_all()
    assert twins[0].trainer._replay is not None
    assert_same(*(twin.outcomes for twin in twins))


def test_the_naive_engine_defers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXNET_ENGINE_TYPE", "NaiveEngine")
    twin = Twin(True)
    for _ in range(SEEN + 2):
        step(twin, *twin.batches[0])
    assert twin.trainer._replay is None


def test_a_failing_update_leaves_gradients(twins: tuple[Twin, Twin]) -> None:
    for twin in twins:
        mx.random.seed(1)
        rule = twin.trainer._optimizer

        def fails(*_: Any) -> Any:
            raise ZeroDivisionError("no rate")

        rule.lr_scheduler = fails
        with pytest.raises(ZeroDivisionError, match="no rate"):
            step(twin, *twin.batches[1])
        rule.lr_scheduler = None
        twin.look_at_all()
        twin.trainer.step(5)
        twin.look_at_all()
    assert_same(*(twin.outcomes for twin in twins))


def test_profiles_see_each_function() -> None:
    twin = ready()
    with mx.profiler.record() as profile:
        for _ in range(3):
            step(twin, *twin.batches[0])
    assert twin.trainer._replay is not None and executable.watcher is None
    assert all(f"{program} (" in str(profile) for program in ("net_forward", "loss_backward", "net_backward", "step"))


@pytest.mark.parametrize("optimizer, settings", [("sgld", {}), ("lbsgd", {"momentum": 0.5, "batch_scale": 2})])
def test_updates_of_other_arrays_at_each_step(optimizer: str, settings: dict[str, Any]) -> None:
    """Noise, or the sum of several batches' gradients."""
    twins = [Twin(replays, optimizer, **settings) for replays in (True, False)]
    for k in range(SEEN + 6):
        for twin in twins:
            mx.random.seed(k)
            step(twin, *twin.batches[k % 3])
            twin.look_at_all()
    assert_same(*(twin.outcomes for twin in twins))


def test_the_end_of_a_replay_leaves_the_arrays_of_another_alone(twins: tuple[Twin, Twin]) -> None:
    """Another network has the same layers, and another trainer, which lasts longer."""
    for twin in twins:
        layers = nn.HybridSequential()
        layers.add(*twin.net)
        twin.net = layers
        twin.net.hybridize()
        old, twin.trainer = twin.trainer, gluon.Trainer(twin.net.collect_params(), "sgd", {"learning_rate": 0.1})
        if twin is twins[1]:
            twin.trainer._steps_left = 0
        for k in range(SEEN + 2):
            mx.random.seed(k)
            step(twin, *twin.batches[k % 3])
        del old
        for _ in range(2):
            step(twin, *twin.batches[0], lambda at, t, *_: t.look(t.trained[0].grad()) if at == 3 else None)
    assert twins[0].trainer._replay is not None
    assert_same(*(twin.outcomes for twin in twins))


@pytest.mark.parametrize("place", ["defer", "note_writes", "release"])
def test_an_alarm_in_the_middle(place: str, twins: tuple[Twin, Twin], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handler raises while a step begins, or while one is computed for somebody who reads its loss."""
    own = getattr(deferred.Held, place)

    def interrupted(*args: Any) -> Any:
        monkeypatch.setattr(deferred.Held, place, own)
        if place == "release":
            own(*args)
        raise InterruptedError

    def look(at: int, t: Twin, *rest: Any) -> None:
        if at == 3:
            t.look(t.trained[0].grad(), rest[-1])

    twins[0].look_at_all()
    twins[0].outcomes.clear()
    for twin in twins:
        if twin is twins[0]:
            monkeypatch.setattr(deferred.Held, place, interrupted)
        for _ in range(2):
            mx.random.seed(1)
            try:
                step(twin, *twin.batches[0], look)
            except InterruptedError:
                if place == "defer":
                    mx.random.seed(1)
                    step(twin, *twin.batches[0], look)
                else:  # after `backward`
                    twin.look(twin.trained[0].grad())
                    twin.trainer.step(5)
        twin.look_at_all()
    assert getattr(deferred.Held, place) is own
    seen, wanted = (twin.outcomes for twin in twins)
    assert_same(seen, wanted) if place == "defer" else assert_same(seen[1:], wanted[2:])


def test_blocks_that_have_captured_a_gradient() -> None:
    class Shifted(gluon.HybridBlock):
        def hybrid_forward(self, F: Any, x: Any) -> Any:
            return x + gradient

    twin, block = Twin(True), Shifted()
    twin.net = nn.Dense(4, in_units=6)
    twin.net.initialize()
    for each in (twin.net, block):
        each.hybridize()
    twin.params = [*twin.net.collect_params().values()]
    twin.trainer = gluon.Trainer(twin.params, "sgd")
    gradient = twin.params[0].grad()
    zeros = mx.nd.zeros(gradient.shape)
    for k in range(SEEN + 4):
        block(zeros)
        step(twin, *twin.batches[k % 3], lambda at, t, *_: at == 3 and t.look(block(zeros), gradient))
    assert_same(twin.outcomes[0::2], twin.outcomes[1::2])


def test_copies_of_trainers(twins: tuple[Twin, Twin]) -> None:
    assert twins[0].trainer._replay is not None
    for twin in twins:
        copies = copy.deepcopy((twin.net, twin.trainer)), pickle.loads(pickle.dumps((twin.net, twin.trainer)))
        for twin.net, twin.trainer in copies:
            twin.params = [*twin.net.collect_params().values()]
            twin.net.hybridize()
            mx.random.seed(1)
            step(twin, *twin.batches[0])
            twin.look_at_all()
    assert_same(*(twin.outcomes for twin in twins))


def test_blocks_that_are_compiled_no_more() -> None:
    twin, calls = ready(), []
    own = type(twin.loss).hybrid_forward
    twin.loss.__class__ = type(
        "Told", (type(twin.loss),), {"hybrid_forward": lambda *a, **k: calls.append(0) or own(*a, **k)}
    )
    twin.net.hybridize(False, clear=False)
    twin.loss.hybridize(False, clear=False)
    for _ in range(3):
        step(twin, *twin.batches[0])
    assert len(calls) == 3


def test_the_update_of_a_chain_keeps_no_arena_in_the_table_of_others() -> None:
    twin = Twin(True, "lamb")
    for k in range(SEEN + 2):
        step(twin, *twin.batches[0], lambda at, t, *rest, k=k: k > SEEN and at == 3 and t.look(rest[-1]))
    replay = twin.trainer._replay
    chain = replay._chain.chain
    step(twin, *twin.batches[0])
    function = replay._update.function
    slot = function.layout.arena_slot
    assert {int(call.table[call.function.layout.arena_slot]) for call in chain._calls} == {chain._arena().ctypes.data}
    arena = function.arenas.take(function.working_memory)
    replay._update.table[slot] = 0
    step(twin, *twin.batches[0])
    function.arenas.put(arena)
    assert replay._update.table[slot] == 0, "whoever calls the update alone has a table of their own"


def test_nothing_is_kept_alive() -> None:
    twin = ready()
    x, y = twin.batch(5)
    out = weakref.ref(step(twin, x, y))
    batch = weakref.ref(x)
    del x, y
    assert out() is None and batch() is None
    replay = weakref.ref(twin.trainer._replay)
    del twin.trainer
    gc.collect()
    assert replay() is None and deferred.now.step is None
    step_without_trainer(twin)


def test_an_observation_that_no_step_ends_keeps_nothing() -> None:
    twin = Twin(True)
    for _ in range(SEEN - 1):
        step(twin, *twin.batches[0])
    kept = []
    for _ in range(40):
        with autograd.record():
            kept.append(weakref.ref(twin.net(twin.batches[0][0])))
    assert deferred.observed.by is not None
    assert not any(ref() for ref in kept[:-1])


def step_without_trainer(twin: Twin) -> None:
    with autograd.record():
        loss = twin.loss(twin.net(twin.batches[0][0]), twin.batches[0][1])
    loss.backward()
    twin.look(loss)
