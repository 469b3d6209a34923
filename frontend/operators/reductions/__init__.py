"""Sums and maxima along axes, order, counts."""
