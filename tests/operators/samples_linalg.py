"""Samples of the `linalg` operators that factorize, solve and pack."""

import numpy as np

from .samples import floats, sample


def positive(rng, *batch, n=4, dtype="float32"):
    """Symmetric positive definite matrices, whose elements are multiples of 1/64."""
    a = rng.randint(-16, 17, (*batch, n, n))
    return ((a @ np.swapaxes(a, -1, -2)) / 64 + np.eye(n)).astype(dtype)


def factor(rng, *batch, n, dtype="float32"):
    """Lower triangles with a positive diagonal, as a Cholesky factorization has them."""
    below, diagonal = floats(rng, *batch, n, n, low=-1, high=1), floats(rng, *batch, n, low=1, high=2)
    return (np.tril(below, -1) + diagonal[..., None] * np.eye(n)).astype(dtype)


def well_conditioned(rng, *batch, n=4, dtype="float32"):
    return (floats(rng, *batch, n, n, low=-1, high=1) + 2 * np.sqrt(n) * np.eye(n)).astype(dtype)


@sample("_linalg_potrf")
def cholesky(rng):
    return [positive(rng, 2)], {}


@sample("_linalg_potrf")
def cholesky_upper(rng):
    return [positive(rng, n=5, dtype="float64")], {"lower": False}


@sample("_linalg_potrf")
def cholesky_reads_one_triangle(rng):
    lower = bool(rng.randint(2))
    a = positive(rng, 1, 2, n=3)
    a = np.where(np.tri(3, dtype=bool) if lower else np.tri(3, dtype=bool).T, a, np.float32(np.nan))
    return [a], {"lower": lower}


@sample("_linalg_potrf")
def cholesky_of_blocks(rng):
    return [positive(rng, n=40) + 20 * np.eye(40, dtype="float32")], {}


@sample("_linalg_potri")
def inverse_of_product(rng):
    return [factor(rng, 2, n=3)], {}


@sample("_linalg_potri")
def inverse_of_product_upper(rng):
    return [np.swapaxes(factor(rng, n=5, dtype="float64"), -1, -2)], {"lower": False}


@sample("_linalg_potri")
def inverse_of_product_of_blocks(rng):
    return [well_conditioned(rng, n=34)], {}


@sample("_linalg_trsm")
def solve(rng):
    attrs = {"transpose": bool(rng.randint(2)), "lower": bool(rng.randint(2)), "alpha": 0.5}
    return [well_conditioned(rng, 2), floats(rng, 2, 4, 3)], attrs


@sample("_linalg_trsm")
def solve_from_the_right(rng):
    attrs = {"transpose": bool(rng.randint(2)), "lower": bool(rng.randint(2)), "rightside": True}
    return [well_conditioned(rng, n=3, dtype="float64"), floats(rng, 2, 3, dtype="float64")], attrs


@sample("_linalg_trsm")
def solve_singular(rng):
    return [np.zeros((3, 3), "float32"), np.ones((3, 2), "float32")], {}


@sample("_linalg_trsm")
def solve_blocks(rng):
    return [well_conditioned(rng, n=70), floats(rng, 70, 2)], {"lower": bool(rng.randint(2))}


SQUARE = ["_linalg_det", "_linalg_slogdet", "_npi_det", "_npi_slogdet"]


@sample(*SQUARE, "_linalg_inverse")
def square(rng):
    return [well_conditioned(rng, 2, n=3)], {}


@sample(*SQUARE, "_linalg_inverse")
def square_with_exchanges(rng):
    return [np.roll(well_conditioned(rng, 2, 2, n=5, dtype="float64"), 1 + rng.randint(3), -1)], {}


@sample(*SQUARE, "_linalg_inverse")
def one_matrix(rng):
    return [np.array([[0, 2, 1], [1, 0, 3], [4, 0, 1]], "float32")], {}


@sample(*SQUARE, "_linalg_inverse")
def square_of_blocks(rng):
    return [np.roll(well_conditioned(rng, n=36) / 12, 3, -1)], {}


@sample(*SQUARE)
def singular(rng):
    return [np.array([[[1, 2], [2, 4]], [[0, 0], [0, 0]]], "float32")], {}


@sample("_linalg_det", "_npi_det")  # MXNet's sign of NaN is 0
def nan_among_them(rng):
    a = well_conditioned(rng, 2, n=2)
    a[1, 0, 0] = np.nan
    return [a], {}


@sample("_linalg_gelqf")
def factors(rng):
    return [floats(rng, 2, 3, 5)], {}


@sample("_linalg_gelqf")
def factors_of_square(rng):
    return [floats(rng, 4, 4, dtype="float64")], {}


@sample("_linalg_gelqf")
def factors_with_nothing_to_do(rng):
    a = np.diag(np.array([2, -3, 1], "float32"))
    a[2, 2] = 0
    return [a], {}


@sample("_linalg_syevd")
def eigen(rng):
    a = floats(rng, 2, 4, 4)
    return [a + np.swapaxes(a, -1, -2)], {}


@sample("_linalg_syevd")
def eigen_of_odd(rng):
    return [floats(rng, 5, 5, dtype="float64")], {}


@sample("_linalg_syevd")
def eigen_of_diagonal(rng):
    return [np.diag(np.array([3, -1, 2], "float32"))], {}


@sample("_linalg_syevd")
def eigen_of_one(rng):
    return [floats(rng, 3, 1, 1)], {}


