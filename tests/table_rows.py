"""Made-up attention rows, and the published rows as they lie in the package."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from harness.pricing.tables.slices import AttentionTable
from harness.pricing.tables.store import FORMAT_CODES, AttentionRows

#: (batch, length) → time in ms of one slice.
Cells = dict[tuple[int, int], float]


def attention_rows(cells: Cells, *, q=8, kv=1, dim=128, window=0, attn="bf16", kv_format="fp8") -> AttentionRows:
    """Rows of one slice."""
    batch, length = np.array(list(cells)).T

    def same(value):
        return np.full(len(cells), value)

    return AttentionRows(
        q_heads=same(q),
        kv_heads=same(kv),
        head_dim=same(dim),
        window=same(window),
        attn_format=same(FORMAT_CODES.index(attn)),
        kv_format=same(FORMAT_CODES.index(kv_format)),
        batch=batch,
        length=length,
        time_ms=np.array(list(cells.values())),
    )


def attention_table(cells: Cells, **slice_) -> AttentionTable:
    return AttentionTable(attention_rows(cells, **slice_))


@cache
def published(system: str, family: str, table: str, release: str = "1.3.0rc20") -> list[dict]:
    """The rows of a table, read with nothing of the harness."""
    root = Path(next(iter(find_spec("aiconfigurator_core").submodule_search_locations)))
    path = root / "systems" / "data" / system / family / "trtllm" / release / f"{table}_perf.parquet"
    return pq.read_table(path).to_pylist()


@cache
def published_nccl(system: str, version: str) -> list[dict]:
    """The rows of NCCL's collectives, read with nothing of the harness."""
    root = Path(next(iter(find_spec("aiconfigurator_core").submodule_search_locations)))
    path = root / "systems" / "data" / system / "comm" / "nccl" / version / "nccl_perf.parquet"
    return pq.read_table(path).to_pylist()
