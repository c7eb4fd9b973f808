"""Edges: cliffs that share an interval of an axis are one edge, told once."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.analysis.cliffs import Cliff
from harness.analysis.words import number, symbol
from harness.results.metrics import significant


@dataclass(frozen=True, slots=True)
class Edge:
    """Cliffs on one axis that share an edge and an op, over all series and coordinates at which they were seen.

    `cliffs` has those of equal work first, the largest first; the first one says how high the cliff is.
    """

    study: str
    system: str
    phase: str
    axis: str
    low: float
    high: float
    op: str
    cliffs: tuple[Cliff, ...]

    @property
    def worst(self) -> Cliff:
        """The cliff that stands for all: equal work before other, then the largest."""
        return self.cliffs[0]

    @property
    def interval(self) -> str:
        """`G within (32, 48]`."""
        return f"{symbol(self.axis)} within ({self.low:g}, {self.high:g}]"

    @property
    def short(self) -> str:
        """The edge in one line: how high it is, where, and between which times."""
        worst = self.worst
        text = f"{worst.op} {worst.size_text} {worst.step} at {_place(worst)} ({_times(worst)})"
        least = self._smallest_batch()
        text += f", {least.size_text} at b {dict(least.place)['batch']}" if least else ""
        sizes = [size for one in self.cliffs for _, size in one.ops]
        return text + (f"; median ×{number(statistics.median(sizes))} of {len(sizes)} ops" if self._names() else "")

    @property
    def text(self) -> str:
        """The edge in a sentence or three: interval, size, the pairs that show it, the pair that narrows it down."""
        return ". ".join([f"{self.phase}: {self.interval}: {self.short}", *self._others(), *self._narrowed()])

    def _smallest_batch(self) -> Cliff | None:
        """The cliff that differs from the worst in its batch only, at the smallest batch there is."""
        here = _without_batch(self.worst)
        same = [one for one in self.cliffs if _without_batch(one) == here and "batch" in dict(one.place)]
        least = min(same, key=lambda one: float(dict(one.place)["batch"]), default=self.worst)
        return None if least is self.worst else least

    def _others(self) -> Iterable[str]:
        """How many pairs of cases show the edge, and by how much."""
        for same, what in ((True, "of equal work"), (False, "whose work grows, beyond what that explains")):
            sizes = [one.size for one in self.cliffs if one.same_work == same]
            if sizes:
                yield f"{_range(sizes)} in {len(sizes)} {'pair' if len(sizes) == 1 else 'pairs'} of cases {what}"
        if self._names():
            yield f"What breaks there: {', '.join(self._names())}"

    def _names(self) -> list[str]:
        """The ops that break, where there are several."""
        names = list(dict.fromkeys(name for one in self.cliffs for name, _ in one.ops))
        return names if len(names) > 1 else []

    def _narrowed(self) -> Iterable[str]:
        """The pair that has the edge in the narrowest interval, where that is not the worst one's."""
        if (self.worst.low, self.worst.high) != (self.low, self.high):
            here = [one for one in self.cliffs if (one.low, one.high) == (self.low, self.high)]
            for one in here[:1]:
                yield f"The edge is seen {one.step} at {_place(one)}: {_times(one)}, {one.size_text}"


def edges(found: Iterable[Cliff]) -> list[Edge]:
    """Merge cliffs of the same axis, phase and system that share an op and overlap; their edge lies in all of them."""

    def kind(one: Cliff) -> tuple[str, str, str, str]:
        return one.study, one.system, one.phase, one.axis

    merged: list[Edge] = []
    for key, group in groupby(sorted(found, key=lambda one: (*kind(one), one.low, one.high, one.op)), key=kind):
        pending: list[list[Cliff]] = []
        for one in group:
            home = next((members for members in pending if _belongs(one, members)), None)
            if home is None:
                pending.append([one])
            else:
                home.append(one)
        merged += [_edge(key, members) for members in pending]
    return sorted(merged, key=lambda edge: (edge.study, edge.system, edge.phase, edge.axis, edge.low))


def _belongs(one: Cliff, members: Sequence[Cliff]) -> bool:
    overlaps = one.low < min(other.high for other in members) and max(other.low for other in members) < one.high
    return overlaps and bool({name for name, _ in one.ops} & {name for other in members for name, _ in other.ops})


def _edge(key: tuple[str, str, str, str], members: Sequence[Cliff]) -> Edge:
    ranked = sorted(members, key=lambda one: (not one.same_work, -one.size))
    low, high = max(one.low for one in members), min(one.high for one in members)
    return Edge(*key, low, high, ranked[0].op, tuple(ranked))


def _without_batch(one: Cliff) -> tuple[object, ...]:
    return one.low, one.high, one.op, *(pair for pair in one.place if pair[0] != "batch")


def _place(one: Cliff) -> str:
    return ", ".join(part for part in (one.series, one.where) if part) or "the only point"


def _times(one: Cliff) -> str:
    return f"{_ms(one.time_ms_low)} → {_ms(one.time_ms_high)} ms"


def _range(sizes: Sequence[float]) -> str:
    least, most = number(min(sizes)), number(max(sizes))
    return f"×{most}" if least == most else f"×{least} to ×{most}"


def _ms(time_ms: float) -> str:
    """To a tenth of a microsecond, which is what the tables resolve; to four digits above a millisecond."""
    return f"{time_ms:.4f}" if time_ms < 1 else significant(time_ms)
