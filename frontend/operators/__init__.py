"""MXNet's operators: each declared once, as attributes and one function that expands it into primitives.

Importing this package declares them all; `registry.get(name)` finds one by its name or an alias.
"""
