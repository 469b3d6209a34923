"""What programs read of MXNet's executors behind a `Module`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gluonjit.context import Context
from gluonjit.data.iterators import DataDesc
from gluonjit.language import mxnet_names as _mxnet_names
from gluonjit.symbol import Symbol

if TYPE_CHECKING:
    from gluonjit.execution.executor import Executor


class DataParallelExecutorGroup(NamedTuple):
    """MXNet has an executor for each context; here there is one in all.

    `param_arrays` and `grad_arrays` have a list of one array for each of `param_names` ([None] without a gradient).
    """

    param_names: list[str]
    param_arrays: list[list[Any]]
    grad_arrays: list[list[Any]]
    aux_names: list[str]
    aux_arrays: list[list[Any]]
    execs: list[Executor]
    symbol: Symbol
    contexts: list[Context]
    data_shapes: list[DataDesc]
    label_shapes: list[DataDesc] | None

    @property
    def batch_size(self) -> int:
        """The batch size of the first input."""
        first = self.data_shapes[0]
        return first.shape[max(DataDesc.get_batch_axis(first.layout), 0)]


_mxnet_names.explain(__name__)
