"""Whether what was observed of TensorRT-LLM is what is taken for granted, fact by fact."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

# Importing them registers their checks.
from harness.backends.trtllm import checks_iterations, checks_models  # noqa: F401
from harness.backends.trtllm.evidence import Fact, facts
from harness.backends.trtllm.features import Features
from harness.backends.trtllm.launch import for_own_ranks
from harness.backends.trtllm.observations import CHECKS, Missing, Observations, Seen
from harness.backends.trtllm.probes import CHECKOUT_VARIABLE, ENVIRONMENT
from harness.errors import HarnessError
from harness.files import read_json

#: Longest that a probe may take: a first load of the package, its compilation and autotuner take minutes.
PROBE_S = 900.0

Outcome = Literal["pass", "fail", "cannot check"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found of one fact."""

    name: str
    fact: Fact
    outcome: Outcome
    found: str


def check_facts(
    features: Features, *, only: Collection[str] = (), probe_s: float = PROBE_S, checkout: Path | None = None
) -> Iterator[Verdict]:
    """Check the facts that concern the installed version, in the order of the evidence, each when it is asked for.

    `only` names those to check; left out, all. `checkout` is one of TensorRT-LLM, whose layer-wise benchmarks are run.
    """
    more = {CHECKOUT_VARIABLE: str(checkout.absolute())} if checkout else {}
    seen = Observations(features, lambda name: run_probe(name, probe_s, more))
    for name, fact in facts().items():
        if fact.concerns(features.version) and (not only or name in only):
            outcome, found = _checked(fact, seen)
            yield Verdict(name, fact, outcome, found)


def _checked(fact: Fact, seen: Observations) -> tuple[Outcome, str]:
    if fact.cannot:
        return "cannot check", fact.cannot
    try:
        return "pass", CHECKS[fact.check](seen)
    except AssertionError as error:
        return "fail", str(error)
    except Missing as error:
        return "cannot check", str(error)
    except HarnessError as error:
        return "fail", " ".join(str(error).split())


def run_probe(name: str, limit_s: float = PROBE_S, variables: Mapping[str, str] | None = None) -> Seen:
    """Make one observation in a process of its own, which is ended with all that it started when its time is over."""
    with tempfile.TemporaryDirectory(prefix="selftest-") as scratch:
        out, log = Path(scratch) / "seen.json", Path(scratch) / "log"
        command = [sys.executable, "-m", "harness.backends.trtllm.probes", name, str(out)]
        environment = {**for_own_ranks(os.environ).variables, **ENVIRONMENT.get(name, {}), **(variables or {})}
        with log.open("wb") as stream:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, env=environment,
                start_new_session=True,
            )  # fmt: skip
            returncode = _wait(process, limit_s)
        text = log.read_text(encoding="utf-8", errors="replace")
        return Seen(_written(out), returncode, text)


def _written(out: Path) -> Mapping[str, Any] | None:
    if not out.exists():
        return None
    data = read_json(out)
    return data if isinstance(data, dict) else None


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    import psutil

    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        family = [psutil.Process(process.pid)] if process.poll() is None else []
        for one in [*(child for parent in family for child in parent.children(recursive=True)), *family]:
            one.kill()
        process.wait()
