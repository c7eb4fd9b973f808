"""Ask one case of a run again, by who answered it before, under the same options."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from harness.backends.registry import is_backend
from harness.errors import UnreadableInput, UsageError
from harness.results.record import Record
from harness.results.store import Attempt, Run, read_attempts, read_run
from harness.runner.engine_needs import EngineAsk
from harness.runner.limits import Limits
from harness.runner.measure_run import MeasureOptions, Outcome, Tell, run_measured
from harness.runner.plan import Plan, make_plan
from harness.runner.policy import SamplingPolicy
from harness.runner.price_run import PriceOptions, run_priced
from harness.runner.run_parts import number_of


@dataclass(frozen=True, slots=True)
class Again:
    """A case of a run that can be asked again."""

    before: Record
    plan: Plan
    """Of the one case."""
    options: PriceOptions | MeasureOptions


def find_again(path: Path, wanted: str) -> Again:
    """Find the attempt `wanted` of a run and what it takes to ask its case again.

    `wanted` is an attempt id, what of it follows the run (`000004.r1`), or a bare number, whose last attempt is meant.
    Raises UsageError where there is no such attempt, or where it was imported.
    """
    run = read_run(path)
    before = _find(read_attempts(path)[0], wanted, path).record
    if before.provenance == "imported":
        raise UsageError(f"{before.attempt_id} was imported from a report of {before.answered_by}: nothing here ran it")
    options = _options(run, before)
    ignore_memory = isinstance(options, PriceOptions) and options.ignore_memory
    whole = make_plan(run.suite, run.studies, allow_large=True, ignore_memory=ignore_memory)
    step = next((one for one in whole.steps if one.number == number_of(before.attempt_id)), None)
    if step is None or step.planned.case.case_id != before.case_id:
        raise UnreadableInput(f"{path}: study.yaml is not that of {before.attempt_id}")
    return Again(before, replace(whole, steps=(step,), whole=whole.steps), options)


def ask_again(again: Again, out: Path, *, tell: Tell = lambda _: None) -> Outcome:
    """Price or measure the case into the run folder `out`; raises as `run_priced` and `run_measured` do."""
    if isinstance(again.options, MeasureOptions):
        return run_measured(again.plan, out, again.options, tell=tell)
    run_priced(again.plan, out, again.options)
    return Outcome(exhausted=False)


def rows_of(out: Path) -> list[Record]:
    """The rows that asking again made."""
    return [attempt.record for attempt in read_attempts(out)[0]]


def _find(attempts: list[Attempt], wanted: str, path: Path) -> Attempt:
    exact = [one for one in attempts if wanted in (one.record.attempt_id, one.record.attempt_id.partition(".")[2])]
    if not exact and wanted.isdigit():
        exact = [one for one in attempts if number_of(one.record.attempt_id) == int(wanted)]
    if not exact:
        known = f"{attempts[0].record.attempt_id} to {attempts[-1].record.attempt_id}" if attempts else "none"
        raise UsageError(f"{path} has no attempt {wanted!r}; it has {known}, see the column attempt_id of records.csv")
    return exact[-1]


def _options(run: Run, before: Record) -> PriceOptions | MeasureOptions:
    told = run.environment.get("options")
    if not isinstance(told, dict) or "on" not in told:
        raise UnreadableInput(
            f"{run.path}: environment.json does not say under which options {before.attempt_id} was made"
        )
    try:
        if is_backend(told["on"]):
            return _measure_options(told)
        options = PriceOptions(**_known(PriceOptions, told))
        return replace(options, on=before.answered_by)  # type: ignore[arg-type]
    except (TypeError, UsageError) as error:
        raise UnreadableInput(f"{run.path}: environment.json: options: {error}") from None


def _measure_options(told: dict[str, Any]) -> MeasureOptions:
    """One process, without a time limit of the run; the rest as it was."""
    parts = {
        "policy": SamplingPolicy(**_known(SamplingPolicy, told["policy"])),
        "limits": Limits(**_known(Limits, told["limits"])),
        "replicates": 1,
        "budget_s": None,
        "retry_failed": False,
        "why": "asked again",
        "engines": EngineAsk(**_known(EngineAsk, told.get("engines", {}))),
    }
    return MeasureOptions(**{**_known(MeasureOptions, told), **parts})


def _known(kind: type, told: dict[str, Any]) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in told.items() if name in names}
