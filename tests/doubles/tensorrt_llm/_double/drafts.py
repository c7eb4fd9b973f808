"""Draft tokens: how many a step verifies, and how many of them are accepted."""

from __future__ import annotations

import os
from typing import Any

from tensorrt_llm._double.clock import Clock
from tensorrt_llm._double.era import Era

_FORCE = "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"
#: How often an n-gram of random tokens is found again.
_MATCHES = 0.3


class Drafts:
    """The drafter of a `speculative_config`. MTP and SA always draft; n-grams draft where one matches."""

    def __init__(self, config: Any, era: Era) -> None:
        self.kind = config.decoding_type if config else None
        self.length = _length(config) if config else 0
        forced = os.environ.get(_FORCE, "0")
        self.forced = 0.0
        if self.kind in {"MTP", "SA"} and era.forced_acceptance != "ignored":
            # Where whole numbers are meant, `int` reads the variable and refuses 1.78.
            self.forced = float(int(forced)) if era.forced_acceptance == "integer" else float(forced)
        self.forced = min(self.forced, self.length)

    def step(self, clock: Clock) -> tuple[int, int]:
        """Drafted and accepted tokens of one sequence in one step."""
        if not self.length or (self.kind == "NGram" and clock.chance() > _MATCHES):
            return 0, 0
        whole = int(self.forced)
        rest = self.forced - whole
        return self.length, whole + (1 if rest and clock.chance() < rest else 0)


def _length(config: Any) -> int:
    given = config.max_draft_len
    if given is None:
        given = getattr(config, "num_nextn_predict_layers", None)
    if given is None:
        raise ValueError(f"{config.decoding_type} needs max_draft_len")
    return int(given)
