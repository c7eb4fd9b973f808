"""Tables of results that something else wrote: CSV (RFC 4180, UTF-8) and Parquet."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.analysis.inputs.codes import as_texts, cell_text, codes_of, workloads_of
from harness.analysis.inputs.columns import Options, Roles, column_table, normal, roles_of
from harness.analysis.inputs.duplicates import without_duplicates
from harness.analysis.inputs.results import FIXED_COLUMNS, Results
from harness.analysis.replicates import DISTURBED, disturbance
from harness.errors import UnreadableInput, UsageError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

#: What tables write where there is no number.
_NOTHING = frozenset({"", "nan", "na", "n/a", "none", "null", "-", "--"})

#: Cells and lines that are named; the rest is counted.
_NAMED = 10


def read_csv(path: Path) -> tuple[pa.Table, tuple[str, ...]]:
    """A CSV file as texts, and which lines of it could not be read. The header is its first line.

    Raises UsageError where a column is named twice or not at all, UnreadableInput where it is no table.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    names, lines = _header(path)
    bad: list[str] = []

    def skip(row: Any) -> str:
        at = f"line {row.number}" if row.number else f"the line {row.text[:60]!r}"
        bad.append(f"{path}: {at} has {row.actual_columns} cells and the header {row.expected_columns}; left out")
        return "skip"

    try:
        table = arrow_csv.read_csv(
            path,
            read_options=arrow_csv.ReadOptions(use_threads=False, column_names=names, skip_rows=lines),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
            ),
        )
    except (pa.ArrowException, OSError) as error:
        raise UnreadableInput(f"{path}: no CSV table in UTF-8: {str(error).splitlines()[0][:200]}") from None
    return table, tuple(_named(bad, f"{path}: {{}} more lines cannot be read"))


def _header(path: Path) -> tuple[list[str], int]:
    """The names of the columns, and how many lines they take: a quoted name may hold a line break."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            names = next(reader, [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UnreadableInput(f"{path}: no CSV table in UTF-8: {error}") from None
    if len(names) < 2:
        raise UnreadableInput(f"{path}: its first line has {len(names)} columns; cells are separated by commas")
    findings = [f"{path}: column {number} has no name" for number, name in enumerate(names, 1) if not name.strip()]
    findings += [
        f"{path}: the column {name!r} is there twice" for name in dict.fromkeys(map(normal, names))
        if name and list(map(normal, names)).count(name) > 1
    ]  # fmt: skip
    if findings:
        raise UsageError(*findings)
    return names, reader.line_num


def read_parquet(path: Path) -> pa.Table:
    """A Parquet file. Raises UnreadableInput where it is none or damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, memory_map=False) as file:
            return file.read()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnreadableInput(f"{path}: no Parquet table: {str(error).splitlines()[0][:200]}") from None


def from_table(path: Path, table: pa.Table, damage: tuple[str, ...], options: Options) -> Results:
    """The results of a table whose columns are not those of records.

    Raises UsageError as `roles_of` does, where nothing in it is a figure, and where a figure is of another type.
    """
    import pandas as pd

    roles = roles_of(table.column_names, str(path), options)
    if not roles.figures:
        raise UsageError(
            f"{path}: no column is a figure; a time is called ttft_ms or tpot_s, a rate output_tok_s_per_gpu (see "
            f"docs/comparing.md), and --metric NAME=lower or NAME=higher names others"
        )
    table = table.rename_columns([normal(name) for name in table.column_names])
    _require_numbers(path, table, roles)
    values, troubles = _values(path, table, roles)
    rows = _rows(table, roles, values)
    values = values.where(rows["status"] == "ok")
    environment = pd.DataFrame({name: as_texts(table[name]) for name in roles.environment}, index=rows.index)
    columns = {name: codes_of(table[name]) for name in roles.identity}
    told = [name for name in roles.identity if any(columns[name][1][code] for code in set(columns[name][0].tolist()))]
    rows["workload"], workloads = workloads_of(
        columns, table.num_rows, lambda said, _: [(name, said[name]) for name in columns if name in said]
    )
    kept, repeated = without_duplicates(rows, values, environment)
    notes = [f"{path}: {repeated} rows are there twice, with the same attempt; counted once"] if repeated else []
    return Results(
        name=path.name,
        path=path,
        kind="table",
        workloads=workloads,
        rows=rows.loc[kept, list(FIXED_COLUMNS)].reset_index(drop=True),
        values=values.loc[kept].reset_index(drop=True),
        environment=environment.loc[kept].reset_index(drop=True),
        figures={figure.name: figure for figure in roles.figures},
        identity_columns=tuple(told),
        columns=tuple(table.column_names),
        damage=(*damage, *troubles),
        notes=tuple(notes),
    )


