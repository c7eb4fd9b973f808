"""What a run with engines does before its first worker: assign, build, and write down what nothing serves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.backends.base import BackendFacts
from harness.results.record import Status
from harness.results.store import Attempt
from harness.runner.engine_groups import engine_arms
from harness.runner.engine_needs import Assigned, EngineAsk, assign, version_of
from harness.runner.engines_here import make_ready
from harness.runner.family import own_pids
from harness.runner.groups import ArmGroup
from harness.runner.measure_group import Workplace
from harness.runner.measured import Process, unmeasured_attempt
from harness.runner.plan import Plan, Step
from harness.runner.run_parts import now_text
from harness.runner.telemetry import open_telemetry

#: Folders in the run folder, where nothing else is said.
STORE, TUNER = "engines", "autotuner"


@dataclass(slots=True)
class Engines:
    """The engines of a run: which case needs which, and where they are kept."""

    ask: EngineAsk
    """With whole paths, so that a case can be asked again from elsewhere."""
    assigned: Assigned
    launcher: str
    notes: list[str] = field(default_factory=list)

    @property
    def plan(self) -> Plan:
        """The plan, judged for the version that is installed."""
        return self.assigned.plan

    @property
    def gpus(self) -> int:
        """GPUs that the largest instance needs."""
        worlds = (one.settings.group.parallelism.world_size for one in self.assigned.served.values())
        return max(worlds, default=1)

    def groups(self, place: Workplace, told: Callable[[str], None]) -> list[ArmGroup]:
        """Make what is still needed be there, give each case without an engine its row, and group the others.

        Raises BudgetExhausted, EnvironmentUnfit where there is no room on the disk.
        """
        slots = place.slots
        steps = [step for step in self.plan.steps if slots.first_wanted(step) is not None]
        refused = self.assigned.refused
        _write(place, [(one, "unsupported", refused[one.number], None) for one in steps if one.number in refused])
        wanted = {one.number: self.assigned.served[one.number] for one in steps if one.number not in refused}
        installed = str(place.facts.details["version"])

        def before_each(text: str) -> None:
            place.clock.check()
            if text:
                told(text)

        assert self.ask.store
        assert self.ask.tuner
        tuner = Path(self.ask.tuner) / installed
        ready = make_ready(replace(self.assigned, served=wanted), Path(self.ask.store), tuner, before_each)
        failed = ((one, ready.failed[one.number]) for one in steps if one.number in ready.failed)
        _write(place, [(one, "build_failed", reason, key) for one, (key, reason) in failed])
        return engine_arms([one for one in steps if one.number in ready.here], ready.here, self.launcher)


def engines_for(plan: Plan, ask: EngineAsk, launcher: str, facts: BackendFacts, out: Path) -> Engines:
    """Assign engines to the cases of a plan. Raises UsageError for a version of which nothing is known."""
    assigned = assign(plan, ask, facts)
    store, tuner = Path(ask.store or out / STORE).resolve(), Path(ask.tuner or out / TUNER).resolve()
    engines = Engines(replace(ask, store=str(store), tuner=str(tuner)), assigned, launcher)
    if ask.store is None:
        engines.notes.append(f"engines are kept in {store}; with --store or TRTLLM_HARNESS_STORE other runs find them")
    installed, written = str(facts.details["version"]), version_of(ask, facts)
    if installed.partition("+")[0] != written:
        engines.notes.append(f"settings are those for TensorRT-LLM {written}, and {installed} is installed")
    return engines


def _write(place: Workplace, rows: list[tuple[Step, Status, str, str | None]]) -> None:
    attempts: list[Attempt] = []
    for step, status, reason, engine in rows:
        replicate = place.slots.first_wanted(step) or 0
        process = Process(
            attempt_id=place.slots.attempt_id(step, replicate), started_at=now_text(), answerer=place.answerer,
            facts=place.facts, replicate=replicate, arms=None, log=None, engine=engine, flags=place.flags,
        )  # fmt: skip
        attempts.append(unmeasured_attempt(step.planned, process, status, reason))
        place.slots.journalled(step, replicate, status)
    if attempts:
        place.folder.append(attempts)


@contextmanager
def on_its_gpus(place: Workplace, group: ArmGroup) -> Iterator[Workplace]:
    """The workplace of a group that may use only the first of the GPUs that are here: others are not observed."""
    uuids = place.facts.gpu_uuids
    if not group.engine or group.engine.ranks >= len(uuids):
        yield place
        return
    own = uuids[: group.engine.ranks]
    with closing(open_telemetry(own, own_pids)) as telemetry:
        telemetry.start()
        yield replace(place, telemetry=telemetry, facts=replace(place.facts, gpu_uuids=own))
