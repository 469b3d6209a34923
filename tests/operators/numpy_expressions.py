"""Uses of `mx.np` and `mx.npx` as programs write them, for real MXNet (`oracle/record_numpy.py`) and for gluonjit.

Each is an expression over the arrays below, and `np` and `npx`: the packages themselves, or `F.np` and `F.npx`.
"""

import numpy

ARRAYS = {
    "m": numpy.arange(6, dtype="float32").reshape(2, 3),
    "f": numpy.array([0.5, 1.5, 2.5, -0.5, -1.5], "float32"),
    "i": numpy.array([0, 1, 2], "int32"),
    "b": numpy.array([True, False, True]),
    "n": numpy.array([1, numpy.nan, numpy.inf, -numpy.inf], "float32"),
    "t": numpy.linspace(-2, 2, 24).astype("float32").reshape(2, 3, 4),
    "e": numpy.zeros((0, 3), "float32"),
    "s": numpy.array(1.5, "float32"),
    "d": numpy.array([[2.0, 1.0], [1.0, 3.0]], "float64"),
}

PICTURE = numpy.random.RandomState(0).rand(2, 3, 4, 4).astype("float32")
"""What the network of `record_numpy.py` is given."""

EXPRESSIONS = """
i + 2.5 | 2.5 - i | i * 2.5 | i / 2 | 3 / i | i % 2 | i ** 2 | 2 ** i | -m | abs(f) | i < 1.5 | i == 1.5 | m != 1
2 > m | m > s | s + 1 | s * m | m == m | i & i | i | 1 | i ^ 2 | m @ m.T | n > 0 | n == n | b + b
np.add(m, s) | np.subtract(1, m) | np.multiply(i, i) | np.divide(i, i + 1) | np.true_divide(m, 2) | np.mod(f, 0)
np.remainder(f, 1) | np.power(f, 2) | np.maximum(i, 1) | np.minimum(f, f[::-1]) | np.maximum(n, 0) | np.hypot(f, f)
np.arctan2(f, 2.0) | np.equal(i, 1) | np.not_equal(m, m) | np.greater(f, 0) | np.greater_equal(f, 0.5) | np.less(i, i)
np.less_equal(n, n) | np.bitwise_and(i, 1) | np.invert(i) | np.add(n, n)
np.abs(f) | np.absolute(i) | np.sign(n) | np.negative(f) | np.square(i) | np.sqrt(m) | np.cbrt(f) | np.exp(f)
np.expm1(f) | np.log(m + 1) | np.log2(m + 1) | np.log10(m + 1) | np.log1p(m) | np.sin(f) | np.cos(f) | np.tan(f)
np.arcsin(f / 3) | np.arccos(f / 3) | np.arctan(f) | np.sinh(f) | np.cosh(f) | np.tanh(f) | np.arcsinh(f)
np.arccosh(m + 1) | np.arctanh(f / 3) | np.degrees(f) | np.radians(f) | np.floor(f) | np.ceil(f) | np.rint(f)
np.trunc(f) | np.fix(f) | np.around(f) | np.reciprocal(f) | np.isnan(n) | np.isinf(n) | np.isfinite(n)
np.logical_not(n) | np.nan_to_num(n) | np.exp(n) | np.isnan(i) | np.exp(e) | np.exp(s)
np.sum(m) | np.sum(m, axis=0) | np.sum(m, axis=(0, 1), keepdims=True) | np.sum(e) | np.sum(e, axis=0) | np.sum(i)
np.sum(n) | np.sum(m, dtype='int32') | np.mean(m) | np.mean(i) | np.mean(m, axis=-1) | np.mean(t, axis=(0, 2))
np.mean(e)
np.prod(m + 1, axis=1) | np.max(f) | np.max(n) | np.min(m, axis=0) | np.max(m, axis=1, keepdims=True) | np.amax(i)
np.any(m, axis=0) | np.all(m) | np.any(e) | np.std(m) | np.var(m, axis=0) | np.var(m, ddof=1) | np.argmax(m)
np.argmax(m, axis=1) | np.argmin(f) | np.argmax(i) | np.cumsum(m) | np.cumsum(m, axis=1) | np.average(m)
m.sum() | m.mean(axis=1) | m.max() | m.min(axis=0) | m.std() | m.var() | m.argmax() | m.any() | m.all() | m.cumsum()
np.reshape(m, (3, -1)) | m.reshape(-1) | m.reshape(3, 2) | m.reshape((1, 6)) | m.flatten() | np.ravel(m) | m.T
np.transpose(t) | np.transpose(t, (1, 0, 2)) | t.transpose(2, 0, 1) | np.swapaxes(t, 0, 2) | np.moveaxis(t, 0, -1)
np.expand_dims(i, 0) | np.squeeze(m[:1]) | np.squeeze(m[:1, :1]) | np.broadcast_to(i, (2, 3)) | np.tile(i, (2, 1))
np.repeat(m, 2) | np.repeat(m, 2, axis=1) | np.flip(m, 0) | np.flip(m) | np.roll(m, 1) | np.roll(m, 1, axis=1)
np.concatenate([m, m]) | np.concatenate([m, m], axis=-1) | np.concatenate([m, m], axis=None) | np.stack([m, m])
np.stack([i, i], axis=-1) | np.vstack([i, i]) | np.hstack([i, i]) | np.dstack([m, m]) | np.column_stack([i, i])
np.split(m, 3, axis=1) | np.split(m, [1], axis=1) | np.array_split(f, 2) | np.hsplit(m, 3) | np.copy(m)
np.zeros_like(i) | np.ones_like(m) | np.full_like(m, 2) | np.zeros((2, 3)) | np.ones(()) | np.ones((0, 2))
np.arange(3)
np.arange(1, 2, 0.25) | np.arange(0) | np.arange(3, dtype='int32') | np.eye(2, 3, 1) | np.identity(2)
np.linspace(0, 1, 5)
np.full((2,), 3) | np.full((2,), 3.5, dtype='int32') | np.zeros((2,), dtype='bool')
np.where(m > 2, m, 0) | np.where(m > 2, 1, 0) | np.where(b, i, i + 1) | np.where(f > 0, 0, f) | np.clip(m, 1, 3)
np.clip(m, None, 3) | np.take(m, i % 2, axis=0, mode='clip') | np.take(f, i) | np.sort(f) | np.argsort(f)
np.argsort(m, axis=0) | np.tril(m) | np.diag(i) | np.diag(d) | np.trace(d) | np.diagonal(d)
np.pad(m, ((1, 1), (0, 2)))
np.dot(m, m.T) | np.dot(f, f) | np.matmul(t, t.swapaxes(1, 2)) | np.tensordot(m, m) | np.inner(m, m) | np.outer(f, f)
np.tensordot(m, t, axes=((0, 1), (0, 1))) | np.einsum('ij,kj->ik', m, m) | np.einsum('bij,bkj->bik', t, t)
np.vdot(f, f)
np.linalg.norm(m) | np.linalg.norm(m, axis=1) | np.linalg.norm(f, ord=1) | np.linalg.det(d) | np.linalg.slogdet(d)
np.sum(b, dtype=None) | np.linalg.inv(d)
m[0] | m[0, 1] | m[:, 1] | m[..., None] | m[None] | m[[0, 1]] | m[-1, ::-1] | m[:, ::2] | m[1:1] | t[1, :, -1] | s[()]
f[i] | m[i % 2] | t[:, i[1:]]
m.astype('int32') | m.copy() | m.squeeze() | m.swapaxes(0, 1) | m.repeat(2) | m.clip(1, 2) | m.take(i)
i.astype(bool)
npx.relu(f) | npx.relu(i) | npx.relu(n) | npx.sigmoid(f) | npx.activation(f, act_type='tanh')
npx.leaky_relu(f, slope=0.1)
npx.softmax(m) | npx.softmax(m, axis=0) | npx.log_softmax(m) | npx.batch_flatten(t) | npx.pick(m, i[:2])
npx.topk(m, k=2) | npx.topk(m, k=2, ret_typ='value') | npx.one_hot(i, 3)
npx.embedding(i, m.T, input_dim=3, output_dim=2)
npx.fully_connected(m, m, no_bias=True, num_hidden=2) | npx.layer_norm(m, f[:3], f[2:]) | npx.gamma(f)
npx.gammaln(f)
npx.erf(f) | npx.erfinv(f / 3) | npx.reshape(t, (-2, -5)) | npx.reshape(t, (-4,)) | npx.reshape(t, (-6, 1, 2, -5))
npx.reshape_like(m, m.T) | npx.sequence_mask(m.T, f[:2], use_sequence_length=True) | npx.smooth_l1(f, scalar=1.0)
npx.arange_like(f) | npx.batch_dot(t, t, transpose_b=True) | npx.gather_nd(m, i[None, :2] % 2) | npx.cast(f, 'int32')
npx.slice(m, begin=(0, 1), end=(2, 3)) | npx.shape_array(t) | npx.dropout(m)
npx.pooling(t[None], kernel=(2, 2), pool_type='avg')
npx.convolution(t[None], t[None], kernel=(3, 4), num_filter=1, no_bias=True)
npx.batch_norm(t, s * np.ones(3), np.zeros(3), np.zeros(3), np.ones(3))
"""


def expressions() -> list[str]:
    """`i | 1` is one expression: the bar of a table has spaces around, and Python's does not stand before a number."""
    found: list[str] = []
    for part in (part.strip() for line in EXPRESSIONS.strip().splitlines() for part in line.split(" | ")):
        if part.isdigit():
            found[-1] += f" | {part}"
        else:
            found.append(part)
    return found


def evaluate(expression, arrays, np, npx):
    """The results, as a list."""
    value = eval(expression, {"np": np, "npx": npx, **arrays})
    return list(value) if isinstance(value, (list, tuple)) else [value]
