"""Series out of the observations of all sources, in whatever order they come."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.analysis.history.observations import EVERY_METRIC, TEXTS, Source
from harness.analysis.history.series import Environment, Series, series_key
from harness.analysis.inputs.results import Figure

if TYPE_CHECKING:
    import pandas as pd

#: What makes two rows the same attempt, read from two places.
_SAME = ["workload", "metric", "day", "started_s", "run", "attempt", "status", "value", "environment", "commit"]

#: Order of the rows of a series: whatever order they are read in, the same rows give the same answer.
_ORDER = ["series", "day", "started_s", "value", "source", "line"]

#: Words of a question that a label leaves out.
_UNTOLD = frozenset({"study", "provenance"})

#: Words that say what they are without their name.
_PLAIN = frozenset(
    {"series", "phase", "system", "variant", "gpu_model", "gpu", "model", "name", "case", "answered_by", "level"}
)


@dataclass(frozen=True)
class Built:
    """The series, and the rows behind their nights."""

    series: tuple[Series, ...]
    rows: pd.DataFrame
    """Rows with a value, a series and a night after the other; texts are categories."""
    duplicates: int
    last_day: int | None
    """The last night on which anything was asked."""


def build_series(sources: Sequence[Source], as_of: int | None = None) -> Built:
    """Return the series of all sources, by label. Nights after `as_of` are left out."""
    frame = _together(sources)
    if as_of is not None:
        frame = frame[frame["day"] <= as_of]
    if not len(frame):
        return Built((), frame, 0, None)
    again = _copies(frame)
    frame = frame[~again] if again.any() else frame
    figures = {name: figure for source in sources for name, figure in source.figures.items()}
    last_day = int(frame["day"].max())
    values, failures = _split(frame)
    made = list(_series(values, failures, figures))
    made += _without_values(values, failures, figures)
    made = _shortened(made)
    made.sort(key=lambda one: (one.label, one.metric, one.key))
    return Built(tuple(made), values, int(again.sum()), last_day)


def _copies(frame: pd.DataFrame) -> pd.Series:
    """Which rows are an attempt that is there already: known by its id, or read from another source."""
    again = frame.duplicated(_SAME)
    if again.any():
        again &= frame["run"].notna() | ~frame.duplicated([*_SAME, "source"])
    return again


def _together(sources: Sequence[Source]) -> pd.DataFrame:
    import pyarrow as pa

    if not sources:
        import pandas as pd

        return pd.DataFrame({"day": []})
    table = pa.concat_tables([source.table for source in sources], promote_options="none").unify_dictionaries()
    frame = table.to_pandas(split_blocks=True, self_destruct=True)
    for name in TEXTS:
        if frame[name].dtype.name != "category":
            frame[name] = frame[name].astype("category")
    return frame


def _split(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows with a value, sorted, with the code of their series; and failures."""
    is_value = frame["metric"] != EVERY_METRIC
    values, failures = frame[is_value].copy(), frame[~is_value]
    workloads = len(frame["workload"].cat.categories)
    values["series"] = values["metric"].cat.codes.astype("int64") * workloads + values["workload"].cat.codes
    values = values.sort_values(_ORDER, kind="stable").reset_index(drop=True)
    return values, failures


def _series(values: pd.DataFrame, failures: pd.DataFrame, figures: Mapping[str, Figure]) -> Iterator[Series]:
    import numpy as np

    nights = _nights(values)
    failed = _failures(failures)
    environments = [_environment(text) for text in values["environment"].cat.categories]
    commits = [*values["commit"].cat.categories.tolist(), None]
    codes = nights["series"].to_numpy()
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    columns = {name: nights[name].to_numpy() for name in nights.columns}
    questions = _questions(values.iloc[columns["row"][starts]], figures)
    for question, start, end in zip(questions, starts, [*starts, len(codes)][1:], strict=True):
        part = {name: column[start:end] for name, column in columns.items()}
        days, reasons = failed.get(question.pop("workload"), _NEVER)
        yield Series(
            **question,
            days=part["day"].astype(np.int64),
            values=part["value"],
            counts=part["count"].astype(np.int64),
            environments=tuple(environments[code] for code in part["environment"].tolist()),
            commits=tuple(commits[code] for code in part["commit"].tolist()),
            failed_days=np.array(days, np.int64),
            failures=tuple(reasons),
            rows=part["row"].astype(np.int64),
        )


