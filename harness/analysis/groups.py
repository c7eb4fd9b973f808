"""Groups: rows that a claim compares with each other, and the readings they give."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from harness.analysis.kinds import Kind
from harness.analysis.readings import Item
from harness.spec.axes import Scalar

Place = tuple[tuple[str, Any], ...]


class Group:
    """Rows that differ only in the axis, or also in the coordinates over which a median is taken."""

    def __init__(self, place: Place, kind: Kind) -> None:
        self.place, self.kind = place, kind
        self.values: dict[Place, dict[Scalar, float]] = {}

    def add(self, fine: Place, label: Scalar, value: float) -> None:
        self.values.setdefault(fine, {})[label] = value

    def singles(self) -> Iterator[tuple[Place, dict[Item, float]]]:
        """The readings at every coordinate, before any median."""
        for fine, values in self.values.items():
            yield fine, self.kind.readings(in_order(values))

    def readings(self) -> dict[Item, float]:
        """Each reading, its median where there are several."""
        found: dict[Item, list[float]] = {}
        for _, readings in self.singles():
            for item, value in readings.items():
                found.setdefault(item, []).append(value)
        return {item: statistics.median(values) for item, values in found.items()}


def in_order(values: Mapping[Scalar, float]) -> dict[Scalar, float]:
    """Numbers in order of size, anything else in the order of the study."""
    if any(isinstance(label, str) for label in values):
        return dict(values)
    return dict(sorted(values.items(), key=lambda pair: float(pair[0])))
