"""The command line: what it prints, how it fails, which exit code it gives."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import PROCESS, CommandLine, process
from shapes import LLAMA_8B

from harness import __version__, files
from harness.cli.main import COMMANDS, cli


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "groups.yaml"
    data = {
        "title": "Group size",
        "variant": LLAMA_8B,
        "axes": {"G": [4, 8]},
        "workloads": {"decode": {"batch": 1, "kvsl": [1024, 4096]}},
        "systems": ["b200_sxm"],
    }
    files.write_atomic(path, files.dump_yaml(data))
    return path


def test_version_and_help(run: CommandLine) -> None:
    assert run("--version").out == f"trtllm-harness, version {__version__}\n"
    assert all(f"  {name} " in run("--help").out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_exists_under_its_name_and_has_help(name: str) -> None:
    command = cli.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    assert command.name == name
    assert command.help


def test_plan_counts_and_lists(run: CommandLine, study: Path) -> None:
    outcome = run("plan", study, "-a", "G=2,4,8", "--gpu", "h200_sxm")
    assert outcome.code == 0
    assert "groups: 6 cases (6 distinct), 6 to run, 0 rejected, 0 skipped" in outcome.out
    data = run("plan", study, "--json").json
    assert data["cases"] == len(data["steps"]) == 4
    assert data["steps"][0]["coordinates"] == {"G": 4, "batch": 1, "kvsl": 1024}


def test_run_writes_records_and_says_where(run: CommandLine, study: Path, tmp_path: Path) -> None:
    outcome = run("run", study, "--on", "roofline", "--out", tmp_path / "out", "--json")
    assert outcome.code == 0
    assert outcome.json["status"] == {"ok": 4}
    assert outcome.json["report"] == str(tmp_path / "out" / "index.html")
    assert (tmp_path / "out" / "index.html").is_file()


def test_a_second_run_resumes_or_replaces_but_never_overwrites(run: CommandLine, study: Path, tmp_path: Path) -> None:
    arguments = ["run", study, "--on", "roofline", "--no-report", "--out", tmp_path / "out"]
    assert run(*arguments).code == 0
    refused = run(*arguments)
    assert refused.code == 2
    assert "--resume" in refused.err
    assert run(*arguments, "--resume").code == 0
    assert run(*arguments, "--replace").code == 0


def test_replace_never_throws_measured_rows_away(run: CommandLine, study: Path, tmp_path: Path) -> None:
    arguments = ["run", study, "--on", "roofline", "--no-report", "--out", tmp_path / "out"]
    run(*arguments)
    journal = tmp_path / "out" / "journal.jsonl"
    journal.write_text(journal.read_text().replace('"provenance":"modelled"', '"provenance":"measured"', 1))
    before = journal.read_text()
    refused = run(*arguments, "--replace")
    assert refused.code == 2
    assert "holds 1 measured rows" in refused.err
    assert journal.read_text() == before


def test_report_of_a_damaged_run_says_so_and_exits_3(run: CommandLine, study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("run", study, "--on", "roofline", "--no-report", "--out", out)
    journal = out / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-40])
    outcome = run("report", out)
    assert outcome.code == 3
    assert "the last line is incomplete" in outcome.err
    assert (out / "index.html").is_file()


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        ({"axs": {}}, [], "unknown key 'axs'; did you mean 'axes'?"),
        ({}, ["-a", "G=3"], "32 query heads cannot be split into groups of 3"),
        ({}, ["--gpu", "b200"], "unknown GPU 'b200'. Did you mean b200_sxm?"),
        ({"workloads": {}}, [], "has no cases: it names no workloads"),
        ({}, ["-a", "ffn=1..100000"], "400,000 cases are more than 20,000"),
        ({}, ["--set", "workloads.decode.kvs=4"], "workloads.decode.kvs: unknown key"),
    ],
)
def test_bad_input_is_one_clear_message_and_exit_2(
    run: CommandLine, study: Path, change: dict[str, object], arguments: list[str], message: str
) -> None:
    data = files.read_yaml(study)
    assert isinstance(data, dict)
    files.write_atomic(study, files.dump_yaml({**data, **change}))
    for command in (["plan", study], ["run", study, "--on", "roofline", "--out", study.parent / "out"]):
        outcome = run(*command, *arguments)
        assert outcome.code == 2
        assert message in outcome.err
        assert outcome.err.startswith("error: ")
        assert "Traceback" not in outcome.err
        assert not (study.parent / "out").exists()


@pytest.mark.thorough
def test_a_large_sweep_runs_with_yes(run: CommandLine, study: Path) -> None:
    outcome = run("plan", study, "-a", "ffn=1..6000", "--yes", "--json")
    assert outcome.code == 0
    assert outcome.json["cases"] == 24_000


def test_click_usage_errors_are_exit_2(run: CommandLine) -> None:
    for arguments in (["runn"], ["run"], ["price", "gemm", "--gpu", "b200_sxm"], ["plan", "x", "--nope"]):
        outcome = run(*arguments)
        assert outcome.code == 2
        assert "Usage: trtllm-harness" in outcome.err


def test_debug_shows_the_traceback(study: Path) -> None:
    done = process("plan", study, "-a", "G=3", "--debug")
    assert "Traceback" in done.stderr
    assert "UsageError" in done.stderr


def test_doctor(run: CommandLine) -> None:
    assert run("doctor").code == 0
    checks = {check["name"]: check for check in run("doctor", "--json").json["checks"]}
    assert "b200_sxm" in checks["roofline"]["found"]


def test_systems_show_what_is_known_of_a_gpu(run: CommandLine) -> None:
    listed = {system["key"]: system for system in run("systems", "list", "--json").json}
    assert listed["b200_sxm"]["peak_flop_per_s"]["fp8"] == 4.5e15
    assert "NVIDIA H200" in run("systems", "list").out
    shown = run("systems", "show", "h200_sxm")
    assert "memory_bandwidth_bytes_per_s     4.8e+12" in shown.out
    assert "2026-" in shown.out
    assert run("systems", "show", "b2000").code == 2


def test_heads_that_cannot_be_shared_have_no_price(run: CommandLine) -> None:
    asked = ["--gpu", "b200_sxm", "--batch", 1, "--q-heads", 60, "--kv-heads", 8, "--head-dim", 128, "--on", "roofline"]
    for operation in (["decode-attention", "--kvsl", 128], ["prefill-attention", "--isl", 128]):
        outcome = run("price", *operation, *asked)
        assert outcome.code == 2
        assert "60 query heads cannot share 8 KV heads evenly; --kv-heads that work: 1, 2, 3, 4" in outcome.err


def test_a_reader_that_stops_early_is_no_error(study: Path) -> None:
    command = " ".join(
        [*(f"'{part}'" for part in PROCESS), "plan", str(study), "-a", "ffn=1..3000", "--all", "|", "head", "-1"]
    )
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "12000 cases" in done.stdout


def test_ctrl_c_exits_130_and_resume_completes(study: Path, tmp_path: Path) -> None:
    """A real process, interrupted once its journal has rows."""
    out = tmp_path / "out"
    arguments = ["run", study, "-a", "ffn=1..600", "--on", "roofline", "--no-report", "--out", out]
    started = subprocess.Popen(
        [*PROCESS, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    journal = out / "journal.jsonl"
    deadline = time.monotonic() + 60
    while not (journal.exists() and journal.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(started.pid, signal.SIGINT)
    _, err = started.communicate(timeout=60)
    assert started.returncode == 130
    assert "--resume" in err
    assert "Traceback" not in err
    kept = [json.loads(line)["record"]["attempt_id"] for line in journal.read_text().splitlines()]
    assert 0 < len(kept) < 2_400
    assert process(*arguments, "--resume").returncode == 0
    after = [json.loads(line)["record"]["attempt_id"] for line in journal.read_text().splitlines()]
    assert after[: len(kept)] == kept
    assert len(set(after)) == len(after) == 2_400


def test_completion_knows_commands_and_gpus() -> None:
    done = process(
        env={
            **os.environ,
            "_TRTLLM_HARNESS_COMPLETE": "bash_complete",
            "COMP_WORDS": "trtllm-harness pri",
            "COMP_CWORD": "1",
        }
    )
    assert re.findall(r"plain,(\w+)", done.stdout) == ["price"]
    words = "trtllm-harness price gemm --gpu b"
    done = process(
        env={**os.environ, "_TRTLLM_HARNESS_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "4"}
    )
    assert re.findall(r"plain,(\w+)", done.stdout) == ["b200_sxm", "b300_sxm"]


def test_replace_touches_nothing_but_the_run(run: CommandLine, study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["run", study, "--on", "roofline", "--out", out]
    run(*arguments)
    (out / "notes.md").write_text("mine")
    (out / "src").mkdir()
    outcome = run(*arguments, "--replace", "-a", "G=8")
    assert outcome.code == 0
    assert (out / "notes.md").read_text() == "mine"
    assert (out / "src").is_dir()
    assert len((out / "journal.jsonl").read_text().splitlines()) == 2
    assert not (out / ".replacing").exists()


def test_replace_never_throws_away_what_it_cannot_read(run: CommandLine, study: Path, tmp_path: Path) -> None:
    """A damaged row may have been measured, and so may one of a later release."""
    out = tmp_path / "out"
    arguments = ["run", study, "--on", "roofline", "--no-report", "--out", out]
    run(*arguments)
    journal = out / "journal.jsonl"
    whole = journal.read_bytes()
    later = whole.replace(b'"schema_version":3', b'"schema_version":99', 1)
    for content in (whole.replace(b'"modelled"', b'"mod\xffelled"', 1), b"{}\n" + whole, whole[:-10], later):
        journal.write_bytes(content)
        refused = run(*arguments, "--replace")
        assert refused.code == 2
        assert "--replace throws nothing away that it cannot read" in refused.err
        assert journal.read_bytes() == content
    journal.unlink()
    assert run(*arguments, "--replace").code == 2  # its tables may hold measured rows
    for name in ("records.parquet", "ops.parquet"):
        (out / name).unlink()
    assert run(*arguments, "--replace").code == 0  # interrupted before there was a row


def test_replace_looks_while_nobody_else_writes(run: CommandLine, study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["run", study, "--on", "roofline", "--no-report", "--out", out]
    run(*arguments)
    (out / "journal.jsonl").write_bytes(b"half")
    with files.folder_lock(out):
        refused = run(*arguments, "--replace")
    assert refused.code == 4
    assert "in use by process" in refused.err


def test_a_run_never_overwrites_the_study_that_it_reads(run: CommandLine, tmp_path: Path, study: Path) -> None:
    own = tmp_path / "mine" / "study.yaml"
    own.parent.mkdir()
    content = study.read_bytes()
    own.write_bytes(content)
    for options in ([], ["--resume"], ["--replace"]):
        refused = run("run", own, "--on", "roofline", "--no-report", "--out", own.parent, *options)
        assert refused.code == 2
        assert "has a study.yaml that is of no run and would be overwritten; take another --out" in refused.err
        assert own.read_bytes() == content
    assert "holds no run" in run("report", own.parent).err


@pytest.mark.parametrize("path", ["", " ", "a\0b", "x" * 300])
def test_a_path_that_cannot_be_is_a_usage_error_everywhere(run: CommandLine, study: Path, path: str) -> None:
    for arguments in (
        ["run", study, "--on", "roofline", "--out", path],
        ["run", path, "--on", "roofline", "--out", study.parent / "out"],
        ["plan", path],
        ["lint", path],
        ["report", path],
        ["report", study.parent, "--out", path],
        ["variants", "show", path],
        ["variants", "import", path],
        ["variants", "import", study.parent, "--out", path],
        ["price", "case", "--gpu", "b200_sxm", "--variant", path],
    ):
        outcome = run(*arguments)
        assert outcome.code == 2, arguments
        assert "Invalid value for" in outcome.err


def test_a_run_is_reported_once(run: CommandLine, study: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    run("run", study, "--on", "roofline", "--no-report", "--out", base)
    outcome = run("report", base, f"{base}/../base", "--out", tmp_path / "both")
    assert outcome.code == 2
    assert "are the same run; name each run once" in outcome.err


def test_sizes_on_the_command_line_have_the_bounds_of_a_study(run: CommandLine) -> None:
    for arguments in (
        ["gemm", "--m", 2**40 + 1, "--n", 1, "--k", 1, "--format", "bf16"],
        ["all-reduce", "--elements", 1, "--gpus", 4_097],
        ["decode-attention", "--batch", 1, "--kvsl", 1, "--q-heads", 10**9, "--kv-heads", 7, "--head-dim", 64],
    ):
        outcome = run("price", *arguments, "--gpu", "b200_sxm")
        assert outcome.code == 2
        assert "is not in the range 1<=x<=" in outcome.err or "is not in the range 2<=x<=4096" in outcome.err


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize("environment", [ASCII, {"PYTHONIOENCODING": "latin-1"}])
def test_a_terminal_without_our_characters_prints_others(
    study: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    data = files.read_yaml(study)
    assert isinstance(data, dict)
    files.write_atomic(study, files.dump_yaml({**data, "title": "H′ × 2 → 漢字"}))
    arguments = ["run", study, "--on", "roofline", "--no-report", "--out", tmp_path / "out"]
    done = subprocess.run(
        [*PROCESS, *map(str, arguments)], env={**os.environ, **environment}, capture_output=True, check=False
    )
    assert (done.returncode, b"Traceback" in done.stderr, b"internal error" in done.stderr) == (0, False, False)
    assert done.stdout.startswith(b"H? ")
    assert "H′ × 2 → 漢字" in (tmp_path / "out" / "study.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (">/dev/full", "error: standard output cannot be written: No space left on device"),
        (">&-", "error: standard output is closed"),
    ],
)
def test_an_output_that_takes_nothing_is_exit_4_and_one_message(where: str, message: str) -> None:
    command = " ".join(f"'{part}'" for part in [*PROCESS, "variants", "list"])
    done = subprocess.run(["bash", "-c", f"{command} {where}"], capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert done.stderr.startswith(message)
    assert len(done.stderr.splitlines()) == 1


def test_nobody_need_listen_to_errors() -> None:
    command = " ".join(f"'{part}'" for part in [*PROCESS, "variants", "show", "nobody"])
    for where in ("2>&-", "2>/dev/full", ">&- 2>&-"):
        done = subprocess.run(["bash", "-c", f"{command} {where}"], capture_output=True, text=True, check=False)
        assert done.returncode == (4 if ">&- " in where else 2)
        assert (done.stdout, done.stderr) == ("", "")


def test_replace_in_the_working_directory(
    run: CommandLine, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert run("run", study, "--on", "roofline", "--no-report", "--out", ".", "--replace").code == 0
    assert study.is_file()


def test_a_replacement_that_fails_leaves_the_old_run(run: CommandLine, study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["run", study, "--on", "roofline", "--no-report", "--out", out]
    run(*arguments)
    before = (out / "journal.jsonl").read_bytes()
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)); "
        "from harness.cli.main import run; sys.exit(run(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments), "--replace"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    assert "cannot be written" in done.stderr
    assert (out / "journal.jsonl").read_bytes() == before
    assert not (out / ".replacing").exists()


def test_a_report_of_series_with_different_axes(run: CommandLine, study: Path, tmp_path: Path) -> None:
    """A coordinate that only some rows have is no reason to lose the report."""
    data = files.read_yaml(study)
    assert isinstance(data, dict)
    mixed = {
        "axes": {},
        "series": [{"name": "a", "axes": {"G": [4, 8]}}, {"name": "b", "axes": {"kv_format": ["bf16", "fp8"]}}],
        "workloads": {"decode": {"batch": 1, "kvsl": [1024, 4096]}, "prefill": {"batch": 1, "isl": [512, 1024]}},
        "plots": [
            {"title": "over G", "x": "G", "lines": "kv_format", "panels": "system"},
            {"title": "over KVSL", "x": "kvsl", "lines": "isl", "panels": "kv_format"},
        ],
    }
    files.write_atomic(study, files.dump_yaml({**data, **mixed}))
    outcome = run("run", study, "--on", "roofline", "--out", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "out" / "index.html").is_file()