@sample("_linalg_syevd")
def eigen_of_two(rng):
    return [np.array([[2, 1], [1, 2]], "float64")], {}


@sample("_npi_eigh", "_npi_eigvalsh")
def eigen_of_a_triangle(rng):
    return [floats(rng, 2, 4, 4)], {"UPLO": "LU"[rng.randint(2)]}


@sample("_npi_eigh", "_npi_eigvalsh")
def eigen_of_three(rng):
    return [floats(rng, 3, 3, dtype="float64")], {"UPLO": "U"}


@sample("_npi_eigh", "_npi_eigvalsh")
def eigen_of_known(rng):
    return [np.array([[2, 1, 0], [1, 2, 0], [0, 0, 7]], "float32")], {}


@sample("_npi_eigh", "_npi_eigvalsh")
def eigen_of_five(rng):
    return [floats(rng, 1, 5, 5)], {}


PSEUDO = ["_npi_svd", "_npi_pinv_scalar_rcond"]


@sample(*PSEUDO)
def wide(rng):
    return [floats(rng, 2, 3, 5)], {}


@sample(*PSEUDO)
def wide_square(rng):
    return [floats(rng, 4, 4, dtype="float64")], {}


@sample(*PSEUDO)
def one_row(rng):
    return [floats(rng, 1, 3)], {}


@sample(*PSEUDO)
def wide_batches(rng):
    return [floats(rng, 2, 1, 5, 6, dtype="float64")], {}


@sample("_npi_svd")
def of_orthogonal_rows(rng):
    return [np.array([[0, 3, 0, 4], [2, 0, 0, 0], [0, 1, 0, -0.75]], "float32")], {}


@sample("_npi_svd", "_npi_pinv_scalar_rcond", oracle=False)  # what MXNet gives are rounding errors
def of_rank_1(rng):
    return [np.array([[1, 2, 3], [2, 4, 6]], "float32")], {}


@sample("_npi_pinv_scalar_rcond")
def tall(rng):
    return [floats(rng, 2, 5, 3)], {"rcond": 0.3}


@sample("_npi_pinv")
def with_number(rng):
    return [floats(rng, 2, 3, 4), np.array(0.5, "float32")], {}


@sample("_npi_pinv")
def with_limits(rng):
    return [floats(rng, 2, 4, 3, dtype="float64"), np.array([0.1, 0.6], "float64")], {}


@sample("_npi_pinv")
def with_limit_of_one(rng):
    return [floats(rng, 3, 3), np.array(1e-6, "float32")], {}


@sample("_npi_solve")
def equations(rng):
    return [well_conditioned(rng, 2), floats(rng, 2, 4, 3)], {}


@sample("_npi_solve")
def one_equation(rng):
    return [np.roll(well_conditioned(rng, n=3, dtype="float64"), 1, -1), floats(rng, 3, dtype="float64")], {}


@sample("_npi_solve")
def equations_of_vectors(rng):
    return [well_conditioned(rng, 2, n=3), floats(rng, 2, 3)], {}


@sample("_npi_solve")
def equations_of_blocks(rng):
    return [well_conditioned(rng, n=36), floats(rng, 36, 2)], {}


@sample("_npi_tensorinv")
def tensor_inverse(rng):
    return [well_conditioned(rng, n=6).reshape(2, 3, 6)], {"ind": 2}


@sample("_npi_tensorinv")
def tensor_inverse_of_matrices(rng):
    return [well_conditioned(rng, n=4, dtype="float64").reshape(4, 2, 2)], {"ind": 1}


@sample("_npi_tensorsolve")
def tensor_equations(rng):
    return [well_conditioned(rng, n=6).reshape(2, 3, 6), floats(rng, 2, 3)], {}


@sample("_npi_tensorsolve")
def tensor_equations_with_moved_axes(rng):
    a = well_conditioned(rng, n=6, dtype="float64").reshape(2, 3, 2, 3)
    return [a.transpose(0, 2, 1, 3).copy(), floats(rng, 2, 3, dtype="float64")], {"a_axes": (1,)}


@sample("_linalg_extracttrian")
def pack(rng):
    return [floats(rng, 2, 4, 4)], {"offset": int(rng.randint(-3, 4)), "lower": bool(rng.randint(2))}


@sample("_linalg_extracttrian")
def pack_lower(rng):
    return [floats(rng, 3, 3, dtype="float64")], {}


@sample("_linalg_extracttrian")
def pack_upper(rng):
    return [floats(rng, 1, 2, 3, 3)], {"lower": False}


@sample("_linalg_maketrian")
def unpack(rng):
    return [floats(rng, 2, 6)], {"offset": int(rng.randint(-2, 3)), "lower": bool(rng.randint(2))}


@sample("_linalg_maketrian")
def unpack_lower(rng):
    return [floats(rng, 10, dtype="float64")], {}


@sample("_linalg_maketrian")
def unpack_upper(rng):
    return [floats(rng, 2, 1, 3)], {"lower": False}


@sample("_linalg_potrf", "_linalg_potri", "_linalg_inverse", "_linalg_gelqf", "_linalg_syevd", *SQUARE, oracle=False)
@sample("_npi_eigh", "_npi_eigvalsh", *PSEUDO, oracle=False)
def nothing(rng):
    return [np.zeros((2, 0, 0), "float32")], {}
