"""Judge the claims of a study: supports, contradicts or cannot tell, from its rows and the thresholds written in it.

What decides is in three steps, the same for every kind (see `harness.analysis.kinds` for what a kind computes):

1. The rows a claim needs are those of its study at `where` and `judge_at`, one system at a time; rows that the study
   itself leaves out (`skipped`) are not needed. The verdict is `cannot tell`, and says which rows and why, where a
   value that the claim names is not in the sweep, where a needed row has no number (refused, unsupported, rejected …),
   where one is confounded as the claim declares, or where one beats its roofline by more than the scatter allowed.
   Rows that the roofline answered decide nothing: it is arithmetic, and no evidence about kernels.
2. Rows that differ only in the axis form a group. Each group gives readings; where `median_over` names coordinates, the
   median over them is taken of each reading, never of times.
3. One group that contradicts contradicts the claim; it is supported when every group supports it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.analysis.caveats import caveats_of
from harness.analysis.frame import measured, place_of, placed
from harness.analysis.gains import SaturationKind
from harness.analysis.kinds import Kind, kind_of
from harness.analysis.obstacles import Obstacle, obstacles_of, row_matches
from harness.analysis.readings import Item, Outcome, all_of
from harness.analysis.words import amount, listed, number, percent, place_text, symbol
from harness.spec.axes import Scalar
from harness.spec.claims import BestAt, Claim, Quantity
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
    key: str
    """The number to remember, `1.67×, 1.39×`; empty where there is none."""
    what: str
    """What that number is: `gain, G 8 → 16, 16 → 32`."""
    where: str
    """The coordinates at which it holds."""
    finding: str
    """In words, with the numbers, their units and the coordinates at which they hold."""
    reason: str
    """In a few words why the rows cannot tell; empty for the other verdicts."""
    caveats: tuple[str, ...]
    """How many of the deciding rows carry which flag."""
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
        deciding = [row for row in looked_at if row_matches(claim.judge_at, row)]
        mine = [row for row in rows if row["system"] == system and row["status"] != "skipped"]
        needed = [row for row in mine if self._belongs(row) and row_matches(claim.judge_at, row)]
        groups, shown = self._groups(deciding), self._groups(looked_at)
        outcomes = {group.place: self.kind.decide(group.readings()) for group in groups}
        obstacles = obstacles_of(claim, self.kind.only, self.names, mine, needed, deciding)
        modelled = any(row["provenance"] == "modelled" for row in needed)
        verdict, reason = self._outcome(outcomes, obstacles, modelled=modelled)
        caveats = caveats_of(deciding) if groups else ()
        note = "" if modelled else self.claim.shown_note
        sentences = (self._said(groups, outcomes, obstacles, modelled), *caveats, self._shown_text(groups, shown, note))
        return Verdict(
            study=self.study.name,
            claim_id=claim.id,
            guideline=claim.guideline,
            statement=claim.statement,
            kind=claim.kind,
            system=system,
            verdict=verdict,
            key=self.kind.key([group.readings() for group in groups]) if groups else "",
            what=self.kind.what(groups[0].readings()) if groups else "",
            where=_common_place(groups),
            finding=". ".join(sentence for sentence in sentences if sentence) + ".",
            reason=reason,
            caveats=caveats,
            threshold=self._threshold(),
            figures=tuple(self._figures(groups, shown)),
            attempt_ids=tuple(dict.fromkeys(row["attempt_id"] for row in deciding)),
        )

    def _outcome(
        self, outcomes: Mapping[Place, Outcome], obstacles: Sequence[Obstacle], *, modelled: bool
    ) -> tuple[Outcome, str]:
        """The verdict, and in a few words why there is none."""
        if modelled:
            return "cannot tell", "roofline only"
        if obstacles:
            return "cannot tell", obstacles[0].short
        if not outcomes:
            return "cannot tell", "no two values to compare"
        verdict = all_of(outcomes.values())
        return verdict, "within the scatter of the threshold" if verdict == "cannot tell" else ""

    def _said(
        self,
        groups: Sequence[_Group],
        outcomes: Mapping[Place, Outcome],
        obstacles: Sequence[Obstacle],
        modelled: bool,
    ) -> str:
        """What the deciding rows read, behind what keeps them from deciding."""
        read = self._text(groups, outcomes)
        why = listed([one.text for one in obstacles])
        if modelled:
            return f"roofline only: {'. '.join(text for text in (read, why) if text) or 'no two values to compare'}"
        if obstacles:
            return f"Cannot tell: {why}" + (f". The rows there are read: {read}" if read else "")
        return read or "the rows hold no two values to compare"

    def _belongs(self, row: Row) -> bool:
        """Whether the claim looks at a row, whatever its status."""
        label = row.get(self.claim.axis)
        wanted = self.kind.only
        return label is not None and (not wanted or label in wanted) and row_matches(self.claim.where, row)

    def _groups(self, rows: Iterable[Row]) -> list[_Group]:
        """Groups with at least one reading."""
        groups: dict[Place, _Group] = {}
        for row in rows:
            fine = place_of(row, self.names, (self.claim.axis,))
            place = tuple(pair for pair in fine if pair[0] not in self.claim.median_over)
            groups.setdefault(place, _Group(place, self.kind)).add(fine, row[self.claim.axis], row["value"])
        return [group for group in groups.values() if group.readings()]

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

    def _shown_text(self, groups: Sequence[_Group], shown: Sequence[_Group], note: str) -> str:
        judged = {group.place for group in groups}
        rest = [group for group in shown if group.place not in judged]
        if isinstance(self.claim, BestAt):
            return ""  # times worse than the best, of all values together, tell nothing
        note = f"Shown beside it, {note}" if note else "Shown beside it"
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


def _common_place(groups: Sequence[_Group]) -> str:
    """The places of all groups in one, `b 1/8, KVSL 32768`."""
    merged: dict[str, dict[Any, None]] = {}
    for group in groups:
        for name, value in group.place:
            merged.setdefault(name, {})[value] = None
    return place_text({name: list(values) for name, values in merged.items() if list(values) != [""]})


def _joined(place: str, text: str) -> str:
    return f"{place}: {text}" if place else text


def _in_order(values: Mapping[Scalar, float]) -> dict[Scalar, float]:
    """Numbers in order of size, anything else in the order of the study."""
    if any(isinstance(label, str) for label in values):
        return dict(values)
    return dict(sorted(values.items(), key=lambda pair: float(pair[0])))
