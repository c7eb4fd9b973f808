"""Policies: what counts as a change, and where each applies."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from harness.errors import UsageError

Kind = Literal["auto", "interval", "threshold"]

#: Change of the median that counts where there are no replicates, in %: that of the nightly and of asv
#: (airspeed-velocity/asv #456: a threshold of zero was too noisy and 5 % became the default).
DEFAULT_THRESHOLD_PCT = 5.0

#: A change that replicates are sure of counts from here on, in %. "Within noise" of criterion.rs 0.5 is 1 % as well.
BEYOND_PCT = 1.0
#: And where the whole interval lies inside this, in %, it is the same.
INSIDE_PCT = 2.0

#: Priced numbers have no noise: a difference beyond this, in %, is another prediction.
EXACT_PCT = 0.1


@dataclass(frozen=True, slots=True)
class Policy:
    """How pairs are judged. `auto` takes the interval where both sides have replicates or should have some."""

    kind: Kind = "auto"
    threshold_pct: float = DEFAULT_THRESHOLD_PCT

    @property
    def text(self) -> str:
        """As it is given on the command line."""
        return f"threshold:{self.threshold_pct:g}%" if self.kind == "threshold" else self.kind

    def of(self, provenance: str, replicates: int) -> str:
        """`exact`, `interval` or `threshold` for a pair with that many replicates on its thinner side.

        Priced numbers are compared exactly, whatever was asked for. What ran here was meant to be repeated: without
        replicates it cannot be told from noise, and no threshold is put in their place unless it is asked for.
        """
        if provenance in {"composed", "modelled"}:
            return "exact"
        if self.kind != "auto":
            return self.kind
        return "threshold" if provenance == "imported" and replicates < 2 else "interval"


AUTO = Policy()


def parse_policy(text: str) -> Policy:
    """Read `auto`, `interval` or `threshold:5%`; raise UsageError for anything else."""
    if text == "auto":
        return AUTO
    if text == "interval":
        return Policy("interval")
    match = re.fullmatch(r"threshold:(\d+(?:\.\d+)?)\s*%", text)
    if match and 0 < float(match[1]) < 100:
        return Policy("threshold", float(match[1]))
    raise UsageError(
        f"--policy {text}: is auto, interval, or threshold:N% with N above 0 and below 100, as threshold:5%"
    )
