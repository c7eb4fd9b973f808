"""What keeps rows from deciding a claim: values that are not in the sweep, rows without a number, doubtful rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from harness.analysis.frame import place_of
from harness.analysis.words import amount, listed, place_text
from harness.spec.axes import Scalar
from harness.spec.claims import HIGHER_IS_BETTER, BestAt, Claim
from harness.spec.expand import matches

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One thing that keeps rows from deciding, in a sentence and in a few words."""

    text: str
    short: str


def obstacles_of(
    claim: Claim,
    only: Sequence[Scalar],
    names: list[str],
    rows: Sequence[Row],
    needed: Sequence[Row],
    deciding: Sequence[Row],
) -> list[Obstacle]:
    """Everything that keeps `deciding`, the rows with a number among `needed`, from deciding.

    `only` are the axis values that the kind of claim needs, `names` the coordinates of the study, `rows` all it has on
    the system.
    """
    return [
        *_absent(claim, only, rows, needed),
        *_without_number(claim, names, needed, deciding),
        *_confounded(claim, deciding),
        *_too_good(claim, names, deciding),
    ]


def _absent(claim: Claim, only: Sequence[Scalar], rows: Sequence[Row], needed: Sequence[Row]) -> Iterator[Obstacle]:
    """Values that the claim names and the sweep does not hold, anywhere or where the claim looks."""
    named = {name: labels_of(labels) for name, labels in {**claim.where, **claim.judge_at}.items()}
    own = claim.values if isinstance(claim, BestAt) else only
    named[claim.axis] = (*named.get(claim.axis, ()), *own)
    missing = _not_in(rows, named) or _not_in(needed, named)
    if missing:
        text = "; ".join(f"the sweep has no row at {place}" for place in missing)
        yield Obstacle(text, f"{', '.join(missing)} not in this sweep")


def _not_in(rows: Sequence[Row], named: Mapping[str, tuple[Any, ...]]) -> list[str]:
    missing = []
    for name, labels in named.items():
        there = {row.get(name) for row in rows}
        absent = (label for label in dict.fromkeys(labels) if label not in there)
        missing += [place_text({name: label}) or f"{name} {label}" for label in absent]
    return missing


def _without_number(
    claim: Claim, names: list[str], needed: Sequence[Row], deciding: Sequence[Row]
) -> Iterator[Obstacle]:
    """Rows that the study asked for and that were refused, unsupported, rejected."""
    have = {row["attempt_id"] for row in deciding}
    lacking: dict[tuple[str, str], list[str]] = {}
    for row in needed:
        if row["attempt_id"] not in have:
            why = short = f"it has no {claim.quantity.what}"
            if row["status"] != "ok":
                short = f"needed rows are {row['status']}"
                why = f"{row['status']}: {shorten(row['reason'] or 'no reason given', 160, placeholder=' …')}"
            lacking.setdefault((why, short), []).append(place_text(place_of(row, names)))
    for (why, short), places in lacking.items():
        yield Obstacle(f"no number at {listed(places, 3)} ({why})", short)


def _confounded(claim: Claim, deciding: Sequence[Row]) -> Iterator[Obstacle]:
    """Rows that differ in more than the axis shows, as the study declares."""
    for confounder in claim.confounders:
        if any(row_matches(confounder.when, row) for row in deciding):
            yield Obstacle(f"confounded: {confounder.reason}", "confounded")


def _too_good(claim: Claim, names: list[str], deciding: Sequence[Row]) -> Iterator[Obstacle]:
    """Rows faster than any kernel can be."""
    measure, room = claim.quantity.measure, 1 + claim.scatter_pct / 100
    for row in deciding:
        value, limit = row["value"], row["roofline"]
        if value > limit * room if measure in HIGHER_IS_BETTER else value * room < limit:
            what = f"{amount(value, measure)} at {place_text(place_of(row, names))}"
            text = f"{what} is beyond its roofline, {amount(limit, measure)}, so it cannot be what it says"
            yield Obstacle(text, "a row is faster than its roofline")


def labels_of(labels: Any) -> tuple[Any, ...]:
    """One label, or several, as a tuple."""
    return tuple(labels) if isinstance(labels, list | tuple) else (labels,)


def row_matches(when: Mapping[str, Any], row: Row) -> bool:
    """Whether a row lies at `when`; of its flags one match is enough."""
    if "flags" in when and not set(labels_of(when["flags"])) & set(row["flags"]):
        return False
    return matches({name: wanted for name, wanted in when.items() if name != "flags"}, row)
