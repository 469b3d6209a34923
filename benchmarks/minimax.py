"""Fits the polynomials in codegen/math/vecmath and codegen/math/f64_*: `pip install mpmath; python
benchmarks/minimax.py`.

Each is the P (and Q) that makes the largest weighted error |w(x) (f(x) - P(x)/Q(x))| smallest, found by Lawson's
iteration: least squares on Chebyshev nodes, where each round multiplies a node's weight by its error (and, for
quotients, divides by Q of the last round). The printed error is that of the coefficients as printed.
"""

import mpmath as mp

mp.mp.dps = 60


def fit(f, weight, low, high, p, q=0, rounds=40, nodes=160):
    """Coefficients of P (degree p) and Q (degree q, constant term 1), lowest first."""
    xs = [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * k + 1) / (2 * nodes)) for k in range(nodes)]
    fs, ws = [f(x) for x in xs], [weight(x) for x in xs]
    lawson, den = [mp.mpf(1)] * nodes, [mp.mpf(1)] * nodes
    best = None
    for _ in range(rounds):
        # w (P - f (Q - 1)) ≈ w f, by the normal equations: 60 digits leave room for their condition.
        rows = [
            [w * x**k / d for k in range(p + 1)] + [-w * y * x**k / d for k in range(1, q + 1)]
            for x, y, w, d in zip(xs, fs, ws, den)
        ]
        right = [w * y / d for y, w, d in zip(fs, ws, den)]
        size = p + q + 1
        a = mp.matrix(size, size)
        b = mp.matrix(size, 1)
        for row, r, l in zip(rows, right, lawson):
            for i in range(size):
                b[i] += l * row[i] * r
                for j in range(size):
                    a[i, j] += l * row[i] * row[j]
        c = mp.lu_solve(a, b)
        num, denominator = list(c[: p + 1]), [mp.mpf(1), *c[p + 1 :]]
        den = [mp.polyval(denominator[::-1], x) for x in xs]
        errors = [abs(w * (y - mp.polyval(num[::-1], x) / d)) for x, y, w, d in zip(xs, fs, ws, den)]
        if best is None or max(errors) < best[0]:
            best = max(errors), num, denominator
        total = sum(l * e for l, e in zip(lawson, errors))
        lawson = [l * e / total * nodes for l, e in zip(lawson, errors)]
    return best[1], best[2]


def show(name, f, weight, low, high, p, q=0, digits=17):
    num, den = fit(f, weight, mp.mpf(low), mp.mpf(high), p, q)
    text_num, text_den = ([mp.nstr(c, digits) for c in cs] for cs in (num, den))
    num, den = ([mp.mpf(t) for t in text] for text in (text_num, text_den))
    points = [low + (high - low) * mp.mpf(k) / 2000 for k in range(2001)]
    error = max(abs(weight(x) * (f(x) - mp.polyval(num[::-1], x) / mp.polyval(den[::-1], x))) for x in points if x != 0)
    print(f"{name}: {mp.nstr(error, 2)}\n  P = ({', '.join(text_num)})")
    if q:
        print(f"  Q = ({', '.join(text_den)})")


def main():
    half = mp.log(2) / 2
    q2 = lambda r: (mp.expm1(r) - r) / r**2 if abs(r) > mp.mpf("1e-12") else mp.mpf(1) / 2 + r / 6  # noqa: E731
    show("exp f32, (e^r - 1 - r)/r^2", q2, lambda r: r**2 / mp.exp(r), -half, half, 4, digits=9)
    show("expm1 f32, (e^r - 1 - r)/r^2", q2, lambda r: r if abs(r) > 0 else 0, -half, half, 4, digits=9)
    show("expm1 f32, upwards", q2, lambda r: r**2 / mp.expm1(r) if r else 0, mp.mpf("-0.35"), 2 * half, 5, digits=9)
    low, high = mp.sqrt(mp.mpf(1) / 2) - 1, mp.sqrt(2) - 1
    q3 = lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3 if abs(f) > mp.mpf("1e-12") else mp.mpf(1) / 3 - f / 4  # noqa: E731
    show("log f32, (log(1+f) - f + f^2/2)/f^3", q3, lambda f: f**2, low, high, 7, digits=9)
    quarter = (mp.pi / 4) ** 2
    tiny = mp.mpf("1e-20")
    s = lambda u: (mp.sin(mp.sqrt(u)) / mp.sqrt(u) - 1) / u if u > tiny else mp.mpf(-1) / 6  # noqa: E731
    c = lambda u: (mp.cos(mp.sqrt(u)) - 1 + u / 2) / u**2 if u > tiny else mp.mpf(1) / 24  # noqa: E731
    show("sin f32, (sin x - x)/x^3 in u = x^2", s, lambda u: u, 0, quarter, 2, digits=9)
    show("cos f32, (cos x - 1 + x^2/2)/x^4 in u", c, lambda u: u**2, 0, quarter, 2, digits=9)
    e = lambda u: mp.erf(mp.sqrt(u)) / mp.sqrt(u) if u > tiny else 2 / mp.sqrt(mp.pi)  # noqa: E731
    show("erf f32, erf(x)/x in u, |x| <= 3.93", e, lambda u: 1 / e(u), 0, mp.mpf("3.93") ** 2, 5, 5, digits=9)
    t = (mp.tan(mp.pi / 8)) ** 2
    a = lambda u: (mp.atan(mp.sqrt(u)) / mp.sqrt(u) - 1) / u if u > tiny else mp.mpf(-1) / 3  # noqa: E731
    show("atan f64, (atan x - x)/x^3 in u", a, lambda u: u, 0, t, 10)
    show("erf f64, erf(x)/x in u, |x| < 1", e, lambda u: 1 / e(u), 0, 1, 12)
    # erfc: (1 + 2y) exp(y^2) erfc(y) in t = (y - 3)/(y + 3)
    y_of = lambda t: 3 * (1 + t) / (1 - t)  # noqa: E731
    tail = lambda t: (1 + 2 * y_of(t)) * mp.exp(y_of(t) ** 2) * mp.erfc(y_of(t))  # noqa: E731
    show("erfc f64 tail", tail, lambda t: 1 / tail(t), (1 - mp.mpf(3)) / 4, (27 - mp.mpf(3)) / 30, 22)


if __name__ == "__main__":
    main()
