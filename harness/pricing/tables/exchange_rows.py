"""Read what many GPUs do together, exchanges and experts under EPLB, into curves over their size.

Which folders are read and what is assumed beyond them is `harness/data/exchange_tables.yaml`, dated, with evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from harness import files
from harness.pricing.tables.assumptions import Band, Bands
from harness.pricing.tables.availability import nccl_path, table_path
from harness.pricing.tables.slices import Curve
from harness.pricing.tables.store import read_table

_FILE = Path(__file__).resolve().parent.parent.parent / "data" / "exchange_tables.yaml"

#: Kernels that move tokens to experts and back, as the tables name them → in our words. Others are never asked for.
_NVLINK = {"NVLinkOneSided": "nvlink_one_sided", "NVLinkTwoSided": "nvlink_two_sided"}
_DEEPEP = {"trtllm_deepep_ht": "deepep_ht", "trtllm_deepep_ll": "deepep_ll"}

Curves = dict[int, Curve]  # by the number of GPUs


class ExpertRows(NamedTuple):
    """One curve of an expert exchange. `format` is the tables' name of what travels."""

    lane: str
    """`deepep_ht`, `deepep_ll`, `nvlink_one_sided`, `nvlink_two_sided`."""
    step: str
    """`dispatch` or `combine`."""
    format: str
    gpus: int
    hidden: int
    top_k: int
    experts: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Hidden size, top k and experts."""
        return self.hidden, self.top_k, self.experts


@dataclass(frozen=True, slots=True)
class ExchangeAssumptions:
    """What is assumed about exchanges: error bands by rule, limits of the low-latency kernels, a caveat on scaling."""

    bands: dict[str, Bands]
    low_latency_hidden: tuple[int, ...]
    low_latency_top_k: int
    more_gpus: str


def exchange_assumptions() -> ExchangeAssumptions:
    """The dated assumptions that come with the harness."""
    data = _data()
    bands = {name: tuple(Band(*pair) for pair in pairs) for name, pairs in data["error_bands_percent"].items()}
    limits = data["low_latency"]
    return ExchangeAssumptions(bands, tuple(limits["hidden"]), limits["max_top_k"], data["more_gpus"])


class ExchangeStore:
    """The measured exchanges of one system; a table is read when first asked for, and empty where there is none."""

    def __init__(self, system_key: str, release: str) -> None:
        self.system_key = system_key
        self.release = release

    @cached_property
    def all_reduce(self) -> Curves:
        """All-reduce over bf16 elements (`custom_allreduce`)."""
        table = read_table(
            table_path(self.system_key, self.release, "comm", "custom_allreduce"),
            ["num_gpus", "message_size", "latency"],
        )
        return _curves(_columns(table, "num_gpus", "message_size", "latency"), lambda gpus: gpus)

    @cached_property
    def _nccl(self) -> dict[tuple[int, str, str], Curve]:
        version = self._version("nccl")
        if not version:
            return {}
        names = ("num_gpus", "op_name", "nccl_dtype", "message_size", "latency")
        table = read_table(nccl_path(self.system_key, version), names)
        return _curves(_columns(table, *names), lambda *key: key)

    def nccl(self, operation: str, dtype: str) -> Curves:
        """NCCL's `all_gather`, `reduce_scatter` or `alltoall` over elements of `half` (2 bytes) or `int8`.

        A size is that of the whole: what all ranks hold together after an all-gather or before a reduce-scatter, and
        what one rank sends in an all-to-all, its own share included (NVIDIA/nccl-tests, doc/PERFORMANCE.md).
        """
        return {gpus: curve for (gpus, op, kind), curve in self._nccl.items() if (op, kind) == (operation, dtype)}

    @cached_property
    def experts(self) -> dict[ExpertRows, Curve]:
        """Dispatch and combine over the tokens of one rank."""
        return {**self._deepep(), **self._over_nvlink()}

    def _deepep(self) -> dict[ExpertRows, Curve]:
        release = self._version("moe_a2a")
        if not release:
            return {}
        names = (
            "comm_backend", "phase", "comm_dtype", "ep_size", "hidden_size", "topk", "num_experts", "num_tokens",
            "latency",
        )  # fmt: skip
        table = read_table(table_path(self.system_key, release, "comm", "moe_a2a"), [*names, "node_num"])
        one_node = table.filter(_equal(table, "node_num", 1))
        rows = _columns(one_node, *names)
        # Microseconds in this one table.
        in_ms = ((*row[:-1], row[-1] / 1000) for row in rows)
        return _curves(in_ms, lambda lane, *key: ExpertRows(_DEEPEP.get(lane, lane), *key))

    def _over_nvlink(self) -> dict[ExpertRows, Curve]:
        """The two-sided kernels prepare before they dispatch; both are one step here."""
        release = self._version("nvlink_a2a")
        if not release:
            return {}
        names = (
            "kernel_source", "op_name", "moe_dtype", "moe_ep_size", "hidden_size", "topk", "num_experts", "num_tokens",
            "latency",
        )  # fmt: skip
        table = read_table(table_path(self.system_key, release, "comm", "trtllm_alltoall"), names)
        steps = _curves(
            _columns(table, *names),
            lambda lane, step, *key: ExpertRows(_NVLINK.get(lane, lane), step.removeprefix("alltoall_"), *key),
        )
        both = {key: _after(steps, key) for key in steps if key.step in {"dispatch", "combine"}}
        return {key: curve for key, curve in both.items() if curve.lengths}

    @cached_property
    def wide_ep(self) -> dict[tuple[Any, ...], Curve]:
        """Experts under EPLB over the tokens of an EP group, by shape, format, slots, routing and ranks."""
        release = self._version("wideep_moe")
        if not release:
            return {}
        names = (
            "hidden_size", "inter_size", "topk", "num_experts", "moe_dtype", "num_slots", "distribution", "moe_ep_size",
            "num_tokens", "latency",
        )  # fmt: skip
        table = read_table(table_path(self.system_key, release, "moe", "wideep_moe"), [*names, "moe_tp_size"])
        whole = table.filter(_equal(table, "moe_tp_size", 1))
        return _curves(_columns(whole, *names), lambda *key: key)

    def _version(self, table: str) -> str:
        return str(_data()["releases"][table].get(self.system_key, ""))


def _after(steps: dict[ExpertRows, Curve], key: ExpertRows) -> Curve:
    """A curve with the time of preparing at the same token counts added, for a dispatch that has such rows."""
    curve, prepare = steps[key], steps.get(key._replace(step="prepare"))
    if key.step != "dispatch" or prepare is None:
        return curve
    before = dict(zip(*prepare, strict=True))
    both = [(size, time_ms + before[size]) for size, time_ms in zip(*curve, strict=True) if size in before]
    return Curve(tuple(size for size, _ in both), tuple(time_ms for _, time_ms in both))


def _curves(rows: Iterable[tuple[Any, ...]], key: Callable[..., Any]) -> dict[Any, Curve]:
    """Rows that end in (size, time), grouped by what stands before."""
    found: dict[Any, dict[int, float]] = {}
    for *head, size, time_ms in rows:
        found.setdefault(key(*head), {})[size] = time_ms
    return {name: Curve(*zip(*sorted(points.items()), strict=True)) for name, points in found.items()}


def _columns(table: Any, *names: str) -> Iterable[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in names), strict=True)


def _equal(table: Any, column: str, value: int) -> Any:
    import pyarrow.compute as pc

    return pc.equal(table[column], value)


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    data = files.read_yaml(_FILE)
    assert isinstance(data, dict)
    return data
