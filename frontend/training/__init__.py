"""Initializers of parameters, and schedules of learning rates."""
