"""`gluonjit trace`: `dump` of the graph that a model is traced to."""

from __future__ import annotations

from typing import Any

from gluonjit.tools.cli.dump import add_command


def add_commands(commands: Any) -> None:
    add_command(commands, "trace", "trace", "print the graph that a model is traced to")
