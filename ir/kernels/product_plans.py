"""Plans of matrix products and convolutions (`docs/kernels.md`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from gluonjit.ir.dims import hint
from gluonjit.ir.kernels.kernel_plan import Plan
from gluonjit.ir.types import I16

if TYPE_CHECKING:
    from gluonjit.ir.graph import Op, Value

UNROLLED = range(1, 1025)
"""Rows and columns of register tiles: code is written for each."""
COUNTED = range(1, 2**31)
"""What code counts."""


def has_product(op: Op, name: str) -> bool:
    """Whether it is a group with such a product, `dot_general` or `conv`."""
    return op.name == "fused" and any(inner.name == name for inner in op.regions[0].ops)


class Product(Plan):
    """Reads pixels (or rows) of the first operand by weights, the second one."""

    strides = "all but weights, if the last axis has no gaps"
    is_product = True

    def is_for(self, op: Op) -> bool:
        return has_product(op, "conv")

    def takes_strides(self, op: Op, k: int, strides: Sequence[int]) -> bool:
        """The last axis must be contiguous, and weights without gaps."""
        v = (*op.operands, *op.results)[k]
        if v.dtype is I16 and k < len(op.operands) and any(step % 2 for step in strides[:-1]):
            return False  # pairs are read
        return not self.is_weights(k) and (v.shape[-1:] == (1,) or strides[-1:] == (1,))

    def is_weights(self, k: int) -> bool:
        """Whether operand k holds weights, of which it knows no other strides."""
        return k == 1


@dataclass(frozen=True)
class Matmul(Product, kernel="matmul"):
    """Matrix products, 1×1 convolutions without stride or padding, windows that cover the input."""

    rows: Annotated[int, "of a register tile", UNROLLED]
    columns: Annotated[int, "of a register tile, and of a panel of packed weights", UNROLLED]
    block: Annotated[
        int, "register tiles, one below the other, that are computed before the next panel is read", COUNTED
    ]
    packed: Annotated[bool, "the second operand is cut into panels of columns"] = False
    halved: Annotated[bool, "two rows share the register of the last columns, which panels hold twice"] = False
    reversed: Annotated[bool, "panels are read from the last to the first, if one tile has all rows"] = False
    ahead: Annotated[bool, "tiles prefetch rows to read and to write, as no near cache holds them"] = False
    part: Annotated[
        int,
        "terms that are summed up for all of a block's tiles before the next ones, as caches hold no panel; 0: all",
        range(2**31),
    ] = 0

    shares = "register tiles: by blocks of rows, then panels"
    reads_lines = True

    def is_for(self, op: Op) -> bool:
        return has_product(op, "dot_general")

    def packed_operand(self) -> int | None:
        return 1 if self.packed else None

    def is_weights(self, k: int) -> bool:
        return k == 1 and self.packed

    def weights_read_once(self, op: Op) -> Value | None:
        *batch, rows, _ = op.results[0].shape
        return op.operands[1] if self.packed and not batch and hint(rows) <= self.rows else None

    def backwards(self) -> Matmul:
        return replace(self, reversed=True)


@dataclass(frozen=True)
class Conv(Product, kernel="conv"):
    """Direct convolution of any size, stride, dilation, padding and number of groups."""

    pixels: Annotated[int, "of a register tile, side by side", UNROLLED]
    columns: Annotated[int, "channels of a register tile, and of a panel of packed weights", UNROLLED]
    block: Annotated[int, "rows of pixels per task; with one spatial axis, register tiles", COUNTED]
    halved: Annotated[bool, "two pixels share the register of the last columns, which panels hold twice"] = False

    shares = "blocks of rows by panels of channels"
    reads_lines = True

    def packed_operand(self) -> int | None:
        return 1


@dataclass(frozen=True)
class Winograd(Product, kernel="winograd"):
    """Convolution by small windows with stride 1, by fewer multiplications.

    `block`: the register tiles, along the tiles, that one thread transforms, multiplies and transforms back at a time.
    0: all threads do the three steps together, for all tiles, and meet in between. -k: together, for k register tiles
    at a time, so that memory for an open number of tiles is not open.
    """

    height: Annotated[int, "rows of pixels of the result that one tile is", UNROLLED]
    width: Annotated[int, "pixels of such a row", UNROLLED]
    rows: Annotated[int, "of a register tile of the products: tiles", UNROLLED]
    columns: Annotated[int, "of a register tile of the products: channels", UNROLLED]
    block: Annotated[
        int, "register tiles that a thread takes through all steps, or 0 or less (`Winograd`)", range(-(2**31), 2**31)
    ]
    ahead: Annotated[bool, "products prefetch the pixels of the next block, as no cache holds them"] = False

    shares = "blocks of tiles, or each of the three steps"
    reads_lines = True
    restores_weights = True

    @property
    def outputs(self) -> tuple[int, int]:
        """Rows and pixels of a tile of the result."""
        return self.height, self.width

    def packed_operand(self) -> int | None:
        return 1


@dataclass(frozen=True)
class Depthwise(Product, kernel="depthwise"):
    """Convolution whose groups are narrower than a vector."""

    rows: Annotated[
        int, "of a tile whose taps are unrolled; 0: one row of pixels, and loops over the taps", range(1025)
    ]
    pixels: Annotated[int, "of a tile, side by side", UNROLLED]
    block: Annotated[int, "row tiles per task", COUNTED]
    vectors: Annotated[int, "of channels per task", COUNTED]
    ahead: Annotated[bool, "tiles prefetch what those below read and write, as no near cache holds it"] = False

    shares = "blocks of rows by some vectors of channels"
    why = "no sums over many channels, so lanes are channels"


@dataclass(frozen=True)
class ExpandDepthwise(Product, kernel="expand_depthwise"):
    """A matrix product and the depthwise convolution that is its only reader."""

    rows: Annotated[int, "pixels of a register tile of the product", UNROLLED]
    columns: Annotated[int, "channels of it; a task computes so many, too", UNROLLED]
    band: Annotated[int, "rows of the convolution's result per task", COUNTED]
    height: Annotated[int, "rows of a register tile of the convolution", UNROLLED]
    pixels: Annotated[int, "of a register tile of the convolution, side by side", UNROLLED]
    packed: Annotated[bool, "the product's weights are cut into panels of columns"] = False
    halved: Annotated[bool, "two rows of the product share the register of the last columns"] = False

    shares = "bands of rows by panels of channels"
    strides = "the input and the result, if the last axis has no gaps"
    why = "a panel of the product stays near until it is convolved"

    def packed_operand(self) -> int | None:
        return 1 if self.packed else None

    def takes_strides(self, op: Op, k: int, strides: Sequence[int]) -> bool:
        return k in (0, len(op.operands)) and strides[-1:] == (1,)


@dataclass(frozen=True)
class Planar(Plan, kernel="planar"):
    """Convolution of one channel by fewer filters than half of a vector's lanes."""

    rows: Annotated[int, "of a tile", UNROLLED]
    piece: Annotated[int, "lanes of what is left of a row beside whole vectors, or 0", range(1025)]
    block: Annotated[int, "tiles per task", COUNTED]

    shares = "blocks of rows"
    why = "filters fill less than half of a vector, so lanes are pixels"
    is_product = True

    def is_for(self, op: Op) -> bool:
        return has_product(op, "conv")


