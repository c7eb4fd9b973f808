"""The check that an iteration read what it says: no faster than this machine's memory gives."""

from __future__ import annotations

from collections.abc import Callable

#: How far two passes of the same kernel over the same memory lie apart on a quiet machine.
TOLERANCE = 1.05


class Ceiling:
    """The bandwidth that memory gives at best, measured once, and again before an iteration is called impossible.

    A ceiling measured in a busy moment is none: the highest that was ever seen counts.
    """

    def __init__(self, measure: Callable[[], float]) -> None:
        self._measure = measure
        self.bytes_per_s = measure()

    def judge(self, read_bytes: float, time_ms: float) -> str:
        """Why an iteration cannot have read so much in this time, or nothing."""
        if not self._exceeded(read_bytes, time_ms):
            return ""
        self.bytes_per_s = max(self.bytes_per_s, self._measure())
        if not self._exceeded(read_bytes, time_ms):
            return ""
        return (
            f"{read_bytes / 1e9:.3f} GB of weights and KV in {time_ms:.4g} ms are {read_bytes / time_ms / 1e6:.1f} GB/s"
            f", and memory gives {self.bytes_per_s / 1e9:.1f} GB/s at most here: not all of it was read"
        )

    def _exceeded(self, read_bytes: float, time_ms: float) -> bool:
        return 1000 * read_bytes > TOLERANCE * self.bytes_per_s * time_ms
