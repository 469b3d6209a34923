"""Predefined models, and the local folder with their published weights."""

from gluonjit.gluon.model_zoo import model_store, vision

__all__ = ["model_store", "vision"]
