"""What a selector works on: an op of level `fused` around an anchor, and how the kernel that replaces it is emitted."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from gluonjit.ir.annotations import GUARD, KERNEL
from gluonjit.ir.dims import hint, is_static
from gluonjit.ir.graph import Builder, Graph, Op, Value
from gluonjit.ir.kernels.element_plans import Loops, View
from gluonjit.ir.machine import Machine
from gluonjit.ir.primitives.reduction import accumulator
from gluonjit.passes.regroup import Epilogue, write_epilogue
from gluonjit.passes.tiling import MAX_ROWS


@dataclass(frozen=True)
class Site:
    b: Builder
    op: Op
    """The op as the old graph has it."""
    operands: tuple[Value, ...]
    """Its operands in the new graph."""
    anchor: Op
    fixed: Container[Value]
    """The values of the old graph that change rarely: what is computed from them costs nothing."""
    target: Machine
    winograd: bool = True
    """Whether convolutions may be computed by fewer multiplications, which rounds a little more."""
    most: int = MAX_ROWS
    """Rows of a register tile."""

    @property
    def body(self) -> Graph:
        return self.op.regions[0]

    def is_supported(self) -> bool:
        """Whether the anchor reads buffers, of a type that kernels know, and computes something."""
        inputs, dtype = self.body.inputs, self.anchor.operands[0].dtype
        values = (*self.anchor.operands, self.anchor.result)
        return (
            all(v in inputs for v in self.anchor.operands)
            and self.target.multiplies(dtype)
            and self.target.multiplication(dtype).sums is accumulator(self.anchor.result.dtype)
            and all(v.size for v in values)
        )

    def operand(self, k: int) -> Value:
        """The value outside of the kernel that is the anchor's operand k, in the type that the kernel computes in."""
        v = self.operands[self.body.inputs.index(self.anchor.operands[k])]
        dtype = self.target.multiplication(v.dtype).computed_in
        if v.dtype is dtype:
            return v
        return moved(self.b, v, lambda body, x: body.cast(x, dtype=dtype), "cast")

    @property
    def factors(self) -> int:
        """How many neighbouring terms of the sum kernels multiply at a time."""
        return self.target.multiplication(self.anchor.operands[0].dtype).terms

    def is_open_in_batch_alone(self) -> bool:
        """Whether a convolution's extents are known, but for the number of images, which its operands and its result
        have in front. (A gradient of weights sums over the images.)"""
        values = (*self.anchor.operands, self.anchor.result)
        return all(is_static(v.shape[1:]) for v in values) and all(
            v.type.is_static or letters[0] in images
            for v, letters, images in zip(values, self.anchor.attrs["layout"], ("NC", "I", "N"), strict=True)
        )

    def is_open_in_images(self) -> bool:
        """Whether at most the number of images and their spatial extents are open, in a way that kernels know: the
        positions that are left over after the last window do not depend on a size."""
        anchor = self.anchor
        (x, w), y = anchor.operands, anchor.result
        if not w.type.is_static or not is_static((x.shape[-1], y.shape[-1])):
            return False
        rest = (n - m * k for n, m, k in zip(x.shape[1:-1], y.shape[1:-1], anchor.attrs["stride"], strict=True))
        return is_static(rest)

    def is_fixed(self, k: int) -> bool:
        return self.op.operands[self.body.inputs.index(self.anchor.operands[k])] in self.fixed

    def emit(
        self,
        epilogue: Epilogue,
        buffers: Sequence[Value],
        anchor: Callable[..., Value],
        notes: Mapping[str, Any],
        guard: Value | None = None,
    ) -> Value:
        """The kernel that computes `anchor(body, *buffers)` and then the epilogue, annotated with `notes`.

        It is right only where `guard`, if there is one, holds; where it does not, loops compute the same
        (`codegen.program.lower_kernel`)."""
        body = Builder("body", "fused")
        body.loc = self.anchor.loc
        result = anchor(body, *(body.input(name, v.type) for name, v in zip(("x", "w"), buffers, strict=True)))
        wanted = self.anchor.result.dtype
        if result.dtype is not wanted:
            result = body.cast(result, dtype=wanted)
        names = [self.body.inputs[side.index].name for side in epilogue.sides.values()]
        out = write_epilogue(body, epilogue, self.anchor, result, names)
        sides = [view(self.b, self.operands[side.index], side.shape) for side in epilogue.sides.values()]
        operands = [*buffers, *sides]
        if guard is not None:
            body.input("guard", guard.type)
            notes = {**notes, **GUARD(len(operands))}
            operands.append(guard)
        y = self.b.emit("fused", operands, notes, [body.build([out])], self.op.loc)[0]
        return view(self.b, y, self.op.results[0].shape)

    def split(self, select: Callable[[Site], Value | None], turned: bool = False) -> Value | None:
        """The anchor in a kernel that `select` finds for it alone, and what follows it in another.

        For epilogues that the anchor's kernel cannot compute; None when there is no kernel even so. `turned`: the
        operands of a `dot_general` change places, so that what follows reads its result transposed.
        """
        body, anchor = self.body, self.anchor
        alone = Builder("body", body.level)
        env = {v: alone.input(v.name, v.type) for v in body.inputs}
        operands, attrs = [env[v] for v in anchor.operands], anchor.attrs
        if turned:
            operands.reverse()
            attrs = {**attrs, **{name: attrs[name][::-1] for name in ("contract", "batch")}}
        result = alone.emit(anchor.name, operands, attrs, (), anchor.loc)[0]
        region = alone.build([result])
        op = replace(self.op, results=(result,), regions=(region,))
        product = select(replace(self, op=op, anchor=region.ops[0]))
        if product is None:
            return None
        following = [o for o in body.ops if o is not anchor]
        read = {v for o in following for v in o.operands}
        rest = Builder("body", body.level)
        inner = {v: rest.input(v.name, v.type) for v in body.inputs if v in read}
        inner[anchor.result] = rest.input("product", product.type)
        if turned:
            inner[anchor.result] = rest.transpose(inner[anchor.result], perm=_turned_back(anchor))
        for o in following:
            rest.loc = o.loc
            inner.update(zip(o.results, rest.emit(o.name, [inner[v] for v in o.operands], o.attrs), strict=True))
        sides = [x for v, x in zip(body.inputs, self.operands, strict=True) if v in read]
        region = rest.build([inner[v] for v in body.outputs])
        return self.b.emit("fused", [*sides, product], KERNEL(Loops()), [region], self.op.loc)[0]


