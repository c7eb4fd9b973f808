"""Judge the claims of a study: supports, contradicts or cannot tell, from its rows and the thresholds written in it.

What decides is in three steps, the same for every kind (see `harness.analysis.kinds` for what a kind computes):

1. The rows a claim needs are those of its study at `where` and `judge_at`, one system at a time; rows that the study
   itself leaves out (`skipped`) are not needed. The verdict is `cannot tell`, and says which rows and why, where a
   value that the claim names is not in the sweep, where a needed row has no number (refused, unsupported, rejected …),
   where one is confounded as the claim declares, or where one beats its roofline by more than the scatter allowed.
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
from harness.analysis.kinds import Item, Kind, Outcome, SaturationKind, all_of, kind_of
from harness.analysis.words import amount, listed, number, percent, place_text, symbol
from harness.spec.axes import Scalar
from harness.spec.claims import HIGHER_IS_BETTER, BestAt, Claim, Quantity
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
        looked_at = [row for row in values if row["system"] == system and self._belongs(row)]
        deciding = [row for row in looked_at if _matches(claim.judge_at, row)]
        here = [row for row in rows if row["system"] == system and row["status"] != "skipped" and self._belongs(row)]
        needed = [row for row in here if _matches(claim.judge_at, row)]
        groups, shown = self._groups(deciding), self._groups(looked_at)
        outcomes = {group.place: self.kind.decide(group.readings()) for group in groups}
        verdict = all_of(outcomes.values()) if outcomes else "cannot tell"
        text = self._text(groups, outcomes) or "the rows hold no two values to compare"
        obstacles = [*self._absent(needed), *self._without_number(needed, deciding), *self._doubtful(deciding)]
        if obstacles:
            verdict = "cannot tell"
            text = f"cannot tell: {listed(obstacles)}" + (f". The rows there are read: {text}" if groups else "")
        sentences = (text[0].upper() + text[1:] if obstacles else text, self._shown_text(groups, shown))
        return Verdict(
            study=self.study.name,
            claim_id=claim.id,
            guideline=claim.guideline,
            statement=claim.statement,
            kind=claim.kind,
            system=system,
            verdict=verdict,
            finding=". ".join(sentence for sentence in sentences if sentence) + ".",
            threshold=self._threshold(),
            figures=tuple(self._figures(groups, shown)),
            attempt_ids=tuple(dict.fromkeys(row["attempt_id"] for row in deciding)),
        )

    def _belongs(self, row: Row) -> bool:
        """Whether the claim looks at a row, whatever its status."""
        label = row.get(self.claim.axis)
        wanted = self.kind.only
        return label is not None and (not wanted or label in wanted) and _matches(self.claim.where, row)

    def _groups(self, rows: Iterable[Row]) -> list[_Group]:
        """Groups with at least one reading."""
        groups: dict[Place, _Group] = {}
        for row in rows:
            fine = place_of(row, self.names, (self.claim.axis,))
            place = tuple(pair for pair in fine if pair[0] not in self.claim.median_over)
            groups.setdefault(place, _Group(place, self.kind)).add(fine, row[self.claim.axis], row["value"])
        return [group for group in groups.values() if group.readings()]

    def _absent(self, needed: Sequence[Row]) -> Iterator[str]:
        """Values that the claim names and the sweep does not hold."""
        claim = self.claim
        named = {name: _labels(labels) for name, labels in {**claim.where, **claim.judge_at}.items()}
        own = claim.values if isinstance(claim, BestAt) else self.kind.only
        named[claim.axis] = (*named.get(claim.axis, ()), *own)
        for name, labels in named.items():
            there = {row.get(name) for row in needed}
            for label in dict.fromkeys(labels):
                if label not in there:
                    yield f"the sweep has no row at {place_text({name: label}) or f'{name} {label}'}"

    def _without_number(self, needed: Sequence[Row], deciding: Sequence[Row]) -> Iterator[str]:
        have = {row["attempt_id"] for row in deciding}
        lacking: dict[str, list[str]] = {}
        for row in needed:
            if row["attempt_id"] not in have:
                why = f"it has no {self.claim.quantity.what}"
                if row["status"] != "ok":
                    why = f"{row['status']}: {shorten(row['reason'] or 'no reason given', 160, placeholder=' …')}"
                lacking.setdefault(why, []).append(place_text(place_of(row, self.names)))
        for why, places in lacking.items():
            yield f"no number at {listed(places, 3)} ({why})"

    def _doubtful(self, deciding: Sequence[Row]) -> Iterator[str]:
        """Rows that the study calls confounded, and rows faster than any kernel can be."""
        for confounder in self.claim.confounders:
            if any(_matches(confounder.when, row) for row in deciding):
                yield f"confounded: {confounder.reason}"
        measure, room = self.claim.quantity.measure, 1 + self.claim.scatter_pct / 100
        for row in deciding:
            value, limit = row["value"], row["roofline"]
            too_good = value > limit * room if measure in HIGHER_IS_BETTER else value * room < limit
            if too_good:
                what = f"{amount(value, measure)} at {place_text(place_of(row, self.names))}"
                yield f"{what} is beyond its roofline, {amount(limit, measure)}, so it cannot be what it says"

    def _text(self, groups: Sequence[_Group], outcomes: Mapping[Place, Outcome]) -> str:
        """What the deciding groups read, the least favourable first."""
        order: tuple[Outcome, ...] = ("contradicts", "cannot tell", "supports")
        ranked = sorted(groups, key=lambda group: order.index(outcomes[group.place]))
        texts = [_joined(place_text(group.place), self._group_text(group)) for group in ranked]
        return f"{self.claim.quantity.what}, {listed(texts, 4)}" if texts else ""

    def _group_text(self, group: _Group) -> str:
        if len(group.values) == 1:
            ((_, values),) = group.values.items()
            amounts = {x: amount(value, self.claim.quantity.measure) for x, value in _in_order(values).items()}
            return self.kind.text(group.readings(), amounts)
        text, singles = self.kind.text(group.readings(), {}), [readings for _, readings in group.singles()]
        if len(group.readings()) > 1:
            return f"{text} ({self._medians()})"
        spread = self._range([value for readings in singles for value in readings.values()])
        return f"{text} ({self._medians()}; single ones {spread})"

    def _shown_text(self, groups: Sequence[_Group], shown: Sequence[_Group]) -> str:
        judged = {group.place for group in groups}
        rest = [group for group in shown if group.place not in judged]
        if isinstance(self.claim, BestAt):
            return ""  # times worse than the best, of all values together, tell nothing
        note = f"Shown beside it, {self.claim.shown_note}" if self.claim.shown_note else "Shown beside it"
        if rest and isinstance(self.kind, SaturationKind):
            return f"{note}: {listed([_joined(place_text(one.place), self.kind.ends(one.readings())) for one in rest])}"
        singles = [value for group in rest for _, readings in group.singles() for value in readings.values()]
        return f"{note}: {self._range(singles)}" if singles else ""

    def _figures(self, groups: Sequence[_Group], shown: Sequence[_Group]) -> Iterator[Figure]:
        """Readings that decide, the single ones under a median, then those that are shown."""
        judged = {group.place for group in groups}
        for group in (*groups, *(one for one in shown if one.place not in judged)):
            decides, many = group.place in judged, len(group.values) > 1
            over = f", {self._medians()}" if many else ""
            for item, value in group.readings().items():
                yield self._figure(self.kind.label(item) + over, value, group.place, judged=decides)
            for fine, readings in group.singles() if many else ():
                for item, value in readings.items():
                    yield self._figure(self.kind.label(item), value, fine, judged=False)

    def _figure(self, label: str, value: float, place: Place, *, judged: bool) -> Figure:
        shown = 100 * value if self.kind.unit == "%" else value
        return Figure(label, shown, self.kind.unit, place_text(place), judged)

    def _range(self, values: Sequence[float]) -> str:
        least, most = self._number(min(values)), self._number(max(values))
        return least if least == most else f"{least} to {most}"

    def _number(self, value: float) -> str:
        return percent(value) if self.kind.unit == "%" else f"{number(value)}{self.kind.unit}"

    def _medians(self) -> str:
        return f"median over {', '.join(symbol(name) for name in self.claim.median_over)}"

    def _threshold(self) -> str:
        parts = [self.kind.threshold, f"scatter allowed {self.claim.scatter_pct:g} %"]
        if self.claim.judge_at:
            parts.append(f"judged at {place_text(self.claim.judge_at)}")
        return "; ".join([*parts, self._medians()] if self.claim.median_over else parts)


def _joined(place: str, text: str) -> str:
    return f"{place}: {text}" if place else text


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
