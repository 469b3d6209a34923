"""Products, factorizations and eigenvalues of matrices."""
