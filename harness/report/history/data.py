"""A history as data: JSON for scripts, CSV for spreadsheets."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from typing import Any

from harness.analysis.history import History, Judged, night_text

_CSV = (
    "verdict", "noisy", "series", "metric", "unit", "direction", "provenance", "level", "own_level", "now",
    "change_pct", "noise_pct", "visible_pct", "nights", "last_night", "last_value", "days_without", "commits", "text",
)  # fmt: skip


def history_data(history: History) -> dict[str, Any]:
    """The history as plain data. Values are in the unit of their series, changes in %."""
    return {
        "as_of": night_text(history.as_of),
        "policy": history.policy.to_data(),
        "baseline": history.baseline,
        "counts": asdict(history.counts),
        "verdicts": history.tally,
        "environment_changes": [
            {
                "night": night_text(note.day),
                "causes": [{"what": what, "from": old, "to": new} for what, old, new in note.causes],
                "places": list(note.places),
                "moved": list(note.moved),
                "still": note.still,
                "elsewhere": note.elsewhere,
                "text": note.text,
            }
            for note in history.notes
        ],
        "series": [series_data(one) for one in history.judged],
        "rejected": list(history.rejected),
        "unreadable": list(history.damage),
        "remarks": list(history.remarks),
    }


def series_data(one: Judged) -> dict[str, Any]:
    """One series and its verdict."""
    series, judgement = one.series, one.judgement
    change = judgement.change
    return {
        "series": series.label,
        "metric": series.metric,
        "unit": series.unit,
        "direction": series.direction,
        "provenance": series.provenance,
        "identity": dict(series.identity),
        "verdict": judgement.verdict,
        "noisy": judgement.noisy,
        "text": judgement.text,
        "level": judgement.level,
        "level_since": None if judgement.level_day is None else night_text(judgement.level_day),
        "own_level": judgement.own_level,
        "baseline": one.pin.name if one.pin else None,
        "now": judgement.current,
        "change_pct": judgement.percent,
        "noise_pct": judgement.noise_pct,
        "visible_pct": judgement.visible_pct,
        "nights": judgement.nights,
        "last_night": None if judgement.last_day is None else night_text(judgement.last_day),
        "last_value": judgement.last_value,
        "days_without": judgement.days_without,
        "failed_since": [night_text(day) for day in judgement.failed_since],
        "change": change.to_data() if change else None,
        "changes": [one.to_data() for one in judgement.changes],
        "transients": [one.to_data() for one in judgement.transients],
    }


def history_csv(history: History) -> str:
    """One line for each series."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _CSV, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for one in history.judged:
        change = one.judgement.change
        writer.writerow({**series_data(one), "commits": change.commits if change else ""})
    return out.getvalue()
