"""What every run does with its folder, whoever answers: claim it, know what is in it, journal what is new."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from harness import files
from harness.errors import Interrupted, UsageError
from harness.results.build import Answerer, what_is_asked
from harness.results.environment import environment_facts
from harness.results.record import Record, Status
from harness.results.store import (
    JOURNAL_FILE,
    Attempt,
    RunFolder,
    is_replicate,
    is_run,
    open_run,
    read_attempts,
    read_environment,
)
from harness.runner.plan import Plan, Step
from harness.version import __version__


@dataclass(frozen=True, slots=True)
class Claim:
    """A run folder that is ours: what its journal held when it was taken, and the id of its run."""

    out: Path
    run_id: str
    attempts: tuple[Attempt, ...]
    environment: dict[str, Any]
    """Of the earlier start; empty in a new run."""


@contextmanager
def claimed(out: Path, *, resume: bool, anew: str) -> Iterator[Claim]:
    """Hold the folder `out` and tell what is in it.

    Raises UsageError where it already holds a run and `resume` is not set; `anew` is the remedy that starts it anew.
    """
    with files.folder_lock(out):
        if is_run(out) and not resume:
            raise UsageError(f"{out} already holds a run; add --resume to complete it, {anew}")
        earlier = read_attempts(out)[0] if (out / JOURNAL_FILE).is_file() else []
        run_id = earlier[0].record.run_id if earlier else datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%fZ")
        yield Claim(out, run_id, tuple(earlier), read_environment(out) if earlier else {})


@contextmanager
def journalling(claim: Claim, plan: Plan, facts: Mapping[str, Any], verb: str) -> Iterator[RunFolder]:
    """Open the claimed folder for writing, with its environment: versions, host and `facts`.

    `verb` says in messages what was done, such as `priced`. Raises Interrupted on Ctrl-C; what was journalled is kept.
    """
    environment = {
        **environment_facts(),
        "run_id": claim.run_id,
        "started_at": now_text(),
        "finished_at": None,
        "command": shlex.join(["trtllm-harness", *sys.argv[1:]]),
        **facts,
    }
    if claim.attempts:
        environment |= _history(claim.environment, environment)
    with open_run(claim.out, plan.suite, plan.studies) as folder:
        folder.write_environment(environment)
        try:
            yield folder
        except KeyboardInterrupt:
            raise Interrupted(f"interrupted; what was {verb} is kept in {claim.out} (go on with --resume)") from None
        folder.write_environment({**environment, "finished_at": now_text()})


def _history(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """What a resumed run keeps of its first start, and when it was taken up again."""
    first: dict[str, Any] = {name: before[name] for name in ("started_at", "command") if name in before}
    again = {"started_at": now["started_at"], "command": now["command"]}
    resumed = before.get("resumed")
    return {**first, "resumed": [*(resumed if isinstance(resumed, list) else []), again]}


def earlier_of_plan(claim: Claim, plan: Plan) -> Iterator[tuple[Attempt, Step]]:
    """The attempts of an earlier start, each with its step, oldest first.

    Raises UsageError where the run was made from another plan.
    """
    by_number = {step.number: step for step in plan.steps}
    for attempt in claim.attempts:
        step = by_number.get(number_of(attempt.record.attempt_id))
        if step is None or not _same_place(attempt, step):
            anew = "" if is_replicate(attempt.record.attempt_id) else ", or --replace to price it anew"
            raise UsageError(
                f"the run in {claim.out} was made from another plan: its {attempt.record.attempt_id} "
                f"{'has no place in this one' if step is None else 'is another case there'}; "
                f"take the study that it was made from, or another --out{anew}"
            )
        yield attempt, step


def number_of(attempt_id: str) -> int:
    """The number of the step that an attempt answers."""
    return int(attempt_id.split(".")[1])


def _same_place(attempt: Attempt, step: Step) -> bool:
    record, planned = attempt.record, step.planned
    return (record.case_id, record.study, record.series, record.level, record.level_ops) == (
        planned.case.case_id, planned.study, planned.series, planned.level,
        ",".join(planned.ops) or None,
    )  # fmt: skip


def is_current(record: Record, step: Step, answerer: Answerer) -> bool:
    """Whether asking again would give the same row: same question, and the same rules, versions and data."""
    never_asked = unasked(step)
    if never_asked is None:
        same = record.status not in {"skipped", "rejected"}
    else:
        same = (record.status, record.reason) == never_asked
    asked = what_is_asked(step.planned)
    return (
        same
        and all(getattr(record, name) == value for name, value in asked.items())
        and (record.answered_by, record.answered_with) == (answerer.name, answerer.versions)
        and record.harness_version == __version__
    )


def unasked(step: Step) -> tuple[Status, str] | None:
    """Status and reason of a step that is not asked at all."""
    if step.planned.skip_reason:
        return "skipped", step.planned.skip_reason
    return ("rejected", step.rejection) if step.rejection else None


def now_text() -> str:
    """The time, ISO 8601 in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
