"""What every test needs: markers that say what a test depends on, and an account of what was skipped.

A test that needs something which a machine may lack carries a marker, and is skipped by it where that is missing. With
`--allow-skips gpu,torch` the run fails on every skip of a test that carries none of these markers, so that a dependency
that fell away does not pass for a green run; `--allow-skips none` allows no skip.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

# A slow machine is no failure. Under CI hypothesis has such a profile of its own, which is also derandomised.
if "CI" not in os.environ:
    settings.register_profile("patient", deadline=None)
    settings.load_profile("patient")


def _lacks_module(name: str) -> str | None:
    return None if importlib.util.find_spec(name) else f"{name} is not installed"


def _lacks_command(*names: str) -> str | None:
    return None if any(map(shutil.which, names)) else f"{' or '.join(names)} is not on PATH"


@functools.cache
def _lacks_gpu() -> str | None:
    missing = _lacks_command("nvidia-smi")
    if missing:
        return missing
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False)
    return None if listed.stdout.startswith("GPU ") else "nvidia-smi finds no GPU"


#: Marker → why a test that carries it cannot run here, or None where it can.
REQUIREMENTS: dict[str, Callable[[], str | None]] = {
    "browser": lambda: _lacks_command("chromium", "chromium-browser", "google-chrome"),
    "gpu": _lacks_gpu,
    "modelopt": lambda: _lacks_module("modelopt"),
    "mpi": lambda: _lacks_command("mpirun"),
    "slurm": lambda: _lacks_command("sbatch"),
    "tables": lambda: _lacks_module("aiconfigurator_core"),
    "torch": lambda: _lacks_module("torch"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--allow-skips",
        metavar="MARKERS",
        help="fail on skipped tests that carry none of these markers (comma-separated; `none` allows no skip)",
    )


def pytest_configure(config: pytest.Config) -> None:
    allowed = config.getoption("--allow-skips")
    if allowed is None:
        return
    markers = frozenset(allowed.split(",")) - {"none", ""}
    unknown = markers - REQUIREMENTS.keys()
    if unknown:
        raise pytest.UsageError(f"--allow-skips: no such marker: {', '.join(sorted(unknown))}")
    config.pluginmanager.register(SkipAudit(markers), "skip-audit")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, lacks in REQUIREMENTS.items():
        if item.get_closest_marker(marker):
            reason = lacks()
            if reason:
                pytest.skip(f"{marker}: {reason}")


class SkipAudit:
    """Counts skipped tests by marker and fails the run on those that no allowed marker explains."""

    def __init__(self, allowed: frozenset[str]) -> None:
        self.allowed = allowed
        self.allowed_skips: Counter[str] = Counter()
        self.refused_skips: list[str] = []

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        markers = self.allowed.intersection(report.keywords) if isinstance(report, pytest.TestReport) else frozenset()
        if markers:
            self.allowed_skips[min(markers)] += 1
        else:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.refused_skips.append(f"{report.nodeid}: {reason}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        # A module that skips itself carries no marker, so that nothing explains it.
        self._note(report)

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        if self.refused_skips and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return (yield)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        counts = ", ".join(f"{marker} {count}" for marker, count in sorted(self.allowed_skips.items())) or "0"
        terminalreporter.section("skipped tests")
        terminalreporter.line(f"allowed: {counts}")
        terminalreporter.line(f"not allowed: {len(self.refused_skips)}")
        for skip in self.refused_skips:
            terminalreporter.line(f"  {skip}", red=True)
