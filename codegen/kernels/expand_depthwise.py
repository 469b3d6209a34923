"""A matrix product and the depthwise convolution that reads it: the kernel `expand_depthwise`.

    t = epilogue(x [pixels, K] · w [K, C]),   y = epilogue(conv(t [N, H, W, C], one filter per channel))

The intermediate t is often several times as large as the input and the result, and the convolution does not mix its
channels. So a task is one panel of channels for a *band* of rows of the result: the product computes the rows of t that
the band reads into the thread's scratch memory, [pixels, columns of a panel], where they stay cached, and then they are
convolved. Rows of t that two bands read are computed twice, to the same bits.

The body holds the product with its epilogue, a reshape, and the convolution with its epilogue. Its inputs are those of
the product, then those of the convolution except for t.
"""

from __future__ import annotations

from typing import Any

from gluonjit.codegen.kernels.depthwise import DepthwiseCode
from gluonjit.codegen.kernels.epilogue import find_anchor
from gluonjit.codegen.kernels.matmul import Product, panel_variants, share, unravel
from gluonjit.codegen.loops.access import Buffer
from gluonjit.codegen.text.kernel_code import writes
from gluonjit.codegen.text.llvm import Function, Module
from gluonjit.ir.annotations import KERNEL, STRIDES
from gluonjit.ir.graph import Graph, Op
from gluonjit.ir.kernels import Plan
from gluonjit.ir.kernels.expand_parts import halves, rows_read
from gluonjit.ir.kernels.product_plans import Depthwise, ExpandDepthwise, Matmul


@writes(ExpandDepthwise)
def lower_expand_depthwise(name: str, op: Op, module: Module) -> None:
    """Appends the kernel to the module. Its table ends with the thread's scratch."""
    _ExpandDepthwise(module.function(name), op).write()


class _ExpandDepthwise:
    def __init__(self, f: Function, op: Op) -> None:
        self.f = f
        body, plan = op.regions[0], ExpandDepthwise.of(op)
        self.rows, self.columns, self.band = plan.rows, plan.columns, plan.band
        product, convolution = halves(body)
        conv = find_anchor(convolution)
        self.images, self.height, self.width, self.channels = conv.operands[0].shape
        self.out_height = conv.result.shape[1]
        count = len(product.inputs)
        strides = STRIDES.of(op) or (None,) * (len(body.inputs) + 1)
        tiles = -(-rows_read(self.band, conv) * self.width // self.rows)
        multiply = Matmul(self.rows, self.columns, tiles, plan.packed, plan.halved)
        self.product = Product(f, _part(product, multiply, (*strides[:count], None)))
        vectors = self.columns // f.target.lanes(conv.result.dtype)
        convolve = Depthwise(plan.height, plan.pixels, 1, vectors)
        part = _part(convolution, convolve, (None, *strides[count:]))
        self.depthwise = DepthwiseCode(f, part, first=count - 1)
        self.depthwise.image, self.depthwise.line, self.depthwise.pixel = 0, self.width * self.columns, self.columns
        self.scratch = f.table(len(body.inputs) + 1)
        self.scalar = self.product.unit

    def write(self) -> None:
        f = self.f
        bands, panels = -(-self.out_height // self.band), -(-self.channels // self.columns)
        first, last = share(f, self.images * bands * panels)
        with f.for_(first, last, hint="task") as task:
            image, band, panel = unravel(f, task.index, [self.images, bands, panels])
            start = f.mul(band, self.band)
            stop = f.min(f.add(start, self.band), self.out_height)
            low, high = self._read(start, stop)
            self._multiply(image, panel, low, high)
            self._convolve(image, panel, start, stop)

    def _read(self, start: Any, stop: Any) -> tuple[Any, Any]:
        """[low, high) of the rows of t that rows start … stop - 1 of the result read."""
        f, axis = self.f, self.depthwise.rows
        reach = (axis.taps - 1) * axis.dilation - axis.low + 1
        low = f.max(f.sub(f.mul(start, axis.stride), axis.low), 0)
        high = f.min(f.add(f.mul(f.sub(stop, 1), axis.stride), reach), self.height)
        return low, f.max(low, high)

    def _multiply(self, image: Any, panel: Any, low: Any, high: Any) -> None:
        """Computes rows [low, high) of an image of t into scratch memory."""
        f, product = self.f, self.product
        above, channel = f.mul(low, self.width), f.mul(panel, self.columns)
        origin = f.add(f.mul(image, self.height * self.width), above)
        pixels = f.mul(f.sub(high, low), self.width)
        whole = product.epilogue.out
        place = self._before(f.add(f.mul(origin, self.columns), channel))
        product.epilogue.out = Buffer(place, whole.dtype, whole.shape, f.scope, (self.columns, 1))
        w = f.gep(self.scalar, product.b, f.mul(panel, product.panel_size))
        tiles = f.div(f.add(pixels, self.rows - 1), self.rows)
        for tile in panel_variants(f, product.dtype, self.channels, self.columns, panel, product.halved):
            with f.for_(0, tiles, hint="tile") as loop:
                # The last tile ends where the pixels end, and may compute some of them again.
                row = f.add(origin, f.min(f.mul(loop.index, self.rows), f.sub(pixels, self.rows)))
                x = f.gep(self.scalar, product.a, f.mul(row, product.a_strides[-2]))
                acc = product.tile(tile, self.rows, [row, channel], x, w, loop.index)
                product.epilogue.write(tile, acc, [row, channel])
        self.depthwise.x = self._before(f.add(f.mul(above, self.columns), channel))

    def _before(self, elements: Any) -> str:
        """The address that lies `elements` before scratch memory: where the whole array would begin of which scratch
        holds a part. There may be no memory at that address."""
        f = self.f
        return f.op(f"getelementptr {self.scalar}, ptr {self.scratch}, i64 {f.sub(0, elements)}")

    def _convolve(self, image: Any, panel: Any, start: Any, stop: Any) -> None:
        """Computes rows [start, stop) of an image of the result."""
        f, height = self.f, self.depthwise.height
        channel = f.mul(panel, self.columns)
        channels = channel, f.min(f.add(channel, self.columns), self.channels)
        whole = f.add(start, f.mul(f.div(f.sub(stop, start), height), height))
        with f.for_(start, whole, height, hint="row") as loop:
            self.depthwise.row_tile(image, loop.index, height, channels)
        full, last = divmod(self.out_height, self.band)
        for rest in sorted({n % height for n in (self.band if full else 0, last)} - {0}):
            with f.if_(f.op(f"icmp eq i64 {f.sub(stop, whole)}, {rest}")):
                self.depthwise.row_tile(image, whole, rest, channels)


def _part(body: Graph, plan: Plan, strides: tuple[Any, ...]) -> Op:
    """An op of its own for a part of the body."""
    return Op("fused", body.inputs, KERNEL(plan) | STRIDES(strides), body.outputs, (body,))
