"""Whether a statement drops the result of a call, told by the bytecode around it."""

import sys
from types import SimpleNamespace

import pytest

from gluonjit.language.bytecode import drops_result

DROPPED = [
    "f(1)",
    "f(1, 2, x=3)",
    "f(*[1])",
    "f(**{})",
    "f(\n  1,\n  2)",
    "o.f(1)",
    "o.o.f(lambda: f)",
    "for f in [f]:\n f(1)",
    "with c: f(1)",
    "if f: f(f.__name__)",
]
USED = [
    "y = f(1)",
    "z = [f(1)]",
    "f(1).real",
    "c.append(f(1))",
    "c.extend(map(f, [1]))",
    "z = map(f, [1]); c.extend(z)",
    "print(end=str(f(1))[:0])",
    "f(1) and f(1)",
    "assert f(1)",
    "c.get(f)(1)",  # dropped, but no name says so
    "f(1 if c else 2)",
]


class Log(list):
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def get(self, f):
        return f


@pytest.mark.parametrize("place", ["module", "function", "closure"])
@pytest.mark.parametrize("statement", [*DROPPED, *USED])
def test_statements(statement, place):
    found = []

    class Function:
        __name__ = "f"

        def __call__(self, *args, **kwargs):
            found.append(drops_result(sys._getframe(1), self))
            return 1

    f = Function()
    names = {"f": f, "o": SimpleNamespace(f=f, o=SimpleNamespace(f=f)), "c": Log()}
    body = statement.replace("\n", "\n  ")
    text = {
        "module": statement,
        "function": f"def g(f, o, c):\n  {body}\ng(f, o, c)",
        "closure": f"def h(f, o, c):\n def g():\n  f, o, c\n  {body.replace('for f', 'for k')}\n g()\nh(f, o, c)",
    }[place]
    exec(text, names)
    first = statement in DROPPED
    assert found and found[0] is first
