"""Running a plan: complete, resumable, durable."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shapes import LLAMA_8B

from harness.errors import Interrupted, UsageError
from harness.pricing import roofline
from harness.pricing.roofline import data_digest
from harness.results.store import read_attempts, read_run
from harness.runner import price_run
from harness.runner.plan import Plan, make_plan
from harness.runner.price_run import PriceOptions, Progress, run_priced
from harness.spec.base import parse
from harness.spec.study import Study, Suite
from harness.version import __version__

ROOFLINE = PriceOptions(on="roofline")


def plan(*, ignore_memory: bool = False, **changes: Any) -> Plan:
    data = {
        "name": "s",
        "title": "t",
        "variant": LLAMA_8B,
        "axes": {"G": [4, 8, 16]},
        "workloads": {"decode": {"batch": [1, 8], "kvsl": [1024, 4096]}, "prefill": {"batch": 1, "isl": 512}},
        "systems": ["b200_sxm", "h200_sxm"],
        "exclude": [{"when": {"G": 16, "batch": 8}, "reason": "left out"}],
        **changes,
    }
    studies = [parse(Study, data, "s")]
    return make_plan(Suite(name="s", title="t", studies=("s",)), studies, ignore_memory=ignore_memory)


def what_matters(run: Path) -> list[dict[str, Any]]:
    """Records without when and in which run they were made."""
    attempts, damage = read_attempts(run)
    assert not damage
    rows = []
    for attempt in attempts:
        line = json.loads(attempt.to_line())
        for name in ("attempt_id", "run_id", "started_at"):
            line["record"].pop(name)
        for op in line["ops"]:
            op.pop("attempt_id")
        rows.append(line)
    return rows


def interrupt_after(batches: int) -> Progress:
    """Progress that behaves as Ctrl-C does once so many batches are journalled."""
    calls: list[int] = []

    def progress(done: int) -> None:
        calls.append(done)
        if len(calls) > batches:
            raise KeyboardInterrupt

    return progress


def test_every_case_of_the_plan_becomes_a_record(tmp_path: Path) -> None:
    asked = plan()
    run_priced(asked, tmp_path / "run", ROOFLINE)
    run = read_run(tmp_path / "run")
    assert len(run.records) == len(asked.steps) == 30
    assert run.records["status"].value_counts().to_dict() == {"ok": 26, "skipped": 4}
    assert set(run.records["provenance"]) == {"modelled"}
    assert run.environment["finished_at"]
    assert run.environment["answered_by"]["b200_sxm"]["name"] == "roofline"


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 4), min_size=1, max_size=3))
def test_interrupted_and_resumed_is_the_same_as_uninterrupted(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, stops: list[int]
) -> None:
    monkeypatch.setattr(price_run, "BATCH", 8)
    whole, broken = (tmp_path_factory.mktemp("runs") / name for name in ("whole", "broken"))
    run_priced(plan(), whole, ROOFLINE)
    for index, batches in enumerate(stops):
        with suppress(Interrupted):
            run_priced(plan(), broken, ROOFLINE, resume=index > 0, progress=interrupt_after(batches))
    run_priced(plan(), broken, ROOFLINE, resume=True)
    assert what_matters(broken) == what_matters(whole)


def test_a_resumed_run_remembers_its_first_start(tmp_path: Path) -> None:
    with suppress(Interrupted):
        run_priced(plan(), tmp_path / "run", ROOFLINE, progress=interrupt_after(1))
    first = read_run(tmp_path / "run").environment
    run_priced(plan(), tmp_path / "run", ROOFLINE, resume=True)
    after = read_run(tmp_path / "run").environment
    assert (after["started_at"], after["run_id"]) == (first["started_at"], first["run_id"])
    assert first["finished_at"] is None
    assert after["finished_at"]
    assert len(after["resumed"]) == 1


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(Interrupted, match="--resume"):
        run_priced(plan(), tmp_path / "run", ROOFLINE, progress=interrupt_after(0))


def test_a_run_is_never_written_over(tmp_path: Path) -> None:
    run_priced(plan(), tmp_path / "run", ROOFLINE)
    with pytest.raises(UsageError, match="already holds a run; add --resume"):
        run_priced(plan(), tmp_path / "run", ROOFLINE)


def test_resuming_another_plan_is_an_error(tmp_path: Path) -> None:
    run_priced(plan(), tmp_path / "run", ROOFLINE)
    with pytest.raises(UsageError, match=r"made from another plan: .* or --replace to price it anew"):
        run_priced(plan(axes={"G": [2]}), tmp_path / "run", ROOFLINE, resume=True)


def test_a_truncated_journal_is_completed(tmp_path: Path) -> None:
    run_priced(plan(), tmp_path / "run", ROOFLINE)
    whole = what_matters(tmp_path / "run")
    journal = tmp_path / "run" / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-50])
    run_priced(plan(), tmp_path / "run", ROOFLINE, resume=True)
    assert what_matters(tmp_path / "run") == whole


def test_rows_of_other_versions_are_priced_again_and_the_new_ones_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_priced(plan(), tmp_path / "run", ROOFLINE)
    monkeypatch.setattr("harness.pricing.roofline.RooflinePricer.versions", lambda _: {"roofline": "newer"})
    run_priced(plan(), tmp_path / "run", ROOFLINE, resume=True)
    run = read_run(tmp_path / "run")
    assert len(run.records) == 30
    assert set(run.records["answered_with"]) == {"roofline newer"}
    assert len(read_attempts(tmp_path / "run")[0]) == 60


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ({"exclude": []}, 4),
        ({"exclude": [{"when": {"G": 16, "batch": 8}, "reason": "another reason"}]}, 4),
        ({"exclude": [{"when": {"G": 16}, "reason": "left out"}]}, 6),
        ({"axes": {"shape": {name: {"kv_heads": 32 // g} for name, g in (("a", 4), ("b", 8), ("c", 16))}}}, 30),
    ],
)
def test_rows_that_would_be_others_now_are_made_again(tmp_path: Path, change: dict[str, Any], again: int) -> None:
    """The same cases in the same order, but skipped for another reason, or under other coordinates."""
    first = plan() if "exclude" in change else plan(exclude=[])
    asked = plan(**change) if "exclude" in change else plan(exclude=[], **change)
    run_priced(first, tmp_path / "run", ROOFLINE)
    run_priced(asked, tmp_path / "run", ROOFLINE, resume=True)
    assert len(read_attempts(tmp_path / "run")[0]) == 30 + again
    whole = tmp_path / "whole"
    run_priced(asked, whole, ROOFLINE)
    columns = ["coordinates", "status", "reason", "case_id", "variant", "step_ms"]
    pd.testing.assert_frame_equal(read_run(tmp_path / "run").records[columns], read_run(whole).records[columns])


def test_rejections_are_judged_anew(tmp_path: Path) -> None:
    data = {"axes": {"layers": [32, 400]}, "exclude": []}
    run_priced(plan(**data), tmp_path / "run", ROOFLINE)
    before = read_run(tmp_path / "run").records
    assert set(before["status"]) == {"ok", "rejected"}
    run_priced(plan(ignore_memory=True, **data), tmp_path / "run", ROOFLINE, resume=True)
    assert set(read_run(tmp_path / "run").records["status"]) == {"ok"}
    made_again = len(read_attempts(tmp_path / "run")[0]) - len(before)
    assert made_again == (before["status"] == "rejected").sum()


def test_rows_of_another_harness_are_made_again(tmp_path: Path) -> None:
    run_priced(plan(), tmp_path / "run", ROOFLINE)
    journal = tmp_path / "run" / "journal.jsonl"
    journal.write_text(
        journal.read_text().replace(f'"harness_version":"{__version__}"', '"harness_version":"0.0.1"', 3)
    )
    run_priced(plan(), tmp_path / "run", ROOFLINE, resume=True)
    assert len(read_attempts(tmp_path / "run")[0]) == 33
    assert set(read_run(tmp_path / "run").records["harness_version"]) == {__version__}


def test_who_answered_names_the_data_files(tmp_path: Path) -> None:
    """Peaks and overheads are data, so that a changed file is another version."""
    run_priced(plan(), tmp_path / "run", ROOFLINE)
    assert set(read_run(tmp_path / "run").records["answered_with"]) == {f"roofline data {data_digest()}"}
    copy = tmp_path / "data"
    shutil.copytree(Path(roofline.__file__).parent.parent / "data", copy)
    assert data_digest(copy) == data_digest()
    overheads = copy / "launch_overheads.yaml"
    overheads.write_text(overheads.read_text().replace("2.20", "2.21"))
    data_digest.cache_clear()
    assert data_digest(copy) != data_digest()


def test_damaged_lines_are_priced_again_and_stay_told(tmp_path: Path) -> None:
    run_priced(plan(), tmp_path / "run", ROOFLINE)
    journal = tmp_path / "run" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], b"\xff\n", *lines[2:]]))
    run_priced(plan(), tmp_path / "run", ROOFLINE, resume=True)
    for _ in range(2):
        run = read_run(tmp_path / "run")
        assert len(run.records) == 30
        assert run.damage == (f"{journal}:2: not UTF-8 text",)
        run_priced(plan(), tmp_path / "run", ROOFLINE, resume=True)
    assert len(journal.read_bytes().splitlines()) == 31


def test_a_large_sweep_needs_a_yes() -> None:
    with pytest.raises(UsageError, match=r"600,000 cases are more than 20,000 .* say --yes"):
        plan(axes={"ffn": "1..60000"})


def test_an_unknown_gpu_and_an_impossible_g_are_said_together() -> None:
    with pytest.raises(UsageError) as caught:
        plan(axes={"G": [5]}, systems=["b200"])
    assert "unknown GPU 'b200'. Did you mean b200_sxm?" in str(caught.value)


@pytest.mark.parametrize("on", ["auto", "tables", "roofline"])
def test_nobody_prices_a_cpu(tmp_path: Path, on: Any) -> None:
    with pytest.raises(UsageError, match=r"cpu is the processor .* nothing but a backend can answer"):
        run_priced(plan(systems=["cpu"]), tmp_path / "run", PriceOptions(on=on))
    assert not (tmp_path / "run").exists()


def test_nobody_prices_served_requests(tmp_path: Path) -> None:
    served = plan(level="serve", exclude=[], workloads={"serve": {"isl": 512, "osl": 128, "concurrency": 4}})
    with pytest.raises(UsageError, match=r"study s: level serve is of requests .* no pricer .*; level: model asks"):
        run_priced(served, tmp_path / "run", ROOFLINE)
