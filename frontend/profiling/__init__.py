"""Profiles: where the time and the memory of compiled calls go, by kernel, layer and thread.

`measured` is the data, without any dependence on how it was found or is shown; `recording` finds it; `listing` and
`exports` show it, as tables and as files for other tools.
"""

from __future__ import annotations

from gluonjit.profiling.measured import Kernel, Layer, Memory, Profile, Program, Stage, Tensor
from gluonjit.profiling.recording import record

__all__ = ["Kernel", "Layer", "Memory", "Profile", "Program", "Stage", "Tensor", "record"]
