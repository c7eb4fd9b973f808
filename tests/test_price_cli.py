"""`trtllm-harness price` and `run` for many GPUs, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine

from harness.pricing.helix import OVERLAP


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


DECODE = [f"--set=workload.{text}" for text in ("phase=decode", "batch=32", "kvsl=8192")]


def ask(run: CommandLine, *arguments: str, variant: str = "dense-70b") -> Any:
    return run("price", "case", "--gpu", "b200_sxm", "--on", "roofline", "--variant", variant, *DECODE, *arguments)


def test_price_all_reduce(run: CommandLine) -> None:
    asked = ["price", "all-reduce", "--gpu", "b200_sxm", "--on", "roofline", "--elements", 524_288, "--gpus", 8]
    data = run(*asked, "--json").json
    assert data["link_bytes"] == 2 * 2 * 524_288 * 7 / 8
    assert data["value_ms"] == pytest.approx(data["link_bytes"] / 900e9 * 1000 + 0.00477)
    assert data["link_gb_per_s"] == pytest.approx(data["link_bytes"] / data["value_ms"] / 1e6)
    assert "GB/s to other GPUs" in run(*asked).out


def test_price_case_over_many_gpus(run: CommandLine) -> None:
    data = ask(run, "--set=parallelism.tp=4", "--set=parallelism.pp=2", "--json").json
    assert (data["status"], data["world_size"], data["parallelism"]) == ("ok", 8, "tp 4 · pp 2")
    assert sum(data["stage_ms"]) == pytest.approx(data["value_ms"])
    text = ask(run, "--set=parallelism.tp=4", "--set=parallelism.pp=2").out
    assert text.startswith("dense-70b, tp 4 · pp 2, decode b 32 KVSL 8192, b200_sxm, model level")
    assert "times the mean" in text


def test_price_case_weighs_the_model(run: CommandLine) -> None:
    large = ["--set=workload.batch=4096"]
    rejected = ask(run, *large, "--json").json
    assert (rejected["status"], rejected["value_ms"]) == ("rejected", None)
    assert rejected["reason"].startswith("memory: ")
    assert ask(run, *large, "--ignore-memory", "--json").json["status"] == "ok"
    assert ask(run, *large, "--level", "layer", "--json").json["status"] == "ok"


def test_overlap_is_said_where_it_counts(run: CommandLine) -> None:
    split = ["--set=parallelism.tp=4", "--set=parallelism.cp=2"]
    plain, hidden = ask(run, *split, "--json").json, ask(run, *split, "--helix-overlap", "--json").json
    assert hidden["value_ms"] < plain["value_ms"]
    assert (plain["assumptions"], hidden["assumptions"]) == ([], [OVERLAP])
    assert f"assumed   {OVERLAP}" in ask(run, *split, "--helix-overlap").out
    assert ask(run, "--set=parallelism.tp=8", "--helix-overlap", "--json").json["assumptions"] == []


def test_a_run_records_its_options(run: CommandLine, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = ["-a", "G=8", "--set", "parallelism.tp=4", "--set", "parallelism.cp=2", "--gpu", "b200_sxm"]
    outcome = run(
        "run", "a1d-group-size-decode", *arguments, "--on", "roofline", "--helix-overlap", "--no-report", "--out", out
    )
    assert outcome.code == 0
    assert OVERLAP in outcome.err
    environment = json.loads((out / "environment.json").read_text())
    assert environment["options"]["helix_overlap"] is True
    assert environment["assumptions"] == [OVERLAP]
    row = json.loads((out / "journal.jsonl").read_text().splitlines()[0])["record"]
    assert row["answered_with"].endswith("helix-overlap")
