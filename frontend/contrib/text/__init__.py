"""`mx.contrib.text`: vocabularies, and vectors of their tokens."""

from gluonjit.contrib.text import embedding, utils, vocab

__all__ = ["embedding", "utils", "vocab"]