def _turned_back(product: Op) -> tuple[int, ...]:
    """The permutation that gives a `dot_general`'s result, where its operands have changed places."""
    batch, last = len(product.attrs["batch"][0]), product.result.ndim
    first = last - (product.operands[0].ndim - batch - len(product.attrs["contract"][0]))
    return (*range(batch), *range(first, last), *range(batch, first))


class Convolution(NamedTuple):
    """A convolution, channels last, along the axes on which it does anything, of buffers x and w."""

    x: Value
    w: Value
    attrs: dict[str, Any]
    epilogue: Epilogue


def weights_guard(b: Builder, w: Value, attrs: Mapping[str, Any]) -> Value | None:
    """Whether all of a convolution's weights are finite, where its kernel needs to know: where zeros that it reads are
    no terms of the sum, or zeros that it leaves out are (`conv`'s `blank_low` and `blank_high`). Else None."""
    if not w.dtype.is_float or not any((*(attrs["blank_low"] or ()), *(attrs["blank_high"] or ()))):
        return None
    axes = tuple(range(w.ndim))
    return moved(b, w, lambda body, v: body.reduce(body.isfinite(v), op="all", axes=axes), "all_finite")


def view(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    """`x` under another shape: renames its buffer, costs nothing."""
    if x.shape == tuple(shape):
        return x
    return b.emit("reshape", [x], {"shape": tuple(shape), **KERNEL(View())})[0]


def past_caches(given: Iterable[Value], made: Iterable[Value], target: Machine) -> bool:
    """Whether results that loops write are better written past the caches: together with the operands they are larger
    than the last one. Sums of large values stay in it."""
    read, written = (sum(hint(v.type.nbytes) for v in values) for values in (given, made))
    return read + written > target.l3 and written > target.l2


def moved(b: Builder, x: Value, write: Callable[[Builder, Value], Value], name: str, streaming: bool = False) -> Value:
    """A kernel of its own that brings `x` into another form, past the caches if so: `write` emits its body."""
    body = Builder(name, "fused")
    body.loc = b.loc
    out = write(body, body.input("x", x.type))
    return b.emit("fused", [x], KERNEL(Loops(streaming=streaming)), [body.build([out])])[0]


def padded_line(b: Builder, x: Value, attrs: dict[str, Any]) -> tuple[Value, dict[str, Any]]:
    """The input with explicit padding of its last spatial axis, and the attributes without that padding."""
    low, high = (max(attrs[k][-1], 0) for k in ("low", "high"))
    before, after = ((0,) * (x.ndim - 2) + (n, 0) for n in (low, high))
    new = moved(b, x, lambda body, v: body.pad(v, body.constant(0, v.dtype), low=before, high=after), "pad")
    left = dict(attrs)
    for key, n in (("low", low), ("high", high)):
        left[key] = (*attrs[key][:-1], attrs[key][-1] - n)
        *outer, blank = attrs[f"blank_{key}"] or (0,) * len(attrs[key])
        left[f"blank_{key}"] = (*outer, blank + n)
    return new, left
