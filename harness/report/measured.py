"""What ran: on what, how often, how it was sampled, what disturbed it, and what failed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.analysis.intervals import Interval, replicates_text
from harness.analysis.replicates import Cases
from harness.report.glossary import STATUSES, flag_meaning
from harness.report.tables import Cell, Column, Table, place_text, table, without_empty
from harness.report.values import is_null, number, text
from harness.results.metrics import significant, time_column

if TYPE_CHECKING:
    import pandas as pd

#: Status → what to do about a row that should have had a number and has none.
ADVICE: dict[str, str] = {
    "oom": "make the case smaller (batch, KVSL, layers) or split it over more GPUs, then --resume --retry-failed",
    "timeout": "read the log for where it stood; give it longer if it made progress, then --resume --retry-failed",
    "crash": "read the log; `trtllm-harness rerun ATTEMPT` runs this case alone",
    "invalid": "the reason says what it did instead of the case; its number enters nothing",
    "lost": "--resume asks it again",
    "build_failed": "read the log; `trtllm-harness build` makes the engine alone",
}

#: Provenances of rows that a process ran.
_RAN = ("measured", "simulated")

_Row = Mapping[str, Any]


def ran(records: pd.DataFrame) -> pd.DataFrame:
    """The rows that a process ran, or should have."""
    return records[records["provenance"].isin(_RAN)]


def run_facts_table(records: pd.DataFrame) -> Table:
    """Facts of the rows of one study that ran: device, versions, replicates, samples, telemetry, flags."""
    rows = ran(records).to_dict("records")
    ok = [row for row in rows if row["status"] == "ok"]
    facts = [*_where_facts(rows), *_sampling_facts(ok), *_telemetry_facts(ok), *_flag_facts(ok)]
    return table("How it was measured", [Column("Fact"), Column("Value")], [one for one in facts if one[1]])


def _where_facts(rows: Sequence[_Row]) -> list[tuple[str, str]]:
    return [
        ("Device", _distinct(rows, "device")),
        ("GPU UUID", _distinct(rows, "gpu_uuid")),
        ("Host", _distinct(rows, "host")),
        ("Answered by", ", ".join(dict.fromkeys(f"{row['answered_by']}: {row['answered_with']}" for row in rows))),
        ("Engine", _distinct(rows, "engine")),
        *_how_facts(rows),
    ]


def _how_facts(rows: Sequence[_Row]) -> list[tuple[str, str]]:
    """The facts under `how`, each with its values."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        for name, value in how_of(row).items():
            found.setdefault(name, {})[text(value)] = None
    return [(name.replace("_", " ").capitalize(), _some(list(values))) for name, values in found.items()]


def how_of(row: _Row) -> dict[str, Any]:
    """What a row says of how it ran."""
    if not isinstance(row.get("how"), str):
        return {}
    how: dict[str, Any] = json.loads(row["how"])
    return how


def _sampling_facts(ok: Sequence[_Row]) -> list[tuple[str, str]]:
    replicates = len({row["replicate"] for row in ok if not is_null(row["replicate"])})
    samples = [int(row["samples"]) for row in ok if not is_null(row["samples"])]
    discarded = sum(int(row["discarded_samples"]) for row in ok if not is_null(row["discarded_samples"]))
    return [
        ("Replicates", f"{replicates} fresh process{'' if replicates == 1 else 'es'} for each case" if ok else ""),
        ("Timed in turn", _distinct(ok, "arms")),
        ("Samples of a row", f"{_range(samples)}, {discarded} discarded with a cause" if samples else ""),
        ("Sampling ended", _counted(ok, "stop_reason")),
        ("Warm-up", _of(ok, "warmup_samples", "samples", digits=0)),
        ("Drift at the end of warm-up", _of(ok, "warmup_drift_pct", "%")),
        ("Layers that ran", _of(ok, "layers_run", "", digits=0)),
    ]


def _telemetry_facts(ok: Sequence[_Row]) -> list[tuple[str, str]]:
    seen = [row for row in ok if not is_null(row["telemetry_valid"])]
    valid = sum(bool(row["telemetry_valid"]) for row in seen)
    notes = Counter(row["telemetry_note"] for row in ok if isinstance(row["telemetry_note"], str))
    said = f"valid for {valid} of {len(ok)} rows" if seen else "nothing was observed" if ok else ""
    return [
        ("Telemetry", "; ".join([said, *(f"{note} ({count} rows)" for note, count in notes.items())])),
        ("SM clock", _of(ok, "sm_clock_mhz", "MHz", digits=0)),
        ("Power, all GPUs", _of(ok, "power_w", "W", digits=0)),
        ("Energy", _of(ok, "energy_j_per_token", "J a token")),
        ("Temperature, highest", _of(ok, "temperature_c", "°C", digits=0)),
        ("Throttle reasons", _counted(ok, "throttle_reasons")),
        ("Processes of others on the GPUs", _of(ok, "foreign_processes", "", digits=0)),
        ("Processors that others kept busy", _of(ok, "foreign_cpus", "")),
        ("Load average at the end", _of(ok, "load_average", "")),
    ]


def _flag_facts(ok: Sequence[_Row]) -> list[tuple[str, str]]:
    flags = Counter(flag for row in ok for flag in row["flags"])
    return [(f"Flag {flag}", f"{count} of {len(ok)} rows: {flag_meaning(flag)}") for flag, count in flags.items()]


