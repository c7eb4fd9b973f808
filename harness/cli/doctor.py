"""`trtllm-harness doctor`: what this machine can do, what is missing and how to get it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import click

from harness.cli.options import echo_json, json_option


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at."""

    name: str
    ok: bool
    found: str
    advice: str = ""


@click.command("doctor")
@json_option
def command(as_json: bool) -> None:
    """Say what this machine can do and what is missing. Exits 0: a missing option is no fault."""
    from harness.results.environment import environment_facts

    facts, checks = environment_facts(), _checks()
    if as_json:
        echo_json({**facts, "checks": [asdict(check) for check in checks]})
        return
    click.echo(
        f"trtllm-harness {facts['harness']}, Python {facts['python']}, {facts['platform']}, {facts['cpus']} CPUs"
    )
    click.echo("packages: " + ", ".join(f"{name} {version}" for name, version in facts["packages"].items()))
    for check in checks:
        click.echo(f"  {'yes' if check.ok else 'no ':<4}{check.name}: {check.found}")
        if check.advice:
            click.echo(f"      {check.advice}")


def _checks() -> list[Check]:
    return [_roofline(), _tables()]


def _roofline() -> Check:
    from harness.hardware import known_systems

    return Check("roofline", True, f"{len(known_systems())} GPUs: {', '.join(known_systems())}")


def _tables() -> Check:
    from harness.pricing.tables import tabled_systems, tables_available

    available, why = tables_available()
    name = "published kernel measurements"
    if not available:
        return Check(name, False, why, "pip install 'trtllm-harness[tables]' (CPython 3.11 to 3.13)")
    return Check(name, True, f"{len(tabled_systems())} GPUs: {', '.join(tabled_systems())}")
