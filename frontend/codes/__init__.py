"""Compiled code as programs keep it: by what it was made for (`store`), with which dimensions open, and why."""
