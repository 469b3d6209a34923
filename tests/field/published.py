"""Runs published training programs beside MXNet's own, unmodified, on made-up data: see `scripts.py`.

    git clone https://github.com/dmlc/gluon-cv; git clone --branch v0.10.x https://github.com/dmlc/gluon-nlp
    git clone https://github.com/d2l-ai/d2l-en; git -C d2l-en checkout 52a2d59aecf2d8e986224da6d5cb5760d7f0e911
    export GLUON_CV=$PWD/gluon-cv GLUON_NLP=$PWD/gluon-nlp D2L_EN=$PWD/d2l-en
    python tests/field/published.py

It needs the packages gluoncv, gluonnlp 0.10 and d2l 0.17.6. Of the book "Dive into Deep Learning", the programs are
the code of whole sections, with fewer epochs and smaller pictures where the book's take hours.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import scripts

# Data


def questions(folder: Path) -> None:
    """TREC: questions of six kinds; some words occur in one kind only."""
    folder.mkdir(parents=True, exist_ok=True)
    r = np.random.RandomState(0)
    for file, count in (("train-1776132f.json", 300), ("test-ff9ad0ce.json", 60)):
        rows = []
        for _ in range(count):
            kind = int(r.randint(6))
            words = [f"own{kind}{r.randint(4)}" if r.uniform() < 0.6 else f"word{r.randint(20)}" for _ in range(10)]
            rows.append([" ".join(words), kind])
        (folder / file).write_text(json.dumps(rows))


def translations(folder: Path) -> None:
    """Sentences, and the same words of another language in the opposite order."""
    folder.mkdir(parents=True, exist_ok=True)
    r = np.random.RandomState(0)
    lines = []
    for _ in range(700):
        words = r.randint(0, 40, r.randint(2, 6))
        lines.append(" ".join(f"w{k}" for k in words) + " .\t" + " ".join(f"v{k}" for k in words[::-1]) + " .")
    with zipfile.ZipFile(folder / "fra-eng.zip", "w") as packed:
        packed.writestr("fra-eng/fra.txt", "\n".join(lines) + "\n")


def paragraphs(folder: Path) -> None:
    """WikiText-2: paragraphs of four sentences."""
    folder.mkdir(parents=True, exist_ok=True)
    r = np.random.RandomState(0)
    sentences = [" ".join(f"word{k}" for k in r.randint(0, 60, 8)) for _ in range(240)]
    lines = [f" {' . '.join(sentences[k : k + 4])} . \n" for k in range(0, len(sentences), 4)]
    with zipfile.ZipFile(folder / "wikitext-2-v1.zip", "w") as packed:
        packed.writestr("wikitext-2/wiki.train.tokens", "".join(lines))


# Programs

SENTIMENT = """
import runpy
import sys

import gluonnlp.data.sentiment

gluonnlp.data.sentiment.check_sha1 = lambda path, sum: True  # of the published data
sys.path.insert(0, ".")
runpy.run_path("sentiment_analysis_cnn.py", run_name="__main__")
"""

SECTION = """
import hashlib
import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from d2l import mxnet as d2l

for name in ("fra-eng", "wikitext-2"):  # sums of the published data
    url, _ = d2l.DATA_HUB[name]
    file = Path("../data", url.split("/")[-1])
    if file.exists():
        d2l.DATA_HUB[name] = url, hashlib.sha1(file.read_bytes()).hexdigest()

program = []
for block in re.findall(r"^```\\{\\.python \\.input\\}\\n(.*?)^```", Path(SECTION).read_text(), re.S | re.M):
    tabs = re.match(r"#@tab (.*)", block)
    if tabs is None or {"all", "mxnet"} & {tab.strip() for tab in tabs[1].split(",")}:
        program.append(block)
program = "\\n".join(program)
for old, new in SIZES.items():
    if old not in program:
        raise SystemExit(f"{SECTION} does not contain {old!r}")
    program = program.replace(old, new)
exec(compile(program, SECTION, "exec"), {"__name__": "__main__"})
"""
"""Runs the code of a section's MXNet edition: blocks of other libraries say so in their first line."""


