"""Run a plan with pricers: batch by batch, every finished batch durable, resumable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.hardware import load_system
from harness.pricing.base import KernelPricer
from harness.pricing.compose import price_cases
from harness.pricing.helix import OVERLAP
from harness.pricing.roofline import RooflinePricer
from harness.pricing.select import On, check_levels, select_pricer
from harness.results.build import Answerer, priced_attempt, unpriced_attempt
from harness.results.store import Attempt, RunFolder, is_replicate
from harness.runner.plan import Plan, Step
from harness.runner.run_parts import Claim, claimed, earlier_of_plan, is_current, journalling, now_text, unasked

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

    Raises UsageError where `out` already holds a run and `resume` is not set, and for what no pricer can answer (system
    `cpu`, level `serve`); EnvironmentUnfit where the disk is full, Interrupted on Ctrl-C. What was finished before is
    kept in every case.
    """
    check_levels(plan.studies)
    systems = {key: _system(key, options) for key in dict.fromkeys(step.planned.case.system for step in plan.steps)}
    with claimed(out, resume=resume, anew="--replace to price it anew, or take another --out") as claim:
        todo = _Todo(plan, claim, systems)
        with journalling(claim, plan, _facts(options, systems), "priced") as folder:
            _price_all(todo, systems, folder, progress)


def _price_all(todo: _Todo, systems: dict[str, _System], folder: RunFolder, progress: Progress) -> None:
    progress(todo.done)
    for batch in todo.batches():
        folder.append(_price_batch(batch, systems, todo))
        progress(len(batch))


class _Todo:
    """What is left of a plan after the attempts of an earlier try."""

    def __init__(self, plan: Plan, claim: Claim, systems: dict[str, _System]) -> None:
        self.run_id = claim.run_id
        self._tries: dict[int, int] = defaultdict(int)
        finished: set[int] = set()
        for attempt, step in earlier_of_plan(claim, plan):
            number = step.number
            if is_replicate(attempt.record.attempt_id):
                raise UsageError(f"{claim.out} holds measured rows; --on {attempt.record.answered_by} completes it")
            self._tries[number] += 1
            answerer = systems[step.planned.case.system].answerer
            (finished.add if is_current(attempt.record, step, answerer) else finished.discard)(number)
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


def _price_batch(batch: list[Step], systems: dict[str, _System], todo: _Todo) -> list[Attempt]:
    """Price one batch, grouped by system and level so that equal kernels are asked once; plan order is kept."""
    now = now_text()
    attempts: dict[int, Attempt] = {}
    groups: dict[tuple[str, str, tuple[str, ...]], list[Step]] = defaultdict(list)
    for step in batch:
        planned = step.planned
        system = systems[planned.case.system]
        never_asked = unasked(step)
        if never_asked is None:
            groups[planned.case.system, planned.level, planned.ops].append(step)
        else:
            attempt_id = todo.attempt_id(step)
            attempts[step.number] = unpriced_attempt(planned, *never_asked, system.answerer, attempt_id, now)
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


def _facts(options: PriceOptions, systems: dict[str, _System]) -> dict[str, Any]:
    return {
        "options": asdict(options),
        "assumptions": [OVERLAP] if options.helix_overlap else [],
        "answered_by": {
            key: {"name": one.answerer.name, "versions": one.answerer.versions, "why": one.why}
            for key, one in systems.items()
        },
    }
