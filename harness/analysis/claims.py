"""Judge the claims of a study: supports, contradicts or cannot tell, from its rows and the thresholds written in it.

What decides is in three steps, the same for every kind (see `harness.analysis.kinds` for what a kind computes):

1. The rows a claim needs are those of its study at `where` and `judge_at`, one system at a time. Where a value that the
   claim names is not in the sweep, or a needed row has no number (refused, unsupported, rejected …), or one of them is
   confounded as the study declares, the verdict is `cannot tell` and says which and why. Rows that the study itself leaves
   out (`skipped`) are not needed.
2. Rows that differ only in the axis form a group. Each group gives readings; where `median_over` names coordinates, the
   median over them is taken of each reading, never of times.
3. One group that contradicts contradicts the claim; it is supported when every group supports it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from harness.analysis.frame import measured, place_of, placed
from harness.analysis.kinds import Item, Kind, Outcome, all_of, kind_of
from harness.analysis.words import amount, listed, number, percent, place_text, symbol
from harness.spec.axes import Scalar
from harness.spec.claims import BestAt, Claim, Quantity, Ratio
from harness.spec.expand import matches
from harness.spec.study import Study

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
Place = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number behind a verdict. `judged` is False for numbers that are shown beside those that decide."""

    label: str
    value: float
    unit: str
    where: str
    judged: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the rows of one system say about one claim."""

    study: str
    claim_id: str
    guideline: str
    statement: str
    kind: str
    system: str
    verdict: Outcome
    finding: str
    """One sentence with the numbers, their units and the coordinates at which they hold."""
    threshold: str
    """As written in the study, readable."""
    figures: tuple[Figure, ...]
    attempt_ids: tuple[str, ...]
    """The rows that decide."""


def judge(study: Study, records: pd.DataFrame, ops: pd.DataFrame) -> list[Verdict]:
    """Return one verdict per claim and system, in the order of the study and of the records."""
    table, names = placed(study, records)
    rows: list[Row] = table.to_dict("records")
    systems = list(dict.fromkeys(row["system"] for row in rows))
    values: dict[Quantity, list[Row]] = {}
    verdicts = []
    for claim in study.claims:
        if claim.quantity not in values:
            values[claim.quantity] = measured(table, records, ops, claim.quantity).to_dict("records")
        judged = _Judged(study, claim, names)
        verdicts += [judged.on(system, rows, values[claim.quantity]) for system in systems]
    return verdicts


class _Group:
    """Rows that differ only in the axis, or also in the coordinates over which a median is taken."""

    def __init__(self, place: Place, kind: Kind) -> None:
        self.place, self.kind = place, kind
        self.values: dict[Place, dict[Scalar, float]] = {}

    def add(self, fine: Place, label: Scalar, value: float) -> None:
        self.values.setdefault(fine, {})[label] = value

    def singles(self) -> Iterator[tuple[Place, dict[Item, float]]]:
        """The readings at every coordinate, before any median."""
        for fine, values in self.values.items():
            yield fine, self.kind.readings(_in_order(values))

    def readings(self) -> dict[Item, float]:
        """Each reading, its median where there are several."""
        found: dict[Item, list[float]] = {}
        for _, readings in self.singles():
            for item, value in readings.items():
                found.setdefault(item, []).append(value)
        return {item: statistics.median(values) for item, values in found.items()}


class _Judged:
    """One claim, with what its study says about it."""

    def __init__(self, study: Study, claim: Claim, names: list[str]) -> None:
        self.study, self.claim, self.names = study, claim, names
        self.kind = kind_of(claim)

    def on(self, system: str, rows: Sequence[Row], values: Sequence[Row]) -> Verdict:
        """The verdict of one system; `rows` are of any status, `values` those that have the quantity."""
        claim = self.claim
        looked_at = [row for row in values if row["system"] == system and _matches(claim.where, row)]
        deciding = [row for row in looked_at if _matches(claim.judge_at, row)]
        here = [row for row in rows if row["system"] == system and row["status"] != "skipped"]
        needed = [row for row in here if _matches(claim.where, row) and _matches(claim.judge_at, row)]
        groups = self._groups(deciding)
        outcomes = {group.place: _decide(group) for group in groups}
        verdict = all_of(outcomes.values()) if outcomes else "cannot tell"
        obstacles = [*self._absent(needed), *self._without_number(needed, deciding), *self._confounded(deciding)]
        shown = self._groups(looked_at)
        text = self._text(groups, outcomes)
        if obstacles:
            verdict = "cannot tell"
            text = f"Cannot tell: {listed(obstacles)}" + (f". What there is reads: {text}" if text else "")
        return Verdict(
            study=self.study.name,
            claim_id=claim.id,
            guideline=claim.guideline,
            statement=claim.statement,
            kind=claim.kind,
            system=system,
            verdict=verdict,
            finding=". ".join(part for part in (text or "No rows", self._shown_text(groups, shown)) if part) + ".",
            threshold=self._threshold(),
            figures=tuple(self._figures(groups, shown)),
            attempt_ids=tuple(dict.fromkeys(row["attempt_id"] for row in deciding)),
        )

    def _groups(self, rows: Iterable[Row]) -> list[_Group]:
        """Groups with at least one reading."""
        groups: dict[Place, _Group] = {}
        for row in rows:
            if row.get(self.claim.axis) is None:
                continue
            fine = place_of(row, self.names, (self.claim.axis,))
            place = tuple(pair for pair in fine if pair[0] not in self.claim.median_over)
            groups.setdefault(place, _Group(place, self.kind)).add(fine, row[self.claim.axis], row["value"])
        return [group for group in groups.values() if group.readings()]

    def _absent(self, needed: Sequence[Row]) -> Iterator[str]:
        """Values that the claim names and the sweep does not hold."""
        named = {name: _labels(labels) for name, labels in {**self.claim.where, **self.claim.judge_at}.items()}
        own = named.setdefault(self.claim.axis, ())
        if isinstance(self.claim, Ratio):
            named[self.claim.axis] = (*own, self.claim.value, self.claim.over)
        if isinstance(self.claim, BestAt):
            named[self.claim.axis] = (*own, *self.claim.values)
        for name, labels in named.items():
            there = {row.get(name) for row in needed}
            for label in dict.fromkeys(labels):
                if label not in there:
                    yield f"the sweep has no row at {place_text({name: label}) or name}"

    def _without_number(self, needed: Sequence[Row], deciding: Sequence[Row]) -> Iterator[str]:
        have = {row["attempt_id"] for row in deciding}
        lacking: dict[str, list[str]] = {}
        for row in needed:
            if row["attempt_id"] not in have:
                why = f"{row['status']}: {shorten(row['reason'] or 'no reason given', 160, placeholder=' …')}"
                why = why if row["status"] != "ok" else f"no {self.claim.quantity.what}"
                lacking.setdefault(why, []).append(place_text(place_of(row, self.names)))
        for why, places in lacking.items():
            yield f"no number at {listed(places, 3)} ({why})"

    def _confounded(self, deciding: Sequence[Row]) -> Iterator[str]:
        for confounder in self.claim.confounders:
            if any(_matches(confounder.when, row) for row in deciding):
                yield f"confounded: {confounder.reason}"

    def _text(self, groups: Sequence[_Group], outcomes: Mapping[Place, Outcome]) -> str:
        """What the deciding groups read, the least favourable first."""
        order: tuple[Outcome, ...] = ("contradicts", "cannot tell", "supports")
        ranked = sorted(groups, key=lambda group: order.index(outcomes[group.place]))
        texts = [": ".join(part for part in (place_text(group.place), self._group_text(group)) if part) for group in ranked]
        return f"{self.claim.quantity.what}, {listed(texts, 4)}" if texts else ""

    def _group_text(self, group: _Group) -> str:
        text = self.kind.text(group.readings())
        if len(group.values) == 1:
            ((_, values),) = group.values.items()
            chain = ", ".join(f"{amount(value, self.claim.quantity.measure)} at {label}" for label, value in _in_order(values).items())
            return f"{text} ({chain})" if len(values) <= 8 else text
        singles = [value for _, readings in group.singles() for value in readings.values()]
        over = ", ".join(symbol(name) for name in self.claim.median_over)
        return f"{text} (median over {over}; single ones {self._number(min(singles))} to {self._number(max(singles))})"

    def _shown_text(self, groups: Sequence[_Group], shown: Sequence[_Group]) -> str:
        judged = {group.place for group in groups}
        rest = [group for group in shown if group.place not in judged]
        singles = [value for group in rest for _, readings in group.singles() for value in readings.values()]
        if not singles:
            return ""
        note = f" ({self.claim.shown_note})" if self.claim.shown_note else ""
        return f"Shown beside it{note}: {self._number(min(singles))} to {self._number(max(singles))} elsewhere"

    def _figures(self, groups: Sequence[_Group], shown: Sequence[_Group]) -> Iterator[Figure]:
        """Readings of the deciding groups, their parts under a median, then those that are shown."""
        judged = {(group.place, item) for group in groups for item in group.readings()}
        for group in groups:
            yield from self._figures_of(group, judged=True)
        for group in shown:
            yield from (
                figure
                for item, figure in zip(group.readings(), self._figures_of(group, judged=False), strict=False)
                if (group.place, item) not in judged
            )

    def _figures_of(self, group: _Group, *, judged: bool) -> Iterator[Figure]:
        many = len(group.values) > 1
        over = f", median over {', '.join(symbol(name) for name in self.claim.median_over)}" if many else ""
        for item, value in group.readings().items():
            yield self._figure(self.kind.label(item) + over, value, group.place, judged=judged)
        if many:
            for fine, readings in group.singles():
                for item, value in readings.items():
                    yield self._figure(self.kind.label(item), value, fine, judged=False)

    def _figure(self, label: str, value: float, place: Place, *, judged: bool) -> Figure:
        return Figure(label, 100 * value if self.kind.unit == "%" else value, self.kind.unit, place_text(place), judged)

    def _number(self, value: float) -> str:
        return percent(value) if self.kind.unit == "%" else f"{number(value)}{self.kind.unit}"

    def _threshold(self) -> str:
        parts = [self.kind.threshold, f"scatter allowed {self.claim.scatter_pct:g} %"]
        if self.claim.judge_at:
            parts.append(f"judged at {place_text(self.claim.judge_at)}")
        if self.claim.median_over:
            parts.append(f"median over {', '.join(symbol(name) for name in self.claim.median_over)}")
        return "; ".join(parts)


def _decide(group: _Group) -> Outcome:
    return group.kind.decide(group.readings())


def _in_order(values: Mapping[Scalar, float]) -> dict[Scalar, float]:
    """Numbers in order of size, anything else in the order of the study."""
    if any(isinstance(label, str) for label in values):
        return dict(values)
    return dict(sorted(values.items(), key=lambda pair: float(pair[0])))


def _labels(labels: Any) -> tuple[Any, ...]:
    return tuple(labels) if isinstance(labels, list | tuple) else (labels,)


def _matches(when: Mapping[str, Any], row: Row) -> bool:
    """Whether a row lies at `when`; of its flags one match is enough."""
    if "flags" in when and not set(_labels(when["flags"])) & set(row["flags"]):
        return False
    return matches({name: wanted for name, wanted in when.items() if name != "flags"}, row)
