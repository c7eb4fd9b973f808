"""What a known failure leaves in the log of a worker. A backend brings its own list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Class of a failure that ends a worker.
Failure = Literal["crash", "oom", "unfit"]


@dataclass(frozen=True, slots=True)
class Signature:
    """What a known failure writes."""

    pattern: str
    """Regular expression, searched for in the end of the log, line by line (`re.MULTILINE`)."""
    status: Failure
    reason: str = ""
    """One sentence, with named groups of the pattern as `{name}`; empty: what matched."""
    advice: str = ""
    """What the user can do."""
    general: bool = False
    """Written after many failures, whatever they were: only where nothing else is known does it count."""
