"""Find the sources of a history: run folders below a root, and tables of runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.analysis.history.index import Index
from harness.analysis.history.nights import parse_night
from harness.analysis.history.observations import Source
from harness.errors import HarnessError, UnreadableInput, UsageError
from harness.results.store import JOURNAL_FILE, is_run

#: Name of the cache in a root of run folders.
CACHE_FOLDER = ".history-cache"

_TABLES = frozenset({".csv", ".parquet"})


@dataclass(frozen=True)
class Found:
    """What was read of the paths that a user named."""

    sources: tuple[Source, ...]
    damage: tuple[str, ...]
    """Sources that could not be read, each with the reason."""
    remarks: tuple[str, ...]


def read_sources(paths: Sequence[Path], index: Index, nights: Mapping[str, int] | None = None) -> Found:
    """Read every run folder and table of runs among and below `paths`.

    `nights` are days to which all rows of a source count, by its name; the name `""` is the only source there is.
    What cannot be read is named and the others go on. Raises UsageError where nothing is found, or where a name in
    `nights` is of no source.
    """
    places = _places(paths)
    if not places:
        raise UsageError(f"{', '.join(map(str, paths))}: holds no run folder and no CSV or Parquet table of runs")
    names = _names(list(places))
    wanted = _nights_of(names, nights or {})
    sources, damage, remarks = [], [], []
    for place, was_named in places.items():
        try:
            sources.append(index.read(place, names[place], wanted.get(place)))
        except UnreadableInput as error:
            damage.append(str(error))
        except HarnessError as error:
            if was_named:
                raise
            remarks.append(f"left out: {error}")
    return Found(tuple(sources), tuple(damage), tuple(remarks))


def _places(paths: Sequence[Path]) -> dict[Path, bool]:
    """Paths of sources in order, and whether the user named each itself."""
    found: dict[Path, bool] = {}
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
        if path.is_file() or is_run(path):
            found[path] = True
            continue
        for place in _below(path):
            found.setdefault(place, False)
    return found


def _below(root: Path) -> list[Path]:
    """Run folders below a folder, and tables beside them; what is in a run folder is the run's."""
    found = []
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        if here != root and (JOURNAL_FILE in names or is_run(here)):
            found.append(here)
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [here / name for name in names if Path(name).suffix.lower() in _TABLES and not name.startswith(".")]
    return sorted(found)


def _names(places: Sequence[Path]) -> dict[Path, str]:
    """The last part of a path, or as much of it as makes it the only one of that name."""
    names = {}
    for place in places:
        parts = _parts(place)
        same = [_parts(other) for other in places if other != place and other.name == place.name]
        depth = 1
        while depth < len(parts) and any(other[-depth:] == parts[-depth:] for other in same):
            depth += 1
        names[place] = "/".join(parts[-depth:])
    return names


def _parts(place: Path) -> tuple[str, ...]:
    """The parts of a path without links; a link that leads round in a circle stays as it is."""
    return Path(os.path.realpath(place)).parts


def _nights_of(names: Mapping[Path, str], nights: Mapping[str, int]) -> dict[Path, int]:
    by_name = {name: place for place, name in names.items()}
    wanted = {}
    for name, day in nights.items():
        place = next(iter(names)) if not name and len(names) == 1 else by_name.get(name)
        if place is None:
            what = f"{name}: no run is called so" if name else "there are several runs; say which with RUN=DATE"
            raise UsageError(f"--night {what} ({', '.join(sorted(by_name)[:10])})")
        wanted[place] = day
    return wanted


def parse_nights(texts: Sequence[str]) -> dict[str, int]:
    """`2026-03-11`, or `RUN=2026-03-11` for one run of several."""
    nights = {}
    for text in texts:
        name, _, day = text.rpartition("=")
        nights[name.strip()] = parse_night(day, "--night")
    return nights
