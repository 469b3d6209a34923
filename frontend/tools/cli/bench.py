"""`gluonjit bench`: times calls, imperative and hybridized, alternating in one run."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from gluonjit.common.quantities import seconds_text
from gluonjit.files.array_names import shown
from gluonjit.ir.types import IRError
from gluonjit.language import rng
from gluonjit.tools.cli.inputs import add_threads, at_least, on_threads
from gluonjit.tools.cli.loading import load_python
from gluonjit.tools.cli.models import add_model, add_train, calling, load_model, training_step


def add_commands(commands: Any) -> None:
    p = commands.add_parser(
        "bench",
        help="time a model, imperative and hybridized",
        description="Times calls of a model from Python, imperative (operator by operator) and hybridized, alternating "
        "in one run: the median of the rounds, the best, and the median ratio to the first line. Of a graph from a "
        "file, --train times hybridized steps alone.",
        epilog="examples:\n  gluonjit bench examples/mlp.py:net --input 1x512 --against examples/mlp.py:in_numpy\n"
        "  gluonjit bench examples/lenet.py:net --input 16x1x28x28 --train\n"
        "  gluonjit bench examples/fire-symbol.json examples/fire-0000.params --input data=1x3x224x224",
    )
    add_model(p)
    add_train(p)
    p.add_argument(
        "--against",
        metavar="FILE.py:NAME",
        help="a function that takes the block and returns an equivalent function of ndarrays, which is timed, too",
    )
    p.add_argument("--tune", action="store_true", help="as with hybridize(tune=True): kernels are chosen by measuring")
    p.add_argument("--explain", action="store_true", help="list the kernels, their estimates, and why they were chosen")
    p.add_argument("--rounds", type=at_least(1), default=15, help="timings of each (default: %(default)s)")
    p.add_argument(
        "--seconds", type=at_least(0, float), default=0.1, help="length of one timing (default: %(default)s)"
    )
    add_threads(p)
    p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    with on_threads(arguments.threads):
        _bench(arguments)


def _bench(arguments: argparse.Namespace) -> None:
    if arguments.against and arguments.train:
        raise IRError("--against: its function computes on ndarrays, so it is timed without --train")
    block, inputs = load_model(arguments)
    with calling(arguments.model, inputs):
        contenders: dict[str, Callable[[], Any]] = _imperative(block, inputs, arguments.train)
    if arguments.against:
        with calling(arguments.against, inputs):
            other = load_python(arguments.against)(block)
            arrays = [x.asnumpy() for x in inputs]
            other(*arrays)
        contenders[arguments.against.rpartition(":")[2]] = lambda: other(*arrays)
    compiled, _ = load_model(arguments)
    start = time.perf_counter()
    compiled.hybridize(tune=arguments.tune, dynamic=arguments.dynamic)
    contenders["hybridized"] = training_step(compiled, inputs) if arguments.train else lambda: compiled(*inputs)
    with calling(arguments.model, inputs):
        contenders["hybridized"]()
    first = time.perf_counter() - start

    if arguments.explain:
        from gluonjit.execution.block_compiler import trace_call
        from gluonjit.language.modes import predict_mode
        from gluonjit.tools.cli.dump import render

        with predict_mode():
            print(render(trace_call(compiled, inputs, arguments.dynamic), "explain"))
    times = measure(contenders, arguments.rounds, arguments.seconds)
    print(f"first hybridized {'step' if arguments.train else 'call'}, compiling included: {seconds_text(first)}")
    baseline = next(iter(times.values()))
    rows = [["", "median", "best", "× faster"]]
    for name, samples in times.items():
        ratio = statistics.median(b / s for b, s in zip(baseline, samples, strict=True))
        rows.append([name, seconds_text(statistics.median(samples)), seconds_text(min(samples)), f"{ratio:.1f}"])
    width = max(len(row[0]) for row in rows)
    for name, *cells in rows:
        print(shown(name).ljust(width), *(cell.rjust(10) for cell in cells))


def _imperative(block: Any, inputs: list[Any], train: bool) -> dict[str, Callable[[], Any]]:
    """`imperative`: a call of `block`, or a step of training, operator by operator. A graph from a file is evaluated as
    its operators; that has no gradients."""
    from gluonjit.execution.block_compiler import trace_call
    from gluonjit.gluon import SymbolBlock
    from gluonjit.symbol.monitored import run_monitored

    if not isinstance(block, SymbolBlock):
        block(*inputs)  # completes deferred parameters
        if train:
            block.hybridize(active=False)
            return {"imperative": training_step(block, inputs)}
        arguments = block._jit_completed(tuple(inputs))
        return {"imperative": lambda: block.forward(*arguments)}
    if train:
        return {}
    graph = trace_call(block, inputs)
    params = {name: param.data() for name, param in block.params.items()}
    values = [params[v.name]._array for v in graph.inputs[len(inputs) :] if v.name in params]
    key = [rng.reserve(1)] * (len(graph.inputs) - len(inputs) - len(values))
    arrays = [*(x._array for x in inputs), *values, *key]
    return {"imperative": lambda: run_monitored(graph, arrays, lambda *_: None, False)}


def measure(contenders: dict[str, Callable[[], Any]], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Seconds per call of each contender, one sample per round; the contenders take turns within a round."""
    counts = {}
    for name, call in contenders.items():
        call()
        start = time.perf_counter()
        call()
        counts[name] = max(1, int(seconds / max(time.perf_counter() - start, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            times[name].append(_per_call(call, counts[name]))
    return times


def _per_call(call: Callable[[], Any], count: int) -> float:
    turns = range(count)
    start = time.perf_counter()
    for _ in turns:
        call()
    return (time.perf_counter() - start) / count
