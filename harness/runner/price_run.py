"""Run a plan with pricers: batch by batch, every finished batch durable, resumable."""

from __future__ import annotations

import shlex
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from harness import files
from harness.errors import Interrupted, UsageError
from harness.hardware import load_system
from harness.pricing.base import KernelPricer
from harness.pricing.compose import price_cases
from harness.pricing.helix import OVERLAP
from harness.pricing.roofline import RooflinePricer
from harness.pricing.select import On, select_pricer
from harness.results.build import Answerer, priced_attempt, unpriced_attempt, what_is_asked
from harness.results.environment import environment_facts
from harness.results.record import Record, Status
from harness.results.store import (
    JOURNAL_FILE,
    Attempt,
    RunFolder,
    is_run,
    open_run,
    read_attempts,
    read_environment,
)
from harness.runner.plan import Plan, Step
from harness.version import __version__

#: Cases priced and journalled together: large enough to share table look-ups, small enough to lose little.
BATCH = 250

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class PriceOptions:
    """How cases are priced; part of what makes a row comparable, so a resumed run needs the same."""

    on: On = "auto"
    allow_extrapolation: bool = False
    tables_as_is: bool = False
    helix_overlap: bool = False
    ignore_memory: bool = False
    """How the plan was made; it changes which cases are asked, not what they cost."""


@dataclass(frozen=True, slots=True)
class _System:
    pricer: KernelPricer
    roofline: RooflinePricer
    answerer: Answerer
    why: str
    helix_overlap: bool


def run_priced(
    plan: Plan,
    out: Path,
    options: PriceOptions,
    *,
    resume: bool = False,
    progress: Progress = lambda _: None,
) -> None:
    """Price every case of `plan` into the run folder `out`.

    Raises UsageError where `out` already holds a run and `resume` is not set, EnvironmentUnfit where the disk is full,
    Interrupted on Ctrl-C; what was finished before is kept in every case.
    """
    systems = {key: _system(key, options) for key in dict.fromkeys(step.planned.case.system for step in plan.steps)}
    with files.folder_lock(out):
        if is_run(out) and not resume:
            remedy = "add --resume to complete it, --replace to price it anew, or take another --out"
            raise UsageError(f"{out} already holds a run; {remedy}")
        earlier = read_attempts(out)[0] if (out / JOURNAL_FILE).is_file() else []
        run_id = earlier[0].record.run_id if earlier else datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%fZ")
        todo = _Todo(plan, run_id, earlier, systems)
        environment = _environment(options, systems, run_id)
        if earlier:
            environment |= _history(read_environment(out), environment)
        with open_run(out, plan.suite, plan.studies) as folder:
            folder.write_environment(environment)
            try:
                _price_all(todo, systems, folder, progress)
            except KeyboardInterrupt:
                raise Interrupted(f"interrupted; what was priced is kept in {out} (go on with --resume)") from None
            folder.write_environment({**environment, "finished_at": _now()})


