"""`trtllm-harness build`: engines and settings that TensorRT-LLM loads with nothing downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from harness.cli.build_needs import Version, needs_of_study, needs_of_variant, version_for
from harness.cli.engines import store_option
from harness.cli.kinds import is_variant
from harness.cli.meter import Meter
from harness.cli.options import Entry, echo_json, json_option, study_options
from harness.errors import HarnessError, UsageError, combine_exit_codes
from harness.spec.load import Overrides

if TYPE_CHECKING:
    from harness.engines.needs import EngineNeed, Needs
    from harness.engines.prepare import Beside, BuildPlan, Prepared
    from harness.engines.settings import Settings
    from harness.engines.store import EngineStore, Outcome

_NAMES_SHOWN = 3


@click.command("build")
@click.argument("what", type=Entry("variants", "studies", "suites"))
@study_options
@store_option
@click.option(
    "--weights",
    type=click.Choice(["none", "modelopt"]),
    default="none",
    show_default=True,
    help="none: TensorRT-LLM makes them up; modelopt: synthetic ones, quantised by NVIDIA Model Optimizer.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the weights.")
@click.option(
    "--trtllm-version",
    "asked",
    default="auto",
    show_default=True,
    metavar="VERSION",
    help="TensorRT-LLM to write settings for: 1.2.1, 1.3.0rc7, 1.3.0rc24, 1.4, or one between or after them.",
)
@click.option(
    "--engine",
    "kind",
    type=click.Choice(["pytorch", "tensorrt"]),
    default="pytorch",
    show_default=True,
    help="tensorrt builds TensorRT plans, where the version still has them.",
)
@click.option("--moe-backend", metavar="NAME", help="TensorRT-LLM's moe_config.backend instead of the version's own.")
@click.option("--architecture", metavar="CLASS", help="Model class instead of the usual one: Qwen3ForCausalLM.")
@click.option("--yes", is_flag=True, help="Accept a sweep of more than 20,000 cases.")
@json_option
def command(
    what: str, axes: tuple[str, ...], sets: tuple[str, ...], systems: tuple[str, ...], store: Path,
    weights: Literal["none", "modelopt"], seed: int, asked: str, kind: str, moe_backend: str | None,
    architecture: str | None, yes: bool, as_json: bool,
) -> None:  # fmt: skip
    """Make the engines of WHAT (a study, suite or variant, by name or path) and the settings to run them.

    \b
    trtllm-harness build a1d-group-size-decode --store engines
    trtllm-harness build dense-8b --set layers=4 --weights modelopt --store engines

    What is there and undamaged is kept. A variant with a lint error is named and the others are built (exit code 2).
    Too little disk or memory is said before anything is written (exit code 4).
    """
    from harness.engines.needs import EngineOptions
    from harness.engines.store import EngineStore

    version = version_for(asked, kind)
    options = EngineOptions(version.text, architecture, weights, seed, moe_backend)
    if is_variant(what):
        if kind == "tensorrt":
            raise UsageError(f"--engine tensorrt: a plan is made for workloads, and {what} has none; build a study")
        needs = needs_of_variant(what, axes, sets, systems, options)
    else:
        needs = needs_of_study(what, Overrides(axes, sets, systems), yes, options)
    build = _Build(EngineStore(store), needs, version, plans=kind == "tensorrt", quiet=as_json)
    build.run()
    if as_json:
        echo_json(build.as_data())
    else:
        build.echo_summary()
    click.get_current_context().exit(combine_exit_codes(build.codes))


class _Build:
    """Builds what is needed, says so as it goes, and keeps what was done."""

    def __init__(self, store: EngineStore, needs: Needs, version: Version, *, plans: bool, quiet: bool) -> None:
        self.store, self.needs, self.version, self.plans, self.quiet = store, needs, version, plans, quiet
        self.meter = Meter(quiet=quiet)
        self.done: list[Prepared] = []
        self.problems = list(needs.problems)
        self.codes: list[int] = [UsageError.exit_code] if self.problems else []

    def run(self) -> None:
        """Build everything; an error of the environment ends it, and what was finished stays."""
        from harness.engines.prepare import prepare, survey

        for text in self.problems:
            click.echo(f"error: {text}", err=True)
        try:
            build_plan = self._plan_builder() if self.plans else None
            found = survey(self.store, self.needs.engines, lambda need: self.meter.begin(f"checking {need.names[0]}"))
            for number, need in enumerate(self.needs.engines, 1):
                self.meter.begin(f"engine {number}/{len(self.needs.engines)} {need.names[0]}")
                try:
                    one = prepare(
                        self.store, need, found,
                        build_plan=build_plan, progress=self.meter, on_wait=self.meter.wait,
                    )  # fmt: skip
                except UsageError as error:
                    self._fail(error)
                    continue
                self.done.append(one)
                self.meter.clear()
                if not self.quiet:
                    click.echo(_line(one))
        except HarnessError as error:
            self._fail(error)
        finally:
            self.meter.clear()

    def _fail(self, error: HarnessError) -> None:
        self.meter.clear()
        self.problems += str(error).splitlines()
        self.codes.append(error.exit_code)
        for text in str(error).splitlines():
            click.echo(f"error: {text}", err=True)

    def _plan_builder(self) -> BuildPlan:
        """What builds the plan of one engine and settings; one that fails keeps no other from being built."""
        from harness.engines.plans import PlanFailed, build_plan, plan_spec, this_gpu

        gpu = this_gpu()

        def build(need: EngineNeed, settings: Settings) -> tuple[Path, Outcome] | None:
            try:
                spec = plan_spec(need.variant, need.spec, settings, self.version.text, gpu)
                return build_plan(self.store, need.spec.key, settings.name, spec, self.meter.wait)
            except (PlanFailed, UsageError) as error:
                self._fail(error)
                return None

        return build

    def as_data(self) -> dict[str, Any]:
        """Everything, for scripts."""
        there = {one.engine.key for one in self.done}
        return {
            "store": str(self.store.root),
            "trtllm_version": self.version.text,
            "trtllm_version_why": self.version.why,
            "engines": [_as_data(one) for one in self.done],
            "missing": [need.spec.key for need in self.needs.engines if need.spec.key not in there],
            "problems": self.problems,
            "too_large": [
                {
                    "variant": case.variant.name, "system": case.system, "workload": case.workload.label,
                    "reason": verdict.text,
                }
                for case, verdict in self.needs.too_large
            ],
        }  # fmt: skip

    def echo_summary(self) -> None:
        """What was done in all, and what a person should know about it."""
        made = [one for one in self.done if one.built.outcome != "kept"]
        for note in dict.fromkeys(note for one in made for note in one.engine.manifest.notes):
            click.echo(f"note: {note}")
        if self.needs.too_large:
            case, verdict = self.needs.too_large[0]
            click.echo(
                f"{len(self.needs.too_large)} cases are in no settings, because they do not fit their GPU; the first, "
                f"{case.variant.name} on {case.system}, {case.workload.label}: {verdict.text}"
            )
        engines = [one.built.outcome for one in self.done]
        beside = [one.outcome for engine in self.done for one in (*engine.settings, *engine.plans)]
        what = "plan" if self.plans else "setting"
        for_version = f"TensorRT-LLM {self.version.text} ({self.version.why})"
        if len(engines) < len(self.needs.engines):
            click.echo(f"{len(engines)} of {len(self.needs.engines)} engines are in {self.store.root}")
        elif set(engines + beside) == {"kept"} and not self.codes:
            there = f"{_count(len(engines), 'engine')} and {_count(len(beside), what)}"
            click.echo(f"nothing to do: {there} for {for_version} are in {self.store.root}")
        else:
            click.echo(f"{self.store.root}: {_tally('engine', engines)}")
            click.echo(f"for {for_version}: {_tally(what, beside)}")


def _line(one: Prepared) -> str:
    names = one.need.names
    more = f" (+{len(names) - _NAMES_SHOWN})" if len(names) > _NAMES_SHOWN else ""
    why = f"  [{'; '.join(one.built.damage)}]" if one.built.damage else ""
    return (
        f"{one.built.outcome:<7}  {one.engine.key}  {one.engine.manifest.architecture}  "
        f"{', '.join(names[:_NAMES_SHOWN])}{more}{why}"
    )


def _tally(noun: str, outcomes: list[Any]) -> str:
    parts = [f"{outcomes.count(outcome)} {outcome}" for outcome in ("built", "rebuilt", "kept") if outcome in outcomes]
    return _count(len(outcomes), noun) + (f": {', '.join(parts)}" if parts else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _as_data(one: Prepared) -> dict[str, Any]:
    return {
        "key": one.engine.key,
        "path": str(one.engine.path),
        "architecture": one.engine.manifest.architecture,
        "variants": one.need.names,
        "outcome": one.built.outcome,
        "damage": list(one.built.damage),
        "notes": list(one.engine.manifest.notes),
        "settings": [_beside(each) for each in one.settings],
        "plans": [_beside(each) for each in one.plans],
    }


def _beside(one: Beside) -> dict[str, Any]:
    group = one.settings.group
    return {
        "path": str(one.path),
        "outcome": one.outcome,
        "parallelism": group.parallelism.label,
        "systems": list(group.systems),
        "workloads": [workload.label for workload in group.workloads],
    }