def section(path: str, sizes: Mapping[str, str]) -> str:
    return f"SECTION = {Path(path).name!r}\nSIZES = {dict(sizes)!r}\n{SECTION}"


@dataclass
class Program:
    """`script`, in the repository that the environment variable `place` names."""

    place: str
    needs: str
    script: scripts.Script

    def folder(self) -> Path | None:
        """The repository, or None."""
        folder = Path(os.environ.get(self.place, ""))
        return folder if (folder / self.script.path).is_file() else None

    def lacks(self) -> str:
        """Why it cannot run here, or ''."""
        if self.folder() is None:
            return f"the environment variable {self.place} does not name a clone of the repository"
        return "" if importlib.util.find_spec(self.needs) else f"{self.needs} is not installed"

    def run(self, timeout: float = 900) -> scripts.Outcome:
        folder = self.folder()
        assert folder is not None
        return scripts.run(self.script, folder, timeout=timeout, stand_ins=False)


def _of_d2l(path: str, sizes: Mapping[str, str], data: str, number: str, within: tuple[float, float]) -> Program:
    make = {
        "clothes": lambda home, folder: scripts.mnist(scripts.datasets(home) / "fashion-mnist", count=320),
        "translations": lambda home, folder: translations(folder.parent / "data"),
        "paragraphs": lambda home, folder: paragraphs(folder.parent / "data"),
    }[data]
    return Program("D2L_EN", "d2l", scripts.Script(path, "", make, number, within, driver=section(path, sizes)))


TRAINED = r"loss [\d.]+, train acc ([\d.]+)"

PROGRAMS = {
    "cifar10": Program(
        "GLUON_CV",
        "gluoncv",
        scripts.Script(
            "scripts/classification/cifar/train_cifar10.py",
            "--num-epochs 8 --mode hybrid --model cifar_resnet20_v1 --batch-size 10 -j 2 --lr 0.05",
            lambda home, folder: scripts.cifar10(scripts.datasets(home) / "cifar10"),
            r"train=([\d.]+)",
            (0.3, 1),
        ),
    ),
    "sentiment_analysis_cnn": Program(
        "GLUON_NLP",
        "gluonnlp",
        scripts.Script(
            "scripts/sentiment_analysis/sentiment_analysis_cnn.py",
            "--data_name TREC --model_mode rand --epochs 8",
            lambda home, folder: questions(folder / "data" / "trec"),
            r"test acc ([\d.]+)",
            (0.5, 1),
            driver=SENTIMENT,
        ),
    ),
    "d2l-lenet": _of_d2l(
        "chapter_convolutional-neural-networks/lenet.md",
        {"batch_size = 256": "batch_size = 8"},
        "clothes",
        TRAINED,
        (0.05, 1),
    ),
    "d2l-resnet": _of_d2l(
        "chapter_convolutional-modern/resnet.md",
        {"0.05, 10, 256": "0.05, 2, 32", "resize=96": "resize=32", "224, 224": "64, 64"},
        "clothes",
        TRAINED,
        (0.6, 1),
    ),
    "d2l-bahdanau": _of_d2l(
        "chapter_attention-mechanisms/bahdanau-attention.md",
        {"0.005, 250,": "0.005, 8,"},
        "translations",
        r"loss ([\d.]+)",
        (0, 0.3),
    ),
    "d2l-bert": _of_d2l(
        "chapter_natural-language-processing-pretraining/bert-pretraining.md",
        {"batch_size, max_len = 512, 64": "batch_size, max_len = 8, 32"},
        "paragraphs",
        r"MLM loss ([\d.]+)",
        (0, 6),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--verbose", action="store_true", help="print what the programs print")
    arguments = parser.parse_args()
    for name in arguments.names:
        program = PROGRAMS[name]
        if lacks := program.lacks():
            print(f"{name:24} left out: {lacks}", flush=True)
            continue
        outcome = program.run()
        passed = outcome.passed(program.script)
        print(f"{name:24} {'passed' if passed else 'FAILED'} {outcome.value} in {outcome.seconds:.1f} s", flush=True)
        if arguments.verbose or not passed:
            print("\n".join(outcome.output.splitlines()[-25:]), flush=True)


if __name__ == "__main__":
    main()
