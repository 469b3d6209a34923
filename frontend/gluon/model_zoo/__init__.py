"""Models that are ready made, and the folder in which their weights may lie."""

from gluonjit.gluon.model_zoo import model_store, vision

__all__ = ["model_store", "vision"]
