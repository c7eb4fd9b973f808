"""Histories: series over nights, with a verdict for each. `docs/history.md` says how they are reached."""

from __future__ import annotations

from harness.analysis.history.find import CACHE_FOLDER, Found, parse_nights, read_sources
from harness.analysis.history.history import History, Judged, judge_history
from harness.analysis.history.index import Index
from harness.analysis.history.nights import night_text, parse_night
from harness.analysis.history.parts import Pin
from harness.analysis.history.policy import Policy, parse_policy
from harness.analysis.history.series import Series
from harness.analysis.history.verdicts import VERDICTS, Change, Judgement, Transient, Verdict

__all__ = [
    "CACHE_FOLDER",
    "VERDICTS",
    "Change",
    "Found",
    "History",
    "Index",
    "Judged",
    "Judgement",
    "Pin",
    "Policy",
    "Series",
    "Transient",
    "Verdict",
    "judge_history",
    "night_text",
    "parse_night",
    "parse_nights",
    "parse_policy",
    "read_sources",
]
