"""`selftest` against the doubles: every version passes, and an altered fact is named."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from command_line import PROCESS, REPOSITORY, CommandLine
from thorough import mostly_thorough
from trtllm_runs import EVERY_VERSION

from harness.backends.trtllm.checks import run_probe
from harness.backends.trtllm.evidence import Fact, facts, release_of
from harness.backends.trtllm.observations import CHECKS

DOUBLES = REPOSITORY / "tests" / "doubles"


def selftest(*arguments: str, **environment: str) -> tuple[int, dict[str, Any]]:
    """Run it in a process that finds the double; environment variables without their TRTLLM_DOUBLE."""
    path = os.pathsep.join(map(str, (DOUBLES, REPOSITORY / "tests", REPOSITORY)))
    variables = {f"TRTLLM_DOUBLE{name}": value for name, value in environment.items()}
    done = subprocess.run(
        [*PROCESS, "selftest", "--json", *arguments],
        env={**os.environ, "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def outcomes(told: dict[str, Any]) -> dict[str, str]:
    return {one["fact"]: one["outcome"] for one in told["facts"]}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of TensorRT-LLM as far as it is looked at."""
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "layer_wise_benchmarks").symlink_to(DOUBLES / "layer_wise_benchmarks")
    return tmp_path


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_every_version_of_the_double_passes(version: str, checkout: Path) -> None:
    code, told = selftest("--layerwise-checkout", str(checkout), **{"": version})
    found = outcomes(told)
    assert (code, told["version"], told["is_double"]) == (0, version, True)
    assert set(found) == {name for name, fact in facts().items() if fact.concerns(version)}
    assert set(found.values()) == {"pass", "cannot check"}
    unseen = {name for name, outcome in found.items() if outcome == "cannot check"}
    assert unseen - {name for name, fact in facts().items() if fact.cannot} == {
        name for name in found if name.startswith("nvfp4")
    }


#: Version, what is altered, the fact that then fails.
ALTERED = [
    ("1.2.1", "missing_field=max_stats_len", "settings-are-known"),
    ("1.2.1", "engine_backend=false", "engine-backend-is-there"),
    ("1.4", "engine_backend=true", "engine-backend-is-gone"),
    ("1.3.0rc8", "layer_wise=false", "layer-wise-runner-imports"),
    ("1.4", "layer_wise_unit=ms", "layer-wise-lines-are-in-us"),
    ("1.2.1", "ignore_eos=false", "lengths-are-fixed"),
    ("1.3.0rc24", "missing_statistics=numCtxTokens", "records-have-counts"),
    ("1.2.1", "host_step_time=true", "records-have-no-device-time"),
    ("1.3.0rc24", "host_step_time=false", "records-have-lagging-device-time"),
    ("1.4", "gpu_forward_time=false", "records-have-forward-time"),
    ("1.4", "kv_tokens=false", "records-have-kv-tokens"),
    ("1.4", "rank_records=false", "records-name-their-rank"),
    ("1.3.0rc24", "iter_log_unit=us", "iteration-lines-are-read"),
    ("1.2.1", "iter_log=elapsed", "iteration-lines-have-device-time"),
    ("1.3.0rc8", "stats_lag=2", "device-time-lags-by-one"),
    ("1.3.0rc24", "stats_lag=2", "record-lags-by-one"),
    ("1.2.1", "graph_padding_in_log=false", "lines-count-graph-padding"),
    ("1.3.0rc24", "cached_kv_tokens=false", "lines-have-cached-tokens"),
    ("1.4", "empty_iterations=false", "idle-loops-make-no-record"),
    ("1.3.0rc8", "latency_spans=1", "latency-spans-two-loops"),
    ("1.2.1", "ring_keeps=oldest", "ring-keeps-the-newest"),
    ("1.2.1", "head_size=ValueError", "head-size-aborts"),
    ("1.3.0rc24", "head_size=abort", "head-size-raises"),
    ("1.3.0rc24", "wideep=runs", "wideep-is-refused"),
    ("1.3.0rc8", "blockscale_default=CUTLASS", "block-scales-run-with-auto"),
    ("1.2.1", "hopper_nvfp4=weight_only", "nvfp4-needs-blackwell"),
    ("1.4", "hopper_nvfp4=refused", "nvfp4-is-dequantised-on-hopper"),
    ("1.3.0rc24", "helix_alone=accepted", "helix-alone-is-refused"),
    ("1.3.0rc24", "forced_acceptance=ignored", "acceptance-is-forced"),
]
#: Facts of a double that no fact of the evidence is about → why.
NOT_EVIDENCE = {
    "version": "a name",
    "schema": "the fields of a version as a whole; missing_field alters one of them",
    "helix_gqa": "cases with Helix do not run at level model",
    "record_number_ahead": "numbers of records are compared with each other alone",
    "perf_metrics": "not used",
    "calibrator": "not used",
    "layer_wise_line": "fields of a result line are matched independently",
    "banner": "answers of the harness are free of it, see below",
    "dataset_command": "requests are written by the harness itself",
}


