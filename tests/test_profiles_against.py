"""A profile beside the price of an attempt, and the command that shows both."""

from __future__ import annotations

import csv
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import CommandLine
from nsys_exports import ALL_REDUCE, FMHA, GEMM, MYSTERY, Export, two_steps
from shapes import LLAMA_8B

from harness.errors import UsageError
from harness.hardware import load_system
from harness.pricing.compose import price_cases
from harness.pricing.roofline import RooflinePricer
from harness.profiles import compare, find_against, make_profile, read_trace
from harness.profiles.windows import Choice
from harness.results.build import Answerer, priced_attempt
from harness.results.store import Attempt, open_run
from harness.spec.base import parse
from harness.spec.expand import expand
from harness.spec.study import Study, Suite
from harness.spec.variant import Variant

STUDY = parse(
    Study,
    {
        "name": "s",
        "title": "t",
        "variant": LLAMA_8B,
        "workloads": {"decode": {"batch": 8, "kvsl": 4096}},
        "parallelism": {"tp": 2},
        "systems": ["b200_sxm"],
    },
    "s",
)
SUITE = Suite(name="s", title="t", studies=("s",))
#: µs of each op in the run below, all executions of a step; an op that is not here has 0.
TIMES_US = {
    "layer.attn.qkv_proj": 0.1, "layer.attn.attention": 0.5, "layer.attn.o_proj": 0.1, "layer.attn.all_reduce": 0.2,
    "layer.ffn.gate_up": 0.2, "layer.ffn.activation": 0.05, "layer.ffn.down": 0.1, "lm_head": 0.1,
}  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a price of one case, and a measured row of it whose number is 000000 too."""
    [planned] = expand(STUDY, Variant(**LLAMA_8B))
    pricer = RooflinePricer(load_system("b200_sxm"))
    [price] = price_cases([planned.case], "model", pricer, pricer)
    priced = priced_attempt(planned, price, Answerer("roofline", "roofline 1"), "R.000001", "2026-03-01T00:00:00+00:00")
    ops = tuple(replace(op, total_us=TIMES_US.get(op.op, 0.0)) for op in priced.ops)
    measured = replace(
        priced.record,
        attempt_id="R.000000.r0",
        provenance="measured",
        answered_by="trtllm",
        step_ms=0.0015,
        replicate=0,
    )
    with open_run(tmp_path / "run", SUITE, [STUDY]) as folder:
        folder.append([Attempt(measured), Attempt(priced.record, ops)])
    return tmp_path / "run"


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


def test_a_profile_beside_a_price(run: Path, tmp_path: Path) -> None:
    profile = make_profile(read_trace(two_steps(tmp_path / "a.sqlite")))
    found = compare(profile, find_against(f"{run}:000001"))
    rows = {one.bucket: (one.measured_us, one.composed_us) for one in found.buckets}
    # Two steps: half of 550, 800, 600, 150 and 200 ns.
    assert rows == {
        "communication": (0.275, pytest.approx(0.2)),
        "attention": (0.4, pytest.approx(0.5)),
        "gemm": (0.3, pytest.approx(0.6)),
        "norm": (0.0, pytest.approx(0.05)),
        "elementwise": (0.0, 0.0),
        "copy": (0.075, None),
        "unknown": (0.1, None),
    }
    errors = {one.bucket: one.error_pct for one in found.buckets}
    assert errors["attention"] == pytest.approx(25.0)
    assert errors["gemm"] == pytest.approx(100.0)
    assert errors["copy"] is errors["norm"] is None
    assert (found.elapsed_us, found.composed_us, found.measured_us) == (1.3, pytest.approx(1.35), None)
    assert found.left_out == ()


def test_a_measured_attempt_stands_beside_the_price_of_its_case(run: Path, tmp_path: Path) -> None:
    profile = make_profile(read_trace(two_steps(tmp_path / "a.sqlite")))
    found = compare(profile, find_against(f"{run}:000000.r0"))
    assert (found.attempt_id, found.priced_attempt_id, found.measured_us) == ("R.000000.r0", "R.000001", 1.5)


def test_without_iterations_only_shares_are_compared(run: Path, tmp_path: Path) -> None:
    profile = make_profile(
        read_trace(Export(tmp_path / "a.sqlite").kernel(0, 30, FMHA, 7).kernel(30, 40, GEMM, 7).path)
    )
    found = compare(profile, find_against(f"{run}:1"))
    shares = {one.bucket: (one.measured_us, one.measured_share_pct) for one in found.buckets}
    assert shares["attention"] == (None, 75.0)
    assert found.elapsed_us is None
    assert found.why_shares_only is not None
    assert "--iterations N" in found.why_shares_only


def test_a_profile_of_some_layers_is_compared_by_shares(run: Path, tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite").range(0, 1, 'layer_wise_benchmarks args {"layer_indices": [5]}')
    export.range(5, 50, "b=8 s=1 past=4096 NP2").call(6, "cudaLaunchKernel", 1).kernel(10, 20, FMHA, 7, 1)
    found = compare(make_profile(read_trace(export.path), Choice()), find_against(f"{run}:1"))
    assert found.why_shares_only == "the profile is of 1 of 32 layers"


def test_the_slowest_gpu_is_compared(run: Path, tmp_path: Path) -> None:
    export = Export(tmp_path / "a.sqlite").kernel(0, 10, FMHA, 7).kernel(0, 90, FMHA, 7, gpu=1)
    found = compare(make_profile(read_trace(export.path), Choice(iterations=1)), find_against(f"{run}:1"))
    assert found.buckets[1].measured_us == 0.09


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("000001", "takes RUN:ATTEMPT"),
        ("{run}:", "takes RUN:ATTEMPT"),
        ("{run}:7", "has no attempt '7'; it has R.000000.r0 to R.000001"),
        ("{run}/nowhere:1", "holds no run"),
    ],
)
def test_what_is_no_attempt_is_told(run: Path, named: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_against(named.format(run=run))


def test_a_measured_attempt_without_a_price_is_told_how_to_get_one(run: Path) -> None:
    journal = run / "journal.jsonl"
    journal.write_text(journal.read_text().splitlines()[0] + "\n")
    with pytest.raises(UsageError, match=r"is measured, and .* has no price of its case; .*run STUDY --on tables"):
        find_against(f"{run}:0")


def test_the_command_says_which_time_is_which(command: CommandLine, run: Path, tmp_path: Path) -> None:
    path = two_steps(tmp_path / "a.sqlite")
    outcome = command("profile", "import", path, "--case", f"{run}:000001")
    assert outcome.code == 0
    for text in (
        "GPU 0: elapsed 2.6 µs, busy 75.0 % of it, 2 gaps, the largest 0.6 µs, 45.5 % of communication hidden",
        "Cumulative: durations added, so that what ran at the same time counts twice. It is not elapsed time.",
        "Unknown kernels. No rule of kernel_buckets.yaml names them; they are listed, not guessed.",
        MYSTERY,
        "Measured against composed.",
        "8.7 % of measured time is in unknown kernels: by so much other rows may be too small",
    ):
        assert text in outcome.out


def test_the_command_as_json(command: CommandLine, run: Path, tmp_path: Path) -> None:
    path = two_steps(tmp_path / "a.sqlite")
    [found] = command("profile", "import", path, "--json", "--case", f"{run}:1").json["profiles"]
    assert (found["cumulative_ns"], found["status"], found["unknown"]) == (2300, "ok", [MYSTERY])
    assert found["timelines"][0]["exposed_ns"] == 250
    assert found["against"]["buckets"][1]["error_pct"] == pytest.approx(25.0)


def test_files_of_the_command(command: CommandLine, tmp_path: Path) -> None:
    path = two_steps(tmp_path / "a.sqlite")
    assert command("profile", "import", path, "--out", tmp_path / "all").code == 0
    assert json.loads((tmp_path / "all" / "profile.json").read_text())["profiles"][0]["cumulative_ns"] == 2300
    rows = list(csv.DictReader((tmp_path / "all" / "kernels.csv").read_text().splitlines()))
    assert [(row["name"], row["bucket"], row["cumulative_ns"]) for row in rows] == [
        (FMHA, "attention", "800"),
        (GEMM, "gemm", "600"),
        (ALL_REDUCE, "communication", "550"),
        (MYSTERY, "unknown", "200"),
        ("CUDA memcpy Host-to-Device", "copy", "100"),
        ("CUDA memset", "copy", "50"),
    ]
    assert "### Unknown kernels" in (tmp_path / "all" / "profile.md").read_text()
    command("profile", "import", path, "--out", tmp_path / "one.csv")
    assert (tmp_path / "one.csv").read_text() == (tmp_path / "all" / "kernels.csv").read_text()


def test_an_unreadable_file_does_not_hide_the_others(command: CommandLine, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("Total Time,Instances,Name\n1,1,k\n")
    outcome = command("profile", "import", bad, two_steps(tmp_path / "a.sqlite"))
    assert outcome.code == 3
    assert "bad.csv:1: the title 'Total Time' has no unit" in outcome.err
    assert "elapsed 2.6 µs" in outcome.out


def test_an_empty_capture_is_no_failure(command: CommandLine, tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    outcome = command("profile", "import", empty)
    assert outcome.code == 0
    assert "nothing ran on a GPU in this capture" in outcome.out


def test_an_export_is_read_and_not_written(tmp_path: Path) -> None:
    path = two_steps(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA journal_mode=DELETE")
    before = path.read_bytes()
    path.chmod(0o444)
    make_profile(read_trace(path))
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["a.sqlite"]
