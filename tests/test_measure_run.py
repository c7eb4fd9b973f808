"""Measured runs: replicates, failures that cost one row, budgets, and runs taken up again; the workers are real."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from measuring import MENDED, Row, ok, options, plan, records, rows
from thorough import mostly_thorough
from workers import TESTS, alive, pids_in

from harness.errors import EnvironmentUnfit, Interrupted, UsageError
from harness.results.store import read_attempts, read_run
from harness.runner.keeper import descendants
from harness.runner.measure_run import MeasureOptions, Now, run_measured
from harness.runner.price_run import PriceOptions, run_priced


@pytest.fixture(autouse=True)
def _doubles_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))


def measure(out: Path, asked: MeasureOptions, **how: Any) -> bool:
    """Run, and see that nothing is left of it but its folder; True where the budget ended it."""
    how.setdefault("plan", plan())
    outcome = run_measured(how.pop("plan"), out, asked, **how)
    assert descendants(os.getpid()) == set()
    assert not (out / ".scratch").exists()
    return outcome.exhausted


def test_every_case_has_a_row_of_each_replicate(tmp_path: Path) -> None:
    told: list[Now] = []
    measure(tmp_path, options(replicates=2), tell=told.append)
    assert rows(tmp_path) == [row for batch in (1, 2, 4) for n in (0, 1) for row in ok(batch, replicate=n)]
    run = read_run(tmp_path)
    assert set(run.records["arms"]) == {"decode kvsl 64"}
    assert set(run.records["answered_by"]) == {"faulty"}
    assert set(run.records["provenance"]) == {"simulated"}
    assert run.samples is not None
    assert [len(times) for times in run.samples["times_ms"]] == [30] * 6
    assert all((tmp_path / log).is_file() for log in run.records["log"])
    assert run.environment["options"]["replicates"] == 2
    assert run.environment["finished_at"]
    starts = [now for now in told if now.samples is None]
    assert [(now.done, now.total, now.replicate, now.arms) for now in starts] == [(0, 6, 0, 3), (3, 6, 1, 3)]
    assert starts[0].left_s is None
    assert starts[1].left_s is not None


def test_replicates_are_processes_of_their_own(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    measure(tmp_path / "run", options(replicates=2, pids=str(pids)))
    started = pids_in(pids)
    assert len(set(started)) == len(started) == 3  # one of them only said what it is
    assert alive(started) == []


@pytest.mark.parametrize(
    ("fault", "status", "reason"),
    [
        ("kill", "crash", "SIGKILL"),
        pytest.param("segfault", "crash", "SIGSEGV", marks=pytest.mark.thorough),
        ("bug", "crash", "ZeroDivisionError"),
    ],
)
def test_a_crash_costs_the_case_in_flight_and_the_others_go_on(
    tmp_path: Path, fault: str, status: str, reason: str
) -> None:
    measure(tmp_path, options(take=fault, batch=2, after=25))
    assert rows(tmp_path) == [*ok(1), Row(2, 0, status, None), *ok(4)]
    crashed = records(tmp_path)[1]
    assert reason in (crashed.reason or "")
    assert (tmp_path / str(crashed.log)).is_file()
    one, _, other = records(tmp_path)
    assert one.arms == other.arms == "decode kvsl 64"
    assert one.log == other.log != crashed.log


def test_a_hang_is_a_timeout(tmp_path: Path) -> None:
    impatient = replace(options(prepare="hang", batch=4), limits=replace(options().limits, arm_s=2))
    measure(tmp_path, impatient)
    assert rows(tmp_path) == [*ok(1, 2), Row(4, 0, "timeout", None)]


@pytest.mark.parametrize("fault", mostly_thorough(["memory", "too_big"], {"too_big"}))
def test_an_arm_without_room_beside_others_is_tried_alone(tmp_path: Path, fault: str) -> None:
    pids = tmp_path / "pids"
    measure(tmp_path / "run", options(prepare=fault, batch=2, pids=str(pids)))
    assert rows(tmp_path / "run") == [*ok(1), Row(2, 0, "oom", None), *ok(4)]
    alone = records(tmp_path / "run")[1]
    assert alone.arms == "decode kvsl 64, last 1"
    assert len(read_attempts(tmp_path / "run")[0]) == 3


def test_what_is_unsupported_is_asked_once(tmp_path: Path) -> None:
    measure(tmp_path, options(replicates=3, prepare="unsupported", batch=1))
    assert [(row.batch, row.status) for row in rows(tmp_path)] == [
        (1, "unsupported"),
        *[(2, "ok")] * 3,
        *[(4, "ok")] * 3,
    ]


def test_a_process_that_ends_well_and_says_nothing_of_a_case_lost_it(tmp_path: Path) -> None:
    measure(tmp_path, options(take="vanish", batch=1, after=2))
    assert rows(tmp_path) == [Row(1, 0, "crash", None), *ok(2, 4)]


def test_what_is_not_asked_has_one_row(tmp_path: Path) -> None:
    skips = plan(exclude=[{"when": {"batch": 2}, "reason": "on purpose"}])
    measure(tmp_path, options(replicates=2), plan=skips)
    assert [row for row in rows(tmp_path) if row.batch == 2] == [Row(2, None, "skipped", None)]
    assert len(rows(tmp_path)) == 5
    measure(tmp_path, options(replicates=2), plan=skips, resume=True)
    assert len(read_attempts(tmp_path)[0]) == 5


def test_a_case_that_is_left_out_later_loses_its_rows(tmp_path: Path) -> None:
    measure(tmp_path, options(replicates=2))
    measure(
        tmp_path,
        options(replicates=2),
        resume=True,
        plan=plan(exclude=[{"when": {"batch": 2}, "reason": "on purpose"}]),
    )
    assert {row.status for row in rows(tmp_path) if row.batch == 2} == {"skipped"}
    assert len(read_attempts(tmp_path)[0]) == 6 + 2


def test_a_backend_that_cannot_be_opened_writes_no_rows(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnfit, match="the device is on holiday"):
        measure(tmp_path, options(open="unfit"))
    assert not (tmp_path / "journal.jsonl").exists()
    assert (tmp_path / "logs" / "opening.log").is_file()


def test_an_unknown_backend_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no backend 'doubles\.nothing:Here'"):
        run_measured(plan(), tmp_path / "run", MeasureOptions(on="doubles.nothing:Here"))
    assert not (tmp_path / "run").exists()


# Taken up again


def interrupt_at(done: int) -> Any:
    """Behave as Ctrl-C does once so many rows are there and the next process is about to start."""

    def tell(now: Now) -> None:
        if now.done >= done and now.samples is None:
            raise KeyboardInterrupt

    return tell


def test_interrupted_and_resumed_has_every_row_once(tmp_path: Path) -> None:
    asked, apart = options(replicates=2), plan(together=False)
    with pytest.raises(Interrupted, match="--resume"):
        measure(tmp_path, asked, plan=apart, tell=interrupt_at(2))
    first = read_attempts(tmp_path)[0]
    assert len(first) == 2
    assert read_run(tmp_path).environment["finished_at"] is None
    measure(tmp_path, options(replicates=None), plan=apart, resume=True)
    after = read_attempts(tmp_path)[0]
    assert after[:2] == first
    assert len(after) == 6
    assert sorted((row.batch, row.replicate) for row in rows(tmp_path)) == [(b, n) for b in (1, 2, 4) for n in (0, 1)]
    assert len(read_run(tmp_path).environment["resumed"]) == 1


def test_sigterm_ends_a_run_as_ctrl_c_does(tmp_path: Path) -> None:
    def terminate(now: Now) -> None:
        if now.samples is None:
            signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted):
        measure(tmp_path, options(), tell=terminate)
    assert descendants(os.getpid()) == set()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_run_in_a_thread_leaves_signals_alone(tmp_path: Path) -> None:
    thread = threading.Thread(target=measure, args=(tmp_path, options()))
    thread.start()
    thread.join()
    assert rows(tmp_path) == ok(1, 2, 4)


def test_failed_rows_are_kept_unless_they_are_to_be_tried_again(tmp_path: Path) -> None:
    out, mended = tmp_path / "run", tmp_path / "mended"
    asked = replace(options(take="kill", batch=2, mended=str(mended)), on=MENDED)
    measure(out, asked)
    crashed = read_attempts(out)[0]
    assert [attempt.record.status for attempt in crashed].count("crash") == 1
    mended.touch()
    measure(out, asked, resume=True)
    assert read_attempts(out)[0] == crashed
    measure(out, replace(asked, retry_failed=True), resume=True)
    *before, again = read_attempts(out)[0]
    assert before == crashed
    assert rows(out) == ok(1, 2, 4)
    assert again.record.attempt_id.endswith(".000001.r0.2")
    assert again.record.arms == "decode kvsl 64, last 1"


def test_rows_under_other_options_of_the_backend_are_measured_again(tmp_path: Path) -> None:
    measure(tmp_path, options(threads=1))
    measure(tmp_path, options(threads=2), resume=True)
    assert len(read_attempts(tmp_path)[0]) == 6
    assert {record.answered_with for record in records(tmp_path)} == {"faulty 1, threads 2"}


def test_more_replicates_are_added_to_a_run(tmp_path: Path) -> None:
    measure(tmp_path, options(replicates=1))
    measure(tmp_path, options(replicates=2), resume=True)
    assert sorted((row.batch, row.replicate) for row in rows(tmp_path)) == [(b, n) for b in (1, 2, 4) for n in (0, 1)]
    assert len(read_attempts(tmp_path)[0]) == 6
    measure(tmp_path, options(replicates=1), resume=True)
    assert len(read_attempts(tmp_path)[0]) == 6


def test_a_run_is_never_written_over(tmp_path: Path) -> None:
    measure(tmp_path, options())
    with pytest.raises(UsageError, match="already holds a run; add --resume to complete it, or take another --out"):
        measure(tmp_path, options())


def test_another_plan_does_not_complete_a_run(tmp_path: Path) -> None:
    measure(tmp_path, options())
    with pytest.raises(UsageError, match=r"made from another plan: its .* is another case there; .* or another --out$"):
        measure(tmp_path, options(), plan=plan(workloads={"decode": {"batch": [8], "kvsl": 64}}), resume=True)


def test_prices_and_measurements_do_not_mix_in_a_run(tmp_path: Path) -> None:
    on_gpu = plan(systems=["h200_sxm"])
    run_priced(on_gpu, tmp_path / "priced", PriceOptions(on="roofline"))
    with pytest.raises(UsageError, match="holds rows of roofline, which --on faulty does not complete"):
        measure(tmp_path / "priced", options(), plan=on_gpu, resume=True)
    measure(tmp_path / "measured", options(), plan=on_gpu)
    with pytest.raises(UsageError, match="holds measured rows"):
        run_priced(on_gpu, tmp_path / "measured", PriceOptions(on="roofline"), resume=True)


# Budget


def test_a_budget_ends_a_run_and_keeps_what_is_done(tmp_path: Path) -> None:
    asked, apart = options(take="hang", batch=2), plan(together=False)
    with pytest.raises(Interrupted):
        measure(tmp_path, asked, plan=apart, tell=interrupt_at(1))
    done = rows(tmp_path)
    assert done == ok(1)
    for budget_s in (0.1, 10):  # too short to start the second process, and too short for it
        assert measure(tmp_path, replace(asked, budget_s=budget_s), plan=apart, resume=True)
        assert rows(tmp_path) == done


def test_a_budget_that_is_enough_ends_nothing(tmp_path: Path) -> None:
    assert not measure(tmp_path, replace(options(), budget_s=3600))
    assert rows(tmp_path) == ok(1, 2, 4)
