"""Options of measured runs, and how they become what the runner takes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from harness.cli.options import PathType
from harness.errors import UsageError
from harness.spec.axes import Scalar, is_scalar
from harness.spec.overrides import assignment

if TYPE_CHECKING:
    from harness.runner.engine_needs import EngineAsk
    from harness.runner.measure_run import MeasureOptions

F = TypeVar("F", bound=Callable[..., Any])

_PRICERS = ("auto", "tables", "roofline")
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_DURATION = re.compile(r"(?:(?P<h>[0-9.]+)h)?(?:(?P<m>[0-9.]+)m(?:in)?)?(?:(?P<s>[0-9.]+)s?)?")

#: A longer time budget is none.
_LONGEST_S = 366 * 86_400.0


class On(click.ParamType):  # type: ignore[type-arg]
    """A pricer, a backend, or a backend's class."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or tell which are known."""
        from harness.backends.registry import known_backends

        known = (*_PRICERS, *known_backends())
        if value not in known and not _CLASS.fullmatch(value):
            self.fail(f"{value!r} is not one of {', '.join(known)}, nor package.module:Class", param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Known names that start with what was typed."""
        from harness.backends.registry import known_backends

        return [CompletionItem(name) for name in (*_PRICERS, *known_backends()) if name.startswith(incomplete)]


class Duration(click.ParamType):  # type: ignore[type-arg]
    """A time such as 90s, 30m, 1h30m; a bare number is seconds. Converts to seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        if isinstance(value, float):
            return value
        found = _DURATION.fullmatch(str(value))
        try:
            parts = {unit: float(text) for unit, text in found.groupdict().items() if text} if found else {}
        except ValueError:
            parts = {}
        seconds = sum(parts.get(unit, 0.0) * factor for unit, factor in (("h", 3600), ("m", 60), ("s", 1)))
        if not 0 < seconds <= _LONGEST_S:
            shown = str(value) if len(str(value)) <= 40 else f"{str(value)[:40]}…"
            self.fail(f"{shown!r} is no time above 0 and up to a year; write 90s, 30m or 1h30m", param, ctx)
        return seconds


on_option = click.option(
    "--on",
    type=On(),
    default="auto",
    show_default=True,
    metavar="NAME",
    help="Who answers: tables, roofline (prices); torch, trtllm, package.module:Class (measures here); auto chooses.",
)

_OPTIONS = (
    click.option("--replicates", type=click.IntRange(1, 1000), metavar="K", help="Fresh processes of each case. [3]"),
    click.option("--budget", type=Duration(), metavar="TIME", help="End measuring after 30m, 1h30m …; exit code 124."),
    click.option("--arm-budget", type=Duration(), metavar="TIME",
                 help="Time of iterations of one case in one process. [6s; 20s for trtllm]"),
    click.option("--target-pct", type=click.FloatRange(0, 100, min_open=True), metavar="PCT",
                 help="Sample until the median is known to ± this, in %. [0.5]"),
    click.option("--threads", type=click.IntRange(1), metavar="N", help="Threads of a backend that computes on a CPU."),
    click.option("--backend-option", "backend_options", multiple=True, metavar="NAME=VALUE",
                 help="An option of the backend. Repeatable."),
    click.option("--retry-failed", is_flag=True, help="With --resume: measure again what failed."),
    click.option("--shared-gpu", is_flag=True, help="Measure although others use the GPU; the rows are flagged."),
    click.option("--lock-clocks", is_flag=True, help="Lock the GPU's clocks meanwhile; needs the right to."),
    click.option("--seed", type=click.IntRange(0), metavar="N", help="Of data and of every random order. [0]"),
    click.option("--store", type=PathType(folder=True), metavar="DIR",
                 help="Engines for trtllm, built where missing. [TRTLLM_HARNESS_STORE, or engines in --out]"),
    click.option("--trtllm-version", metavar="VERSION", help="Version that settings are written for. [installed]"),
    click.option("--weights", type=click.Choice(["none", "modelopt"]), help="As `trtllm-harness build`. [none]"),
    click.option("--moe-backend", metavar="NAME", help="As `trtllm-harness build`."),
    click.option("--architecture", metavar="CLASS", help="As `trtllm-harness build`."),
)  # fmt: skip

#: Options about engines, and the variable that stands in for --store.
_ENGINE_OPTIONS = ("store", "trtllm_version", "weights", "moe_backend", "architecture")
STORE_VARIABLE = "TRTLLM_HARNESS_STORE"


def measure_options(function: F) -> F:
    """Options that only measured runs take; they arrive as keywords of these names."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def measured_with(on: str, why: str, given: dict[str, Any]) -> MeasureOptions:
    """What `run_measured` takes, from the options of `measure_options`. Raises UsageError."""
    from harness.backends.registry import loads_engines
    from harness.runner.measure_run import ENGINE_ARM_BUDGET_S, MeasureOptions

    if not loads_engines(on):
        refuse_given({name: given[name] for name in _ENGINE_OPTIONS}, f"is about engines, and {on} loads none")
    options = MeasureOptions(
        on=on,
        why=why,
        replicates=given["replicates"],
        budget_s=given["budget"],
        retry_failed=given["retry_failed"],
        shared_gpu=given["shared_gpu"],
        lock_clocks=given["lock_clocks"],
        seed=given["seed"] or 0,
        backend_options=_backend_options(given["backend_options"], given["threads"]),
        engines=_engines(given),
    )
    usual_s = ENGINE_ARM_BUDGET_S if loads_engines(on) else None
    policy = {"budget_s": given["arm_budget"] or usual_s, "target_pct": given["target_pct"]}
    changed = {name: value for name, value in policy.items() if value is not None}
    return replace(options, policy=replace(options.policy, **changed))


def _engines(given: dict[str, Any]) -> EngineAsk:
    from harness.runner.engine_needs import EngineAsk

    store = given["store"] or os.environ.get(STORE_VARIABLE)
    return EngineAsk(
        store=str(Path(store).resolve()) if store else None,
        version=given["trtllm_version"] or "auto",
        weights=given["weights"] or "none",
        moe_backend=given["moe_backend"],
        architecture=given["architecture"],
    )


def refuse_given(given: dict[str, Any], who: str) -> None:
    """Raise UsageError where options were given that mean nothing to who answers."""
    names = [f"--{name.replace('_', '-').removesuffix('s') if name == 'backend_options' else name.replace('_', '-')}"
             for name, value in given.items() if value not in (None, False, ())]  # fmt: skip
    if names:
        raise UsageError(f"{', '.join(names)}: {who}")


def _backend_options(texts: tuple[str, ...], threads: int | None) -> dict[str, Scalar]:
    options: dict[str, Scalar] = {}
    for text in texts:
        name, value = assignment(text, "--backend-option")
        if not is_scalar(value):
            raise UsageError(f"--backend-option {text}: {value!r} is neither a number nor a text")
        options[name] = value
    if threads is not None and options.setdefault("threads", threads) != threads:
        raise UsageError(f"--threads {threads} and --backend-option threads={options['threads']} contradict")
    return options
