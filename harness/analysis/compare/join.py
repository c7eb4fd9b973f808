"""Pair the rows of two results by the whole of what was asked, and judge every figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.analysis.compare.blame import with_blame
from harness.analysis.compare.comparison import Comparison, Count
from harness.analysis.compare.judging import (
    Judgement,
    by_interval,
    by_threshold,
    exactly,
    over_the_table,
    with_clock,
    without_figure,
)
from harness.analysis.compare.naming import difference, difference_text, names_of
from harness.analysis.compare.pairs import Pair, State, Unpaired, Values
from harness.analysis.compare.policy import AUTO, Policy
from harness.analysis.compare.sides import Group, Side, environment_changes
from harness.analysis.inputs import Figure, Results, Workload

#: Workloads without a partner are searched for a near one up to so many on a side.
_MOST_SEARCHED = 200

#: Nobody mistypes these.
_NO_SLIPS = frozenset({"case_id", "answered_by", "provenance", "level", "level_ops"})

#: A near partner differs in no more names than these.
_NEAR = 2


def compare(base: Results, candidate: Results, policy: Policy = AUTO) -> Comparison:
    """Return what a comparison finds. Rows of other provenance, level or answerer are of other workloads.

    No row is dropped: what has no partner, failed, or has no figure is listed as such.
    """
    sides = Side(base), Side(candidate)
    pairs: list[Pair] = []
    unpaired: list[Unpaired] = []
    known = list(dict.fromkeys((*sides[0].groups, *sides[1].groups)))
    names = names_of(known)
    for workload in sorted(known, key=names.order):
        groups = tuple(side.groups.get(workload, Group()) for side in sides)
        if all(group.ok for group in groups):
            pairs += _pairs(workload, sides, groups, policy)
        elif any(group.was_asked for group in groups):
            unpaired.append(_unpaired(workload, sides, groups))
    judged = with_blame([with_clock(pair) for pair in over_the_table(pairs)], base, candidate)
    return Comparison(
        base=base,
        candidate=candidate,
        policy=policy,
        pairs=tuple(judged),
        unpaired=tuple(_with_near(unpaired)),
        names=names,
        counts={name: _count(side) for name, side in zip(("base", "candidate"), sides, strict=True)},
        environment=environment_changes(base, candidate),
        notes=tuple(_notes(sides, paired=bool(pairs))),
    )


def _count(side: Side) -> Count:
    return Count(len(side.results.rows), sum(group.was_asked for group in side.groups.values()))


def _pairs(workload: Workload, sides: tuple[Side, Side], groups: Sequence[Group], policy: Policy) -> Iterator[Pair]:
    figures = {**sides[0].results.figures, **sides[1].results.figures}
    for name, figure in figures.items():
        base, candidate = (side.values(group, name) for side, group in zip(sides, groups, strict=True))
        if base is None and candidate is None:
            continue
        rule = policy.of(sides[0].provenance(groups[0]), min(one.count if one else 0 for one in (base, candidate)))
        found = _judged(base, candidate, figure, rule, policy)
        reason = found.reason
        if found.verdict == "prediction changed":
            reason = _cause(sides, groups)
        yield Pair(
            workload=workload, figure=figure, base=base, candidate=candidate, verdict=found.verdict,
            policy=f"threshold:{policy.threshold_pct:g}%" if rule == "threshold" else rule,
            change=found.change, low=found.low, high=found.high, p=found.p, reason=reason,
            replicates_needed=found.needed,
        )  # fmt: skip


def _judged(base: Values | None, candidate: Values | None, figure: Figure, rule: str, policy: Policy) -> Judgement:
    undefined = without_figure(base, candidate)
    if undefined:
        return undefined
    assert base is not None
    assert candidate is not None
    if base.attempts and sorted(base.attempts) == sorted(candidate.attempts) and base.values == candidate.values:
        return Judgement("same", 0.0, reason="the very same attempts")
    if rule == "exact":
        return exactly(base, candidate)
    for name, side in (("base", base), ("candidate", candidate)):
        if side.is_disturbed:
            change = candidate.median / base.median - 1
            return Judgement("inconclusive", change, reason=f"every replicate of {name} was disturbed: {side.note}")
    if rule == "threshold" or candidate.median == 0:
        return by_threshold(base, candidate, figure.direction, policy.threshold_pct)
    return by_interval(base.values, candidate.values, figure.direction)


def _cause(sides: tuple[Side, Side], groups: Sequence[Group]) -> str:
    """Why a priced number is another one: the tables and versions behind it."""
    for column, title in (("answered_with", "tables or rules"), ("harness_version", "harness")):
        before, after = (side.environment(group, column) for side, group in zip(sides, groups, strict=True))
        if before != after:
            return f"{title}: {', '.join(before) or 'not said'} → {', '.join(after) or 'not said'}"
    return "same versions on both sides: an option of the run or changed code is the cause"


def _unpaired(workload: Workload, sides: tuple[Side, Side], groups: Sequence[Group]) -> Unpaired:
    state: State
    base, candidate = groups
    statuses = [side.status(group) if group.was_asked else "" for side, group in zip(sides, groups, strict=True)]
    if not base.was_asked or not candidate.was_asked:
        present, absent = (0, 1) if base.was_asked else (1, 0)
        reason = f"left out there: {sides[absent].reason(groups[absent])}" if groups[absent].left_out else ""
        if statuses[present] != "ok":
            reason = "; ".join(filter(None, [sides[present].reason(groups[present]), reason]))
        state = "only in base" if present == 0 else "only in candidate"
    elif base.ok:
        state, reason = "newly failing", sides[1].reason(candidate)
    elif candidate.ok:
        state, reason = "newly working", ""
    else:
        state, reason = "failed in both", sides[1].reason(candidate)
    return Unpaired(
        workload=workload, state=state, base_status=statuses[0], candidate_status=statuses[1], reason=reason
    )  # fmt: skip


def _with_near(unpaired: Sequence[Unpaired]) -> Iterator[Unpaired]:
    """Workloads without a partner, with what tells them from a near one on the other side: it may be a slip."""
    alone = {name: [one for one in unpaired if one.state == name] for name in ("only in base", "only in candidate")}
    for one in unpaired:
        others = alone.get("only in candidate" if one.state == "only in base" else "only in base", [])
        if one.state not in alone or len(others) > _MOST_SEARCHED or len(alone[one.state]) > _MOST_SEARCHED:
            yield one
            continue
        near = [(names, other) for other in others if len(names := difference(one.workload, other.workload)) <= _NEAR]
        near = [(names, other) for names, other in near if not _NO_SLIPS & set(names)]
        if near:
            names, other = min(near, key=lambda pair: (len(pair[0]), pair[1].workload.key))
            side = "candidate" if one.state == "only in base" else "base"
            told = f"nearest in {side}: {difference_text(one.workload, other.workload, names)}; never paired"
            one = replace(one, reason="; ".join(filter(None, [one.reason, told])))  # noqa: PLW2901
        yield one


def _notes(sides: tuple[Side, Side], *, paired: bool) -> Iterator[str]:
    """What to know of the inputs as a whole."""
    for side in sides:
        yield from side.results.notes
    for word, side in zip(("base", "candidate"), sides, strict=True):
        for name in side.results.environment:
            values = set(side.results.environment[name].dropna().unique())
            if 1 < len(values) <= 10 and name in _MIXED:
                yield f"{word} has rows of several {name}s taken together: {', '.join(sorted(map(str, values)))}"
    if not paired:
        yield from _why_nothing_pairs(sides)


#: What should be one within a side, or its replicates are of different things.
_MIXED = ("driver", "driver_version", "engine_version", "trtllm_version", "answered_with")


def _why_nothing_pairs(sides: tuple[Side, Side]) -> Iterator[str]:
    base, candidate = sides
    for word in ("provenance", "level", "answered_by"):
        said = [{dict(workload.shown).get(word, "") for workload in side.groups} - {""} for side in sides]
        if all(said) and not said[0] & said[1]:
            told = f"{_either(said[0])} in base and {_either(said[1])} in candidate"
            yield f"{word} is {told}: never compared with each other"
    names = [{name for workload in side.groups for name, _ in workload.key} for side in (base, candidate)]
    for one, other, word in ((names[0], names[1], "base"), (names[1], names[0], "candidate")):
        only = sorted(one - other)
        if only and other:
            yield (
                f"only {word} says {', '.join(only)}, taken as part of the question; --environment NAME takes a column "
                f"as found in place, --metric NAME=lower as a figure"
            )


def _either(words: set[str]) -> str:
    return " or ".join(sorted(words))
