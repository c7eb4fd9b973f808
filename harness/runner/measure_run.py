"""Run a plan with a backend: worker by worker, every finished record durable, resumable.

A replicate is a round over all groups of arms, each in a fresh process. The order of the groups is the plan's in the
first replicate and another, seeded, in every later one, so that what drifts over hours meets none of them alone.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.backends.base import BackendFacts, Setting
from harness.backends.registry import check_options, known_failures, loads_engines, make_backend, opening_of
from harness.errors import EnvironmentUnfit
from harness.results.build import Answerer, unpriced_attempt
from harness.results.store import LOGS_FOLDER
from harness.runner.engine_needs import EngineAsk
from harness.runner.family import own_pids
from harness.runner.groups import ArmGroup, group_arms, in_order
from harness.runner.limits import Limits
from harness.runner.measure_engines import Engines, engines_for, on_its_gpus
from harness.runner.measure_group import BudgetExhausted, Clockwork, GroupRun, Workplace
from harness.runner.messages import Job, Message, Opened
from harness.runner.plan import Plan
from harness.runner.policy import SamplingPolicy
from harness.runner.run_parts import Claim, claimed, journalling, now_text, unasked
from harness.runner.slots import Slots
from harness.runner.supervise import run_worker
from harness.runner.telemetry import locked_clocks, open_telemetry, preflight, restore_left_clocks
from harness.runner.terminations import terminations_interrupt
from harness.spec.axes import Scalar

#: Fresh processes of every case, where nothing else is said; fewer than two tell nothing of how processes differ.
REPLICATES = 3

#: Seconds of iterations of one case in one process, warm-up included, where nothing else is said: enough for the target
#: where an iteration takes a tenth of a second, and few enough that a suite with prefills of a second ends in minutes.
ARM_BUDGET_S = 6.0

#: The same where a process loads an engine, which takes longer than this, and fills a KV cache for every few samples.
ENGINE_ARM_BUDGET_S = 20.0

#: What workers may write to, inside the run folder, so that a killed run leaves it where the next one finds it.
_SCRATCH = ".scratch"

#: The log of the process that only opens the backend.
_PROBE = "opening.log"


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """How cases are measured."""

    on: str
    """A backend by name, or `package.module:Class`."""
    why: str = "asked for"
    replicates: int | None = None
    """Fresh processes of each case; None: as many as the run was started with, or `REPLICATES`."""
    budget_s: float | None = None
    policy: SamplingPolicy = field(default_factory=lambda: SamplingPolicy(budget_s=ARM_BUDGET_S))
    limits: Limits = field(default_factory=Limits)
    retry_failed: bool = False
    shared_gpu: bool = False
    lock_clocks: bool = False
    seed: int = 0
    backend_options: Mapping[str, Scalar] = field(default_factory=dict)
    engines: EngineAsk = field(default_factory=EngineAsk)
    """Of backends that load engines."""


@dataclass(frozen=True, slots=True)
class Now:
    """Where a run is: told before every worker and while it samples."""

    done: int
    total: int
    """Cases times replicates."""
    replicate: int
    replicates: int
    group: str
    arms: int
    left_s: float | None
    """What is left, from what was seen; None before anything was."""
    samples: int | None = None
    """Of the arm that is being sampled; None where a worker is about to start."""


Tell = Callable[[Now], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended that was not interrupted."""

    exhausted: bool
    """The time budget ended it."""
    notes: tuple[str, ...] = ()
    """What the user should know: what could not be looked at, and what was put right."""


def run_measured(
    plan: Plan, out: Path, options: MeasureOptions, *, resume: bool = False, tell: Tell = lambda _: None
) -> Outcome:
    """Measure every case of `plan` into the run folder `out`.

    Raises UsageError where `out` already holds a run and `resume` is not set, EnvironmentUnfit where the disk is full,
    a GPU is in use by others or the backend cannot be opened, Interrupted on Ctrl-C and SIGTERM. What was finished
    before is kept in every case, and no process is left.
    """
    make_backend(options.on)  # an unknown one is told before anything is written, as is an option that it has not
    check_options(options.on, options.backend_options)
    notes: list[str] = []
    try:
        with ExitStack() as stack:
            place, engines = _set_up(stack, plan, out, options, resume, notes)
            _write_what_is_not_asked(place)
            pace = _Pace(place.slots, tell)
            groups = engines.groups(place, pace.before) if engines else group_arms(plan)
            _measure_all(groups, place, pace)
    except BudgetExhausted:
        return Outcome(exhausted=True, notes=tuple(notes))
    return Outcome(exhausted=False, notes=tuple(notes))


