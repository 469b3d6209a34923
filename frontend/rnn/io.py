"""`mx.rnn.io`: sentences in buckets."""

from gluonjit.rnn.sentences import BucketSentenceIter, encode_sentences

__all__ = [
    "BucketSentenceIter",
    "encode_sentences",
]
