"""Profiles as files: JSON, CSV of the kernels, Markdown, or all three in a folder."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness import files
from harness.profiles import Comparison, Profile
from harness.report.profile import render_profiles

Found = Sequence[tuple[Profile, Comparison | None]]

_COLUMNS = ("file", "name", "kind", "bucket", "count", "cumulative_ns", "share_pct", "min_ns", "max_ns")


def profiles_data(profiles: Found) -> dict[str, Any]:
    """Plain data of all profiles, one document."""
    return {
        "profiles": [
            {**profile.to_data(), "against": comparison.to_data() if comparison else None}
            for profile, comparison in profiles
        ]
    }


def render_kernels_csv(profiles: Found) -> str:
    """One row a kernel name and file, every one of them."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for profile, _ in profiles:
        for row in profile.kernels:
            writer.writerow([profile.file, *(getattr(row, name) for name in _COLUMNS[1:])])
    return text.getvalue()


def write_profiles(profiles: Found, out: Path) -> list[Path]:
    """Write a file by its suffix (.json, .csv, .md), or `profile.json`, `kernels.csv` and `profile.md` into a folder.

    Returns what was written. Raises EnvironmentUnfit or UsageError where it cannot be.
    """
    renders: dict[str, Callable[[], str]] = {
        ".json": lambda: json.dumps(profiles_data(profiles), indent=2, allow_nan=False) + "\n",
        ".csv": lambda: render_kernels_csv(profiles),
        ".md": lambda: render_profiles(profiles),
    }
    if out.suffix in renders and not out.is_dir():
        targets = {out: renders[out.suffix]}
    else:
        names = {"profile.json": ".json", "kernels.csv": ".csv", "profile.md": ".md"}
        targets = {out / name: renders[suffix] for name, suffix in names.items()}
    for path, render in targets.items():
        files.write_atomic(path, render())
    return list(targets)
