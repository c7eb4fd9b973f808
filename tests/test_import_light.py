"""`trtllm-harness --help` is quick because it loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.cli.main import COMMANDS

HEAVY = (
    "aiconfigurator_core",
    "jinja2",
    "numpy",
    "pandas",
    "plotly",
    "pyarrow",
    "pydantic",
    "rich",
    "scipy",
    "tensorrt_llm",
    "torch",
)

SCRIPT = """
import sys
from harness.cli.main import run
code = run({arguments!r})
print(code, *sorted(set(sys.modules) & set({heavy!r})), file=sys.stderr)
"""


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["-h"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    script = SCRIPT.format(arguments=arguments, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.split() == ["0"]
    assert done.stdout


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_help_of_a_command_needs_no_data_science(command: str) -> None:
    heavy = [name for name in HEAVY if name != "pydantic"]
    script = SCRIPT.format(arguments=[command, "--help"], heavy=heavy)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.split() == ["0"]
    assert "Usage: trtllm-harness" in done.stdout


def test_importing_the_package_is_light() -> None:
    script = f"import sys, harness; print(*sorted(set(sys.modules) & set({HEAVY!r})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
