"""Measured runs on the command line: exit codes, what is printed, and runs that are stopped in every way."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from command_line import PROCESS, CommandLine, process
from measuring import FAULTY, MENDED, ok, records, rows, study_file
from workers import TESTS, none_left, pids_in

from harness.cli.measure_options import Duration
from harness.cli.measure_progress import MeasureProgress, duration_text
from harness.runner.measure_run import Now

ONE = ("--on", FAULTY, "--replicates", 1)


@pytest.fixture(autouse=True)
def _doubles_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    return study_file(tmp_path / "faults.yaml")


@pytest.fixture
def apart(tmp_path: Path) -> Path:
    """Each case in a process of its own, and pids written to a file."""
    return study_file(tmp_path / "apart.yaml", together=False)


def test_a_run_says_where_it_is_and_writes_its_report(run: CommandLine, faults: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = run("run", faults, *ONE, "--target-pct", 2, "--seed", 3, "--out", out)
    assert done.code == 0, done.err
    assert done.err.splitlines() == ["measured 0/3, replicate 1/1: decode kvsl 64 (3 cases)"]
    assert f"report: {out / 'index.html'}" in done.out
    assert "simulated" in done.out
    assert rows(out) == ok(1, 2, 4)


def test_a_script_gets_json_and_an_exit_code(run: CommandLine, faults: Path, tmp_path: Path) -> None:
    fault = ("--backend-option", "take=kill", "--backend-option", "batch=2")
    done = run("run", faults, *ONE, *fault, "--out", tmp_path / "run", "--json")
    assert done.code == 3
    assert done.json["status"] == {"ok": 2, "crash": 1}
    assert done.json["exhausted"] is False
    [line] = done.err.splitlines()
    assert line.startswith("warning: 1 of 3 rows failed, first ")
    assert "(crash: killed by SIGKILL" in line
    assert "--resume --retry-failed measures them again" in line


def test_an_unfit_machine_is_4(run: CommandLine, faults: Path, tmp_path: Path) -> None:
    done = run("run", faults, *ONE, "--backend-option", "open=unfit", "--out", tmp_path / "run")
    assert done.code == 4
    assert done.err.startswith(f"error: --on {FAULTY}: the device is on holiday")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--on", "roofline", "--replicates", 2, "--shared-gpu"), "--replicates, --shared-gpu: is about measured runs"),
        (("--on", "roofline", "--backend-option", "a=1"), "--backend-option: is about measured runs"),
        (("--on", FAULTY, "--helix-overlap"), "--helix-overlap: is about prices"),
        (("--on", FAULTY, "--retry-failed"), "--retry-failed goes with --resume"),
        (("--on", FAULTY, "--threads", 2, "--backend-option", "threads=3"), "contradict"),
        (("--on", FAULTY, "--backend-option", "a=[1]"), "is neither a number nor a text"),
        (("--on", FAULTY, "--budget", "soon"), "'soon' is no time above 0 and up to a year; write 90s, 30m or 1h30m"),
        (
            ("--on", "pytorch"),
            "'pytorch' is not one of auto, tables, roofline, torch, trtllm, nor package.module:Class",
        ),
        (("--on", "no.such:Thing"), "no backend 'no.such:Thing'"),
        (("--on", "os:path"), "no backend 'os:path' (it is no class with name,"),
        (("--on", "json:JSONDecoder"), "'json:JSONDecoder' (it is no class with name, open, prepare, close)"),
        (("--on", "torch", "--backend-option", "thread=2"), "error: --on torch has no option 'thread'; it has device,"),
        (("--on", "torch", "--threads", 100_000), ", the processors of this machine, not 100000"),
        (("--on", FAULTY, "--budget", f"{'9' * 400}h"), "is no time above 0 and up to a year"),
        (("--on", FAULTY, "--target-pct", "inf"), "inf is not in the range 0<x<=100"),
    ],
)
def test_what_cannot_be_is_a_usage_error(
    run: CommandLine, faults: Path, tmp_path: Path, options: tuple[object, ...], message: str
) -> None:
    done = run("run", faults, *options, "--out", tmp_path / "run")
    assert done.code == 2
    assert message in done.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("1.5min", 90)]
)
def test_times_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "0", "-5m", "5d", "m", "1.2.3s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no time above 0"):
        Duration().convert(text, None, None)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (99.4, "99 s"), (150, "2 min"), (5400, "90 min"), (6060, "1 h 41 min")]
)
def test_times_are_told_in_few_digits(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    progress = MeasureProgress(quiet=False)
    progress(Now(6, 24, 0, 3, "decode b 8", 2, 150.0, 40))
    progress.clear()
    shown = capsys.readouterr().err
    bar = "[######------------------] measured 6/24, replicate 1/3: decode b 8 (2 cases), about 2 min left, 40 samples"
    assert shown == f"\r\x1b[K{bar}\r\x1b[K"


def test_the_level_of_a_study_can_be_set(run: CommandLine, tmp_path: Path) -> None:
    asked = study_file(tmp_path / "ops.yaml", level="op", ops=["layer.attn.attention"], systems=["h200_sxm"])
    done = run("run", asked, "--on", "roofline", "--level", "layer", "--no-report", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert {(one.level, one.level_ops) for one in records(tmp_path / "run")} == {("layer", None)}


# Stopped in every way


def hear_ctrl_c() -> None:
    """A shell starts what runs in its background deaf to SIGINT, these tests too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Started:
    """A real run whose worker hangs at batch 2, once the row of batch 1 is there, until it is mended."""

    def __init__(self, study: Path, out: Path) -> None:
        self.out, self.pids, mended = out, out.with_name("pids"), out.with_name("mended")
        self._mended = mended
        backend = {"take": "hang", "batch": 2, "pids": self.pids, "mended": mended}
        options = [word for name, value in backend.items() for word in ("--backend-option", f"{name}={value}")]
        self._given = ("run", study, "--on", MENDED, "--replicates", 1, *options, "--no-report", "--out", out)
        command = [*PROCESS, *map(str, self._given)]
        how = {"stderr": subprocess.PIPE, "text": True, "preexec_fn": hear_ctrl_c}
        self.process: subprocess.Popen[str] = subprocess.Popen(command, **how)  # type: ignore[call-overload]
        self._wait_for(lambda: len(pids_in(self.pids)) == 3)  # to look at it, for batch 1, for batch 2
        assert rows(out) == ok(1)

    def _wait_for(self, happened: Callable[[], bool]) -> None:
        until = time.monotonic() + 120
        while not happened():
            assert self.process.poll() is None, self.process.stderr.read() if self.process.stderr else ""
            assert time.monotonic() < until
            time.sleep(0.05)

    def ended(self) -> tuple[int, str]:
        """Exit code and what was said, once no process is left."""
        try:
            _, said = self.process.communicate(timeout=60)
        finally:
            self.process.kill()
        assert none_left(pids_in(self.pids))
        return self.process.returncode, said

    def resume(self) -> None:
        """Take the run up again, without the fault; the row that was there stays, the others are made."""
        before = records(self.out)
        self._mended.touch()
        done = process(*self._given, "--resume")
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith("measured 1/3, ")
        assert rows(self.out) == ok(1, 2, 4)
        assert records(self.out)[:1] == before


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.thorough)]
)
def test_a_run_that_is_told_to_end_leaves_no_process_and_can_be_resumed(
    apart: Path, tmp_path: Path, number: signal.Signals
) -> None:
    started = Started(apart, tmp_path / "run")
    started.process.send_signal(number)
    code, said = started.ended()
    assert code == 130
    assert f"error: interrupted; what was measured is kept in {tmp_path / 'run'} (go on with --resume)" in said
    assert (tmp_path / "run" / "records.parquet").is_file()
    if number == signal.SIGINT:
        started.resume()


