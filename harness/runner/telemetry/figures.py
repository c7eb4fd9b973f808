"""Reducing figures of which some may be missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence


def of_present(reduce: Callable[[Sequence[float]], float], figures: Iterable[float | None]) -> float | None:
    """`reduce` of those that are there; None where none is."""
    present = [figure for figure in figures if figure is not None]
    return float(reduce(present)) if present else None


def of_all(reduce: Callable[[Sequence[float]], float], figures: Iterable[float | None]) -> float | None:
    """`reduce` of all; None where one is missing, as a sum over some GPUs is no sum over all."""
    listed = list(figures)
    return None if None in listed else of_present(reduce, listed)


def joined(parts: Iterable[str]) -> str:
    """The parts that say something, each once."""
    return "; ".join(dict.fromkeys(part for part in parts if part))