@dataclass(frozen=True)
class WeightGradient(Plan, kernel="weight_gradient"):
    """Gradients of convolution weights: sums over the pixels of a batch."""

    rows: Annotated[int, "of a register tile: channels of the input", UNROLLED]
    columns: Annotated[int, "of a register tile: channels of the cotangent", UNROLLED]
    block: Annotated[int, "rows of pixels that a group of tiles takes its sums over before the next ones", COUNTED]
    high: Annotated[int, "register tiles of a group, along the channels of the input", COUNTED]
    wide: Annotated[int, "register tiles of a group, along the channels of the cotangent", COUNTED]
    copies_x: Annotated[bool, "the input's pixels are copied"] = False
    copies_g: Annotated[bool, "the cotangent's pixels are copied"] = False
    ahead: Annotated[bool, "tiles prefetch the pixels of the next block, as no near cache holds them"] = False
    by_taps: Annotated[bool, "rows are taps along the last axis, as there is one channel of the input"] = False

    shares = "register tiles"
    is_product = True

    def is_for(self, op: Op) -> bool:
        return has_product(op, "conv")


@dataclass(frozen=True)
class WinogradGradient(Plan, kernel="winograd_gradient"):
    """Gradients of the weights of small windows with stride 1, by fewer multiplications."""

    height: Annotated[int, "rows of pixels of the cotangent that one tile is", UNROLLED]
    width: Annotated[int, "pixels of such a row", UNROLLED]
    rows: Annotated[int, "of a register tile of the products: channels of the input", UNROLLED]
    columns: Annotated[int, "of a register tile of the products: channels of the cotangent", UNROLLED]
    block: Annotated[int, "tiles that are transformed at a time, and added to the sums", COUNTED]
    wide: Annotated[int, "panels whose sums a thread transforms as soon as they are complete; 0: all at the end"] = 0

    shares = "each of the three steps"
    is_product = True

    @property
    def outputs(self) -> tuple[int, int]:
        """Rows and pixels of a tile of the cotangent."""
        return self.height, self.width

    def is_for(self, op: Op) -> bool:
        return has_product(op, "conv")


@dataclass(frozen=True)
class DepthwiseGradient(Plan, kernel="depthwise_gradient"):
    """Gradients of depthwise filters: each channel's sums over the pixels of a batch."""

    rows: Annotated[int, "taps along all but the last axis whose sums are taken together", UNROLLED]
    columns: Annotated[int, "taps along the last axis", UNROLLED]
    block: Annotated[int, "rows of pixels that all channels are summed over before the next ones", COUNTED]
    ahead: Annotated[bool, "rows prefetch those of the next block, as no near cache holds them"] = False

    shares = "vectors of channels"
    why = "all taps read each pixel together, and lanes are channels"

    def is_for(self, op: Op) -> bool:
        return op.name == "depthwise_gradient"
