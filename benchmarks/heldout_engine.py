"""The package's own engine over attention tables from which rows were removed.

It reads its tables from a folder. Here that is a temporary one with this system's two attention tables, less the
removed rows, beside links to the package's system files; no other table is asked. Every view has a folder of its own,
because the package keeps what it has read by path. `shared_layer=False`, as in `harness.pricing.tables.engine`: else
rows of other releases could stand in for the removed ones.
"""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from heldout_rows import Cell

from harness.cost.ops import DecodeAttention, PrefillAttention
from harness.pricing.tables.availability import systems_root, table_path

_DECODE, _PREFILL = "generation_attention", "context_attention"
_HEADS = ("num_heads", "num_key_value_heads", "head_dim", "batch_size")


class HeldOutEngine:
    """The engine over one folder of tables."""

    def __init__(self, system: str, release: str, folder: Path) -> None:
        logger = logging.getLogger("aiconfigurator_core")
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from aiconfigurator_core.sdk import common, operations, perf_database
            from aiconfigurator_core.sdk.engine import EngineHandle, build_ops_json

            self._kv, self._fmha = common.KVCacheQuantMode.fp8, common.FMHAQuantMode.fp8
            self._operations, self._build = operations, build_ops_json
            database = perf_database.get_database_view(
                system,
                "trtllm",
                release,
                systems_paths=[str(folder)],
                database_mode="SILICON",
                shared_layer=False,
                strict_provenance=False,
            )
            if database is None:
                raise RuntimeError(f"the engine does not open the {release} tables of {system} in {folder}")
            self._handle = EngineHandle.for_database(database, systems_path=str(folder))

    def times_ms(self, kernels: Sequence[DecodeAttention | PrefillAttention]) -> list[float | None]:
        """Time of each kernel, in order; None where the engine raises."""
        return [self._time_ms(kernel) for kernel in kernels]

    def _time_ms(self, kernel: DecodeAttention | PrefillAttention) -> float | None:
        heads = (kernel.q_heads, kernel.kv_heads)
        if isinstance(kernel, DecodeAttention):
            operation = self._operations.GenerationAttention("a", 1, *heads, self._kv, head_size=kernel.head_dim)
            length = kernel.kvsl
        else:
            operation = self._operations.ContextAttention(
                "a", 1, *heads, self._kv, self._fmha, head_size=kernel.head_dim
            )
            length = kernel.chunk
        try:
            replies = self._handle.evaluate_ops_json(
                self._build([operation]),
                is_context=isinstance(kernel, PrefillAttention),
                batch_size=kernel.batch,
                s=length,
            )
        except Exception:  # noqa: BLE001  # whatever the package raises
            return None
        return float(replies[0][1])


@contextmanager
def engine_without(
    system: str, release: str, removed: Mapping[str, Collection[Cell]], parent: Path | None = None
) -> Iterator[HeldOutEngine]:
    """The engine over tables without the FP8, full-attention rows of `removed`, by table; the folder goes at the end.

    Raises ValueError where a cell is not exactly one row.
    """
    with TemporaryDirectory(prefix="heldout-", dir=parent) as name:
        folder = Path(name)
        write_tables(folder, system, release, removed)
        yield HeldOutEngine(system, release, folder)


def write_tables(folder: Path, system: str, release: str, removed: Mapping[str, Collection[Cell]]) -> list[Path]:
    """Write what the engine needs to `folder`, without the rows of `removed`; returns the Parquet files."""
    from pyarrow import parquet

    for path in systems_root().glob("*.yaml"):
        (folder / path.name).symlink_to(path)
    written = []
    for table in (_DECODE, _PREFILL):
        source = table_path(system, release, "attention", table)
        target = folder / source.relative_to(systems_root())
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source.parent / "collection_meta.yaml", target.parent)
        # Read as one file: the folders above it would be taken for partitions.
        rows = parquet.ParquetFile(source).read()
        parquet.write_table(_without(rows, table, frozenset(removed.get(table, ()))), target)
        written.append(target)
    return written


def _without(rows: Any, table: str, removed: frozenset[Cell]) -> Any:
    import numpy as np
    import pyarrow as pa

    asked = _column(rows, "window_size") == 0
    for name in ("kv_cache_dtype",) if table == _DECODE else ("kv_cache_dtype", "attn_dtype"):
        asked &= _column(rows, name) == "fp8"
    length = _column(rows, "isl") + (_column(rows, "step") if table == _DECODE else 0)
    at = np.flatnonzero(asked)
    cells = zip(*(column[at].tolist() for column in (*(_column(rows, name) for name in _HEADS), length)), strict=True)
    gone = at[[cell in removed for cell in cells]]
    if len(gone) != len(removed):
        raise ValueError(f"{len(removed)} rows to remove from {table}, {len(gone)} found")
    shown = np.ones(len(asked), bool)
    shown[gone] = False
    return rows.filter(pa.array(shown))


def _column(rows: Any, name: str) -> Any:
    return rows[name].to_numpy()
