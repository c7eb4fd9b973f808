"""Documents hold the current tables of the data files that they are made from."""

from __future__ import annotations

import pytest
from command_line import REPOSITORY

from harness.backends.trtllm.document import failure_table, with_tables
from harness.backends.trtllm.evidence import evidence_table, facts
from harness.backends.trtllm.failures import failure_facts
from harness.errors import UsageError


@pytest.mark.parametrize("name", ["trtllm-evidence.md", "gpu-node.md"])
def test_a_document_holds_the_current_table(name: str) -> None:
    path = REPOSITORY / "docs" / name
    text = path.read_text()
    assert text == with_tables(text), f"run: python -m harness.backends.trtllm.document docs/{name}"


def test_every_fact_and_every_failure_is_in_a_table() -> None:
    assert all(f"| `{name}`: " in evidence_table() for name in facts())
    assert all(f"| {fact.name} | `{fact.status}` |" in failure_table() for fact in failure_facts())
    rows = (evidence_table() + "\n" + failure_table()).splitlines()
    assert {row.replace("\\|", "").count("|") for row in rows} == {7, 5}


def test_a_document_without_a_place_is_refused() -> None:
    with pytest.raises(UsageError, match="no place for"):
        with_tables("# Nothing\n")