def test_a_killed_run_leaves_no_process_and_can_be_resumed(apart: Path, tmp_path: Path) -> None:
    started = Started(apart, tmp_path / "run")
    started.process.kill()
    assert started.ended()[0] == -signal.SIGKILL
    started.resume()
    assert not (started.out / ".scratch").exists()


def test_a_full_disk_is_4_and_what_was_written_is_whole(run: CommandLine, apart: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    small = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))  # noqa: E731
    done = process("run", apart, *ONE, "--no-report", "--out", out, preexec_fn=small)
    assert done.returncode == 4
    assert "cannot be written: the limit on the size of a file is reached" in done.stderr
    before = records(out)
    assert 0 < len(before) < 3
    again = run("run", apart, *ONE, "--no-report", "--out", out, "--resume")
    assert again.code == 0, again.err
    assert rows(out) == ok(1, 2, 4)
    assert records(out)[: len(before)] == before


def test_a_budget_that_is_used_up_is_124(run: CommandLine, apart: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = run("run", apart, *ONE, "--budget", "0.1s", "--out", out)
    assert done.code == 124
    assert "the time budget is used up; what was measured is kept" in done.err
    assert run("run", apart, *ONE, "--out", out, "--resume").code == 0
    assert rows(out) == ok(1, 2, 4)


# One case again


def test_a_case_is_measured_again(run: CommandLine, faults: Path, tmp_path: Path) -> None:
    out, kept = tmp_path / "run", tmp_path / "again"
    run(
        "run", faults, *ONE, "--backend-option", "take=kill", "--backend-option", "batch=2", "--no-report", "--out", out
    )
    done = run("rerun", out, "000002.r0", "--out", kept)
    assert done.code == 0, done.err
    assert rows(kept) == ok(4)
    assert ["step_ms", "4", "4"] in [line.split() for line in done.out.splitlines()]
    assert "step_ms changed by +0.00 %" in done.out
    failed = run("rerun", out, 1, "--json")
    assert failed.code == 3
    assert failed.json["before"]["status"] == failed.json["now"]["status"] == "crash"
    assert failed.json["change_pct"] is None
    assert len(records(out)) == 3


def test_a_case_is_priced_again(run: CommandLine, tmp_path: Path) -> None:
    asked, out = study_file(tmp_path / "s.yaml", systems=["h200_sxm"]), tmp_path / "run"
    run("run", asked, "--on", "roofline", "--no-report", "--out", out)
    done = run("rerun", out, records(out)[1].attempt_id, "--json")
    assert done.code == 0, done.err
    assert done.json["change_pct"] == 0
    assert done.json["now"]["answered_by"] == "roofline"


def test_what_cannot_be_asked_again_is_told(run: CommandLine, tmp_path: Path) -> None:
    asked, out = study_file(tmp_path / "s.yaml", systems=["h200_sxm"]), tmp_path / "run"
    run("run", asked, "--on", "roofline", "--no-report", "--out", out)
    for wanted in ("000099", "nothing"):
        done = run("rerun", out, wanted)
        assert done.code == 2
        assert f"has no attempt '{wanted}'; it has " in done.err
    assert run("rerun", tmp_path / "nowhere", 1).code == 2
