"""Read the measured tables of one system into arrays.

Units: every table read here holds `latency` in milliseconds. (The package's `moe_a2a` table holds microseconds:
`exchange_rows` reads it.) One system, one TensorRT-LLM release: rows that the package would borrow from other releases or backends stay
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UnreadableInput
from harness.pricing.tables.availability import PACKAGE, table_path

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    Reals = NDArray[np.float64]
    Mask = NDArray[Any]

#: The tables' names of formats, in ours. Rows in other formats (int8, mxfp4 …) are not read.
FORMATS = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
#: The column `format` of the rows below is an index into this.
FORMAT_CODES: tuple[str, ...] = tuple(FORMATS.values())


class _Rows:
    """Columns of equal length."""

    def take(self, which: Mask) -> Any:
        """The same columns restricted to a mask or to indices; what a hold-out test builds its index from."""
        return type(self)(**{field.name: getattr(self, field.name)[which] for field in fields(self)})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class AttentionRows(_Rows):
    """Rows of prefill or decode attention; `length` is ISL or KVSL in tokens, formats are codes."""

    q_heads: Integers
    kv_heads: Integers
    head_dim: Integers
    window: Integers
    attn_format: Integers
    kv_format: Integers
    batch: Integers
    length: Integers
    time_ms: Reals


@dataclass(frozen=True, slots=True)
class GemmRows(_Rows):
    """Rows of (m, k) x (k, n)."""

    format: Integers
    m: Integers
    n: Integers
    k: Integers
    time_ms: Reals


@dataclass(frozen=True, slots=True)
class MoeRows(_Rows):
    """Rows of a gated expert FFN; `routing` and `lane` index `MoeNames`."""

    format: Integers
    hidden: Integers
    inter: Integers
    top_k: Integers
    experts: Integers
    tp: Integers
    ep: Integers
    routing: Integers
    lane: Integers
    tokens: Integers
    time_ms: Reals


class TableStore:
    """The tables of one system at one TensorRT-LLM release; each is read when first asked for."""

    def __init__(self, system_key: str, release: str) -> None:
        self.system_key = system_key
        self.release = release

    @cached_property
    def device_name(self) -> str:
        """The GPU as the rows name it."""
        names = self._read("attention", "generation_attention", ["device"])["device"].unique().to_pylist()
        return ", ".join(sorted(names))

    def prefill_attention(self) -> AttentionRows:
        """Rows of `context_attention`, none of which has cached tokens (`step` is 0 throughout)."""
        table = self._read("attention", "context_attention", [*_ATTENTION, "isl", "attn_dtype"])
        return self._attention(table, _integers(table, "isl"), _codes(table, "attn_dtype"))

    def decode_attention(self) -> AttentionRows:
        """Rows of `generation_attention`: KVSL is `isl` + `step`, the new token included."""
        table = self._read("attention", "generation_attention", [*_ATTENTION, "isl", "step", "attn_dtype"])
        return self._attention(table, _integers(table, "isl") + _integers(table, "step"), _codes(table, "attn_dtype"))

    def gemm(self) -> GemmRows:
        """Rows of `gemm`."""
        table = self._read("gemm", "gemm", ["gemm_dtype", "m", "n", "k", "latency"])
        sizes = {name: _integers(table, name) for name in ("m", "n", "k")}
        rows = GemmRows(format=_codes(table, "gemm_dtype"), **sizes, time_ms=_reals(table))
        known: GemmRows = rows.take(rows.format >= 0)
        return known

    def moe(self) -> tuple[MoeRows, tuple[str, ...], tuple[str, ...]]:
        """Rows of `moe`, and the names behind their `routing` and `lane` codes."""
        sizes = {
            "hidden": "hidden_size",
            "inter": "inter_size",
            "top_k": "topk",
            "experts": "num_experts",
            "tp": "moe_tp_size",
            "ep": "moe_ep_size",
            "tokens": "num_tokens",
        }
        named = ["moe_dtype", "distribution", "kernel_source"]
        table = self._read("moe", "moe", [*sizes.values(), *named, "latency"])
        routing, routings = _named(table, "distribution")
        lane, lanes = _named(table, "kernel_source")
        rows = MoeRows(
            format=_codes(table, "moe_dtype"),
            routing=routing,
            lane=lane,
            time_ms=_reals(table),
            **{ours: _integers(table, theirs) for ours, theirs in sizes.items()},
        )
        return rows.take(rows.format >= 0), routings, lanes

    def _attention(self, table: Any, length: Integers, attn_format: Integers) -> AttentionRows:
        rows = AttentionRows(
            q_heads=_integers(table, "num_heads"),
            kv_heads=_integers(table, "num_key_value_heads"),
            head_dim=_integers(table, "head_dim"),
            window=_integers(table, "window_size"),
            attn_format=attn_format,
            kv_format=_codes(table, "kv_cache_dtype"),
            batch=_integers(table, "batch_size"),
            length=length,
            time_ms=_reals(table),
        )
        known: AttentionRows = rows.take((rows.attn_format >= 0) & (rows.kv_format >= 0))
        return known

    def _read(self, family: str, table: str, columns: Sequence[str]) -> Any:
        return read_table(table_path(self.system_key, self.release, family, table), columns)


def read_table(path: Path, columns: Sequence[str]) -> Any:
    """Some columns of one table of the package; raises UnreadableInput where it is missing or damaged."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return parquet.read_table(path, columns=list(dict.fromkeys(columns)))
    except (OSError, pa.ArrowException) as error:
        place = "/".join(path.parts[-5:])
        raise UnreadableInput(
            f"{place} of {PACKAGE} is missing or damaged ({type(error).__name__}); install the package again"
        ) from error


def group(columns: Sequence[Integers], within: Sequence[Integers]) -> tuple[Integers, dict[tuple[int, ...], slice]]:
    """The order that sorts rows by `columns`, then `within`; and where in it each distinct value of `columns` lies."""
    import numpy as np

    order: Integers = np.lexsort((*reversed(within), *reversed(columns)))
    keys = np.stack([column[order] for column in columns])
    starts = np.flatnonzero(np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)))
    ends = np.append(starts[1:], len(order))
    spans = map(slice, starts.tolist(), ends.tolist())
    return order, dict(zip(map(tuple, keys[:, starts].T.tolist()), spans, strict=True))


_ATTENTION = (
    "num_heads",
    "num_key_value_heads",
    "head_dim",
    "window_size",
    "kv_cache_dtype",
    "batch_size",
    "latency",
)


def _integers(table: Any, column: str) -> Integers:
    values: Integers = table[column].to_numpy()
    return values


def _reals(table: Any) -> Reals:
    values: Reals = table["latency"].to_numpy()
    return values


def _named(table: Any, column: str) -> tuple[Integers, tuple[str, ...]]:
    """Codes of a text column and the text behind each code."""
    encoded = table[column].combine_chunks().dictionary_encode()
    codes: Integers = encoded.indices.to_numpy().astype("int64")
    return codes, tuple(encoded.dictionary.to_pylist())


def _codes(table: Any, column: str) -> Integers:
    """Codes of a format column as in FORMAT_CODES; -1 for formats that are not read."""
    import numpy as np

    codes, names = _named(table, column)
    ours = [FORMAT_CODES.index(FORMATS[name]) if name in FORMATS else -1 for name in names]
    mapped: Integers = np.array(ours, dtype=np.int64)[codes]
    return mapped
