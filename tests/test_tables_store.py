"""Tables of the package that are not what they should be."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.errors import UnreadableInput
from harness.pricing.tables.store import read_table

GEMM = Path("systems/data/b200_sxm/gemm/trtllm/1.3.0rc20/gemm_perf.parquet")
ROWS = {"gemm_dtype": ["bfloat16"] * 3, "m": [1, 2, 4], "n": [128] * 3, "k": [128] * 3, "latency": [0.1, 0.2, 0.3]}


def written(folder: Path, **columns: list[object]) -> Path:
    path = folder / GEMM
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({**ROWS, **columns}), path)
    return path


def test_a_table_is_read_by_its_columns(tmp_path: Path) -> None:
    assert read_table(written(tmp_path), ["m", "latency"]).to_pydict() == {"m": [1, 2, 4], "latency": [0.1, 0.2, 0.3]}


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"latency": [0.1, float("nan"), 0.3]}, "1 of 3 rows have a latency that is no time above 0"),
        ({"latency": [0.1, float("inf"), -0.3]}, "2 of 3 rows have a latency that is no time above 0"),
        ({"latency": [0.0, 0.2, 0.3]}, "1 of 3 rows have a latency that is no time above 0"),
        ({"latency": [0.1, None, 0.3]}, "rows without latency"),
        ({"m": [1, None, 4]}, "rows without m"),
        ({name: pa.array([], pa.float64()) for name in ROWS}, "it has no rows"),
    ],
)
def test_rows_that_are_no_measurements_are_named(
    tmp_path: Path, columns: dict[str, list[object]], problem: str
) -> None:
    with pytest.raises(UnreadableInput) as error:
        read_table(written(tmp_path, **columns), ["m", "latency"])
    assert str(error.value) == (
        "b200_sxm/gemm/trtllm/1.3.0rc20/gemm_perf.parquet of aiconfigurator-core is damaged: "
        f"{problem}; install the package again"
    )


@pytest.mark.parametrize("change", ["missing", "truncated", "column", "text"])
def test_a_file_that_is_no_such_table_is_named(tmp_path: Path, change: str) -> None:
    path = written(tmp_path, **({"latency": ["fast"] * 3} if change == "text" else {}))
    if change == "missing":
        path.unlink()
    if change == "truncated":
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UnreadableInput, match=r"^b200_sxm/gemm/trtllm/1\.3\.0rc20/gemm_perf\.parquet of .* again$"):
        read_table(path, ["m", "latency", *(["gpu"] if change == "column" else [])])


@pytest.mark.tables
@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"latency": [0.1, 0.2, -1.0]}, "is damaged: 1 of 3 rows have a latency that is no time above 0"),
        ({"gemm_dtype": ["int8"] * 3}, "has no rows in a format that is read"),
    ],
)
def test_a_damaged_package_is_told_apart_from_a_question_without_answer(
    tmp_path: Path, columns: dict[str, list[object]], problem: str
) -> None:
    """A package like the installed one, but for one file."""
    package = tmp_path / "aiconfigurator_core"
    damaged = written(package, **columns)
    [installed] = find_spec("aiconfigurator_core").submodule_search_locations  # type: ignore[union-attr,misc]
    for folder in (package, *(package / parent for parent in GEMM.parents if parent != Path())):
        for entry in (Path(installed) / folder.relative_to(package)).iterdir():
            if not (folder / entry.name).exists():
                (folder / entry.name).symlink_to(entry)
    code = (
        "from harness.cost.ops import Gemm\n"
        "from harness.errors import UnreadableInput\n"
        "from harness.pricing.tables import TablesPricer\n"
        "try: TablesPricer('b200_sxm').price([Gemm(1, 128, 128, 'bf16')])\n"
        "except UnreadableInput as error: print(error)\n"
    )
    path = ":".join([str(tmp_path), *sys.path])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": path})
    assert damaged.is_file()
    assert problem in done.stdout, done.stderr
    assert done.stdout.endswith("install the package again\n")
    assert str(tmp_path) not in done.stdout
