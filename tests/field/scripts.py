"""Runs training scripts of apache/mxnet's `example/`, unmodified, on made-up data in the formats that they read.

    git clone --depth 1 --branch 1.9.1 https://github.com/apache/mxnet
    python tests/field/scripts.py --examples mxnet/example
    python tests/field/scripts.py --examples mxnet/example --mxnet oracle/bin/python    # with real MXNet, too

A folder is copied before its script runs, because scripts write beside themselves. What they import otherwise and what
only draws or is hard to install (gym, matplotlib, bottleneck …) is in `stand_ins/`.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

STAND_INS = Path(__file__).parent / "stand_ins"


# Data


def pictures(count: int, height: int, width: int, channels: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy pictures of ten kinds, and their kinds: bytes (count, height, width, channels), (count,)."""
    kinds = np.random.RandomState(0).uniform(0, 190, (10, height, width, channels))
    r = np.random.RandomState(seed)
    labels = r.randint(0, 10, count)
    return (kinds[labels] + r.uniform(0, 65, (count, height, width, channels))).astype(np.uint8), labels


def mnist(folder: Path, packed: bool = True, count: int = 1200) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part, size, seed in (("train", count, 1), ("t10k", 400, 2)):
        images, labels = pictures(size, 28, 28, 1, seed)
        for name, header, content in (
            (f"{part}-images-idx3-ubyte", struct.pack(">IIII", 2051, size, 28, 28), images),
            (f"{part}-labels-idx1-ubyte", struct.pack(">II", 2049, size), labels.astype(np.uint8)),
        ):
            whole = header + content.tobytes()
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(whole))
            else:
                (folder / name).write_bytes(whole)


def cifar10(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for k, name in enumerate(["test_batch", *(f"data_batch_{k}" for k in range(1, 6))]):
        images, labels = pictures(20, 32, 32, 3, k)
        rows = np.concatenate([labels[:, None].astype(np.uint8), images.transpose(0, 3, 1, 2).reshape(20, -1)], axis=1)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())