def _require_numbers(path: Path, table: pa.Table, roles: Roles) -> None:
    """Refuse figures of a type that converts to numbers nobody meant: a duration becomes nanoseconds."""
    import pyarrow as pa

    kinds = {figure.column: table[figure.column].type for figure in roles.figures}
    findings = [
        f"{path}: {name} is of type {kind} and no number; write a number of {name}, which says its unit"
        for name, kind in kinds.items()
        if pa.types.is_temporal(kind) or pa.types.is_boolean(kind)
    ]
    if findings:
        raise UsageError(*findings)


def _values(path: Path, table: pa.Table, roles: Roles) -> tuple[pd.DataFrame, list[str]]:
    """Figures in their canonical units, and which cells are no numbers."""
    import numpy as np
    import pandas as pd

    found: dict[str, Any] = {}
    bad: list[str] = []
    for figure in roles.figures:
        cells = table[figure.column].to_pandas()
        numbers = pd.to_numeric(cells, errors="coerce").astype(float)
        finite = np.isfinite(numbers)
        for line in np.flatnonzero(~finite).tolist():
            cell = cell_text(cells.iloc[line])
            if cell.lower() not in _NOTHING:
                bad.append(f"{path}: row {line + 1}: {figure.column} is {cell[:40]!r} and no number; left blank")
        scaled = numbers.where(finite) * figure.factor if figure.factor != 1 else numbers.where(finite)
        found[figure.name] = scaled
    return pd.DataFrame(found), _named(bad, f"{path}: {{}} more cells are no numbers")


def _named(texts: list[str], more: str) -> list[str]:
    rest = len(texts) - _NAMED
    return texts if rest <= 0 else [*texts[:_NAMED], more.format(f"{rest:,}")]


def _rows(table: pa.Table, roles: Roles, values: pd.DataFrame) -> pd.DataFrame:
    """The columns that every input has, but for the workload."""
    import numpy as np
    import pandas as pd

    def texts(column: str | None) -> Any:
        if column is None:
            return None
        cells = pd.Series(as_texts(table[column]).astype(object), dtype=object)
        return cells.where(cells.notna(), None)

    rows = pd.DataFrame({"line": np.arange(1, table.num_rows + 1)})
    for name in ("reason", "replicate", "flags", "started", "attempt_id"):
        rows[name] = pd.Series(texts(getattr(roles, name)), index=rows.index, dtype=object).where(
            lambda one: one.notna(), None
        )
    rows["provenance"] = "imported"
    told = [(flags or "").split(";") for flags in rows["flags"]]
    disturbed = [disturbance([{"flags": flags}]) if set(DISTURBED) & set(flags) else None for flags in told]
    rows["disturbance"] = pd.Series(disturbed, index=rows.index, dtype=object)
    clocks = table[roles.sm_clock_mhz].to_pandas() if roles.sm_clock_mhz else np.nan
    rows["sm_clock_mhz"] = pd.to_numeric(pd.Series(clocks, index=rows.index), errors="coerce").astype(float)
    said = texts(roles.status) if roles.status else [None] * table.num_rows
    any_value = values.notna().any(axis=1)
    rows["status"] = list(_statuses(said, any_value.tolist()))
    return rows


def _statuses(said: Any, has_figure: list[bool]) -> Iterator[str]:
    """`ok`, `skipped`, or a failure by its name; a row that is called ok and has no figure failed too."""
    known = column_table()["status"]
    fine, not_asked = set(known["ok"]), set(known["not_asked"])
    for text, figure in zip(said, has_figure, strict=True):
        word = text.lower() if isinstance(text, str) else "ok"
        if word in fine:
            yield "ok" if figure else "no figure"
        else:
            yield "skipped" if word in not_asked else word
