"""What is assumed beyond the measured rows: `harness/data/tables_assumptions.yaml`, dated, with evidence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from harness import files

_FILE = Path(__file__).resolve().parent.parent.parent / "data" / "tables_assumptions.yaml"


class Band(NamedTuple):
    """Error of a rule on rows that it was not shown, in per cent of the row."""

    median_percent: float
    p90_percent: float

    def __str__(self) -> str:
        return f"median {self.median_percent:g} %, 90th percentile {self.p90_percent:g} %"


Bands = tuple[Band, ...]  # of one, two, … doublings beyond the last row


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What is assumed about the tables of one system.

    Bands are those of continuing a rule beyond the last rows, in the length or the batch of attention and the tokens
    (m) of a GEMM; dictionaries are by format. `gemm_first_row` is the error of the second n or k taken for the first.
    `suspect_decode` says why decode rows are doubtful, or is empty.
    """

    release: str
    l2_bytes: int
    l2_assumed: bool
    decode_length: dict[str, Bands]
    decode_batch: dict[str, Bands]
    prefill_length: Bands
    prefill_batch: Bands
    gemm_tokens: dict[str, Bands]
    gemm_first_row: dict[str, Band]
    suspect_decode: str
    gemm_columns: int


def load_assumptions(system_key: str) -> Assumptions:
    """Return what is assumed about a system that `table_versions` names."""
    data = _data()
    bands = data["error_bands_percent"]
    return Assumptions(
        release=data["releases"][system_key],
        l2_bytes=data["l2"][system_key]["bytes"],
        l2_assumed=data["l2"][system_key]["assumed"],
        decode_length=_by_format(bands["decode_length"][system_key]),
        decode_batch=_by_format(bands["decode_batch"][system_key]),
        prefill_length=_bands(bands["prefill_length"][system_key]),
        prefill_batch=_bands(bands["prefill_batch"][system_key]),
        gemm_tokens=_by_format(bands["gemm_tokens"][system_key]),
        gemm_first_row={name: Band(*pair) for name, pair in bands["gemm_first_row"][system_key].items()},
        suspect_decode=data["suspect_decode"].get(system_key, ""),
        gemm_columns=data["gemm"]["columns"],
    )


def table_versions() -> dict[str, str]:
    """The TensorRT-LLM release whose tables are read, per system."""
    return dict(_data()["releases"])


def _by_format(node: dict[str, list[list[float]]]) -> dict[str, Bands]:
    return {name: _bands(bands) for name, bands in node.items()}


def _bands(node: list[list[float]]) -> Bands:
    return tuple(Band(median, p90) for median, p90 in node)


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    data = files.read_yaml(_FILE)
    assert isinstance(data, dict)
    return data
