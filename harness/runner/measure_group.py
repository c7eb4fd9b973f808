"""Measure one group of arms in one replicate: one worker, and fresh ones where an arm brought it down.

What a worker says becomes a durable record before anything else happens. A crash or a timeout costs the arm that it was
busy with; the others go on together in a fresh process. An arm without room beside the others is tried alone, because
what does not fit in company says nothing about the case.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from harness.backends.base import BackendFacts, Setting
from harness.backends.registry import known_failures
from harness.errors import EnvironmentUnfit
from harness.results.build import Answerer
from harness.results.record import Status
from harness.results.store import LOGS_FOLDER, Attempt, RunFolder
from harness.runner.engine_groups import limits_for
from harness.runner.engine_needs import MODEL
from harness.runner.groups import ArmGroup, Loaded
from harness.runner.limits import Limits
from harness.runner.measured import Process, measured_attempt, unmeasured_attempt
from harness.runner.messages import Job, JobArm, Measured, Message, Opened, Prepared, Progress, Unanswered
from harness.runner.plan import Step
from harness.runner.policy import SamplingPolicy
from harness.runner.run_parts import now_text
from harness.runner.slots import Slots
from harness.runner.supervise import Ended, run_worker
from harness.spec.axes import Scalar
from harness.spec.study import Level

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.runner.telemetry import Telemetry

#: Below this there is no use in starting a process.
LEAST_S = 0.5


class BudgetExhausted(Exception):
    """The time of the run is used up; what was being measured has no row."""


@dataclass(frozen=True, slots=True)
class Clockwork:
    """When a run has to end, on the clock of `time.monotonic()`."""

    deadline_s: float | None = None

    @property
    def left_s(self) -> float:
        """What is left, not below 0; infinite without a budget."""
        return float("inf") if self.deadline_s is None else max(0.0, self.deadline_s - time.monotonic())

    def check(self) -> None:
        """Raise BudgetExhausted where nothing is left."""
        if self.left_s < LEAST_S:
            raise BudgetExhausted


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """What all workers of a run share."""

    out: Path
    scratch: Path
    folder: RunFolder
    slots: Slots
    answerer: Answerer
    backend: str
    options: Mapping[str, Scalar]
    policy: SamplingPolicy
    limits: Limits
    seed: int
    facts: BackendFacts
    telemetry: Telemetry
    clock: Clockwork
    flags: tuple[str, ...] = ()
    """Flags of every row of the run."""


class GroupRun:
    """One group in one replicate.

    `told` is called with None before a worker starts, and with the samples taken while it samples.
    """

    def __init__(self, place: Workplace, group: ArmGroup, replicate: int, told: Callable[[int | None], None]) -> None:
        self._place = place
        self._group = group
        self._replicate = replicate
        self._told = told
        self._crowded: set[int] = set()
        self._failed_starts: list[str] = []

    def run(self) -> None:
        """Fill every slot of the group.

        Raises BudgetExhausted, EnvironmentUnfit where the backend cannot be opened or the disk is full.
        """
        while left := [step for step in self._left() if step.number not in self._crowded]:
            self._work(left)
        for step in self._left():
            self._work([step])

    def _left(self) -> list[Step]:
        return self._place.slots.left_of(self._group, self._replicate)

    def _work(self, steps: Sequence[Step]) -> None:
        """Start one worker with these arms and journal what it says; at least one of them has then its answer."""
        place = self._place
        place.clock.check()
        self._told(None)
        log = self._log_name()
        process = Process(
            attempt_id="",
            started_at=now_text(),
            answerer=place.answerer,
            facts=place.facts,
            replicate=self._replicate,
            arms=self._arms_word(),
            log=f"{LOGS_FOLDER}/{log}",
            engine=self._group.engine.key if self._group.engine else None,
            details=self._group.engine.details if self._group.engine else {},
            flags=place.flags,
        )
        talk = _Talk(self, place, process, {step.number: step for step in steps})
        ended = run_worker(
            self._job(steps),
            folder=place.out / LOGS_FOLDER,
            log_name=log,
            limits=limits_for(place.limits, self._group),
            signatures=known_failures(place.backend),
            on_message=talk.on_message,
            deadline_s=place.clock.deadline_s,
        )
        talk.settle(ended)
        self._note_start(talk, ended)

    def _note_start(self, talk: _Talk, ended: Ended) -> None:
        """Where an instance of an engine failed alike twice before any arm was ready, it does so for the rest too."""
        if not self.shares_instance or ended.status == "done" or talk.some_ready:
            self._failed_starts.clear()
            return
        self._failed_starts.append(ended.status)
        if self._failed_starts[-2:] == [ended.status] * 2:
            talk.give_up(self._left(), ended)

    @property
    def shares_instance(self) -> bool:
        """Whether all arms are of one instance, so that none of them takes room from another."""
        return self._group.engine is not None and self._group.steps[0].planned.level == MODEL

    def crowded(self, step: Step) -> None:
        """Note that an arm found no room beside the others."""
        self._crowded.add(step.number)

    @property
    def engine(self) -> Loaded | None:
        """What its processes load."""
        return self._group.engine

    def told(self, samples: int) -> None:
        """Pass on how far sampling is."""
        self._told(samples)

    def _job(self, steps: Sequence[Step]) -> Job:
        place, engine = self._place, self._group.engine
        rest_s = place.clock.left_s / len(steps)
        draw = random.Random(f"{place.seed} {self._replicate} {self._group.name}")  # noqa: S311  # not a secret
        return Job(
            backend=place.backend,
            setting=Setting(
                engine=engine.settings if engine else None,
                seed=draw.randrange(2**31),
                scratch=place.scratch,
                options=place.options,
            ),
            replicate=self._replicate,
            policy=replace(place.policy, budget_s=min(place.policy.budget_s, rest_s)),
            arms=tuple(JobArm(step.number, step.planned.case, cast("Level", step.planned.level)) for step in steps),
            environment=engine.environment if engine else {},
            mpi_ranks=engine.ranks if engine and engine.by_mpirun else 1,
        )

    def _arms_word(self) -> str:
        """The name of the group; where another process timed a part of it, one of its own: rounds do not match."""
        name = self._group.name
        if not self._place.slots.some_timed(self._group, self._replicate):
            return name
        return f"{name}, last {len(self._left())}"

    def _log_name(self) -> str:
        words = re.sub(r"[^a-z0-9]+", "-", self._group.name.lower()).strip("-")[:80]
        stem = f"r{self._replicate}-{words}"
        folder, number = self._place.out / LOGS_FOLDER, 1
        while (folder / (name := f"{stem}.log" if number == 1 else f"{stem}.{number}.log")).exists():
            number += 1
        return name


class _Talk:
    """What one worker says, made into records."""

    def __init__(self, group: GroupRun, place: Workplace, process: Process, steps: dict[int, Step]) -> None:
        self._group = group
        self._place = place
        self._process = process
        self._steps = steps
        self._left = dict(steps)
        self.some_ready = False
        """Whether an arm was ready to be timed."""

    def on_message(self, message: Message) -> None:
        """Journal an answer; pass on a sign of life."""
        if isinstance(message, Opened):
            self._opened(message.facts)
        elif isinstance(message, Prepared):
            self.some_ready = True
        elif isinstance(message, Progress):
            self._group.told(message.samples)
        elif isinstance(message, Unanswered) and message.number in self._left:
            self._no_number(self._left[message.number], message.status, message.reason)
        elif isinstance(message, Measured) and message.number in self._left:
            step, measurement = self._left[message.number], message.measurement
            summary = self._place.telemetry.summary(measurement.windows_s)
            seen = self._place.telemetry.details(measurement.windows_s)
            self._journal(step, measured_attempt(step.planned, self._process_of(step), measurement, summary, seen))

    def _opened(self, facts: BackendFacts) -> None:
        answerer = self._process.answerer
        if facts.provenance != answerer.provenance:
            raise EnvironmentUnfit(
                f"what answers is {facts.provenance} now, and was {answerer.provenance} at first; was another "
                f"{answerer.name} put in its place?"
            )
        ranks = self._group.engine.ranks if self._group.engine else None
        self._process = replace(self._process, facts=replace(facts, gpu_uuids=facts.gpu_uuids[:ranks]))

    def give_up(self, steps: Sequence[Step], ended: Ended) -> None:
        """Write down that these fare as those before them, whose instance did not start."""
        for step in steps:
            reason = f"{ended.reason}; so did the instance before, and this case was not tried"
            self._left[step.number] = step
            process = self._process_of(step)
            self._journal(step, unmeasured_attempt(step.planned, process, _status(ended), reason, ended.advice))

    def settle(self, ended: Ended) -> None:
        """What the end of the worker means for the arms that it left without an answer."""
        if ended.status == "interrupted":
            raise KeyboardInterrupt
        if ended.status == "unfit" and not self._group.engine:
            raise EnvironmentUnfit(ended.reason)
        if ended.status == "budget":
            raise BudgetExhausted
        if ended.status == "done":
            for step in list(self._left.values()):
                self._no_number(step, "lost", _lost(ended))
            return
        status = _status(ended)
        blamed = self._left.get(-1 if ended.in_flight is None else ended.in_flight)
        nothing_said = len(self._left) == len(self._steps)
        for step in [blamed] if blamed else list(self._left.values()) if nothing_said else []:
            self._no_number(step, status, ended.reason, ended.advice)

    def _no_number(self, step: Step, status: Status, reason: str, advice: str = "") -> None:
        if status == "oom" and len(self._steps) > 1 and not self._group.shares_instance:
            self._group.crowded(step)
            del self._left[step.number]
            return
        self._journal(step, unmeasured_attempt(step.planned, self._process_of(step), status, reason, advice))

    def _process_of(self, step: Step) -> Process:
        return replace(self._process, attempt_id=self._place.slots.attempt_id(step, self._process.replicate))

    def _journal(self, step: Step, attempt: Attempt) -> None:
        self._place.folder.append([attempt])
        self._place.slots.journalled(step, self._process.replicate, attempt.record.status)
        del self._left[step.number]


def _status(ended: Ended) -> Status:
    """Of rows. An instance of an engine that the machine is not fit for, where others may start, is a crash."""
    return "crash" if ended.status == "unfit" else cast("Status", ended.status)


def _lost(ended: Ended) -> str:
    reason = "the process ended well and did not say a word about this case that was understood"
    if not ended.not_understood:
        return reason
    return f"{reason}; {ended.not_understood} lines of it were no message, as when the harness is changed while it runs"
