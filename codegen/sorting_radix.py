"""Sorting long lines of words by their digits, the lowest first: as many passes over memory as there are digits."""

from __future__ import annotations

from typing import Any

from gluonjit.codegen.llvm import Function
from gluonjit.ir.sort_words import SortWord

_FEW = 40
"""Up to so many words, insertion is faster than passes over bins."""
_SHORT = 128
"""Up to so many, digits have 4 bits: most of the time goes into the bins."""


class Radix:
    """Sorts words in signed order. Words with the same key must be in order of what is below it."""

    def __init__(self, f: Function, word: SortWord, bins: str, n: Any) -> None:
        """`n`: of how many words lines are, as far as that is known."""
        self.f, self.bins, self.shift = f, bins, word.shift
        self.word = f"i{word.bits}"
        short = isinstance(n, int) and n <= _SHORT
        self.digit, self.digits = (4, 2 * word.digits) if short else (8, word.digits)
        self.bins_of_digit = 1 << self.digit

    def sort(self, words: str, spare: str, n: Any) -> str:
        """Sorts the words at `words`, with as much memory at `spare`; where they are then."""
        few = self.f.op(f"icmp sle i64 {self.f.extent(n)}, {_FEW}")
        return self.f.either(few, "ptr", lambda: self._insertion(words, n), lambda: self._passes(words, spare, n))

    def _insertion(self, words: str, n: Any) -> str:
        f = self.f
        with f.for_(0, n) as loop:
            word = self._load(words, loop.index)
            with f.repeat([("i64", loop.index)]) as hole:
                (at,) = hole.carried
                before = f.max(f.sub(at, 1), 0)
                other = self._load(words, before)
                later = f.op(f"icmp sgt {self.word} {other}, {word}")
                moves = f.op(f"and i1 {f.op(f'icmp sgt i64 {at}, 0')}, {later}")
                # At its own place the hole gets the word itself, which the next round may move on.
                kept = f.op(f"select i1 {moves}, {self.word} {other}, {self.word} {word}")
                self._store(kept, words, at)
                hole.next(f.sub(at, 1))
                hole.again = moves
        return words

    def _passes(self, words: str, spare: str, n: Any) -> str:
        f = self.f
        with f.for_(0, self.digits * self.bins_of_digit // 8) as loop:
            f.store("<8 x i64>", "zeroinitializer", f.gep("<8 x i64>", self.bins, loop.index), 8)
        with f.for_(0, n) as loop:
            word = self._load(words, loop.index)
            for d in range(self.digits):
                place = self._bin(d, self._digit(word, d))
                f.store("i64", f.add(f.load("i64", place, 8), 1), place, 8)
        for d in range(self.digits):
            alike = f.load("i64", self._bin(d, self._digit(self._load(words, 0), d)), 8)
            needed = f.op(f"icmp ne i64 {alike}, {f.extent(n)}")
            with f.if_(needed):
                self._pass(d, words, spare, n)
            words, spare = (f.op(f"select i1 {needed}, ptr {p}, ptr {q}") for p, q in ((spare, words), (words, spare)))
        return words

    def _pass(self, d: int, source: str, target: str, n: Any) -> None:
        f = self.f
        with f.for_(0, self.bins_of_digit, carried=[("i64", "0")]) as loop:
            place = self._bin(d, loop.index)
            here = f.load("i64", place, 8)
            f.store("i64", loop.carried[0], place, 8)
            loop.next(f.add(loop.carried[0], here))
        with f.for_(0, n) as loop:
            word = self._load(source, loop.index)
            place = self._bin(d, self._digit(word, d))
            at = f.load("i64", place, 8)
            f.store("i64", f.add(at, 1), place, 8)
            self._store(word, target, at)

    def _digit(self, word: str, d: int) -> str:
        f = self.f
        moved = f.op(f"lshr {self.word} {word}, {self.shift + self.digit * d}")
        narrow = moved if self.word == "i64" else f.op(f"trunc {self.word} {moved} to i64")
        digit = f.op(f"and i64 {narrow}, {self.bins_of_digit - 1}")
        # The sign is the highest bit: negative words come first.
        return f.op(f"xor i64 {digit}, {self.bins_of_digit // 2}") if d == self.digits - 1 else digit

    def _bin(self, d: int, digit: Any) -> str:
        return self.f.gep("i64", self.bins, self.f.add(digit, d * self.bins_of_digit))

    def _load(self, words: str, k: Any) -> str:
        return self.f.load(self.word, self.f.gep(self.word, words, k), 8)

    def _store(self, value: str, words: str, k: Any) -> None:
        self.f.store(self.word, value, self.f.gep(self.word, words, k), 8)
