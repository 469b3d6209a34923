"""Winograd's short convolutions: m outputs of an r-tap correlation with m + r - 1 multiplications, by Toom and Cook.

    y = Aᵀ [(G g) ⊙ (Bᵀ d)]        d [n], g [r], y [m], n = m + r - 1

Correlation is the transpose of polynomial multiplication, which can be done by evaluating at n points, multiplying, and
interpolating; the last point is infinity (Blahut, "Fast Algorithms for Signal Processing", 2010; Lavin and Gray, "Fast
Algorithms for Convolutional Neural Networks", 2016). In two dimensions the transforms are nested. All matrices are
exact.

The points decide how errors grow. For n = 6 the pair 1/2, -2 gives a third of the error of 2, -2 (Barabasz et al.,
"Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural Networks", 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

Matrix = tuple[tuple[Fraction, ...], ...]

POINTS = tuple(map(Fraction, ("0", "1", "-1", "1/2", "-2", "-1/2", "2")))


@dataclass(frozen=True)
class Transform:
    output: Matrix
    """Aᵀ, [m, n]."""
    weight: Matrix
    """G, [n, r]."""
    input: Matrix
    """Bᵀ, [n, n]."""
    inverse: Matrix
    """The pseudo-inverse of G, [r, n], which restores the taps."""


@cache
def transform(outputs: int, taps: int) -> Transform:
    """The matrices for `outputs` results of `taps` taps; for one result or one tap, those of the direct method."""
    n = outputs + taps - 1
    identity = tuple(tuple(Fraction(i == j) for j in range(n)) for i in range(n))
    if outputs == 1:
        return Transform(((Fraction(1),) * n,), identity, identity, identity)
    if taps == 1:
        return Transform(identity, ((Fraction(1),),) * n, identity, identity[:1])
    finite = POINTS[: n - 1]
    if len(finite) < n - 1:
        raise ValueError(f"F({outputs}, {taps}) needs {n - 1} points, there are {len(POINTS)}")
    output = tuple((*(p**k for p in finite), Fraction(k == outputs - 1)) for k in range(outputs))
    weight, input = [], []
    for p in finite:
        others = [q for q in finite if q != p]
        scale = _product([[p - q] for q in others])[0]
        weight.append(tuple(p**k / scale for k in range(taps)))
        input.append((*_product([[-q, Fraction(1)] for q in others]), Fraction(0)))
    weight.append(tuple(Fraction(k == taps - 1) for k in range(taps)))
    input.append(_product([[-q, Fraction(1)] for q in finite]))
    return Transform(output, tuple(weight), tuple(input), _pseudo_inverse(tuple(weight)))


def _product(polynomials: list[list[Fraction]]) -> tuple[Fraction, ...]:
    """Coefficients, lowest first."""
    result = [Fraction(1)]
    for p in polynomials:
        new = [Fraction(0)] * (len(result) + len(p) - 1)
        for i, a in enumerate(result):
            for j, b in enumerate(p):
                new[i + j] += a * b
        result = new
    return tuple(result)


def _pseudo_inverse(g: Matrix) -> Matrix:
    """(gᵀ g)⁻¹ gᵀ, by Gauss-Jordan elimination."""
    r = len(g[0])
    rows = []
    for i in range(r):
        square = [sum((row[i] * row[j] for row in g), Fraction(0)) for j in range(r)]
        rows.append([*square, *(row[i] for row in g)])
    for k in range(r):
        pivot = rows[k][k]  # gᵀ g is positive definite: never 0
        rows[k] = [v / pivot for v in rows[k]]
        for i in range(r):
            if i != k:
                rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[k])]
    return tuple(tuple(row[r:]) for row in rows)
