"""What is left to measure: a slot for every step and replicate, less those that an earlier start filled."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from harness.errors import UsageError
from harness.results.build import Answerer
from harness.results.record import Record
from harness.results.store import is_replicate
from harness.runner.groups import ArmGroup
from harness.runner.plan import Plan, Step
from harness.runner.run_parts import Claim, earlier_of_plan, is_current, unasked

#: What a case that should have run ended with; such rows are kept by `--resume` and asked again with `--retry-failed`.
FAILED = frozenset({"oom", "timeout", "crash", "invalid", "lost", "build_failed"})

_REPLICATE = re.compile(r"\.r([0-9]+)")


class Slots:
    """Which attempts are still to be made.

    A step that is not asked (skipped, rejected) fills the slot of the first replicate, and so does one that turns out
    `unsupported`, or whose engine cannot be built, which no other process changes.
    """

    def __init__(
        self, plan: Plan, claim: Claim, answerer: Answerer, replicates: int, *, retry_failed: bool = False
    ) -> None:
        self.run_id = claim.run_id
        self._tries: dict[tuple[int, int], int] = defaultdict(int)
        latest: dict[tuple[int, int], tuple[Record, Step]] = {}
        for attempt, step in earlier_of_plan(claim, plan):
            record = attempt.record
            if not is_replicate(record.attempt_id) or record.answered_by != answerer.name:
                raise UsageError(
                    f"{claim.out} holds rows of {record.answered_by}, which --on {answerer.name} does not complete; "
                    "take another --out"
                )
            if record.provenance != answerer.provenance:
                raise UsageError(
                    f"{claim.out} holds {record.provenance} rows, and what answers now makes {answerer.provenance} "
                    "ones, which no run mixes; take another --out"
                )
            slot = (step.number, replicate_of(record.attempt_id))
            self._tries[slot] += 1
            latest[slot] = (record, step)
        self.replicates = max([replicates, *(replicate + 1 for _, replicate in latest)])
        self._plan = plan
        self._done: set[tuple[int, int]] = set()
        self._timed: set[tuple[int, int]] = set()
        for (_, replicate), (record, step) in latest.items():
            if is_current(record, step, answerer) and not (retry_failed and record.status in FAILED):
                self.fill(step, replicate, record.status)

    def wants(self, step: Step, replicate: int) -> bool:
        """Whether this step is still to be asked in this replicate."""
        return step.will_run and (step.number, replicate) not in self._done

    def left_of(self, group: ArmGroup, replicate: int) -> list[Step]:
        """Steps of a group that are still to be asked in this replicate."""
        return [step for step in group.steps if self.wants(step, replicate)]

    def first_wanted(self, step: Step) -> int | None:
        """The first replicate in which a step is still to be asked, or None."""
        return next((one for one in range(self.replicates) if self.wants(step, one)), None)

    def some_timed(self, group: ArmGroup, replicate: int) -> bool:
        """Whether another process has timed arms of this group in this replicate, so that rounds do not match."""
        return any((step.number, replicate) in self._timed for step in group.steps)

    def never_asked(self) -> Iterator[tuple[Step, int]]:
        """Steps that are not asked and have no row that says so; and rows of theirs from when they were asked."""
        for step in self._plan.steps:
            if unasked(step) is None:
                continue
            for replicate in range(self.replicates):
                slot = (step.number, replicate)
                if slot not in self._done and (replicate == 0 or self._tries[slot]):
                    yield step, replicate

    def attempt_id(self, step: Step, replicate: int) -> str:
        """Run, number in the plan, replicate, and the try where it is not the first."""
        tries = self._tries[step.number, replicate]
        return f"{self.run_id}.{step.number:06d}.r{replicate}" + (f".{tries + 1}" if tries else "")

    def fill(self, step: Step, replicate: int, status: str) -> None:
        """Note that a slot has its row."""
        slot = (step.number, replicate)
        self._done.add(slot)
        if status in {"ok", "invalid"}:
            self._timed.add(slot)
        if status in {"unsupported", "build_failed"}:
            self._done |= {(step.number, other) for other in range(self.replicates)}

    def journalled(self, step: Step, replicate: int, status: str) -> None:
        """Note a row that was just written."""
        self._tries[step.number, replicate] += 1
        self.fill(step, replicate, status)

    @property
    def total(self) -> int:
        """Slots of steps that are asked."""
        return self.replicates * sum(step.will_run for step in self._plan.steps)

    @property
    def done(self) -> int:
        """Those of them that have a row, or need none."""
        return sum(
            (step.number, replicate) in self._done
            for step in self._plan.steps
            if step.will_run
            for replicate in range(self.replicates)
        )


def replicate_of(attempt_id: str) -> int:
    """The replicate that an attempt belongs to."""
    found = _REPLICATE.search(attempt_id)
    return int(found[1]) if found else 0
