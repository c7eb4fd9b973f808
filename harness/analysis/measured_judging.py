"""Judging a claim on rows that ran: replicates in place of an allowed scatter (`docs/claims.md`, Measured rows)."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.analysis.caveats import caveats_of
from harness.analysis.frame import place_of
from harness.analysis.groups import Group, Place, in_order
from harness.analysis.intervals import Estimate, Interval, replicates_text
from harness.analysis.judging import Judged, Row, Seen
from harness.analysis.kinds import Kind, kind_of
from harness.analysis.measured_kinds import rule_of
from harness.analysis.obstacles import Obstacle
from harness.analysis.paired import Blocks, Timed, complete, round_corrections, samples_of
from harness.analysis.readings import Item, Outcome, all_of
from harness.analysis.replicates import disturbance, is_disturbed, replicate_numbers
from harness.analysis.verdicts import Figure, MeasuredFigure
from harness.analysis.words import number, percent
from harness.spec.axes import Scalar
from harness.spec.claims import HIGHER_IS_BETTER, Claim
from harness.spec.study import Study

if TYPE_CHECKING:
    import pandas as pd

#: More replicates than this nobody should be advised to take.
_MOST_REPLICATES = 32


@dataclass(frozen=True)
class Evidence:
    """What a process says of its rows besides their numbers, by attempt."""

    replicate: Mapping[str, int]
    process: Mapping[str, str]
    """Rows with the same text, of one replicate, were timed in turn by one process."""
    facts: Mapping[str, Mapping[str, Any]]
    samples: Mapping[str, Timed]

    @classmethod
    def of(cls, records: pd.DataFrame, samples: pd.DataFrame | None) -> Evidence:
        rows = {row["attempt_id"]: row for row in records.to_dict("records")}
        process = {one: _process(row) for one, row in rows.items()}
        return cls(replicate_numbers(records), process, rows, samples_of(samples))


def _process(row: Mapping[str, Any]) -> str:
    """The process of a row; rows that do not say what they were timed with have one each."""
    arms, log = (row.get(name) for name in ("arms", "log"))
    return json.dumps([arms, log if isinstance(log, str) else ""]) if isinstance(arms, str) else row["attempt_id"]


@dataclass(frozen=True, slots=True)
class _AsIf:
    """The same comparisons, had there been more replicates."""

    blocks: Blocks
    count: int

    def labels(self) -> list[Scalar]:
        return self.blocks.labels()

    def contrast(self, over: Scalar, under: Scalar) -> Estimate:
        return self.blocks.contrast(over, under).with_count(self.count)


class MeasuredGroup(Group):
    """Rows that differ only in the axis, with the replicates that have all of them."""

    def __init__(self, place: Place, kind: Kind, rows: Sequence[Row], blocks: Blocks, *, paired: bool) -> None:
        super().__init__(place, kind)
        self.rows, self.blocks, self.paired = rows, blocks, paired


class MeasuredJudged(Judged):
    """One claim on rows that ran."""

    def __init__(self, study: Study, claim: Claim, names: list[str], evidence: Evidence) -> None:
        super().__init__(study, claim, names)
        self.kind = kind_of(claim.model_copy(update={"scatter_pct": 0.0}))  # its words are about the middle
        self.evidence, self.rule = evidence, rule_of(claim)
        self.sign = -1 if claim.quantity.measure in HIGHER_IS_BETTER else 1

    def _groups(self, rows: Iterable[Row]) -> list[Group]:
        found: dict[Place, list[Row]] = {}
        for row in rows:
            fine = place_of(row, self.names, (self.claim.axis,))
            found.setdefault(tuple(pair for pair in fine if pair[0] not in self.claim.median_over), []).append(row)
        groups = [self._group(place, members) for place, members in found.items()]
        return [group for group in groups if group.readings()]

    def _group(self, place: Place, rows: Sequence[Row]) -> MeasuredGroup:
        clean = [row for row in rows if not self._is_disturbed(row)]
        blocks, paired = self._blocks(clean)
        group = MeasuredGroup(place, self.kind, rows, blocks, paired=paired)
        centers = blocks.centers() or self._values(clean or rows)
        for fine, values in centers.items():
            for label, value in in_order(values).items():
                group.add(fine, label, value)
        return group

    def _is_disturbed(self, row: Row) -> bool:
        return is_disturbed(self.evidence.facts[row["attempt_id"]])

    def _blocks(self, rows: Sequence[Row]) -> tuple[Blocks, bool]:
        """Logarithms by replicate, corrected round by round where one process timed the rows in turn."""
        replicates: dict[int, dict[Place, dict[Scalar, float]]] = {}
        paired = True
        for replicate, fine, members in self._beside(rows):
            corrections, together = self._corrections(members)
            paired = paired and together
            values = replicates.setdefault(replicate, {}).setdefault(fine, {})
            for row in members:
                values[row[self.claim.axis]] = math.log(row["value"]) + corrections.get(row["attempt_id"], 0.0)
        return complete([replicates[one] for one in sorted(replicates)]), paired

    def _beside(self, rows: Sequence[Row]) -> Iterator[tuple[int, Place, list[Row]]]:
        """Rows of one replicate that differ in the axis only."""
        found: dict[tuple[int, Place], list[Row]] = {}
        for row in rows:
            if row["value"] > 0:
                fine = place_of(row, self.names, (self.claim.axis,))
                found.setdefault((self.evidence.replicate[row["attempt_id"]], fine), []).append(row)
        for (replicate, fine), members in found.items():
            yield replicate, fine, members

    def _corrections(self, rows: Sequence[Row]) -> tuple[Mapping[str, float], bool]:
        """What the rounds correct in the logarithm of each row, and whether one process timed all of them."""
        together = len({self.evidence.process[row["attempt_id"]] for row in rows}) == 1
        quantity, samples = self.claim.quantity, self.evidence.samples
        if not together or quantity.op or quantity.category or any(row["attempt_id"] not in samples for row in rows):
            return {}, together
        found = round_corrections({row["attempt_id"]: samples[row["attempt_id"]] for row in rows})
        return {one: self.sign * correction for one, correction in found.items()}, together

    def _values(self, rows: Iterable[Row]) -> dict[Place, dict[Scalar, float]]:
        """Values without replicates that could be compared: something to show, which decides nothing."""
        found: dict[Place, dict[Scalar, list[float]]] = {}
        for row in rows:
            fine = place_of(row, self.names, (self.claim.axis,))
            found.setdefault(fine, {}).setdefault(row[self.claim.axis], []).append(row["value"])
        return {fine: {x: statistics.median(seen) for x, seen in values.items()} for fine, values in found.items()}

    def _outcomes(self, groups: Sequence[Group], count: int = 0) -> dict[Place, Outcome]:
        """What each group says, or would say had there been `count` replicates."""
        together = sum(len(group.readings()) for group in groups)
        outcomes: dict[Place, Outcome] = {}
        for group in groups:
            blocks = _blocks_of(group)
            pairs = _AsIf(blocks, count) if count else blocks
            known = blocks.count > 1
            outcomes[group.place] = self.rule.decide(group.readings(), pairs, together) if known else "cannot tell"
        return outcomes

    def _undecided(self, groups: Sequence[Group]) -> str:
        have = min(_blocks_of(group).count for group in groups)
        for count in range(have + 1, _MOST_REPLICATES + 1):
            if all_of(self._outcomes(groups, count).values()) != "cannot tell":
                return f"{replicates_text(have)} leave it open, about {count} would settle it"
        return f"{replicates_text(have)} leave it open, and so would {_MOST_REPLICATES}"

    def _obstacles(self, seen: Seen) -> list[Obstacle]:
        standing = self._standing(seen.deciding)
        asked = self._standing(seen.needed, {row["attempt_id"] for row in standing})
        found = super()._obstacles(replace(seen, needed=asked, deciding=standing))
        for group in seen.groups:
            if _blocks_of(group).count < 2:
                obstacle = self._too_few(group)
                found += [obstacle] if obstacle not in found else []
        return found

    def _standing(self, rows: Sequence[Row], first: set[str] | frozenset[str] = frozenset()) -> list[Row]:
        """One row for each case, the median of its undisturbed replicates; a case that has a number stands with it."""
        cases: dict[Place, list[Row]] = {}
        for row in rows:
            cases.setdefault(place_of(row, self.names), []).append(row)
        found = []
        for members in cases.values():
            best = next((row for row in members if row["attempt_id"] in first), None)
            best = best or next((row for row in members if row["status"] == "ok"), members[0])
            values = [row["value"] for row in members if "value" in row and not self._is_disturbed(row)]
            found.append({**best, "value": statistics.median(values)} if values else best)
        return found

    def _too_few(self, group: Group) -> Obstacle:
        """Why a group has less than two replicates that could be compared."""
        assert isinstance(group, MeasuredGroup)
        disturbed = [self.evidence.facts[row["attempt_id"]] for row in group.rows if self._is_disturbed(row)]
        have = len({self.evidence.replicate[row["attempt_id"]] for row in group.rows})
        if disturbed:
            why = disturbance(disturbed)
            left = f"{replicates_text(group.blocks.count)} without that" if group.blocks.count else "none is left"
            return Obstacle(f"{len(disturbed)} of {len(group.rows)} rows decide nothing because {why}; {left}", why)
        if have < 2:
            text = "1 replicate, and one process says nothing about the next; take --replicates 3"
            return Obstacle(text, "1 replicate")
        text = f"of {replicates_text(have)}, {group.blocks.count or 'none'} has all the rows that are compared"
        return Obstacle(text, "replicates are incomplete")

    def _caveats(self, seen: Seen) -> tuple[str, ...]:
        clean = [row for row in seen.deciding if not self._is_disturbed(row)]
        told = list(caveats_of(clean))
        aside = [self.evidence.facts[row["attempt_id"]] for row in seen.deciding if self._is_disturbed(row)]
        if aside and all(_blocks_of(group).count > 1 for group in seen.groups):  # else that is why it cannot tell
            told.append(f"{len(aside)} of {len(seen.deciding)} rows are left out because {disturbance(aside)}")
        failed = [row["status"] for row in seen.needed if row["status"] != "ok"]
        if failed:
            told.append(f"{len(failed)} of {len(seen.needed)} rows have no number ({', '.join(dict.fromkeys(failed))})")
        if any(isinstance(group, MeasuredGroup) and not group.paired for group in seen.groups):
            told.append("values that are compared come from different processes, replicate by replicate")
        return tuple(told)

    def _scatter_text(self) -> str:
        return "99 % interval over replicates"

    def _group_text(self, group: Group) -> str:
        intervals = self._intervals(group)
        if not any(one.is_known for one in intervals.values()):
            return f"{super()._group_text(group)} ({replicates_text(self._read(group))})"
        several = len(intervals) > 1
        told = [
            f"{self.kind.label(item).rpartition(', ')[2]} {self._interval_text(one)}" if several
            else self._interval_text(one)
            for item, one in intervals.items()
        ]  # fmt: skip
        of = replicates_text(_blocks_of(group).count)
        return f"{super()._group_text(group)}, 99 % interval over {of} {', '.join(told)}"

    def _read(self, group: Group) -> int:
        """Replicates behind the numbers of a group: those that are compared, or where there are none, all."""
        rows = group.rows if isinstance(group, MeasuredGroup) else ()
        return _blocks_of(group).count or len({self.evidence.replicate[row["attempt_id"]] for row in rows}) or 1

    def _intervals(self, group: Group) -> dict[Item, Interval]:
        readings, blocks = group.readings(), _blocks_of(group)
        if blocks.count < 2:
            return {item: Interval(math.nan, math.nan, self._read(group)) for item in readings}
        return self.rule.intervals(readings, blocks)

    def _interval_text(self, interval: Interval) -> str:
        if not interval.is_known:
            return interval.text
        if self.kind.unit == "%":
            return f"{percent(interval.low)} to {percent(interval.high)}"
        return f"{_signed(interval.low)} to {_signed(interval.high)}"

    def _key(self, groups: Sequence[Group]) -> str:
        key, found = super()._key(groups), [(group, self._intervals(group)) for group in groups]
        every = [interval for _, intervals in found for interval in intervals.values()]
        if not every:
            return key
        least = min(every, key=lambda one: one.replicates)
        if not all(interval.is_known for interval in every):
            return f"{key} ({replicates_text(least.replicates)})"
        if len(every) == 1:
            return f"{key} ({self._interval_text(every[0])})"
        return f"{key} (± {self._widest(found)} at most)"

    def _widest(self, found: Sequence[tuple[Group, Mapping[Item, Interval]]]) -> str:
        """Half of the widest interval, relative to its reading where that is a factor."""
        halves = [
            max(one.high - value, value - one.low) / (value if self.kind.unit == "×" else 1)
            for group, intervals in found
            for item, one in intervals.items()
            for value in [group.readings()[item]]
        ]
        return percent(max(halves)) if self.kind.unit else f"{max(halves):.2f}"

    def _figure(self, group: Group, label: str, item: Item, value: float, place: Place, *, judged: bool) -> Figure:
        plain = super()._figure(group, label, item, value, place, judged=judged)
        interval = self._intervals(group)[item] if place == group.place or len(group.values) == 1 else None
        factor = 100 if self.kind.unit == "%" else 1
        known = interval is not None and interval.is_known
        return MeasuredFigure(
            plain.label, plain.value, plain.unit, plain.where, plain.judged,
            low=factor * interval.low if known and interval else None,
            high=factor * interval.high if known and interval else None,
            replicates=self._read(group),
        )  # fmt: skip


def _signed(value: float) -> str:
    return number(value) if value >= 0 else f"-{number(-value)}"


def _blocks_of(group: Group) -> Blocks:
    return group.blocks if isinstance(group, MeasuredGroup) else Blocks(())
