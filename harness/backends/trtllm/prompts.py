"""Prompts as token ids: random, repeatable by a seed, and none like another from its first tokens on.

The KV cache is never to find a prompt, so that reuse of blocks, were it on, would have nothing to reuse.
"""

from __future__ import annotations

from random import Random

#: Tokens beyond the longest prompt among which prompts begin.
_SPARE = 4096
#: Tokens that number the prompts: enough for a vocabulary of 512 to number 10^8 of them.
_DIGITS = 3


class Prompts:
    """Draws prompts; no two of one drawer begin with the same tokens, warm-up and measured ones alike."""

    def __init__(self, seed: int, vocabulary: int) -> None:
        """`vocabulary` is the number of token ids, from 0."""
        self._random = Random(f"{seed} prompts")  # noqa: S311  # nothing secret
        self._vocabulary = vocabulary
        self._drawn = self._random.randrange(vocabulary)
        self._noise: list[int] = []

    def draw(self, count: int, length: int) -> list[list[int]]:
        """Return `count` prompts of `length` tokens each."""
        if len(self._noise) < length + _SPARE:
            self._noise = self._random.choices(range(self._vocabulary), k=length + _SPARE)
        return [self._prompt(length) for _ in range(count)]

    def _prompt(self, length: int) -> list[int]:
        """A number of its own in the first tokens, then a part of one long random text."""
        self._drawn += 1
        width = min(length, _DIGITS)
        head = [self._drawn // self._vocabulary**place % self._vocabulary for place in range(width)]
        start = self._random.randrange(_SPARE)
        return head + self._noise[start : start + length - width]
