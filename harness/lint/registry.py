"""The rules by id. Importing a module of rules adds its rules here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from harness.lint.finding import Problem
from harness.lint.subject import Subject

Check = Callable[[Subject], Iterator[Problem]]

CHECKS: dict[str, Check] = {}


def rule(rule_id: str) -> Callable[[Check], Check]:
    """Register a check under its id, which `lint_rules.yaml` describes."""

    def register(check: Check) -> Check:
        if rule_id in CHECKS:
            raise ValueError(f"two rules are called {rule_id}")
        CHECKS[rule_id] = check
        return check

    return register
