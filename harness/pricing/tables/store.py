"""Read the measured tables of one system into arrays.

Units: every table read here holds `latency` in milliseconds. (`moe_a2a` holds microseconds: `exchange_rows` reads it.)
One system, one TensorRT-LLM release: rows that the package would borrow from other releases or backends stay out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

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
        return self._attention(table, _integers(table, "isl"), "context_attention")

    def decode_attention(self) -> AttentionRows:
        """Rows of `generation_attention`: KVSL is `isl` + `step`, the new token included."""
        table = self._read("attention", "generation_attention", [*_ATTENTION, "isl", "step", "attn_dtype"])
        return self._attention(table, _integers(table, "isl") + _integers(table, "step"), "generation_attention")

    def mla(self, phase: Literal["context", "generation"]) -> AttentionRows | None:
        """Rows of `context_mla` or `generation_mla`, arranged as those of attention; None where a GPU has none.

        In prefill each head has keys of 192 values of its own, in decode all share one latent of 576.
        """
        if not table_path(self.system_key, self.release, "mla", f"{phase}_mla").is_file():
            return None
        import numpy as np

        names = ("num_heads", "kv_cache_dtype", "mla_dtype", "batch_size", "isl", "step", "latency")
        table = self._read("mla", f"{phase}_mla", names)
        heads, length = _integers(table, "num_heads"), _integers(table, "isl")
        decodes = phase == "generation"
        rows = AttentionRows(
            q_heads=heads,
            kv_heads=np.ones_like(heads) if decodes else heads,
            head_dim=np.full_like(heads, 576 if decodes else 192),
            window=np.zeros_like(heads),
            attn_format=_codes(table, "mla_dtype"),
            kv_format=_codes(table, "kv_cache_dtype"),
            batch=_integers(table, "batch_size"),
            length=length + _integers(table, "step"),
            time_ms=_reals(table),
        )
        known: AttentionRows = _some(rows, (rows.attn_format >= 0) & (rows.kv_format >= 0), f"{phase}_mla")
        return known

    def mla_projections(self) -> list[tuple[str, str, int, int, float]]:
        """Rows of `mla_bmm`: kernel, format, heads, tokens and time in ms; empty where a GPU has none."""
        if not table_path(self.system_key, self.release, "mla_bmm", "mla_bmm").is_file():
            return []
        names = ("op_name", "bmm_dtype", "num_heads", "num_tokens", "latency")
        table = self._read("mla_bmm", "mla_bmm", names)
        return list(zip(*(table[name].to_pylist() for name in names), strict=True))

    def gemm(self) -> GemmRows:
        """Rows of `gemm`."""
        table = self._read("gemm", "gemm", ["gemm_dtype", "m", "n", "k", "latency"])
        sizes = {name: _integers(table, name) for name in ("m", "n", "k")}
        rows = GemmRows(format=_codes(table, "gemm_dtype"), **sizes, time_ms=_reals(table))
        known: GemmRows = _some(rows, rows.format >= 0, "gemm")
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
        return _some(rows, rows.format >= 0, "moe"), routings, lanes

    def _attention(self, table: Any, length: Integers, name: str) -> AttentionRows:
        rows = AttentionRows(
            q_heads=_integers(table, "num_heads"),
            kv_heads=_integers(table, "num_key_value_heads"),
            head_dim=_integers(table, "head_dim"),
            window=_integers(table, "window_size"),
            attn_format=_codes(table, "attn_dtype"),
            kv_format=_codes(table, "kv_cache_dtype"),
            batch=_integers(table, "batch_size"),
            length=length,
            time_ms=_reals(table),
        )
        known: AttentionRows = _some(rows, (rows.attn_format >= 0) & (rows.kv_format >= 0), name)
        return known

    def _read(self, family: str, table: str, columns: Sequence[str]) -> Any:
        return read_table(table_path(self.system_key, self.release, family, table), columns)


def read_table(path: Path, columns: Sequence[str]) -> Any:
    """Some columns of one table of the package.

    Raises UnreadableInput where it is missing or damaged, has no rows or rows with a gap, or a latency that is no time.
    """
    import pyarrow as pa
    from pyarrow import parquet

    place = f"{'/'.join(path.parts[-5:])} of {PACKAGE}"
    try:
        table = parquet.read_table(path, columns=list(dict.fromkeys(columns)))
        problem = _problem(table)
    except (OSError, pa.ArrowException) as error:
        raise UnreadableInput(
            f"{place} is missing or damaged ({type(error).__name__}); install the package again"
        ) from error
    if problem:
        raise UnreadableInput(f"{place} is damaged: {problem}; install the package again")
    return table


def _some(rows: Any, which: Mask, table: str) -> Any:
    """The rows of a mask; raises UnreadableInput where there are none."""
    if not which.any():
        raise UnreadableInput(f"{table} of {PACKAGE} has no rows in a format that is read; install the package again")
    return rows.take(which)


def _problem(table: Any) -> str:
    """What keeps the rows of a table from being measurements, or nothing."""
    import pyarrow.compute as pc

    if not table.num_rows:
        return "it has no rows"
    gaps = [name for name in table.column_names if table[name].null_count]
    if gaps:
        return f"rows without {', '.join(gaps)}"
    if "latency" not in table.column_names:
        return ""
    times = table["latency"]
    wrong = table.num_rows - pc.sum(pc.and_(pc.is_finite(times), pc.greater(times, 0))).as_py()
    return f"{wrong} of {table.num_rows} rows have a latency that is no time above 0" if wrong else ""


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
