"""What probes saw of TensorRT-LLM, and the register of checks that look at it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.backends.trtllm.features import Features
from harness.backends.trtllm.iteration_log import parse_iteration_log
from harness.backends.trtllm.iteration_stats import parse_stats
from harness.backends.trtllm.rows import Iteration
from harness.errors import UnreadableInput


@dataclass(frozen=True, slots=True)
class Seen:
    """What one probe left."""

    data: Mapping[str, Any] | None
    """What it wrote; None where it did not come to that."""
    returncode: int | None
    """As of `subprocess`; None where it had to be ended."""
    log: str


class Missing(Exception):
    """Something that the check needs could not be observed."""


class Observations:
    """What probes saw, made when a check first asks for it."""

    def __init__(self, features: Features, probe: Callable[[str], Seen]) -> None:
        self.features = features
        self._probe = probe
        self._seen: dict[str, Seen] = {}

    def of(self, name: str) -> Seen:
        """What a probe saw."""
        if name not in self._seen:
            self._seen[name] = self._probe(name)
        return self._seen[name]

    def data(self, name: str) -> Mapping[str, Any]:
        """What a probe wrote; a check that needs it cannot be made without."""
        seen = self.of(name)
        if seen.data is None:
            last = next((line for line in reversed(seen.log.splitlines()) if line.strip()), "it said nothing")
            how = "took too long" if seen.returncode is None else f"ended with {seen.returncode}"
            raise Missing(f"the probe '{name}' {how}: {last.strip()[:300]}")
        return seen.data

    def records(self, name: str = "decode", call: int | None = None) -> list[dict[str, Any]]:
        """Records of statistics of one call of `decode`, or of all."""
        calls = self.data(name)["calls"]
        chosen = calls if call is None else calls[call : call + 1]
        found = [record for one in chosen for record in one["records"]]
        if not found:
            raise Missing("get_stats() returned no record")
        return found

    def rows(self, call: int | None = None) -> list[Iteration]:
        """The records of `decode`, read."""
        return parse_stats(self.records(call=call), "get_stats()")

    def lines(self) -> list[str]:
        """Lines of `print_iter_log`, as text."""
        self.data("decode")
        return [line for line in self.of("decode").log.splitlines() if "iter = " in line]

    def log_rows(self) -> list[Iteration]:
        """The same, read."""
        try:
            rows = parse_iteration_log(self.lines(), "log")
        except UnreadableInput as error:
            raise Missing(f"the lines cannot be read: {' '.join(str(error).split())[:200]}") from error
        if not rows:
            raise Missing("there is no line of print_iter_log")
        return rows


Check = Callable[[Observations], str]
#: Name → check.
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    """Register a check: it returns what it found, and raises AssertionError with what is wrong."""
    CHECKS[function.__name__.removeprefix("_")] = function
    return function


def demand(holds: object, wrong: str) -> None:
    """Say what is wrong where something does not hold."""
    if not holds:
        raise AssertionError(wrong)


def need(holds: object, what: str) -> None:
    """Say what is missing to check a fact."""
    if not holds:
        raise Missing(what)