@pytest.mark.parametrize(
    ("version", "alteration", "fact"),
    mostly_thorough(
        ALTERED,
        {"missing_field=max_stats_len 1.2.1", "stats_lag=2 1.3.0rc24", "layer_wise_unit=ms 1.4"},
        name=lambda row: f"{row[1]} {row[0]}",
    ),
)
def test_an_altered_fact_is_named(version: str, alteration: str, fact: str, checkout: Path) -> None:
    asked = ("--fact", fact, "--layerwise-checkout", str(checkout))
    gpu = "NVIDIA H200" if fact.startswith("nvfp4") else "NVIDIA B200"
    # Of one seed: whether an answer ends early is a chance.
    code, told = selftest(*asked, **{"": version, "_ALTER": alteration, "_GPU": gpu, "_SEED": "1"})
    assert (code, outcomes(told)) == (3, {fact: "fail"})
    assert told["facts"][0]["first"]
    _, unaltered = selftest(*asked, **{"": version, "_GPU": gpu})
    assert outcomes(unaltered) == {fact: "pass"}


@pytest.mark.parametrize("alteration", mostly_thorough(["iter_log_unit=us", "stats_lag=2"], {"stats_lag=2"}))
def test_no_other_fact_is_blamed(alteration: str) -> None:
    _, told = selftest(**{"": "1.2.1", "_ALTER": alteration})
    failed = [name for name, outcome in outcomes(told).items() if outcome == "fail"]
    assert failed == [fact for version, one, fact in ALTERED if one == alteration][:1]


def load_era() -> ModuleType:
    spec = importlib.util.spec_from_file_location("era_of_the_double", DOUBLES / "tensorrt_llm" / "_double" / "era.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_fact_of_the_double_is_altered_or_said_why_not() -> None:
    names = {field.name for field in dataclasses.fields(load_era().Era)}
    assert {alteration.partition("=")[0] for _, alteration, _ in ALTERED} | set(NOT_EVIDENCE) == names


def test_what_the_package_prints_is_not_in_the_answer() -> None:
    _, told = selftest("--fact", "lengths-are-fixed", **{"": "1.2.1", "_ALTER": "banner=true"})
    assert outcomes(told) == {"lengths-are-fixed": "pass"}


def test_without_tensorrt_llm_it_says_how_to_get_it(run: CommandLine) -> None:
    outcome = run("selftest")
    assert outcome.code == 4
    assert "docs/gpu-node.md" in outcome.err


def test_an_unknown_fact_is_a_usage_error(run: CommandLine) -> None:
    assert run("selftest", "--fact", "nothing").code == 2


def test_a_probe_that_hangs_is_ended_and_the_fact_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (DOUBLES, REPOSITORY / "tests", REPOSITORY))))
    monkeypatch.setenv("TRTLLM_DOUBLE_FAIL", "hang")
    seen = run_probe("decode", limit_s=3.0)
    assert (seen.data, seen.returncode) == (None, None)
    code, told = selftest("--fact", "lengths-are-fixed", "--probe-timeout", "3", **{"": "1.2.1", "_FAIL": "hang"})
    assert code == 4
    assert "took too long" in told["facts"][0]["found"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


# --- the evidence itself


def test_every_check_belongs_to_one_fact_and_every_fact_has_one_or_says_why_not() -> None:
    named = [fact.check for fact in facts().values() if fact.check]
    assert sorted(named) == sorted(CHECKS)
    assert {fact.check for fact in facts().values()} == {
        name.replace("-", "_") if not fact.cannot else "" for name, fact in facts().items()
    }


def test_a_fact_holds_for_the_versions_that_it_was_read_for() -> None:
    fact = Fact(says="s", used="u", source="s", first="f", check="c", since="1.3.0rc17", before="1.4.0")
    assert [fact.concerns(one) for one in ("1.2.1", "1.3.0rc16", "1.3.0rc17", "1.3.0rc20.dev1+g2", "1.4.0")] == [
        False, False, True, True, False,
    ]  # fmt: skip
    assert not fact.concerns("main")
    assert release_of("1.3.0rc8.dev3+g1") == "1.3.0rc8"
    with pytest.raises(ValueError, match="either `check` or `cannot`"):
        Fact(says="s", used="u", source="s", first="f")


def test_sources_name_what_can_be_looked_up() -> None:
    for name, fact in facts().items():
        assert "/work" not in fact.source, name
        assert Path(fact.source).name, name
