"""`distribute-sums`: products that a loop only adds up become one product after it.

The gradient of weights that every iteration multiplies with is a sum over the iterations, Σₜ xₜᵀ yₜ, which the backward
loop carries: it reads and writes an array of the size of the weights in each one, for a product with as few terms as
the batch has samples. But rows of the loop hold x and y, or may, and all terms together are one contraction, over
iterations and samples. (Loop distribution; the sum of a product over an axis of both of its factors.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gluonjit.ir.dims import is_static
from gluonjit.ir.graph import Builder, Graph, Op, Value, copy_ops, rewrite
from gluonjit.passes.manager import register_pass


class _Sum(NamedTuple):
    """The carried value of this number: in each iteration, a product is added to it, perhaps transposed."""

    carried: int
    product: Op
    turned: Op | None
    """The transposition."""
    total: Op


@register_pass("distribute-sums", needs="legal")
def distribute_sums(graph: Graph) -> Graph:
    """Takes sums of products out of loops that do nothing else with them, if their factors, as far as they are no rows
    yet, are smaller than a product."""
    return rewrite(graph, _distributed, only_with=lambda op: op.name == "loop")


def _distributed(b: Builder, op: Op, operands: tuple[Value, ...]) -> Sequence[Value] | None:
    if op.name != "loop" or len(op.regions) != 1 or not is_static((op.attrs["trip"],)):
        return None
    body, carried, scanned = op.regions[0], op.attrs["carried"], op.attrs["scanned"]
    sums = [s for k in range(carried) if (s := _sum(body, op, k)) is not None]
    if not sums:
        return None
    gone = {s.carried for s in sums}
    kept = [k for k in range(carried) if k not in gone]
    inner = Builder(body.name, body.level, bool(body.attrs.get("training", False)))
    env = {v: inner.input(v.name, v.type) for k, v in enumerate(body.inputs) if k - 1 not in gone}
    copy_ops(inner, [o for o in body.ops if not any(o in s for s in sums)], env)
    rows = list(body.outputs[carried:])
    rows += dict.fromkeys(v for s in sums for v in s.product.operands if v not in (*_items(body, op), *rows))
    region = inner.build([env[v] for v in (*(body.outputs[k] for k in kept), *rows)], body.attrs)
    attrs = {**op.attrs, "carried": len(kept)}
    names = [*(op.results[k].name for k in kept), *(r.name for r in op.results[carried:])]
    names += [""] * (len(kept) + len(rows) - len(names))
    new = b.emit("loop", [*(operands[k] for k in kept), *operands[carried:]], attrs, [region], op.loc, names)
    whole = dict(zip(rows, new[len(kept) :])) | dict(zip(_items(body, op), operands[carried : carried + scanned]))
    results = dict(zip(kept, new)) | {k: new[len(kept) - carried + k] for k in range(carried, len(op.results))}
    for s in sums:
        axes = tuple((0, *(k + 1 for k in contracted)) for contracted in s.product.attrs["contract"])
        product = b.dot_general(*(whole[v] for v in s.product.operands), contract=axes, dtype=s.product.attrs["dtype"])
        if s.turned is not None:
            product = b.transpose(product, perm=s.turned.attrs["perm"])
        results[s.carried] = b.add(operands[s.carried], product)
    return [results[k] for k in range(len(op.results))]


def _items(body: Graph, op: Op) -> Sequence[Value]:
    """The inputs of the body that are rows of what the loop scans."""
    first = 1 + op.attrs["carried"]
    return body.inputs[first : first + op.attrs["scanned"]]


def _sum(body: Graph, op: Op, k: int) -> _Sum | None:
    """Carried value k, if the loop only adds products to it, and these are worth taking out."""
    before, after = body.inputs[1 + k], body.outputs[k]
    total = body.producers.get(after)
    if total is None or total.name != "add" or total.operands.count(before) != 1:
        return None
    (term,) = (v for v in total.operands if v is not before)
    product = turned = body.producers.get(term)
    if turned is not None and turned.name == "transpose":
        product = body.producers.get(turned.operands[0])
    else:
        turned = None
    if product is None or product.name != "dot_general" or any(product.attrs["batch"]):
        return None
    inside = {before, product.result, term, after}
    readers = {user for v in inside for user in body.uses.get(v, ())}
    if not readers <= {turned, total} or [v in inside for v in body.outputs].count(True) != 1:
        return None
    same = {body.inputs[0], *body.inputs[1 + op.attrs["carried"] + op.attrs["scanned"] :]}
    if not same.isdisjoint(product.operands) or not all(is_static(v.shape) for v in (*product.operands, term)):
        return None
    new = {v for v in product.operands if v not in (*_items(body, op), *body.outputs[op.attrs["carried"] :])}
    return _Sum(k, product, turned, total) if sum(v.type.nbytes for v in new) < term.type.nbytes else None
