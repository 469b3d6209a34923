"""Whether profiles add up, and what they cost: `python -m benchmarks.profiles [key …] [--threads N]`.

For each workload (`workloads.py`, or steps of training, `steps.py`) this prints the rounds as a program sees them, how
much of them kernels and waiting are, the ten slowest layers by path and line, and how much longer a round takes while
it is measured, in turns with rounds that are not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext

import gluonjit as mx
from benchmarks.command_line import parser
from benchmarks.steps import STEPS, batches, gluon_net
from benchmarks.workloads import WORKLOADS, make
from gluonjit import autograd, gluon
from gluonjit.profiling import listing, record

_ROUNDS = 15
_TURNS = 6


def call_of(key: str) -> Callable[[], None]:
    """One call of a workload, hybridized."""
    net, inputs = make(key)
    net.hybridize()
    given = [mx.nd.array(x) for x in inputs]
    return lambda: net(*given)


def step_of(key: str) -> Callable[[], None]:
    """One step of training, on a small batch."""
    step = STEPS[key]
    net = gluon_net(mx, step)
    net.initialize()
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), step.optimizer, dict(step.settings))
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    loss.hybridize()
    x, y = (mx.nd.array(a) for a in batches(step, step.small)[0])

    def run() -> None:
        with autograd.record():
            out = net(x)
            out = loss(out[0] if isinstance(out, (list, tuple)) else out, y)
        out.backward()
        trainer.step(step.small)

    return run


def cost(run: Callable[[], None]) -> float:
    """The ratio of a round's time while it is measured to that while it is not, in turns of some rounds."""
    times: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(2 * _TURNS):
        measured = bool(turn % 2)
        with record(peaks=False) if measured else nullcontext():
            run()  # which takes another way into the code than the one before
            for _ in range(_ROUNDS // 3):
                begin = time.perf_counter()
                run()
                times[measured].append(time.perf_counter() - begin)
    return min(times[True]) / min(times[False])


def main() -> None:
    p = parser("profiles", __doc__, "W4 T6 --threads 2")
    known = [*WORKLOADS, *STEPS]
    p.add_argument(
        "keys", nargs="*", default=["W4", "W11", "T3", "T6"], help=f"of {', '.join(known)} (default: W4 W11 T3 T6)"
    )
    p.add_argument("--threads", type=int, default=1, help="(default: %(default)s)")
    arguments = p.parse_args()
    if unknown := [key for key in arguments.keys if key not in known]:
        p.error(f"there is no {unknown[0]}; there are {', '.join(known)}")
    mx.set_num_threads(arguments.threads)
    for key in arguments.keys:
        title = (STEPS if key in STEPS else WORKLOADS)[key].title
        run = step_of(key) if key in STEPS else call_of(key)
        for _ in range(3):
            run()
        with record() as p:
            for _ in range(3):
                run()
            p.forget()
            for _ in range(_ROUNDS):
                with p.lap():
                    run()
        rounds = sum(lap.end - lap.begin for lap in p.laps)
        inside = sum(len(q.calls) * (q.kernel_seconds + q.wait_seconds) for q in p.programs)
        native = sum(q.total for q in p.programs)
        waiting = sum(len(q.calls) * q.wait_seconds for q in p.programs)
        print(f"{key} {title}, {arguments.threads} thread(s): {rounds / _ROUNDS * 1e3:.2f} ms a round")
        for name, part in (("native calls", native), ("kernels and waiting", inside), ("waiting alone", waiting)):
            print(
                f"  {name}: {100 * part / rounds:.2f} % of the rounds, {100 * part / native:.2f} % of the native calls"
            )
        layers = [(layer.share * len(q.calls) / _ROUNDS, q.part, layer) for q in p.programs for layer in q.layers]
        rows = [
            (f"{seconds * 1e3:.3f} ms", part, layer.path, listing.where_text(layer.file, layer.line))
            for seconds, part, layer in sorted(layers, key=lambda found: -found[0])[:10]
        ]
        print("\n".join("  " + line for line in listing.columns(rows, 3)))
        print(f"  while it is measured {100 * (cost(run) - 1):+.2f} %", flush=True)


if __name__ == "__main__":
    main()
