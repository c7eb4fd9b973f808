"""`trtllm-harness selftest`: whether what the harness takes for granted of TensorRT-LLM holds on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.options import PathType, echo_json, json_option, stdout_to_stderr
from harness.errors import EnvironmentUnfit, ExitCode, UsageError

if TYPE_CHECKING:
    from harness.backends.trtllm.checks import Verdict
    from harness.backends.trtllm.features import Features


@click.command("selftest")
@click.option(
    "--probe-timeout",
    "probe_s",
    type=click.FloatRange(1),
    default=900.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest that one observation may take.",
)
@click.option(
    "--layerwise-checkout",
    "checkout",
    type=PathType(folder=True),
    metavar="PATH",
    help="A checkout of NVIDIA/TensorRT-LLM of the installed version, whose layer-wise benchmarks are run.",
)
@click.option("--fact", "only", multiple=True, metavar="NAME", help="Check only this fact; may be given several times.")
@json_option
def command(probe_s: float, checkout: Path | None, only: tuple[str, ...], as_json: bool) -> int:
    """Check on this machine each fact about TensorRT-LLM that the harness builds on.

    \b
    pass          it holds here
    FAIL          it does not: results that build on it are not to be trusted, and it is said what to look at first
    cannot check  why not

    Facts of other versions are not asked. Takes minutes: tiny models with dummy weights are loaded, each in a
    process of its own. Exit codes: 0 none failed, 3 a fact failed, 4 there is no TensorRT-LLM.
    """
    from harness.backends.trtllm.checks import check_facts
    from harness.backends.trtllm.evidence import facts

    unknown = [name for name in only if name not in facts()]
    if unknown:
        raise UsageError(*(f"no fact is called '{name}'; docs/trtllm-evidence.md has them all" for name in unknown))
    features = _features()
    verdicts = []
    if not as_json:
        gpus = features.gpus
        click.echo(f"TensorRT-LLM {features.version}{' (a test double)' if features.is_double else ''}, ", nl=False)
        click.echo(f"{len(gpus)} × {gpus[0].name}" if gpus else "no GPU")
    for verdict in check_facts(features, only=only, probe_s=probe_s, checkout=checkout):
        verdicts.append(verdict)
        if not as_json:
            _show(verdict)
    failed = [one.name for one in verdicts if one.outcome == "fail"]
    if as_json:
        echo_json(_data(features, verdicts))
    else:
        counts = ", ".join(f"{sum(one.outcome == kind for one in verdicts)} {kind}" for kind in ("pass", "fail"))
        unseen = sum(one.outcome == "cannot check" for one in verdicts)
        click.echo(f"{len(verdicts)} facts of this version: {counts}, {unseen} not to be checked here")
    if not any(one.outcome != "cannot check" for one in verdicts):
        return ExitCode.ENVIRONMENT
    return ExitCode.INCOMPLETE if failed else ExitCode.OK


def _features() -> Features:
    from harness.backends.trtllm.features import detect

    try:
        with stdout_to_stderr():  # it prints its version when it is imported
            return detect()
    except (ImportError, OSError, RuntimeError) as error:
        raise EnvironmentUnfit(f"TensorRT-LLM is installed and cannot be loaded: {error}") from error


def _show(verdict: Verdict) -> None:
    mark = {"pass": "pass", "fail": "FAIL", "cannot check": "?"}[verdict.outcome]
    click.echo(f"  {mark:<5}{verdict.name}: {verdict.found}")
    if verdict.outcome == "fail":
        click.echo(f"       taken for granted: {verdict.fact.says}")
        click.echo(f"       used: {verdict.fact.used}")
        click.echo(f"       look first at: {verdict.fact.first}")


def _data(features: Features, verdicts: list[Verdict]) -> dict[str, Any]:
    facts = [
        {
            "fact": one.name,
            "outcome": one.outcome,
            "found": one.found,
            "says": one.fact.says,
            "used": one.fact.used,
            "source": one.fact.source,
            "versions": one.fact.versions,
            "first": one.fact.first,
        }
        for one in verdicts
    ]
    return {"version": features.version, "is_double": features.is_double, "facts": facts}