def wikitext2(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    r = np.random.RandomState(0)
    successors = r.randint(0, 50, (50, 3))  # each word is followed by one of three
    for name, lines in (("train", 200), ("valid", 60), ("test", 60)):
        text = []
        for _ in range(lines):
            words = [int(r.randint(50))]
            while len(words) < 12:
                words.append(int(successors[words[-1], r.randint(3)]))
            text.append(" " + " ".join(f"word{w}" for w in words) + " \n")
        (folder / f"wiki.{name}.tokens").write_text("".join(text))


def photographs(folder: Path, count: int, height: int, width: int) -> None:
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    y, x = np.mgrid[:height, :width]
    for k in range(count):
        waves = [127 + 120 * np.sin(x / (7 + k + c) + y / (11 + k)) for c in range(3)]
        Image.fromarray(np.stack(waves, axis=-1).astype(np.uint8)).save(folder / f"{k:03}.jpg")


def birds(folder: Path) -> None:
    """CUB-200-2011: three pictures of each of 100 kinds to train with, 20 of others."""
    rows = [(kind, k) for kind in range(100) for k in range(3)] + [(100 + k % 5, k) for k in range(20)]
    photographs(folder / "images", 8, 60, 80)
    listed = [("images.txt", "{n} {k:03}.jpg"), ("image_class_labels.txt", "{n} {kind}")]
    for file, line in [*listed, ("bounding_boxes.txt", "{n} 5.0 5.0 40.0 40.0")]:
        text = [line.format(n=n, k=n % 8, kind=kind + 1) for n, (kind, _) in enumerate(rows)]
        (folder / file).write_text("\n".join(text) + "\n")


def houses(folder: Path) -> None:
    r = np.random.RandomState(0)
    for file, first, count in (("train.csv", 1, 300), ("test.csv", 301, 50)):
        lines = ["Id,MSSubClass,LotArea,Street,YearBuilt,SaleCondition" + (",SalePrice" if first == 1 else "")]
        for k in range(count):
            area, year = r.randint(2000, 20000), r.randint(1900, 2010)
            street, condition = r.choice(["Pave", "Grvl"]), r.choice(["Normal", "Abnorml", "Family"])
            known = area if r.uniform() > 0.02 else "NA"
            line = f"{first + k},{r.choice([20, 30, 60])},{known},{street},{year},{condition}"
            lines.append(line + (f",{50000 + 8 * area + 900 * (year - 1900)}" if first == 1 else ""))
        (folder / file).write_text("\n".join(lines) + "\n")


def movielens(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    r = np.random.RandomState(0)
    users, items = r.normal(0, 1, (40, 3)), r.normal(0, 1, (60, 3))
    for file, count in (("u1.base", 2000), ("u1.test", 200)):
        pairs = [(r.randint(40), r.randint(60)) for _ in range(count)]
        lines = [f"{u}\t{i}\t{np.clip(round(3 + users[u] @ items[i]), 1, 5)}\t0" for u, i in pairs]
        (folder / file).write_text("\n".join(lines) + "\n")
    (folder.parent / f"{folder.name}.zip").touch()  # the script only looks whether it is there


# Scripts

RECOMMEND = """
import mxnet as mx
from mxnet import gluon
from mxnet.gluon import nn
from matrix_fact import train
from movielens_data import get_dataset, max_id


class MFBlock(gluon.HybridBlock):
    def __init__(self, users, items, features):
        super().__init__()
        with self.name_scope():
            self.user = nn.Embedding(users, features)
            self.item = nn.Embedding(items, features)

    def hybrid_forward(self, F, users, items):
        return (self.user(users) * self.item(items)).sum(axis=1)


users, items = max_id("./ml-100k/u.data")
net = MFBlock(users, items, 8)
net.initialize(mx.init.Xavier(), ctx=mx.cpu())
loaders = [gluon.data.DataLoader(part, batch_size=100, shuffle=True) for part in get_dataset("ml-100k")]
train(net, *loaders, epochs=8, learning_rate=0.05, optimizer="adam", ctx=[mx.cpu()])
"""
"""What the notebook `demo1-MF.ipynb` does with the two modules beside it."""


@dataclass
class Script:
    """`path` in the folder of examples; `data(home, folder)` makes what it reads, below its home or its own folder.

    The last number that `number` finds in its output must be in `within`.
    """

    path: str
    arguments: str
    data: Callable[[Path, Path], object]
    number: str
    within: tuple[float, float]
    together: tuple[str, ...] = ()
    """Other files or folders of the examples that it imports."""
    needs: tuple[str, ...] = ()
    driver: str = ""
    """A program instead of the script, which imports it."""
    old_pandas: bool = False


def datasets(home: Path) -> Path:
    return home / ".mxnet" / "datasets"


ACCURACY = r"Validation(?:-|: )accuracy=([\d.]+)"

SCRIPTS = {
    "mnist": Script("gluon/mnist/mnist.py", "--epochs 2", lambda h, f: mnist(f / "data"), ACCURACY, (0.95, 1)),
    "image_classification": Script(
        "gluon/image_classification.py",
        "--dataset dummy --model mobilenet0.25 --batch-size 2 --epochs 1 --mode hybrid --builtin-profiler 1",
        lambda h, f: None,
        r"validation: accuracy=([\d.]+)",
        (1, 1),
        ("gluon/data.py",),
    ),
    "image_classification-imperative": Script(
        "gluon/image_classification.py",
        "--dataset mnist --model mobilenet0.25 --batch-size 50 --epochs 2 --lr 0.05 --mode imperative",
        lambda h, f: mnist(f / "data", packed=False),
        r"validation: accuracy=([\d.]+)",
        (0.1, 1),
        ("gluon/data.py",),
    ),
    "dc_gan": Script(
        "gluon/dc_gan/dcgan.py",
        "--nepoch 1 --batch-size 10 --ngf 8 --ndf 8 --inception_score=",
        lambda h, f: cifar10(f / "data"),
        r"discriminator loss = ([\d.]+)",
        (0.01, 4),
        needs=("PIL",),
    ),
    "sn_gan": Script(
        "gluon/sn_gan/train.py",
        "--epochs 1 --batch-size 10",
        lambda h, f: cifar10(datasets(h) / "cifar10"),
        r"discriminator loss = ([\d.]+)",
        (0.1, 4),
        needs=("PIL",),
    ),
    "word_language_model": Script(
        "gluon/word_language_model/train.py",
        "--emsize 24 --nhid 24 --epochs 4 --dropout 0.1 --tied --bptt 10 --batch_size 8",
        lambda h, f: wikitext2(f / "data"),
        r"Best test loss [\d.]+, test ppl ([\d.]+)",
        (3, 45),
    ),
    "word_language_model-hybrid": Script(
        "gluon/word_language_model/train.py",
        "--emsize 24 --nhid 24 --epochs 4 --dropout 0.1 --model gru --bptt 10 --batch_size 8 --hybridize",
        lambda h, f: wikitext2(f / "data"),
        r"Best test loss [\d.]+, test ppl ([\d.]+)",
        (3, 45),
    ),
    "lstm_crf": Script("gluon/lstm_crf/lstm_crf.py", "", lambda h, f: None, r"Likelihood ([\d.]+)", (0, 6)),
    "super_resolution": Script(
        "gluon/super_resolution/super_resolution.py",
        "--epochs 2 --test_batch_size 2",
        lambda h, f: [photographs(datasets(h) / "BSDS500" / "images" / p, 4, 321, 481) for p in ("train", "test")],
        r"mse=([\d.]+)",
        (0, 0.3),
        ("gluon/data.py",),
        ("PIL",),
    ),
    "house_prices": Script(
        "gluon/house_prices/kaggle_k_fold_cross_validation.py",
        "",
        lambda h, f: houses(f),
        r"Avg test loss: ([\d.]+)",
        (0, 1),
        needs=("pandas",),
        old_pandas=True,
    ),
    "actor_critic": Script(
        "gluon/actor_critic/actor_critic.py",
        "",
        lambda h, f: None,
        r"Running reward is now ([\d.]+)",
        (200, 300),
    ),
    "embedding_learning": Script(
        "gluon/embedding_learning/train.py",
        "--data-path data --epochs 1 --batch-size 6 --batch-k 3 --model mobilenet0.25 --embed-dim 16",
        lambda h, f: birds(f / "data"),
        r"validation: Recall@16=([\d.]+)",
        (0.5, 1),
        needs=("PIL",),
    ),
    "binary_rbm_gluon": Script(
        "restricted-boltzmann-machine/binary_rbm_gluon.py",
        "--no-cuda --num-epoch 1 --num-hidden 20 --k 3 --data-loader-num-worker 0",
        lambda h, f: mnist(datasets(h) / "mnist"),
        r"train log-likelihood (-?[\d.]+)",
        (-600, 0),
    ),
    "mnist_mlp": Script(
        "module/mnist_mlp.py",
        "",
        lambda h, f: mnist(f / "data", packed=False, count=20_000),
        r"validation Accuracy: ([\d.]+)",
        (0.3, 1),
    ),
    "matrix_fact": Script(
        "recommenders/matrix_fact.py",
        "",
        lambda h, f: (movielens(f / "ml-100k"), shutil.copy(f / "ml-100k" / "u1.base", f / "ml-100k" / "u.data")),
        r"Training RMSE ([\d.]+)",
        (0, 1.5),
        driver=RECOMMEND,
    ),
}


@dataclass
class Outcome:
    value: float | None
    seconds: float
    output: str

    def passed(self, script: Script) -> bool:
        return self.value is not None and script.within[0] <= self.value <= script.within[1]


def run(
    script: Script, examples: Path, mxnet: str | None = None, timeout: float = 600, stand_ins: bool = True
) -> Outcome:
    """Runs a script with gluonjit, or with the Python `mxnet`, which has MXNet. `value` is None if it failed."""
    with tempfile.TemporaryDirectory() as made:
        home, copied = Path(made) / "home", Path(made) / "example"
        home.mkdir()
        source = examples / script.path
        folder = copied / source.parent.relative_to(examples)
        if script.together == () or source.parent != examples / "gluon":
            shutil.copytree(source.parent, folder)
        else:
            folder.mkdir(parents=True)
            shutil.copy(source, folder)
        for other in script.together:
            (copied / other).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(examples / other, copied / other)
        script.data(home, folder)
        program = source.name
        if script.driver:
            program = "driver.py"
            (folder / program).write_text(script.driver)
        paths = [str(STAND_INS) if stand_ins else "", os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "HOME": str(home), "MXNET_HOME": str(home / ".mxnet")}
        # Threads that wait for each other take longer than these small products, where other programs run.
        environment.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
        environment["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
        if script.old_pandas:
            environment["FIELD_OLD_PANDAS"] = "1"
        command = [sys.executable, "-m", "gluonjit", "exec"]
        if mxnet is not None:
            environment["FIELD_REAL_MXNET"] = "1"
            environment["PYTHONPATH"] = str(STAND_INS)
            command = [mxnet]
        command += [program, *script.arguments.split()]
        started = time.perf_counter()
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=timeout,
            )
        except subprocess.TimeoutExpired as e:
            so_far = e.stdout.decode(errors="replace") if isinstance(e.stdout, bytes) else e.stdout or ""
            return Outcome(None, timeout, f"{so_far}\nno end after {timeout} s")
        seconds = time.perf_counter() - started
        found = re.findall(script.number, done.stdout)
        return Outcome(float(found[-1]) if found and done.returncode == 0 else None, seconds, done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=Path, required=True, help="the folder `example` of apache/mxnet")
    parser.add_argument("--names", nargs="*", default=list(SCRIPTS), choices=list(SCRIPTS))
    parser.add_argument("--mxnet", help="a Python that has MXNet, and what the scripts import")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for each (default: %(default)s)")
    parser.add_argument("--verbose", action="store_true", help="print what the scripts print")
    arguments = parser.parse_args()
    for name in arguments.names:
        script = SCRIPTS[name]
        engines = [None, arguments.mxnet] if arguments.mxnet else [None]
        for engine in engines:
            outcome = run(script, arguments.examples.resolve(), engine, arguments.timeout)
            verdict = "passed" if outcome.passed(script) else "FAILED"
            who = "MXNet" if engine else "gluonjit"
            print(f"{name:34} {who:9} {verdict} {outcome.value} in {outcome.seconds:.1f} s", flush=True)
            if arguments.verbose or not outcome.passed(script):
                print("\n".join(outcome.output.splitlines()[-25:]), flush=True)


if __name__ == "__main__":
    main()
