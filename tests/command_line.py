"""The command line as tests use it: in this process, or as a real one."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main

REPOSITORY = Path(__file__).resolve().parent.parent

#: A real process that runs the command line as installed.
PROCESS = [sys.executable, "-c", "from harness.cli.main import entry_point; entry_point()"]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class CommandLine:
    """Runs commands in this process and returns what they printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Outcome:
        self._capsys.readouterr()
        code = main.run([str(argument) for argument in arguments])
        out, err = self._capsys.readouterr()
        return Outcome(int(code), out, err)


def process(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    command = [*PROCESS, *(str(argument) for argument in arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)
