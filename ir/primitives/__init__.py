"""The primitives that graphs are made of."""
