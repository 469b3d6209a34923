"""Random changes to the attributes of `.ir` texts: the parser, the verifier and the passes refuse them with IRError."""

import random
import re

from gluonjit.ir.text import parse_graph, print_graph
from gluonjit.ir.types import IRError
from gluonjit.ir.verify import verify
from gluonjit.passes import run_passes
from gluonjit.passes.manager import PassError
from support.soak import tries

TEXTS = tries(200)
ATTRIBUTE = re.compile(r"\w+ = (\((?:[^(){}]|\([^(){}]*\))*\)|[^,{}()\s]+)(?=[,}])")
VALUES = ["0", "-1", "3", "1000000", "0.5", "1e9", "True", "None", "nan", '"x"', '"sum"', "()", "(0,)", "(0, 1)"]
VALUES += ["(1, -1)", "(0.5,)", "(1000000,)", '("x",)', "((0, 1),)", "((1, 2), (3, 4))", "(True,)"]
PIPELINES = ["legalize-broadcast, differentiate, partition", "simplify, cse, fold, dce", "layout", "hoist", "fuse"]
PIPELINES += ["plan-memory"]


def graphs(root):
    """The inputs of the golden tests of passes."""
    found = []
    for path in sorted((root / "tests" / "passes").glob("*.ir")):
        texts = re.findall(r"^graph @.*?^}$", path.read_text(), re.MULTILINE | re.DOTALL)
        found += [text for text in texts if ATTRIBUTE.search(text) and len(text) < 2000]
    return found


def cause_of(error):
    """Why a pass failed."""
    while isinstance(error, PassError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def test_only_documented_errors(root):
    rng, texts = random.Random(0), graphs(root)
    refused = 0
    for _ in range(TEXTS):
        text = rng.choice(texts)
        for _ in range(rng.randint(1, 2)):
            spots = [*ATTRIBUTE.finditer(text)]
            start, end = rng.choice(spots).span(1)
            text = text[:start] + rng.choice(VALUES) + text[end:]
        try:
            graph = parse_graph(text)
            verify(graph)
        except IRError:
            refused += 1
            continue
        parse_graph(print_graph(graph))
        for pipeline in PIPELINES:
            try:
                run_passes(graph, pipeline)
            except IRError as e:
                assert isinstance(cause_of(e), IRError), text
    assert 0 < refused < TEXTS
