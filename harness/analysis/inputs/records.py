"""Records as results: of a run folder, of a table of records, and of a report that was imported."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.analysis.inputs.codes import as_texts, cell_text, codes_of, plain_text, workloads_of
from harness.analysis.inputs.columns import column_table
from harness.analysis.inputs.results import FIXED_COLUMNS, Figure, Kind, Results, Workload
from harness.analysis.replicates import DISTURBED, disturbance
from harness.results.metrics import METRICS
from harness.results.record import Record, arrow_schema
from harness.results.store import slot_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd
    import pyarrow as pa

#: What makes two rows the same question.
_KEY = ("case_id", "answered_by", "level", "level_ops", "provenance")

#: Columns of which a reader knows it again.
_SHOWN = (
    "study",
    "series",
    "phase",
    "system",
    "variant",
    "coordinates",
    "level",
    "level_ops",
    "answered_by",
    "provenance",
)

#: What was found in place.
_ENVIRONMENT = ("answered_with", "harness_version", "host", "device", "gpu_uuid", "run_id")

#: Facts of `environment.json` that a history needs and no record has.
_FACTS = ("driver", "cuda")

#: Figures of cases. Throughput and speed follow from the time and are not judged twice.
_TIMES = ("prefill_compute_ms", "step_ms")
#: Figures that do not follow from the step where there is a pipeline.
_PIPELINE = ("tpot_ms",)

_IMPORTED = tuple(column_table()["imported"]["metrics"])

#: All columns that hold figures.
FIGURES = tuple(dict.fromkeys((*_TIMES, *_PIPELINE, *_IMPORTED)))

_QUESTION = tuple(column_table()["imported"]["identity"])
_PLAIN = (
    "attempt_id", "status", "reason", "flags", "started_at", "replicate", "sm_clock_mhz", "foreign_cpus",
    "foreign_processes", "throttle_reasons", "schema_version", "foreign", "pp",
)  # fmt: skip

#: All columns of a record that are read.
RECORD_COLUMNS = tuple(dict.fromkeys((*_PLAIN, *_KEY, *_SHOWN, *_ENVIRONMENT, *_TIMES, *_IMPORTED, *_QUESTION)))


def is_records(names: Sequence[str]) -> bool:
    """Whether the columns of a table are those of records."""
    return {"attempt_id", "case_id", "answered_by", "level", "provenance"} <= set(names)


def from_records(
    path: Path, kind: Kind, table: pa.Table, damage: Sequence[str], facts: Mapping[str, object]
) -> Results:
    """The results of records; of each case and process its last attempt."""
    table = _latest(_typed(table))
    rows = _rows(table)
    workload, workloads = _workloads(table)
    rows["workload"] = workload
    names = [name for name in (*_TIMES, *_IMPORTED) if table[name].null_count < table.num_rows]
    values = _values(table, names, rows)
    environment = _environment(table, facts, rows)
    return Results(
        name=path.name or str(path),
        path=path,
        kind=kind,
        workloads=workloads,
        rows=rows[list(FIXED_COLUMNS)],
        values=values,
        environment=environment,
        figures={name: _figure(name) for name in values.columns},
        damage=tuple(damage),
        facts=facts,
    )


def _figure(name: str) -> Figure:
    metric = METRICS[name]
    return Figure(name, metric.title, metric.unit, metric.direction, name)


def _typed(table: pa.Table) -> pa.Table:
    """The columns that are read with the types of the schema; a CSV file has texts, and one of another release gaps."""
    import pyarrow as pa

    schema = arrow_schema(Record)
    columns = []
    for name in RECORD_COLUMNS:
        wanted = schema.field(name).type
        if name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, pa.string() if name == "flags" else wanted))
            continue
        column = table[name]
        if name == "flags":
            columns.append(_joined(column))
        elif column.type == wanted:
            columns.append(column)
        else:
            columns.append(pa.array([_cast(value, wanted) for value in column.to_pylist()], wanted))
    return pa.table(dict(zip(RECORD_COLUMNS, columns, strict=True)))


def _joined(column: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    cells = [";".join(map(str, cell)) if isinstance(cell, list) else cell for cell in column.to_pylist()]
    return pa.array([str(cell) if cell else None for cell in cells], pa.string())


def _cast(value: Any, wanted: pa.DataType) -> Any:
    import pyarrow as pa

    if value is None or value == "":
        return None
    try:
        if pa.types.is_integer(wanted):
            return int(float(value))
        if pa.types.is_floating(wanted):
            return float(value)
    except ValueError:
        return None
    return str(value)


def _latest(table: pa.Table) -> pa.Table:
    """The last row of every case and process."""
    last = {_slot(attempt): row for row, attempt in enumerate(table["attempt_id"].to_pylist())}
    return table if len(last) == table.num_rows else table.take(sorted(last.values()))


def _slot(attempt: str) -> Any:
    try:
        return slot_of(attempt)
    except (ValueError, AttributeError):
        return attempt


def _rows(table: pa.Table) -> pd.DataFrame:
    import numpy as np
    import pandas as pd

    def objects(name: str) -> Any:
        return table[name].to_pandas().astype(object).where(lambda column: column.notna(), None)

    rows = pd.DataFrame({name: objects(name) for name in ("status", "reason", "flags", "provenance", "attempt_id")})
    rows["started"] = objects("started_at")
    # As objects: pandas 3 would make texts of its own type of them, and NaN, which is true, of None.
    replicates = [None if one is None else str(one) for one in table["replicate"].to_pylist()]
    rows["replicate"] = pd.Series(replicates, index=rows.index, dtype=object)
    rows["sm_clock_mhz"] = table["sm_clock_mhz"].to_pandas().astype(float)
    rows["line"] = np.arange(1, table.num_rows + 1)
    rows["disturbance"] = pd.Series(list(_disturbances(table)), index=rows.index, dtype=object)
    return rows


def _disturbances(table: pa.Table) -> Iterator[str | None]:
    names = ("flags", "foreign_cpus", "foreign_processes", "throttle_reasons")
    for flags, cpus, processes, reasons in zip(*(table[name].to_pylist() for name in names), strict=True):
        told = flags.split(";") if flags else []
        if not any(flag in DISTURBED for flag in told):
            yield None
            continue
        row = {"flags": told, "foreign_cpus": cpus, "foreign_processes": processes, "throttle_reasons": reasons}
        yield disturbance([row])


def _values(table: pa.Table, names: Sequence[str], rows: pd.DataFrame) -> pd.DataFrame:
    """Figures of rows with status ok: the time of a case, and what an imported report says."""
    import pandas as pd

    ok = rows["status"] == "ok"
    imported = rows["provenance"] == "imported"
    pipeline = (table["pp"].to_pandas().fillna(1) > 1).to_numpy()
    found = {}
    for name in names:
        judged = ~imported if name in _TIMES else imported | (pipeline if name in _PIPELINE else False)
        column = table[name].to_pandas().astype(float).where(ok & judged)
        if column.notna().any():
            found[name] = column
    return pd.DataFrame(found, index=rows.index)


def _environment(table: pa.Table, facts: Mapping[str, object], rows: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    found = {name: as_texts(table[name]) for name in _ENVIRONMENT if table[name].null_count < table.num_rows}
    frame = pd.DataFrame(found, index=rows.index)
    for name in _FACTS:
        if isinstance(facts.get(name), str):
            frame[name] = pd.Categorical([facts[name]] * len(rows))
    return frame


def _workloads(table: pa.Table) -> tuple[npt.NDArray[np.int64], tuple[Workload, ...]]:
    columns = {name: codes_of(table[name], plain_text) for name in _KEY}
    shown = list(zip(*(table[name].to_pylist() for name in _SHOWN), strict=True))
    imported = [provenance == "imported" for provenance in table["provenance"].to_pylist()]
    if not any(imported):
        return workloads_of(columns, table.num_rows, lambda _, row: _told(shown[row]))
    import pyarrow as pa

    # The case of an imported row is a hash of all its file says, figures too: its question is what was asked.
    questions = [_question(table, row) if one else None for row, one in enumerate(imported)]
    cases = [None if one else case for one, case in zip(imported, table["case_id"].to_pylist(), strict=True)]
    columns["case_id"] = codes_of(pa.chunked_array([pa.array(cases, pa.string())]), plain_text)
    for name in dict.fromkeys(name for question in questions if question for name in question):
        cells = [question.get(name) if question else None for question in questions]
        columns[name] = codes_of(pa.chunked_array([pa.array(cells, pa.string())]), str)

    def told(_: Mapping[str, str], row: int) -> Sequence[tuple[str, str]]:
        question = questions[row]
        if not question:
            return _told(shown[row])
        # Where the file lay is no question.
        plain = _told(
            tuple("" if name == "coordinates" else said for name, said in zip(_SHOWN, shown[row], strict=True))
        )
        return [*plain, *((name, text) for name, text in question.items() if name not in _SHOWN)]

    return workloads_of(columns, table.num_rows, told)


def _question(table: pa.Table, row: int) -> dict[str, str]:
    """What an imported report says was asked."""
    plain = {name: cell_text(table[name][row].as_py()) for name in _QUESTION}
    foreign = table["foreign"][row].as_py()
    data = json.loads(foreign) if foreign else {}
    paths = [path for group in column_table()["imported"]["foreign_identity"] for path in group]
    plain |= {path: cell_text(_at(data, path)) for path in paths}
    return {name: text for name, text in plain.items() if text}


def _at(data: Any, path: str) -> Any:
    for name in path.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    return None if isinstance(data, dict | list) else data


@lru_cache(maxsize=1 << 16)  # the nights of a history ask the same again
def _told(values: tuple[str | None, ...]) -> tuple[tuple[str, str], ...]:
    """What a reader sees of a row, its coordinates one by one; `values` are those of `_SHOWN`."""
    found: list[tuple[str, str]] = []
    for name, value in zip(_SHOWN, values, strict=True):
        if name == "coordinates" and value:
            found += [(axis, cell_text(at)) for axis, at in json.loads(value).items() if axis not in _SHOWN]
        elif value:
            found.append((name, value))
    return tuple(found)