def _history(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """What a resumed run keeps of its first start, and when it was taken up again."""
    first: dict[str, Any] = {name: before[name] for name in ("started_at", "command") if name in before}
    again = {"started_at": now["started_at"], "command": now["command"]}
    resumed = before.get("resumed")
    return {**first, "resumed": [*(resumed if isinstance(resumed, list) else []), again]}


def _price_all(todo: _Todo, systems: dict[str, _System], folder: RunFolder, progress: Progress) -> None:
    progress(todo.done)
    for batch in todo.batches():
        folder.append(_price_batch(batch, systems, todo))
        progress(len(batch))


class _Todo:
    """What is left of a plan after the attempts of an earlier try."""

    def __init__(self, plan: Plan, run_id: str, earlier: list[Attempt], systems: dict[str, _System]) -> None:
        self.run_id = run_id
        self._tries: dict[int, int] = defaultdict(int)
        finished: set[int] = set()
        by_number = {step.number: step for step in plan.steps}
        for attempt in earlier:
            number = int(attempt.record.attempt_id.split(".")[1])
            self._tries[number] += 1
            step = by_number.get(number)
            if step is None or not _same_place(attempt, step):
                raise UsageError(
                    "the run was made from another plan; take another --out, or --replace to price it anew"
                )
            answerer = systems[step.planned.case.system].answerer
            (finished.add if _is_current(attempt.record, step, answerer) else finished.discard)(number)
        self.steps = [step for step in plan.steps if step.number not in finished]
        self.done = len(finished)

    def attempt_id(self, step: Step) -> str:
        """Run, number in the plan, and the try where it is not the first."""
        tries = self._tries[step.number]
        return f"{self.run_id}.{step.number:06d}" + (f".{tries + 1}" if tries else "")

    def batches(self) -> Iterator[list[Step]]:
        """Steps left, cut into batches in plan order."""
        for start in range(0, len(self.steps), BATCH):
            yield self.steps[start : start + BATCH]


def _same_place(attempt: Attempt, step: Step) -> bool:
    record, planned = attempt.record, step.planned
    return (record.case_id, record.study, record.series, record.level, record.level_ops) == (
        planned.case.case_id, planned.study, planned.series, planned.level,
        ",".join(planned.ops) or None,
    )  # fmt: skip


def _is_current(record: Record, step: Step, answerer: Answerer) -> bool:
    """Whether asking again would give the same row: same question, and the same rules, versions and data."""
    unasked = _unasked(step)
    if unasked is None:
        same = record.status not in {"skipped", "rejected"}
    else:
        same = (record.status, record.reason) == unasked
    asked = what_is_asked(step.planned)
    return (
        same
        and all(getattr(record, name) == value for name, value in asked.items())
        and (record.answered_by, record.answered_with) == (answerer.name, answerer.versions)
        and record.harness_version == __version__
    )


def _unasked(step: Step) -> tuple[Status, str] | None:
    """Status and reason of a step that is not asked at all."""
    if step.planned.skip_reason:
        return "skipped", step.planned.skip_reason
    return ("rejected", step.rejection) if step.rejection else None


def _price_batch(batch: list[Step], systems: dict[str, _System], todo: _Todo) -> list[Attempt]:
    """Price one batch, grouped by system and level so that equal kernels are asked once; plan order is kept."""
    now = _now()
    attempts: dict[int, Attempt] = {}
    groups: dict[tuple[str, str, tuple[str, ...]], list[Step]] = defaultdict(list)
    for step in batch:
        planned = step.planned
        system = systems[planned.case.system]
        unasked = _unasked(step)
        if unasked is None:
            groups[planned.case.system, planned.level, planned.ops].append(step)
        else:
            attempt_id = todo.attempt_id(step)
            attempts[step.number] = unpriced_attempt(planned, *unasked, system.answerer, attempt_id, now)
    for (key, level, ops), steps in groups.items():
        system = systems[key]
        cases = [step.planned.case for step in steps]
        prices = price_cases(
            cases,
            "layer" if level == "layer" else "model",
            system.pricer,
            system.roofline,
            ops,
            helix_overlap=system.helix_overlap,
        )
        for step, price in zip(steps, prices, strict=True):
            attempts[step.number] = priced_attempt(step.planned, price, system.answerer, todo.attempt_id(step), now)
    return [attempts[step.number] for step in batch]


def _system(key: str, options: PriceOptions) -> _System:
    pricer, why = select_pricer(
        options.on, key, allow_extrapolation=options.allow_extrapolation, as_is=options.tables_as_is
    )
    roofline = RooflinePricer(load_system(key))
    # Every record has figures of the roofline beside those of the tables.
    versions = ", ".join(f"{name} {version}" for name, version in {**pricer.versions(), **roofline.versions()}.items())
    names = ("allow_extrapolation", "tables_as_is", "helix_overlap") if pricer.name == "tables" else ("helix_overlap",)
    asked = [name.replace("_", "-") for name in names if getattr(options, name)]
    answerer = Answerer(pricer.name, ", ".join([versions, *asked]))
    return _System(pricer, roofline, answerer, why, options.helix_overlap)


def _environment(options: PriceOptions, systems: dict[str, _System], run_id: str) -> dict[str, Any]:
    return {
        **environment_facts(),
        "run_id": run_id,
        "started_at": _now(),
        "finished_at": None,
        "command": shlex.join(["trtllm-harness", *sys.argv[1:]]),
        "options": asdict(options),
        "assumptions": [OVERLAP] if options.helix_overlap else [],
        "answered_by": {
            key: {"name": one.answerer.name, "versions": one.answerer.versions, "why": one.why}
            for key, one in systems.items()
        },
    }


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
