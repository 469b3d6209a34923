"""Loops, branches, and operators that users write in Python."""
