"""Kernels that are more than loops over elements, each in a file of its name: products, convolutions, sorting, calls of
Python, loops and branches of the graph."""
