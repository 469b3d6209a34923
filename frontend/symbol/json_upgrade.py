"""What `-symbol.json` files of early MXNet versions mean: the changes that MXNet 1.9.1 makes when it reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gluonjit.base import MXNetError
from gluonjit.operators.control.loops_and_branches import ControlFlow
from gluonjit.operators.registry import Operator
from gluonjit.symbol.compose import initialize_variables
from gluonjit.symbol.graph import HIDDEN_KEYS, Node
from gluonjit.symbol.subgraph import Subgraph, with_graphs

OLDEST = 800
"""The version of a file without one: 0.8.0, which did not write it."""

CURRENT = 10901
WITHOUT_AUX = 900
"""Before 0.9.0, auxiliary states were no inputs."""

COUNTERS = ("num_args", "num_arrays", "num_weights", "num_tensors", "num_outputs")
"""The attributes by which variadic operators count their inputs: the first of them that they have."""

OPERATORS = {"CuDNNBatchNorm": "BatchNorm"}
"""Operators that only MXNet for GPUs had, and their equivalents."""

RENAMED = {
    "_sg_mkldnn_conv": {"with_relu": "with_act", "with_postsum_relu": "with_postsum_act"},
    "_sg_mkldnn_fully_connected": {"with_relu": "with_eltwise"},
}
"""Attributes of an operator that had other names before 1.6.0; MXNet knows both, in files of any version."""


@dataclass
class Record:
    """A node as the file has it; `op` None: a variable. `inputs` are (node, output, version); `graphs`: its
    subgraphs."""

    number: int
    op: Operator | None
    name: str
    attrs: dict[str, str]
    inputs: list[tuple[int, int, int]]
    graphs: list[Subgraph] = field(default_factory=list)

    @property
    def title(self) -> str:
        return f"node {self.number} ({self.name!r})"

    def signature(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The operator's parsed attributes and the names of its inputs; MXNetError for what it does not take."""
        assert self.op is not None
        try:
            parsed = self.op.parse(self.attrs, self.name)
            count = len(self.inputs) + len(self.graphs)
            counter = next((key for key in COUNTERS if key in parsed), "")
            if self.op.variadic and parsed[counter] > count:  # before that many names are made
                raise MXNetError(f"{count} inputs of {self.op.name}; expected {parsed[counter]}, which {counter} says")
            if isinstance(self.op, ControlFlow):
                parsed = with_graphs(parsed, self.graphs)
                self.op.check(parsed, len(self.inputs))
            return parsed, self.op.input_names(parsed)
        except MXNetError as e:
            raise MXNetError(f"{self.title}: {e}") from e


def fix_attributes(records: Sequence[Record], version: int) -> None:
    """Converts attributes that an operator of MXNet 1.9.1 would refuse.

    * `lr_mult` and its like become `__lr_mult__`, and an operator's `weight_lr_mult` the `__lr_mult__` of the variable
      that is its input `weight`.
    * Before 0.9.5, axis -1 of argmax and argmin meant all axes.

    * `RENAMED` ones get today's names.

    MXNetError for attributes that the operator never had.
    """
    for record in records:
        renamed = RENAMED.get(record.op.name, {}) if record.op is not None else {}
        record.attrs |= {renamed[key]: record.attrs.pop(key) for key in renamed.keys() & record.attrs.keys()}
    if version >= CURRENT:
        return
    for record in records:
        moved = {key: value for key, value in record.attrs.items() if key.endswith(HIDDEN_KEYS)}
        if moved:
            record.attrs = {key: value for key, value in record.attrs.items() if key not in moved}
            names = record.signature()[1] if record.op is not None else ()
            record.attrs |= _placed(moved, names, [records[edge[0]] for edge in record.inputs])
        if version < 905 and record.op is not None and record.op.name in ("argmax", "argmin"):
            if record.attrs.get("axis") == "-1":
                del record.attrs["axis"]


def _placed(moved: Mapping[str, str], names: Sequence[str], sources: Sequence[Record]) -> dict[str, str]:
    """The attributes among `moved` that stay with their node, under today's names; the others go to its inputs."""
    own = {}
    for key, value in moved.items():
        hidden = next(hidden for hidden in HIDDEN_KEYS if key.endswith(hidden))
        source = dict(zip(names, sources)).get(key[: -len(hidden) - 1])
        if source is not None and source.op is None:
            source.attrs[f"__{hidden}__"] = value
        else:
            own[f"__{key}__" if key == hidden else key] = value
    return own


def missing_variables(record: Record, names: Sequence[str]) -> list[Node]:
    """Variables for the inputs that an operator's node lacks at its end; they carry a copy of its attributes."""
    prefix = f"{record.name}_" if record.name else ""
    return [Node(None, prefix + name, record.attrs) for name in names[len(record.inputs) :]]


def complete_variables(nodes: Sequence[Node], version: int) -> None:
    """Since 0.9.4, composing tells variables how operators want them initialized."""
    if version >= 904:
        return
    for node in nodes:
        initialize_variables(node)
