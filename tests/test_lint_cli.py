"""`trtllm-harness lint` and `variants`: what they print and how they exit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from shapes import LLAMA_8B

from harness.files import dump_yaml


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


def write(path: Path, data: dict[str, Any]) -> Path:
    path.write_text(dump_yaml(data))
    return path


@pytest.fixture
def shape(tmp_path: Path) -> Path:
    return write(tmp_path / "shape.yaml", LLAMA_8B)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    data = {
        "title": "Group size and head size",
        "variant": {**LLAMA_8B, "q_heads": 64},
        "axes": {"G": [8, 64], "head_dim": [128, 192]},
        "workloads": {"decode": {"batch": [1, 8], "kvsl": 4096}},
        "systems": ["b200_sxm", "h200_sxm"],
        "exclude": [{"when": {"G": 8, "head_dim": 192}, "reason": "not asked"}],
    }
    return write(tmp_path / "heads.yaml", data)


def test_a_variant_without_findings(run: CommandLine, shape: Path) -> None:
    outcome = run("lint", shape)

    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        "llama-8b",
        "1 variant on b200_sxm, h200_sxm, TensorRT-LLM 1.3.0rc20: 1 ok, 0 with warnings, 0 with errors",
    ]


def test_a_cache_that_does_not_fit_is_an_error(run: CommandLine) -> None:
    """128 · 32,768 tokens of 80 layers of 2 · 8 · 128 bytes are 640 GiB, of which 8 GPUs hold 80 each."""
    outcome = run("lint", "dense-70b", "--gpu", "h200_sxm", "-w", "decode:batch=128,kvsl=32768")

    assert outcome.code == 2
    _, finding, _ = outcome.out.splitlines()
    assert finding.startswith(
        "  error    memory-fit: workload is decode b 128 KVSL 32768 (limit: the 139.5 GiB of h200_"
    )
    assert "578.6 GiB a GPU short: weights 67.7, " in finding
    assert finding.endswith("KV 640.0 GiB of 139.5, where 61.4 GiB are left for KV. Works: tp 8")


def test_weights_that_do_not_fit_one_gpu_are_a_warning(run: CommandLine) -> None:
    outcome = run("lint", "dense-70b", "--set", "weights=bf16", "--gpu", "h100_sxm")

    assert outcome.code == 0
    assert "  warning  memory-fit: weights is 131." in outcome.out
    assert "1 with warnings" in outcome.out


@pytest.mark.parametrize(("level", "code"), [("model", 2), ("layer", 0)])
def test_only_whole_models_are_weighed(run: CommandLine, tmp_path: Path, level: str, code: int) -> None:
    data = {
        "title": "Large batches", "variant": LLAMA_8B, "level": level, "systems": ["h200_sxm"],
        "workloads": {"decode": {"batch": [1, 4096], "kvsl": 32768}},
    }  # fmt: skip
    outcome = run("lint", write(tmp_path / "large.yaml", data), "--json")

    assert outcome.code == code
    assert [one["value"] for one in outcome.json["findings"]] == ["decode b 4096 KVSL 32768"] * (code > 0)


def test_findings_of_a_variant_one_a_line_and_where_they_hold(run: CommandLine, shape: Path) -> None:
    outcome = run("lint", shape, "-p", "tp=16", "--set", "weights=nvfp4", "--set", "kv_heads=4")

    assert outcome.code == 2
    name, error, warning, total = outcome.out.splitlines()
    assert name == "llama-8b"
    assert error.startswith(
        "  error    nvfp4-gpu: weights.attention, weights.ffn is nvfp4 (limit: sm 100, 103, 120, 121; "
    )
    assert error.endswith("  [h200_sxm]")
    assert warning.startswith("  warning  kv-heads-duplicated: parallelism.tp is 16 (limit: at most kv_heads 4): ")
    assert warning.endswith("Works: tp 1, 2, 4")
    assert total.endswith("0 ok, 0 with warnings, 1 with errors")


def test_what_does_not_fit_together_is_judged_beside_all_else(run: CommandLine, shape: Path) -> None:
    outcome = run("lint", shape, "--gpu", "b200_sxm", "-p", "parallelism.tp=6", "-p", "ep=4", "--json")

    assert outcome.code == 2
    assert [one["rule"] for one in outcome.json["findings"]] == [
        "q-heads-split",
        "kv-heads-split",
        "dimension-split",
        "moe-ranks",
        "experts-without-moe",
    ]


def test_json_carries_rules_values_and_totals(run: CommandLine, shape: Path) -> None:
    outcome = run("lint", shape, "--set", "head_dim=96", "--gpu", "gb200", "--strict", "--json")

    assert outcome.code == 2
    data = outcome.json
    [finding] = data["findings"]
    assert finding == {
        "rule": "head-size-unfused",
        "severity": "error",
        "variant": "llama-8b",
        "field": "head_dim",
        "value": 96,
        "limit": "one of 64, 80, 128, 256, 512 with bf16 KV on gb200 (sm 100)",
        "message": finding["message"],
        "works": "pad to head_dim 128",
        "systems": ["gb200"],
        "cases": 1,
    }
    assert {key: data[key] for key in ("version", "strict", "systems", "totals", "problems")} == {
        "version": "1.3.0rc20",
        "strict": True,
        "systems": ["gb200"],
        "totals": {"ok": 0, "warning": 0, "error": 1},
        "problems": [],
    }


def test_settings_workload_and_version(run: CommandLine, shape: Path) -> None:
    helix = [
        "lint",
        shape,
        "--gpu",
        "b200_sxm",
        "-p",
        "cp=4",
        "--cp-tokens-per-block",
        "64",
        "--tokens-per-block",
        "32",
    ]
    short = run(*helix, "-w", "decode:batch=1,kvsl=96", "--json").json["findings"]
    later = run(*helix, "-w", "decode:batch=1,kvsl=96", "--target-version", "1.3.0rc21", "--json").json["findings"]

    assert [one["rule"] for one in short] == ["helix-block-size", "helix-short-sequence"]
    assert [one["rule"] for one in later] == ["helix-block-size"]


def test_a_moe_backend(run: CommandLine, shape: Path) -> None:
    moe = ["lint", shape, "--set", "experts={count: 64, top_k: 4, inter: 1536}", "--set", "weights=fp8_block"]

    assert run(*moe, "--moe-backend", "cutlass", "--gpu", "b200_sxm").code == 2
    assert run(*moe, "--moe-backend", "cutlass", "--gpu", "h200_sxm").code == 0


def test_a_study_over_all_its_cases_equal_findings_once(run: CommandLine, study: Path) -> None:
    data = run("lint", study, "--json").json

    # Three of four shapes are asked, each for two batches on two GPUs.
    assert data["cases"] == 12
    assert data["totals"] == {"ok": 1, "warning": 1, "error": 1}
    found = [(one["rule"], one["severity"], one["variant"], one["systems"], one["cases"]) for one in data["findings"]]
    wide = "llama-8b G=64 head_dim=192"
    assert found == [
        ("group-size-cliff", "warning", "llama-8b G=64 head_dim=128", ["b200_sxm"], 2),
        ("group-size-cliff", "warning", "llama-8b G=64 head_dim=128", ["h200_sxm"], 2),
        ("head-size-unsupported", "error", wide, ["b200_sxm"], 2),
        ("group-size-cliff", "warning", wide, ["b200_sxm"], 2),
        ("group-size-cliff", "warning", wide, ["h200_sxm"], 2),
    ]


def test_gpus_replace_those_of_a_study(run: CommandLine, study: Path) -> None:
    outcome = run("lint", study, "--gpu", "h200_sxm", "-a", "head_dim=128")

    assert outcome.code == 0
    assert outcome.out.splitlines()[-1] == (
        "2 variants, 4 cases on h200_sxm, TensorRT-LLM 1.3.0rc20: 1 ok, 1 with warnings, 0 with errors"
    )


def test_parallelism_reaches_every_case_of_a_study(run: CommandLine, study: Path) -> None:
    data = run("lint", study, "-a", "head_dim=128", "-a", "G=8", "-p", "tp=16", "--json").json

    assert [(one["rule"], one["value"]) for one in data["findings"]] == [("kv-heads-duplicated", 16)]


def test_a_study_that_cannot_be_expanded_is_a_problem_beside_the_findings(
    run: CommandLine, study: Path, tmp_path: Path
) -> None:
    impossible = {
        "title": "Impossible",
        "variant": LLAMA_8B,
        "axes": {"G": [5]},
        "workloads": {"decode": {"batch": 1, "kvsl": 16}},
    }
    write(tmp_path / "impossible.yaml", {**impossible, "systems": ["b200_sxm"]})
    suite = write(tmp_path / "both.yaml", {"title": "Both", "studies": [study.name, "impossible.yaml"]})

    outcome = run("lint", suite, "--json")

    assert outcome.code == 2
    assert outcome.json["cases"] == 12
    [problem] = outcome.json["problems"]
    assert "32 query heads cannot be split into groups of 5" in problem
    assert outcome.err == f"error: {problem}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing-like-it"], "no variant, study or suite is called 'nothing-like-it'; known variants: "),
        (["SHAPE", "-a", "G=2"], "-a G=2: a variant has no axes"),
        (["STUDY", "-w", "decode:batch=1"], "a study has its own workloads"),
        (["SHAPE", "-w", "generate:batch=1"], "'generate' is no phase"),
        (["SHAPE", "-w", "decode:batch=1,kvls=2"], "-w decode: unknown key 'kvls'; did you mean 'kvsl'?"),
        (["SHAPE", "-p", "tp"], "-p tp: expected NAME=VALUE"),
        (["SHAPE", "-p", "tpp=2"], "-p: unknown key 'tpp'; did you mean 'tp'?"),
        (["SHAPE", "-p", "tp=0"], "-p: tp: Input should be greater than 0"),
        (["SHAPE", "--gpu", "b2000"], "unknown GPU 'b2000'"),
        (["SHAPE", "--target-version", "newest"], "'newest' is no TensorRT-LLM version"),
        (
            ["STUDY", "-a", "head_dim=1..20001", "--gpu", "b200_sxm"],
            "cases are more than 20,000; --yes judges them all",
        ),
        (["gone.yaml"], "gone.yaml: no such file"),
    ],
)
def test_misuse_is_told_in_one_line(
    run: CommandLine, shape: Path, study: Path, arguments: list[str], message: str
) -> None:
    given = [str({"SHAPE": shape, "STUDY": study}.get(argument, argument)) for argument in arguments]

    outcome = run("lint", *given)

    assert outcome.code == 2
    assert message in outcome.err
    assert "Traceback" not in outcome.err


def test_variants_are_listed_with_their_sizes(run: CommandLine) -> None:
    heading, *lines = run("variants", "list").out.splitlines()

    assert heading.split() == ["name", "class", "H", "QH", "KH", "Hsz", "H'", "L", "experts", "parameters"]
    assert ["dense-8b", "dense", "4,096", "32", "8", "128", "14,336", "32", "-", "8,030,261,248"] in [
        line.split() for line in lines
    ]
    [moe] = [row for row in run("variants", "list", "--json").json if row["name"] == "moe-235b"]
    assert (moe["class"], moe["experts"], moe["parameters"]) == ("moe", 128, 235_093_610_496)


def test_a_variant_is_shown_with_what_follows_from_it(run: CommandLine) -> None:
    data = run("variants", "show", "dense-8b", "--set", "kv_heads=4", "--set", "kv_format=nvfp4", "--json").json
    lines = run("variants", "show", "dense-8b").out.splitlines()

    # 2 · 4 heads · 128 values · 32 layers · 0.5625 bytes
    assert (data["group_size"], data["kv_bytes_per_token"], data["class"]) == (8, 18_432, "dense")
    assert data["weights"] == {"attention": "fp8", "ffn": "fp8", "experts": "fp8", "lm_head": "bf16"}
    assert [line.split(maxsplit=1) for line in lines][-1] == ["parameters", "8,030,261,248"]
    assert ["attention", "full"] in [line.split(maxsplit=1) for line in lines]


def test_a_latent_variant_says_so(run: CommandLine, tmp_path: Path) -> None:
    path = write(tmp_path / "latent.yaml", {**LLAMA_8B, "attention": "mla", "mla": {}, "kv_heads": 1})

    data = run("variants", "show", path, "--json").json

    # (512 + 64) values · 2 bytes · 32 layers
    assert (data["class"], data["kv_bytes_per_token"]) == ("dense, mla", 36_864)
    assert run("variants", "show", path, "--set", "headd=1").code == 2


def test_a_cpu_is_judged_by_shape_alone(run: CommandLine) -> None:
    outcome = run("lint", "cpu-dense", "--gpu", "cpu")

    assert outcome.code == 0
    assert outcome.out.splitlines() == [
        "cpu-dense",
        "1 variant on cpu, shapes and splits alone: 1 ok, 0 with warnings, 0 with errors",
    ]
    assert run("lint", "cpu-dense", "--gpu", "cpu", "--set", "kv_heads=3").code == 2
    on_gpu = run("lint", "cpu-smoke", "--gpu", "h200_sxm")
    assert on_gpu.code == 2
    assert on_gpu.out.count("fp32-gpu") == 4


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["price", "gemm", "--gpu=cpu", "--m=1", "--n=8", "--k=8", "--format=bf16"], "but a backend can answer"),
        (["run", "cpu-smoke", "--on", "roofline", "--out", "run"], "nothing but a backend can answer"),
        (["systems", "show", "cpu"], "cpu is the processor of the machine that runs a case"),
        (["build", "cpu-smoke", "--store", "store"], "cpu: engines are TensorRT-LLM's, which runs on GPUs only"),
        (["build", "cpu-dense", "--gpu", "cpu", "--store", "store"], "TensorRT-LLM's, which runs on GPUs only"),
        (["build", "cpu-dense", "--gpu", "h200_sxm", "--store", "store"], "fp32-gpu: "),
    ],
)
def test_what_a_cpu_or_fp32_cannot_is_told_in_one_line(
    run: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run(*command)
    assert (outcome.code, outcome.out) == (2, "")
    [line] = outcome.err.splitlines()
    assert says in line
    assert list(tmp_path.iterdir()) == []
