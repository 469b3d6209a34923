"""Documents that are followed from their first to their last line, and how they are read."""

import os
import sys

import pytest

from gluonjit import profiler
from support import documents


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """An empty current folder, from which programs import; what they import is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(f"{tmp_path}{os.sep}"):
            del sys.modules[name]


def test_the_tutorial(root, empty):
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    found = documents.follow(root / "docs" / "tutorial.md")
    assert found["accuracy"] > 0.99
    assert {"y.npz", "stripes.html", "stripes.onnx", "out"} <= {path.name for path in empty.iterdir()}


def test_performance(root, empty, monkeypatch):
    monkeypatch.setenv("GLUONJIT_NUM_THREADS", "1")
    documents.follow(root / "docs" / "performance.md")
    profiler.set_config(profile_all=False)


def test_migration(root, empty):
    documents.follow(root / "docs" / "migration.md")


EXAMPLE = """# A

**`sizes.py`**

```python
WIDTH = 7
```

```python
import sizes
print(sizes.WIDTH, "wide, after", "0.5 ms")
print("more")
```

```text
7 wide, … 12.5 s
…
```

```sh
gluonjit passes \\
  cse
gluonjit passes nothing || true
```

```text
…
error: unknown pass 'nothing'; `gluonjit passes` lists those that there are
```
"""


def test_a_document_is_followed(empty):
    (empty / "a.md").write_text(EXAMPLE)
    documents.follow(empty / "a.md")
    (empty / "a.md").write_text(EXAMPLE.replace("7 wide", "8 wide"))
    with pytest.raises(AssertionError, match=r"a.md:16: the document says\n8 wide"):
        documents.follow(empty / "a.md")
    (empty / "a.md").write_text(EXAMPLE.replace(" || true", ""))
    with pytest.raises(AssertionError, match=r"a.md:21: gluonjit passes nothing"):
        documents.follow(empty / "a.md")


@pytest.mark.parametrize(
    ("expected", "printed", "measured", "same"),
    [
        ("a 1 ms", "a 20.5 µs", False, True),
        ("a  3 %", "a 20 %", False, True),
        ("a 1 m", "a 2 m", False, False),
        ("a 1", "a 2", False, False),
        ("a 1", "a 2", True, True),
        ("a … c\n…", "a b c\nd\ne", False, True),
        ("a … c\nd", "a b c\nd\ne", False, False),
        ("b 1\na 1.5 x", "a 20 MB\nc\nb 2", True, False),
        ("b 1\na 1.5 MB", "a 20 MB\nc\nb 2", True, True),
        ("f32[4] x", "f32[8] x", False, False),
    ],
)
def test_outputs_are_compared(expected, printed, measured, same):
    assert (documents.difference(expected, printed, measured=measured) == "") == same
