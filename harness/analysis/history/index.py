"""The cache of a history: what each source held, so that one more night costs one night.

One Parquet file for each run folder or table, named by its path, with the size and time of the files that it was read
from. Whatever does not fit them is read again; nothing in the cache is ever the only copy of anything.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness import files
from harness.analysis.history.observations import Source, observe
from harness.analysis.inputs import Options, read_results
from harness.analysis.inputs.columns import COLUMNS_FILE
from harness.errors import EnvironmentUnfit
from harness.results.store import ENVIRONMENT_FILE, JOURNAL_FILE, RECORDS_FILE
from harness.version import __version__

#: Raised when the columns of `observations.COLUMNS`, or what they mean, change.
_VERSION = 2
_FACTS, _STAMP = b"history_source", b"history_stamp"


@dataclass(frozen=True)
class Index:
    """Where what was read is kept; nowhere where `folder` is None."""

    folder: Path | None
    options: Options = field(default_factory=Options)

    def read(self, path: Path, name: str, night: int | None = None) -> Source:
        """The observations of a run folder or a table, from the cache where that is current.

        Raises as `read_results` does.
        """
        stamp = self._stamp(path, night)
        place = self._place(path)
        kept = _kept(place, stamp) if place else None
        if kept is not None:
            return replace(kept, name=name)
        source = observe(read_results(path, self.options), name, night)
        if place:
            _keep(place, stamp, source)
        return source

    def _place(self, path: Path) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / f"{hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:24]}.parquet"

    def _stamp(self, path: Path, night: int | None) -> str:
        """What a cached source has to be of: the files as they are, and how they are read."""
        read_from = [path / one for one in (JOURNAL_FILE, RECORDS_FILE, ENVIRONMENT_FILE)] if path.is_dir() else [path]
        state = [_state(one) for one in (*read_from, COLUMNS_FILE)]
        options = {"environment": list(self.options.environment), "metrics": dict(self.options.metrics)}
        return json.dumps([_VERSION, __version__, state, options, night], sort_keys=True)


def _state(path: Path) -> list[int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns]


def _kept(place: Path, stamp: str) -> Source | None:
    """The source in a cache file; None where it is absent, damaged or not current."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(place, memory_map=False) as file:
            metadata: Mapping[bytes, bytes] = file.schema_arrow.metadata or {}
            if metadata.get(_STAMP, b"").decode() != stamp:
                return None
            return Source.from_facts(json.loads(metadata[_FACTS]), file.read().replace_schema_metadata(None))
    except (OSError, ValueError, LookupError, TypeError, pa.ArrowException):
        return None


def _keep(place: Path, stamp: str, source: Source) -> None:
    """Write the cache file; a folder that cannot be written is read without a cache."""
    import pyarrow.parquet as pq

    metadata = {_STAMP: stamp.encode(), _FACTS: json.dumps(source.facts()).encode()}
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with files.atomic_writer(place) as file:
            pq.write_table(source.table.replace_schema_metadata(metadata), file)
    except (OSError, EnvironmentUnfit):
        return