def _distinct(rows: Iterable[_Row], name: str) -> str:
    return _some(list(dict.fromkeys(text(row[name]) for row in rows if not is_null(row[name]))))


def _some(values: Sequence[str], most: int = 8) -> str:
    return ", ".join(values) if len(values) <= most else f"{', '.join(values[:most])} and {len(values) - most} more"


def _counted(rows: Iterable[_Row], name: str) -> str:
    found = Counter(text(row[name]) for row in rows if not is_null(row[name]))
    return ", ".join(f"{value} {count}" for value, count in found.items())


def _of(rows: Iterable[_Row], name: str, unit: str, digits: int = 2) -> str:
    """From the least to the most of a column, with its unit."""
    values = [round(float(row[name]), digits) for row in rows if not is_null(row[name])]
    return f"{_range(values)} {unit}".strip() if values else ""


def _range(values: Sequence[float]) -> str:
    least, most = (text(end(values)) or "0" for end in (min, max))
    return least if least == most else f"{least} to {most}"


def measured_table(cases: Cases, intervals: Mapping[str, Interval], systems: Mapping[str, str]) -> Table:
    """Each case that ran: the median over its replicates with the interval, and how its samples scattered."""
    columns = [
        Column("On"), Column("Case"), Column("Time", "ms", numeric=True), Column("99 % interval", "ms", numeric=True),
        Column("Replicates", numeric=True), Column("Samples", numeric=True),
        Column("IQR of samples, worst", "%", numeric=True), Column("p99, worst", "ms", numeric=True),
        Column("Energy", "J/token", numeric=True), Column("Flags"),
    ]  # fmt: skip
    every = {row["attempt_id"]: row for row in cases.all_records.to_dict("records")}
    rows = []
    for row in cases.records.to_dict("records"):
        if row["attempt_id"] in cases.behind and row["provenance"] in _RAN:
            mine = [every[one] for one in cases.behind[row["attempt_id"]]]
            rows.append(_measured_cells(row, mine, intervals.get(row["attempt_id"]), systems))
    return without_empty(table("Measured cases", columns, rows, _MEDIANS))


_MEDIANS = "Time is the median over replicates of the median sample of each; the interval is over replicates."


def _measured_cells(
    row: _Row, mine: Sequence[_Row], interval: Interval | None, systems: Mapping[str, str]
) -> list[str]:
    def worst(name: str) -> str:
        values = [float(one[name]) for one in mine if not is_null(one[name])]
        return significant(max(values), 3) if values else ""

    joules = [float(one["energy_j_per_token"]) for one in mine if not is_null(one["energy_j_per_token"])]
    return [
        systems.get(row["system"], row["system"]),
        place_text(row),
        number(row[time_column(row["phase"])]),
        interval.text if interval else replicates_text(len(mine)),
        str(len(mine)),
        str(sum(int(one["samples"]) for one in mine if not is_null(one["samples"]))),
        worst("sample_iqr_pct"),
        worst("sample_p99_ms"),
        significant(sum(joules) / len(joules), 3) if joules else "",
        ", ".join(row["flags"]),
    ]


def failures_table(records: pd.DataFrame, systems: Mapping[str, str]) -> Table:
    """Rows that ran, or should have, and have no number: class, reason, log and what to do."""
    columns = [
        Column("Class"), Column("Study"), Column("On"), Column("Case"), Column("Replicate", numeric=True),
        Column("Reason"), Column("Log"), Column("Advice"), Column("Attempt"),
    ]  # fmt: skip
    rows: list[list[str | Cell]] = [
        [
            Cell(row["status"], f"status-{row['status']}"),
            row["study"],
            systems.get(row["system"], row["system"]),
            place_text(row),
            text(row["replicate"]),
            text(row["reason"]) or STATUSES[row["status"]],
            text(row["log"]),
            str(how_of(row).get("advice") or ADVICE[row["status"]]),
            row["attempt_id"],
        ]
        for row in ran(records).to_dict("records")
        if row["status"] in ADVICE
    ]
    return without_empty(table("Failures", columns, rows, "Each is one attempt; logs lie in the run folder."))


def _shortened(reason: Any, most: int = 240) -> str:
    said = text(reason)
    return said if len(said) <= most else f"{said[:most]}…"


def summary_text(records: pd.DataFrame) -> str:
    """`ran on NVIDIA H200: 3 replicates, 24 of 26 rows, 1,200 samples; 1 crash, 1 oom; 2 noisy`; or nothing."""
    rows = ran(records).to_dict("records")
    if not rows:
        return ""
    ok = [row for row in rows if row["status"] == "ok"]
    replicates = len({row["replicate"] for row in ok if not is_null(row["replicate"])})
    samples = sum(int(row["samples"]) for row in ok if not is_null(row["samples"]))
    failed = Counter(row["status"] for row in rows if row["status"] in ADVICE)
    flags = Counter(flag for row in ok for flag in row["flags"])
    if not ok:
        first = next((row for row in rows if row["status"] not in ADVICE), rows[0])
        return f"nothing was timed: none of {len(rows):,} rows; first {first['status']}: {_shortened(first['reason'])}"
    on = _distinct(rows, "device") or _distinct(rows, "system")
    parts = [f"{replicates_text(replicates)}, {len(ok):,} of {len(rows):,} rows, {samples:,} samples"]
    parts += [", ".join(f"{count} {name}" for name, count in found.items()) for found in (failed, flags) if found]
    return f"ran on {on}: {'; '.join(parts)}"
