"""The command lines of benchmarks whose docstrings describe them."""

from __future__ import annotations

import argparse


def parser(name: str, description: str | None, example: str = "") -> argparse.ArgumentParser:
    """The parser of `python -m benchmarks.NAME`. `example`: the words after that in the example of its help."""
    command = f"python -m benchmarks.{name}"
    return argparse.ArgumentParser(
        prog=command,
        description=description,
        epilog=f"example: {command} {example}".rstrip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
