"""Judging one claim of a study on one system; `harness.analysis.claims` says how."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.analysis.caveats import caveats_of
from harness.analysis.frame import place_of
from harness.analysis.gains import SaturationKind
from harness.analysis.groups import Group, Place, in_order
from harness.analysis.kinds import kind_of
from harness.analysis.obstacles import Obstacle, obstacles_of, row_matches
from harness.analysis.readings import Item, Outcome, all_of
from harness.analysis.verdicts import Figure, Verdict
from harness.analysis.words import amount, listed, number, percent, place_text, symbol
from harness.spec.claims import BestAt, Claim
from harness.spec.study import Study

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """What there is for one claim on one system."""

    rows: Sequence[Row]
    """All of the study, of any status, but for those that it leaves out."""
    needed: Sequence[Row]
    """Those that should decide, of any status."""
    deciding: Sequence[Row]
    """Those that do: they have the quantity."""
    groups: Sequence[Group]
    """The deciding rows, as they are compared."""


class Judged:
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
        outcomes = self._outcomes(groups)
        seen = Seen(mine, needed, deciding, groups)
        obstacles = self._obstacles(seen)
        modelled = any(row["provenance"] == "modelled" for row in needed)
        verdict, reason = self._outcome(groups, outcomes, obstacles, modelled=modelled)
        caveats = self._caveats(seen) if groups else ()
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
            key=self._key(groups) if groups else "",
            what=self.kind.what(groups[0].readings()) if groups else "",
            where=_common_place(groups),
            finding=". ".join(sentence for sentence in sentences if sentence) + ".",
            reason=reason,
            caveats=caveats,
            threshold=self._threshold(),
            figures=tuple(self._figures(groups, shown)),
            attempt_ids=tuple(dict.fromkeys(row["attempt_id"] for row in deciding)),
        )

    def _outcomes(self, groups: Sequence[Group]) -> dict[Place, Outcome]:
        """What each group says."""
        return {group.place: self.kind.decide(group.readings()) for group in groups}

    def _obstacles(self, seen: Seen) -> list[Obstacle]:
        """What keeps the rows from deciding."""
        return obstacles_of(self.claim, self.kind.only, self.names, seen.rows, seen.needed, seen.deciding)

    def _caveats(self, seen: Seen) -> tuple[str, ...]:
        """What a reader has to know about the deciding rows."""
        return caveats_of(seen.deciding)

    def _key(self, groups: Sequence[Group]) -> str:
        """The number to remember."""
        return self.kind.key([group.readings() for group in groups])

    def _undecided(self, groups: Sequence[Group]) -> str:  # noqa: ARG002  # replicates know more
        """Why rows with numbers do not decide."""
        return "within the scatter of the threshold"

    def _outcome(
        self,
        groups: Sequence[Group],
        outcomes: Mapping[Place, Outcome],
        obstacles: Sequence[Obstacle],
        *,
        modelled: bool,
    ) -> tuple[Outcome, str]:
        """The verdict, and in a few words why there is none."""
        if modelled:
            return "cannot tell", "roofline only"
        if obstacles:
            return "cannot tell", obstacles[0].short
        if not outcomes:
            return "cannot tell", "no two values to compare"
        verdict = all_of(outcomes.values())
        return verdict, self._undecided(groups) if verdict == "cannot tell" else ""

    def _said(
        self,
        groups: Sequence[Group],
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

    def _groups(self, rows: Iterable[Row]) -> list[Group]:
        """Groups with at least one reading."""
        groups: dict[Place, Group] = {}
        for row in rows:
            fine = place_of(row, self.names, (self.claim.axis,))
            place = tuple(pair for pair in fine if pair[0] not in self.claim.median_over)
            groups.setdefault(place, Group(place, self.kind)).add(fine, row[self.claim.axis], row["value"])
        return [group for group in groups.values() if group.readings()]

    def _text(self, groups: Sequence[Group], outcomes: Mapping[Place, Outcome]) -> str:
        """What the deciding groups read, the least favourable first."""
        order: tuple[Outcome, ...] = ("contradicts", "cannot tell", "supports")
        ranked = sorted(groups, key=lambda group: order.index(outcomes[group.place]))
        texts = [_joined(place_text(group.place), self._group_text(group)) for group in ranked]
        return f"{self.claim.quantity.what}, {listed(texts, 4)}" if texts else ""

    def _group_text(self, group: Group) -> str:
        if len(group.values) == 1:
            ((_, values),) = group.values.items()
            amounts = {x: amount(value, self.claim.quantity.measure) for x, value in in_order(values).items()}
            return self.kind.text(group.readings(), amounts)
        text, singles = self.kind.text(group.readings(), {}), [readings for _, readings in group.singles()]
        if len(group.readings()) > 1:
            return f"{text} ({self._medians()})"
        spread = self._range([value for readings in singles for value in readings.values()])
        return f"{text} ({self._medians()}; single ones {spread})"

    def _shown_text(self, groups: Sequence[Group], shown: Sequence[Group], note: str) -> str:
        judged = {group.place for group in groups}
        rest = [group for group in shown if group.place not in judged]
        if isinstance(self.claim, BestAt):
            return ""  # times worse than the best, of all values together, tell nothing
        note = f"Shown beside it, {note}" if note else "Shown beside it"
        if rest and isinstance(self.kind, SaturationKind):
            return f"{note}: {listed([_joined(place_text(one.place), self.kind.ends(one.readings())) for one in rest])}"
        singles = [value for group in rest for _, readings in group.singles() for value in readings.values()]
        return f"{note}: {self._range(singles)}" if singles else ""

    def _figures(self, groups: Sequence[Group], shown: Sequence[Group]) -> Iterator[Figure]:
        """Readings that decide, the single ones under a median, then those that are shown."""
        judged = {group.place for group in groups}
        for group in (*groups, *(one for one in shown if one.place not in judged)):
            decides, many = group.place in judged, len(group.values) > 1
            over = f", {self._medians()}" if many else ""
            for item, value in group.readings().items():
                yield self._figure(group, self.kind.label(item) + over, item, value, group.place, judged=decides)
            for fine, readings in group.singles() if many else ():
                for item, value in readings.items():
                    yield self._figure(group, self.kind.label(item), item, value, fine, judged=False)

    def _figure(
        self,
        group: Group,  # noqa: ARG002  # which replicates know
        label: str,
        item: Item,  # noqa: ARG002
        value: float,
        place: Place,
        *,
        judged: bool,
    ) -> Figure:
        shown = 100 * value if self.kind.unit == "%" else value
        return Figure(label, shown, self.kind.unit, place_text(place), judged)

    def _range(self, values: Sequence[float]) -> str:
        least, most = self._number(min(values)), self._number(max(values))
        return least if least == most else f"{least} to {most}"

    def _number(self, value: float) -> str:
        return percent(value) if self.kind.unit == "%" else f"{number(value)}{self.kind.unit}"

    def _medians(self) -> str:
        return f"median over {', '.join(symbol(name) for name in self.claim.median_over)}"

    def _scatter_text(self) -> str:
        """How far apart numbers may lie that are the same."""
        return f"scatter allowed {self.claim.scatter_pct:g} %"

    def _threshold(self) -> str:
        parts = [self.kind.threshold, self._scatter_text()]
        if self.claim.judge_at:
            parts.append(f"judged at {place_text(self.claim.judge_at)}")
        return "; ".join([*parts, self._medians()] if self.claim.median_over else parts)


def _common_place(groups: Sequence[Group]) -> str:
    """The places of all groups in one, `b 1/8, KVSL 32768`."""
    merged: dict[str, dict[Any, None]] = {}
    for group in groups:
        for name, value in group.place:
            merged.setdefault(name, {})[value] = None
    return place_text({name: list(values) for name, values in merged.items() if list(values) != [""]})


def _joined(place: str, text: str) -> str:
    return f"{place}: {text}" if place else text