def _set_up(
    stack: ExitStack, plan: Plan, out: Path, options: MeasureOptions, resume: bool, notes: list[str]
) -> tuple[Workplace, Engines | None]:
    """Claim the folder, look at the machine, and open what has to be closed again on every way out."""
    clock = Clockwork(None if options.budget_s is None else time.monotonic() + options.budget_s)
    stack.enter_context(terminations_interrupt())
    claim = stack.enter_context(claimed(out, resume=resume, anew="or take another --out"))
    notes += filter(None, [restore_left_clocks(out)])
    scratch = stack.enter_context(_scratch(out))
    facts = _probe(options, out, scratch)
    engines: Engines | None = None
    uuids = facts.gpu_uuids
    if loads_engines(options.on):
        launcher = str(options.backend_options.get("launcher", "spawn"))
        engines = engines_for(plan, options.engines, launcher, facts, out)
        plan, uuids = engines.plan, uuids[: engines.gpus]
        notes += engines.notes
        options = replace(options, engines=engines.ask)
    ready = preflight(uuids, shared_gpu=options.shared_gpu)
    notes += ready.notes
    answerer = answerer_of(options, facts)
    replicates = options.replicates or started_with(claim) or REPLICATES
    slots = Slots(plan, claim, answerer, replicates, retry_failed=options.retry_failed)
    if options.lock_clocks:
        stack.enter_context(locked_clocks(out, uuids))
    environment = _environment(plan, options, slots, answerer, facts)
    folder = stack.enter_context(journalling(claim, plan, environment, "measured"))
    telemetry = stack.enter_context(closing(open_telemetry(uuids or None, own_pids)))
    telemetry.start()
    place = Workplace(
        out=out, scratch=scratch, folder=folder, slots=slots, answerer=answerer, backend=options.on,
        options=options.backend_options, policy=options.policy, limits=options.limits, seed=options.seed,
        facts=replace(facts, gpu_uuids=uuids), telemetry=telemetry, clock=clock, flags=ready.flags,
    )  # fmt: skip
    return place, engines


def _measure_all(groups: list[ArmGroup], place: Workplace, pace: _Pace) -> None:
    """Replicate by replicate, group by group."""
    for replicate in range(place.slots.replicates):
        for group in in_order(groups, replicate, place.seed):
            with on_its_gpus(place, group) as here:
                GroupRun(here, group, replicate, pace.teller(group, replicate)).run()


class _Pace:
    """Tells where a run is, and how long the rest takes at the pace so far."""

    def __init__(self, slots: Slots, tell: Tell) -> None:
        self._slots = slots
        self._tell = tell
        self._started_s = time.monotonic()
        self._at_start = slots.done

    def before(self, what: str) -> None:
        """Tell what is made ready before anything is measured."""
        slots = self._slots
        self._tell(Now(slots.done, slots.total, 0, slots.replicates, what, 0, None))

    def teller(self, group: ArmGroup, replicate: int) -> Callable[[int | None], None]:
        """What to call with the samples taken while this group is measured."""

        def told(samples: int | None) -> None:
            slots = self._slots
            done = slots.done
            made = done - self._at_start
            pace_s = (time.monotonic() - self._started_s) / made if made else None
            left_s = None if pace_s is None else pace_s * (slots.total - done)
            arms = len(group.steps)
            self._tell(Now(done, slots.total, replicate, slots.replicates, group.name, arms, left_s, samples))

        return told


def _write_what_is_not_asked(place: Workplace) -> None:
    now, attempts, slots = now_text(), [], place.slots
    for step, replicate in list(slots.never_asked()):
        told = unasked(step)
        assert told
        attempt_id = slots.attempt_id(step, replicate)
        attempts.append(unpriced_attempt(step.planned, *told, place.answerer, attempt_id, now))
        slots.journalled(step, replicate, told[0])
    if attempts:
        place.folder.append(attempts)


def _probe(options: MeasureOptions, out: Path, scratch: Path) -> BackendFacts:
    """Open the backend once, in a process that measures nothing: what it is, before anything is written.

    Raises EnvironmentUnfit where it cannot be opened.
    """
    told: list[BackendFacts] = []

    def listen(message: Message) -> None:
        if isinstance(message, Opened):
            told.append(message.facts)

    setting = Setting(seed=options.seed, scratch=scratch, options=options.backend_options)
    job = Job(backend=opening_of(options.on), setting=setting, replicate=0, policy=options.policy, arms=())
    ended = run_worker(
        job,
        folder=out / LOGS_FOLDER,
        log_name=_PROBE,
        limits=options.limits,
        signatures=known_failures(options.on),
        on_message=listen,
    )
    if ended.status == "interrupted":
        raise KeyboardInterrupt
    if not told or ended.status != "done":
        raise EnvironmentUnfit(f"--on {options.on}: {ended.reason} (log: {ended.log})")
    return told[0]


def answerer_of(options: MeasureOptions, facts: BackendFacts) -> Answerer:
    """Who answers. Options of the backend are part of it: with other threads the same case has another time."""
    asked = [f"{name} {value}" for name, value in sorted(options.backend_options.items())] + options.engines.told
    return Answerer(make_backend(options.on).name, ", ".join([facts.versions, *asked]), facts.provenance)


def started_with(claim: Claim) -> int | None:
    """The replicates that an earlier start of the run was asked for."""
    before = claim.environment.get("options")
    asked = before.get("replicates") if isinstance(before, dict) else None
    return asked if isinstance(asked, int) and asked > 0 else None


def _environment(
    plan: Plan, options: MeasureOptions, slots: Slots, answerer: Answerer, facts: BackendFacts
) -> dict[str, Any]:
    systems = dict.fromkeys(step.planned.case.system for step in plan.steps)
    one = {"name": answerer.name, "versions": answerer.versions, "why": options.why}
    return {
        "options": {
            **asdict(options),
            "backend_options": dict(options.backend_options),
            "replicates": slots.replicates,
        },
        "assumptions": [],
        "answered_by": dict.fromkeys(systems, one),
        "backend": {"device": facts.device, "gpu_uuids": list(facts.gpu_uuids), **facts.details},
    }


@contextmanager
def _scratch(out: Path) -> Iterator[Path]:
    scratch = out / _SCRATCH
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
