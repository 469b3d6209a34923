"""The tokens of a text, numbered."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

UNKNOWN = 0
"""The index of the token that stands for all others."""


def count_tokens_from_str(
    source_str: str,
    token_delim: str = " ",
    seq_delim: str = "\n",
    to_lower: bool = False,
    counter_to_update: Counter | None = None,
) -> Counter:
    """How often each token occurs in a text, added to `counter_to_update` if given.

    Tokens are divided by regular expressions, `token_delim` between them and `seq_delim` between sequences.
    """
    tokens = [token for token in re.split(f"{token_delim}|{seq_delim}", source_str) if token]
    counter = Counter() if counter_to_update is None else counter_to_update
    counter.update(token.lower() for token in tokens) if to_lower else counter.update(tokens)
    return counter


class Vocabulary:
    """Numbers for tokens: 0 for the unknown token, then the reserved ones, then those of `counter`.

    The latter come by falling frequency, equally frequent ones in their order; those rarer than `min_freq` and those
    after the `most_freq_count` first ones are unknown.
    """

    def __init__(
        self,
        counter: Counter | None = None,
        most_freq_count: int | None = None,
        min_freq: int = 1,
        unknown_token: Hashable = "<unk>",
        reserved_tokens: Sequence[Any] | None = None,
    ) -> None:
        if min_freq <= 0:
            raise AssertionError("`min_freq` must be set to a positive value.")
        reserved = list(reserved_tokens or ())
        if unknown_token in reserved:
            raise AssertionError("`reserved_token` cannot contain `unknown_token`.")
        if len(set(reserved)) != len(reserved):
            raise AssertionError("`reserved_tokens` cannot contain duplicate reserved tokens.")
        self._unknown_token = unknown_token
        self._reserved_tokens = None if reserved_tokens is None else reserved
        self._idx_to_token: list[Any] = [unknown_token, *reserved]
        if counter is not None:
            if not isinstance(counter, Counter):
                raise AssertionError("`counter` must be an instance of collections.Counter.")
            known = set(self._idx_to_token)
            room = len(counter) if most_freq_count is None else most_freq_count
            ordered = sorted(sorted(counter), key=lambda token: -counter[token])
            frequent = [token for token in ordered if counter[token] >= min_freq and token not in known]
            self._idx_to_token += frequent[:room]
        self._token_to_idx = {token: index for index, token in enumerate(self._idx_to_token)}

    def __len__(self) -> int:
        return len(self._idx_to_token)

    @property
    def token_to_idx(self) -> dict[Any, int]:
        return self._token_to_idx

    @property
    def idx_to_token(self) -> list[Any]:
        return self._idx_to_token

    @property
    def unknown_token(self) -> Any:
        return self._unknown_token

    @property
    def reserved_tokens(self) -> list[Any] | None:
        return self._reserved_tokens

    def to_indices(self, tokens: Any) -> Any:
        """The number of a token, or the list of those of a list of tokens."""
        if isinstance(tokens, list):
            return [self._token_to_idx.get(token, UNKNOWN) for token in tokens]
        return self._token_to_idx.get(tokens, UNKNOWN)

    def to_tokens(self, indices: Any) -> Any:
        """The token of a number, or the list of those of a list of numbers. ValueError for other numbers."""
        found = []
        for index in indices if isinstance(indices, list) else [indices]:
            if not isinstance(index, int) or not 0 <= index < len(self):
                raise ValueError(f"Token index {index} in the provided `indices` is invalid.")
            found.append(self._idx_to_token[index])
        return found if isinstance(indices, list) else found[0]
