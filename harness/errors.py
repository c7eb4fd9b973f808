"""Errors that a user can act on, each with its documented exit code.

    HarnessError
    ├── UsageError            2    bad command line, bad YAML, impossible value
    ├── UnreadableInput       3    a file that should be read is damaged or missing
    ├── EnvironmentUnfit      4    no room on disk, GPU busy, dependency missing
    └── Interrupted           130  Ctrl-C

Exit code 0 is success, 1 a result worse than its baseline, 124 an exhausted time budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command, see `docs/exit-codes.md`."""

    OK = 0
    WORSE = 1
    USAGE = 2
    INCOMPLETE = 3
    ENVIRONMENT = 4
    BUDGET = 124
    INTERRUPTED = 130


#: Which code wins when several apply.
EXIT_PRECEDENCE = (
    ExitCode.INTERRUPTED,
    ExitCode.USAGE,
    ExitCode.ENVIRONMENT,
    ExitCode.BUDGET,
    ExitCode.WORSE,
    ExitCode.INCOMPLETE,
)


def combine_exit_codes(codes: Iterable[int]) -> ExitCode:
    """Return the one exit code for a command in which several apply."""
    present = set(codes)
    return next((code for code in EXIT_PRECEDENCE if code in present), ExitCode.OK)


class HarnessError(Exception):
    """Base of every error that reaches the user as a message instead of a traceback."""

    exit_code: ExitCode = ExitCode.USAGE


class UsageError(HarnessError):
    """The command line or a YAML file asks for something that cannot be.

    `findings` holds every problem found in one pass; the message lists them all.
    """

    def __init__(self, *findings: str) -> None:
        self.findings = findings
        super().__init__("\n".join(findings))


class UnreadableInput(HarnessError):
    """A file that should be read is missing or damaged."""

    exit_code = ExitCode.INCOMPLETE


class EnvironmentUnfit(HarnessError):
    """This machine cannot do what is asked: disk full, dependency missing, GPU busy."""

    exit_code = ExitCode.ENVIRONMENT


class MissingExtra(EnvironmentUnfit):
    """An optional dependency is not installed; the message says how to get it."""

    def __init__(self, extra: str, what: str, detail: str = "") -> None:
        message = f"{what} needs an optional dependency: pip install 'trtllm-harness[{extra}]'"
        super().__init__(f"{message} ({detail})" if detail else message)


class Interrupted(HarnessError):
    """The user pressed Ctrl-C; what was finished is kept."""

    exit_code = ExitCode.INTERRUPTED