def _nights(values: pd.DataFrame) -> pd.DataFrame:
    """One line for each series, night and environment: median, samples, last commit, first row."""
    import numpy as np
    import pandas as pd

    frame = pd.DataFrame(
        {
            "series": values["series"],
            "day": values["day"],
            "environment": values["environment"].cat.codes.astype("int64"),
            "commit": values["commit"].cat.codes.astype("int64"),
            "value": values["value"],
            "row": np.arange(len(values)),
        }
    )
    groups = frame.groupby(["series", "day", "environment"], sort=False)
    nights = groups.agg(
        value=("value", "median"),
        count=("value", "size"),
        commit=("commit", "last"),
        row=("row", "first"),
        last=("row", "last"),
    )
    return nights.reset_index().sort_values(["series", "day", "last"], kind="stable")


_Failed = tuple[list[int], list[str]]
_NEVER: _Failed = ([], [])


def _failures(failures: pd.DataFrame) -> dict[str, _Failed]:
    """Nights on which a workload failed, with the status of the last row of each."""
    ordered = failures.sort_values(["day", "started_s", "source", "line"], kind="stable")
    ordered = ordered.drop_duplicates(["workload", "day"], keep="last")
    found: dict[str, _Failed] = {}
    for workload, day, status in zip(*(ordered[name].tolist() for name in ("workload", "day", "status")), strict=True):
        days, reasons = found.setdefault(workload, ([], []))
        days.append(int(day))
        reasons.append(str(status))
    return found


def _without_values(values: pd.DataFrame, failures: pd.DataFrame, figures: Mapping[str, Figure]) -> list[Series]:
    """Workloads that only ever failed; their metric is the first that the others have."""
    import numpy as np

    only = failures[~failures["workload"].isin(values["workload"].unique())].drop_duplicates("workload")
    if not figures or not len(only):
        return []
    empty, failed = np.zeros(0, np.int64), _failures(failures)
    made = []
    for question in _questions(only, figures):
        days, reasons = failed[question.pop("workload")]
        of_nights: dict[str, Any] = {
            "days": empty,
            "values": empty.astype(float),
            "counts": empty,
            "environments": (),
            "commits": (),
        }
        made.append(Series(**question, **of_nights, failed_days=np.array(days, np.int64), failures=tuple(reasons)))
    return made


def _questions(rows: pd.DataFrame, figures: Mapping[str, Figure]) -> Iterator[dict[str, Any]]:
    """What the series of these rows are of, one row each."""
    names = ("workload", "shown", "metric", "provenance")
    for workload, told, metric, provenance in zip(*(rows[name].astype(str).tolist() for name in names), strict=True):
        figure = figures[metric] if metric != EVERY_METRIC else next(iter(figures.values()))
        identity = tuple((name, value) for name, value in json.loads(workload))
        shown = [(name, value) for name, value in json.loads(told) if name not in _UNTOLD]
        yield {
            "workload": workload,
            "key": series_key(identity, figure.name),
            "shown": tuple((name, value if name in _PLAIN else f"{name} {value}") for name, value in shown),
            "metric": figure.name,
            "unit": figure.unit,
            "direction": figure.direction,
            "provenance": provenance,
        }


def _shortened(made: Sequence[Series]) -> list[Series]:
    """The same series with labels, which leave out what all of them have in common."""
    told = [dict(one.shown) for one in made]
    several = len(told) > 1
    common = {name for name, text in told[0].items() if several and all(one.get(name) == text for one in told)}
    labels = [[text for name, text in one.shown if name not in common] for one in made]
    return [
        replace(one, label=", ".join(label or [text for _, text in one.shown]))
        for one, label in zip(made, labels, strict=True)
    ]


def _environment(text: str) -> Environment:
    return tuple((name, value) for name, value in json.loads(text))
