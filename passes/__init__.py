"""Passes: functions from Graph to Graph, each in the file of its name, and the manager that runs them.

Importing this package imports no pass; `run_passes` finds each by its name when it is first asked for.
"""

from gluonjit.passes.manager import Pass, PassError, all_passes, find_pass, parse_pipeline, register_pass, run_passes

__all__ = ["Pass", "PassError", "all_passes", "find_pass", "parse_pipeline", "register_pass", "run_passes"]
