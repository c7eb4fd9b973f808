"""Runs on TensorRT-LLM from the command line, on the double: its versions, its failures, runs taken up again."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from command_line import CommandLine
from measuring import records
from thorough import mostly_thorough
from trtllm_runs import DENSE, DOUBLES, EVERY_VERSION, PERSONALITIES, SPARSE
from workers import TESTS

from harness.files import dump_yaml
from harness.report import build_report
from harness.results.record import Record
from harness.results.store import read_attempts, read_environment, read_run
from harness.runner.engine_needs import EngineAsk
from harness.runner.limits import Limits
from harness.runner.measure_run import MeasureOptions, run_measured
from harness.runner.plan import make_plan
from harness.spec.load import Overrides, load_suite

ONE = ("--on", "trtllm", "--replicates", 1)


@pytest.fixture(autouse=True)
def _double(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The double, without what the machine around says of its own jobs and stores."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (DOUBLES, TESTS))))
    monkeypatch.setenv("TRTLLM_DOUBLE", "1.3.0rc24")
    monkeypatch.setenv("TRTLLM_DOUBLE_SEED", "1")
    monkeypatch.setenv("TRTLLM_DOUBLE_TRUTH", str(tmp_path / "truth.jsonl"))
    for name in ("TRTLLM_HARNESS_STORE", "TLLM_AUTOTUNER_CACHE_PATH", "TRTLLM_DOUBLE_FAIL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


def study(path: Path, **changes: Any) -> Path:
    """Two dense models, of 4 and 8 KV heads, that decode two batches each."""
    data = {
        "name": "small", "title": "Small", "level": "model", "variant": DENSE.model_dump(mode="json"),
        "axes": {"kv_heads": [4, 8]}, "systems": ["b200_sxm"],
        "workloads": {"decode": {"batch": [2, 8], "kvsl": 1024}}, **changes,
    }  # fmt: skip
    path.write_text(dump_yaml(data))
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return study(tmp_path / "small.yaml")


def truth(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "truth.jsonl").read_text(encoding="utf-8").splitlines()]


def true_ms(rows: Sequence[dict[str, Any]], record: Record) -> float:
    """What a step of the case took in the process that `rows` are of: median, the slowest rank, all layers."""
    assert record.batch
    assert record.kvsl
    found: dict[Any, list[float]] = defaultdict(list)
    for number, row in enumerate(rows):
        if row["event"] == "layer_wise" and (row["batch"], row["kv"]) == (record.batch, record.kvsl):
            found[number].append(row["device_ms"])
        elif row["event"] == "iteration" and (row["contexts"], row["generations"]) == (0, record.batch):
            near = abs(row["kv_mean"] - record.kvsl) <= max(2, record.kvsl / 32)
            if near and not row["settling"]:
                found[row["generate"], row["iteration"]].append(row["device_ms"])
    layers = record.layers / record.layers_run if record.level == "layer" else 1  # type: ignore[operator]
    return median(max(times) for times in found.values()) * layers


def by_process(rows: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """What each process did, in the order in which they were opened."""
    opened = dict.fromkeys(row["process"] for row in rows if row["event"] == "open")
    return [[row for row in rows if row["process"] == one and row["event"] != "open"] for one in opened]


# Every version of the double


@pytest.mark.parametrize("version", EVERY_VERSION)
@pytest.mark.parametrize("level", ["layer", "model"])
def test_step_times_are_those_of_the_clock(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, level: str
) -> None:
    monkeypatch.setenv("TRTLLM_DOUBLE", version)
    out = tmp_path / "run"
    narrowed = ("--gpu", "b200_sxm", "-a", "G=16", "--arm-budget", "0.5s")
    done = run(
        "run", "a1d-group-size-decode", *narrowed, "--on", "trtllm", "--level", level, "--replicates", 1, "--out", out
    )
    assert done.code == 0, done.err
    found = [one for one in records(out) if one.kvsl != 1048576 or level == "layer"]  # no whole model has room for it
    assert {(one.status, one.provenance, one.answered_by, one.level) for one in found} == {
        ("ok", "simulated", "trtllm", level)
    }
    assert {one.answered_with for one in found} == {f"tensorrt_llm {version}"}
    logs = dict.fromkeys(attempt.record.log for attempt in read_attempts(out)[0] if attempt.record.log)
    for log, process in zip(logs, by_process(truth(tmp_path)), strict=True):
        for record in (one for one in found if one.log == log):
            assert record.step_ms == pytest.approx(true_ms(process, record), rel=0.01), record.attempt_id
    assert {json.loads(str(one.how))["step_time_source"] for one in found}
    assert "simulated" in done.out


@pytest.mark.thorough
def test_an_engine_is_loaded_once_a_replicate_and_in_another_order(
    run: CommandLine, small: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert run("run", small, "--on", "trtllm", "--replicates", 3, "--seed", 1, "--out", out).code == 0
    opened = [row for row in truth(tmp_path) if row["event"] == "open"]
    assert len(opened) == 6
    order = list(dict.fromkeys((one.record.replicate, str(one.record.engine)) for one in read_attempts(out)[0]))
    first, *later = [[engine for number, engine in order if number == replicate] for replicate in range(3)]
    assert [one.engine for one in records(out) if one.replicate == 0] == [first[0], first[0], first[1], first[1]]
    assert all(sorted(one) == sorted(first) for one in later)
    assert any(one != first for one in later)


def test_a_row_says_what_was_loaded_and_what_it_was_given(run: CommandLine, small: Path, tmp_path: Path) -> None:
    out, store = tmp_path / "run", tmp_path / "store"
    done = run("run", small, *ONE, "--store", store, "--out", out)
    assert done.code == 0, done.err
    assert "building engine" in done.err
    assert "engines are kept in" not in done.err
    (one, *_) = records(out)
    how = json.loads(str(one.how))
    folder = store / str(one.engine) / "llm_args"
    (settings,) = folder.iterdir()
    assert how["settings"] == f"{one.engine}/{settings.name}"
    assert settings.name.startswith("1.3.0rc24-1gpu-decode-")
    assert (how["cuda_graph_batches"], how["weights"], how["pdl"]) == ("2, 8", "none", "not set")
    cache = out / "autotuner" / "1.3.0rc24" / f"{one.engine}-{settings.name}.json"
    assert how["autotuner_cache"] == json.loads(how["environment"])["TLLM_AUTOTUNER_CACHE_PATH"] == str(cache)
    assert "features" not in how
    environment = read_environment(out)
    assert json.loads(environment["backend"]["features"])["version"] == "1.3.0rc24"
    assert environment["options"]["engines"]["store"] == str(store)
    again = run("run", small, *ONE, "--store", store, "--out", tmp_path / "again")
    assert again.code == 0
    assert "building engine" not in again.err


@pytest.mark.thorough
def test_replicates_share_the_autotuners_cache(run: CommandLine, small: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run("run", small, "--on", "trtllm", "--level", "layer", "--replicates", 2, "--out", out).code == 0
    caches = {(one.engine, json.loads(str(one.how))["autotuner_cache"]) for one in records(out)}
    assert len(caches) == 2
    assert {Path(path).parent for _, path in caches} == {out / "autotuner" / "1.3.0rc24"}


@pytest.mark.thorough
def test_engines_go_beside_the_run_where_nothing_is_said(
    run: CommandLine, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run("run", small, *ONE, "-a", "kv_heads=4", "--out", tmp_path / "run")
    assert f"note: engines are kept in {tmp_path / 'run' / 'engines'}" in done.err
    monkeypatch.setenv("TRTLLM_HARNESS_STORE", str(tmp_path / "shared"))
    done = run("run", small, *ONE, "-a", "kv_heads=4", "--out", tmp_path / "other")
    assert "engines are kept in" not in done.err
    assert len(list((tmp_path / "shared").iterdir())) == 1
    assert run("run", small, "--on", "roofline", "--out", tmp_path / "priced").code == 0


# What nothing serves


def test_what_is_not_here_is_unsupported_and_starts_no_process(run: CommandLine, tmp_path: Path) -> None:
    asked = study(
        tmp_path / "elsewhere.yaml", systems=["b200_sxm", "h200_sxm"],
        axes={"kv_heads": [8], "parallelism.tp": [1, 16]}, variant={**DENSE.model_dump(mode="json"), "q_heads": 16},
    )  # fmt: skip
    done = run("run", asked, *ONE, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    by_reason = defaultdict(list)
    for one in records(tmp_path / "run"):
        by_reason[one.status, one.reason].append((one.system, one.tp))
    assert set(by_reason[("ok", None)]) == {("b200_sxm", 1)}
    elsewhere = "this machine has NVIDIA B200 (b200_sxm), and the case asks for h200_sxm"
    assert {system for system, _ in by_reason["unsupported", elsewhere]} == {"h200_sxm"}
    assert len([row for row in truth(tmp_path) if row["event"] == "open"]) == 1


def test_levels_that_no_engine_answers_are_unsupported(run: CommandLine, tmp_path: Path) -> None:
    asked = study(tmp_path / "ops.yaml", level="op", ops=["layer.attn.attention"])
    done = run("run", asked, *ONE, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert {(one.status, one.log) for one in records(tmp_path / "run")} == {("unsupported", None)}
    assert "not level op; add --level layer" in str(records(tmp_path / "run")[0].reason)
    assert not (tmp_path / "run" / "engines").exists()


def test_a_model_that_fits_no_gpu_is_rejected_and_its_layers_run(run: CommandLine, tmp_path: Path) -> None:
    large = {**DENSE.model_dump(mode="json"), "layers": 400, "hidden": 8192, "ffn": 28672}
    asked = study(tmp_path / "large.yaml", variant=large, workloads={"decode": {"batch": 8, "kvsl": 1024}})
    assert run("run", asked, *ONE, "--out", tmp_path / "model").code == 0
    assert {one.status for one in records(tmp_path / "model")} == {"rejected"}
    assert str(records(tmp_path / "model")[0].reason).startswith("memory: ")
    done = run("run", asked, *ONE, "--level", "layer", "--out", tmp_path / "layer")
    assert done.code == 0, done.err
    assert {one.status for one in records(tmp_path / "layer")} == {"ok"}


@pytest.mark.thorough
def test_an_engine_that_cannot_be_made_costs_its_cases(run: CommandLine, small: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert run("run", small, *ONE, "-a", "kv_heads=4", "--store", store, "--out", tmp_path / "first").code == 0
    (key,) = {str(one.engine) for one in records(tmp_path / "first")}
    llm_args = store / key / "llm_args"
    for path in sorted(llm_args.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    llm_args.rmdir()
    llm_args.write_text("in the way of a folder", encoding="utf-8")
    out = tmp_path / "run"
    done = run("run", small, "--on", "trtllm", "--replicates", 2, "--store", store, "--out", out)
    assert done.code == 3, done.err
    found = records(out)
    assert [(one.status, one.engine == key, one.replicate) for one in found] == [
        ("build_failed", True, 0), ("build_failed", True, 0),
        ("ok", False, 0), ("ok", False, 1), ("ok", False, 0), ("ok", False, 1),
    ]  # fmt: skip
    assert "`trtllm-harness build` makes the engine alone" in (out / "index.html").read_text(encoding="utf-8")
    llm_args.unlink()
    resume = ("run", small, "--on", "trtllm", "--store", store, "--out", out, "--resume")
    assert run(*resume).code == 3
    assert run(*resume, "--retry-failed").code == 0
    assert [(one.status, one.replicate) for one in records(out)] == [("ok", 0), ("ok", 1)] * 4


# Every failure of the double

#: Failure → status, a part of the reason, and of the advice.
FAILURES = [
    ("oom:KV cache", "oom", "KV cache", "shorter KVSL"),
    ("torch-oom", "oom", "", ""),
    ("torch-oom:run:4", "oom", "", ""),
    ("native-abort:64", "crash", "head size 64", "lint"),
    ("nccl", "crash", "NCCL", ""),
    ("mpi-abort", "crash", "", ""),
    ("mpi-abort:run:4", "crash", "", ""),
    ("shm", "crash", "", "--ipc=host"),
    ("eplb", "crash", "madvise", ""),
    ("validation", "crash", "", ""),
    ("slots", "crash", "slots", ""),
    ("root", "crash", "root", ""),
    ("wrong-length", "invalid", "output lengths", ""),
    ("reuse", "invalid", "kv reuse", ""),
    ("lost-stats", "invalid", "", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("failure", "status", "reason", "advice"),
    mostly_thorough(FAILURES, {"oom:KV cache", "nccl", "wrong-length"}, name=itemgetter(0)),
)
def test_a_failure_ends_in_its_class_and_the_run_goes_on(
    run: CommandLine, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    failure: str, status: str, reason: str, advice: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("TRTLLM_DOUBLE_FAIL", f"{failure}@num_key_value_heads=4")
    out = tmp_path / "run"
    done = run("run", small, *ONE, "--out", out)
    found = records(out)
    assert [(one.kv_heads, one.status) for one in found] == [(4, status), (4, status), (8, "ok"), (8, "ok")], [
        one.reason for one in found
    ]
    assert done.code == 3
    assert reason in str(found[0].reason)
    assert found[0].step_ms is None
    page = (out / "index.html").read_text(encoding="utf-8")
    assert found[0].attempt_id in page
    if status != "invalid":
        assert json.loads(str(found[0].how))["advice"]
        assert advice in json.loads(str(found[0].how))["advice"]
    assert found[0].log
    assert (out / found[0].log).is_file()


def test_layers_whose_outputs_are_no_numbers_have_no_time(
    run: CommandLine, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRTLLM_DOUBLE_FAIL", "nan@num_key_value_heads=4")
    assert run("run", small, *ONE, "--level", "layer", "--out", tmp_path / "run").code == 3
    found = records(tmp_path / "run")
    assert [(one.status, one.step_ms is None) for one in found] == [("invalid", True)] * 2 + [("ok", False)] * 2
    assert "Has nan" in str(found[0].reason)


@pytest.mark.parametrize("failure", mostly_thorough(["hang:start", "hang:run:200"], {"hang:run:200"}))
def test_a_hang_is_a_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str) -> None:
    monkeypatch.setenv("TRTLLM_DOUBLE_FAIL", f"{failure}@num_key_value_heads=4")
    asked = study(tmp_path / "short.yaml", workloads={"decode": {"batch": 1, "kvsl": 128}})
    suite, studies = load_suite(str(asked), Overrides())
    impatient = Limits(startup_s=60, idle_s=8, arm_s=8, stop_s=1)
    options = MeasureOptions(on="trtllm", replicates=1, limits=impatient, engines=EngineAsk())
    run_measured(make_plan(suite, studies), tmp_path / "run", options)
    assert [one.status for one in records(tmp_path / "run")] == ["timeout", "ok"]


def test_an_instance_that_does_not_start_is_tried_twice_and_not_for_every_case(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRTLLM_DOUBLE_FAIL", "nccl")
    asked = study(tmp_path / "many.yaml", axes={}, workloads={"decode": {"batch": [1, 2, 4, 8], "kvsl": 1024}})
    assert run("run", asked, *ONE, "--out", tmp_path / "run").code == 3
    found = records(tmp_path / "run")
    assert [one.status for one in found] == ["crash"] * 4
    assert len({one.log for one in found}) == 2
    assert [("was not tried" in str(one.reason)) for one in found] == [False, False, True, True]


@pytest.mark.thorough
def test_a_leaking_instance_leaves_no_process(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRTLLM_DOUBLE_FAIL", "leak")
    asked = study(tmp_path / "two.yaml", axes={"parallelism.tp": [2]})
    assert run("run", asked, *ONE, "--out", tmp_path / "run").code == 0
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"--leak" in _read(path)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


# Several ranks


def test_the_slowest_of_several_ranks_is_recorded(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("PMI_RANK", "0")
    asked = study(tmp_path / "ranks.yaml", axes={"parallelism.tp": [4]})
    done = run("run", asked, *ONE, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    (process,) = by_process(truth(tmp_path))
    assert {row["rank"] for row in process} == {0, 1, 2, 3}
    for record in records(tmp_path / "run"):
        assert record.step_ms == pytest.approx(true_ms(process, record), rel=0.01)
        how = json.loads(str(record.how))
        assert (how["ranks"], how["ranks_reported"]) == (4, 4)
        assert how["environment_cleared"] == "PMI_RANK, SLURM_PROCID"


@pytest.mark.mpi
def test_mpirun_starts_the_ranks_on_request(run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{TESTS / 'doubles' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    asked = study(tmp_path / "ranks.yaml", axes={"parallelism.tp": [2]})
    done = run("run", asked, *ONE, "--backend-option", "launcher=mpirun", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    (process,) = by_process(truth(tmp_path))
    assert {row["rank"] for row in process} == {0, 1}
    for record in records(tmp_path / "run"):
        assert record.step_ms == pytest.approx(true_ms(process, record), rel=0.01)
        assert record.answered_with == "tensorrt_llm 1.3.0rc24, launcher mpirun"


@pytest.mark.thorough
@pytest.mark.mpi
def test_a_rank_that_aborts_under_mpirun_is_a_crash(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{TESTS / 'doubles' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TRTLLM_DOUBLE_FAIL", "mpi-abort:run:4")
    asked = study(
        tmp_path / "ranks.yaml", axes={"parallelism.tp": [2]}, workloads={"decode": {"batch": 8, "kvsl": 1024}}
    )
    done = run("run", asked, *ONE, "--backend-option", "launcher=mpirun", "--out", tmp_path / "run")
    assert done.code == 3, done.err
    assert [one.status for one in records(tmp_path / "run")] == ["crash"]


@pytest.mark.parametrize(
    ("version", "backend"),
    mostly_thorough(
        product(PERSONALITIES, (None, "WIDEEP")),
        {"1.3.0rc24 WIDEEP"},
        name=lambda row: " ".join(filter(None, row)),
    ),
)
def test_wide_ep_is_accepted_or_refused_for_its_reason(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, backend: str | None
) -> None:
    monkeypatch.setenv("TRTLLM_DOUBLE", version)
    monkeypatch.setenv("TRTLLM_DOUBLE_GPUS", "32")
    ranks = {f"{n} ranks": {"parallelism.tp": n, "parallelism.ep": n, "parallelism.slots": 96} for n in (8, 16, 32)}
    asked = study(
        tmp_path / "wide.yaml", variant={**SPARSE, "experts": {"count": 64, "top_k": 2, "inter": 512}},
        axes={"ranks": ranks}, parallelism={"attention_dp": True}, workloads={"decode": {"batch": 64, "kvsl": 1024}},
    )  # fmt: skip
    named = ("--moe-backend", backend) if backend else ()
    done = run("run", asked, *ONE, *named, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    found = records(tmp_path / "run")
    assert [one.world_size for one in found] == [8, 16, 32]
    if backend == "WIDEEP" and version in {"1.3.0rc24", "1.4"}:
        assert {one.status for one in found} == {"rejected"}
        assert all("WIDEEP" in str(one.reason) for one in found)
    else:
        assert [one.status for one in found] == ["ok"] * 3, [one.reason for one in found]
        assert [json.loads(str(one.how))["ranks"] for one in found] == [8, 16, 32]


# Runs taken up again


def test_a_run_is_resumed_and_failed_rows_are_measured_again(
    run: CommandLine, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    monkeypatch.setenv("TRTLLM_DOUBLE_FAIL", "nccl@num_key_value_heads=4")
    assert run("run", small, *ONE, "--out", out).code == 3
    monkeypatch.delenv("TRTLLM_DOUBLE_FAIL")
    assert run("run", small, "--on", "trtllm", "--out", out, "--resume").code == 3
    assert len(read_attempts(out)[0]) == 4
    assert run("run", small, "--on", "trtllm", "--out", out, "--resume", "--retry-failed").code == 0
    assert len(read_attempts(out)[0]) == 6
    assert {one.status for one in records(out)} == {"ok"}


def test_the_budget_ends_a_run(run: CommandLine, small: Path, tmp_path: Path) -> None:
    done = run("run", small, *ONE, "--budget", "1s", "--out", tmp_path / "run", "--no-report")
    assert done.code == 124
    done = run("run", small, *ONE, "--resume", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert {one.status for one in records(tmp_path / "run")} == {"ok"}


@pytest.mark.thorough
def test_one_case_is_asked_again_with_the_settings_of_its_run(run: CommandLine, small: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run("run", small, *ONE, "--out", out).code == 0
    done = run("rerun", out, "0", "--json")
    assert done.code == 0, done.err
    before, now = (json.loads(done.json[which]["how"]) for which in ("before", "now"))
    assert done.json["now"]["engine"] == done.json["before"]["engine"]
    same = ("settings", "autotuner_cache", "cuda_graph_batches")
    assert {name: now[name] for name in same} == {name: before[name] for name in same}
    assert done.json["change_pct"] == pytest.approx(0, abs=3)


def test_rows_of_a_double_never_meet_measured_ones(run: CommandLine, small: Path, tmp_path: Path) -> None:
    simulated, measured = tmp_path / "simulated", tmp_path / "measured"
    assert run("run", small, *ONE, "--out", simulated, "--no-report").code == 0
    measured.mkdir()
    for name in ("study.yaml", "environment.json", "journal.jsonl"):
        text = (simulated / name).read_text(encoding="utf-8")
        (measured / name).write_text(text.replace('"simulated"', '"measured"'), encoding="utf-8")
    done = run("run", small, *ONE, "--out", measured, "--resume")
    assert done.code == 2
    assert "holds measured rows, and what answers now makes simulated ones" in done.err
    both = build_report([read_run(simulated), read_run(measured)])
    assert [(one.provenance, dict(one.counts)) for one in both.sections] == [
        ("simulated", {"ok": 4}),
        ("measured", {"ok": 4}),
    ]


# Options


def test_settings_can_be_those_of_another_version(run: CommandLine, small: Path, tmp_path: Path) -> None:
    done = run("run", small, *ONE, "-a", "kv_heads=4", "--trtllm-version", "1.3.0rc20", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    assert "settings are those for TensorRT-LLM 1.3.0rc20, and 1.3.0rc24 is installed" in done.err
    assert {one.answered_with for one in records(tmp_path / "run")} == {"tensorrt_llm 1.3.0rc24, version 1.3.0rc20"}
    done = run("run", small, *ONE, "--trtllm-version", "1.1.0", "--out", tmp_path / "old")
    assert done.code == 2
    assert "TensorRT-LLM 1.1.0 is older than 1.2.1" in done.err


def test_options_of_engines_mean_nothing_to_others(run: CommandLine, small: Path, tmp_path: Path) -> None:
    done = run("run", small, "--on", "torch", "--store", tmp_path, "--out", tmp_path / "run")
    assert (done.code, done.err) == (2, "error: --store: is about engines, and torch loads none\n")
    done = run("run", small, "--on", "roofline", "--moe-backend", "CUTLASS", "--out", tmp_path / "run")
    assert done.code == 2
    assert "--moe-backend: is about measured runs" in done.err


def test_without_tensorrt_llm_the_machine_is_unfit(
    run: CommandLine, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    done = run("run", small, *ONE, "--out", tmp_path / "run")
    assert done.code == 4
    assert "trtllm" in done.err
