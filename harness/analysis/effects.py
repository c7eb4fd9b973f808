"""Effects: what one axis value does against the baseline, everything else equal, by phase and by category of ops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from harness.analysis.frame import PLACE, measured, place_of, placed
from harness.analysis.words import place_text
from harness.spec.axes import Scalar, axis_values
from harness.spec.claims import Quantity
from harness.spec.study import Series, Study

if TYPE_CHECKING:
    import pandas as pd

TOTAL = "total"

COLUMNS = (
    *("study", "series", "system", "phase", "axis", "value", "baseline", "where", "part"),
    *("ratio", "time_ms", "baseline_ms", "attempt_id", "baseline_attempt_id"),
)

_Row = dict[str, Any]


def effects(study: Study, records: pd.DataFrame, ops: pd.DataFrame) -> pd.DataFrame:
    """Return one row per ok case, axis and part: its time over the time of the case at the axis' baseline.

    Axes are those of each series and whatever its `baseline` names; the baseline is the study's, else the first value.
    `part` is `total` or a category of ops, `ratio` above 1 is slower, `where` says the other coordinates. A case whose
    baseline has no number has no row; neither has a part that takes no time at the baseline.
    """
    import pandas as pd

    table, names = placed(study, records)
    parts = [TOTAL, *dict.fromkeys(ops[ops["attempt_id"].isin(table["attempt_id"])]["category"])]
    found: list[_Row] = []
    for part in parts:
        quantity = Quantity() if part == TOTAL else Quantity(category=part)
        rows: list[_Row] = measured(table, records, ops, quantity).to_dict("records")
        for series in study.parts:
            own = [row for row in rows if row["series"] == series.name]
            for axis, baseline in baselines(series).items():
                found += _along(study.name, own, names, axis, baseline, part)
    return pd.DataFrame(found, columns=list(COLUMNS))


def baselines(series: Series) -> dict[str, Scalar]:
    """Axis → the value that it is compared with."""
    first = {name: axis_values(name, values)[0][0] for name, values in series.axes.items()}
    return {**first, **series.baseline}


def _along(study: str, rows: list[_Row], names: list[str], axis: str, baseline: Scalar, part: str) -> Iterator[_Row]:
    places = [place_of(row, names, (axis,)) for row in rows]
    base = {place: row for place, row in zip(places, rows, strict=True) if row.get(axis) == baseline}
    for place, row in zip(places, rows, strict=True):
        against = base.get(place)
        if against is None or row[axis] is None or row[axis] == baseline or not against["value"]:
            continue
        yield {
            "study": study,
            **{name: row[name] for name in PLACE},
            "axis": axis,
            "value": row[axis],
            "baseline": baseline,
            "where": place_text(pair for pair in place if pair[0] not in PLACE),
            "part": part,
            "ratio": row["value"] / against["value"],
            "time_ms": row["value"],
            "baseline_ms": against["value"],
            "attempt_id": row["attempt_id"],
            "baseline_attempt_id": against["attempt_id"],
        }
