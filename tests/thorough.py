"""Rows of a test of which `make test` runs a few and `make test-all` the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest

Name = Callable[[Any], str]


def mostly_thorough(rows: Iterable[Any], quick: Collection[str], name: Name = str) -> list[Any]:
    """Parameters for `pytest.mark.parametrize`, of which those are marked `thorough` whose names are not `quick`.

    A row is one value, or a tuple of them. Its name is its id; names differ.
    """
    named = [(name(row), row if isinstance(row, tuple) else (row,)) for row in rows]
    assert set(quick) <= {one for one, _ in named}, "nothing would be quick where its name has changed"
    return [pytest.param(*row, id=one, marks=() if one in quick else pytest.mark.thorough) for one, row in named]
