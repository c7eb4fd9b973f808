"""Plans: what is rejected before anything is asked."""

from __future__ import annotations

from typing import Any

import pytest
from shapes import LLAMA_8B, MOE, decode, over

from harness.runner.plan import Plan, make_plan, out_of_memory
from harness.spec.base import parse
from harness.spec.study import Study, Suite


def plan(level: str = "model", ignore_memory: bool = False, **changes: Any) -> Plan:
    data = {
        "name": "s", "title": "t", "variant": LLAMA_8B, "level": level, "systems": ["h100_sxm"],
        "workloads": {"decode": {"batch": [1, 256], "kvsl": 32_768}}, **changes,
    }  # fmt: skip
    study = parse(Study, data, "s")
    return make_plan(Suite(name="s", title="t", studies=("s",)), [study], ignore_memory=ignore_memory)


def test_a_model_that_does_not_fit_is_rejected_with_what_would() -> None:
    """256 sequences of 32,768 tokens in bf16 take 1024 GiB."""
    fits, too_large = plan().steps
    assert fits.will_run
    assert too_large.rejection.startswith("memory: ")
    assert "GiB a GPU short" in too_large.rejection
    assert "KV 1024.0 GiB" in too_large.rejection
    assert too_large.rejection.endswith("fits with tp 8 · pp 2")
    assert plan().summary()["rejected"] == 1


@pytest.mark.parametrize("question", [{"level": "layer"}, {"level": "op", "ops": ["lm_head"]}, {"ignore_memory": True}])
def test_kernels_are_asked_about_without_weighing_the_model(question: dict[str, Any]) -> None:
    assert plan(**question).summary()["rejected"] == 0


def test_a_split_that_breaks_the_ranks_is_a_rejected_row_and_no_error() -> None:
    work = {"decode": {"batch": 1, "kvsl": 4096}}
    axes = {"parallelism.ep": [1, 3]}
    steps = plan(variant={**LLAMA_8B, **MOE}, parallelism={"tp": 4}, axes=axes, workloads=work).steps
    rejections = {step.planned.case.parallelism.ep: step.rejection for step in steps}
    assert rejections[1] == ""
    assert rejections[3].startswith("moe-ranks: ")


def test_an_impossible_split_has_no_size() -> None:
    assert out_of_memory(over(decode(), tp=3)) == ""
    assert out_of_memory(decode()) == ""


def test_a_cpu_is_asked_whatever_its_memory_and_kernels() -> None:
    """256 sequences of 32,768 tokens in fp32 take 2 TiB; FP32 is what GPUs reject."""
    fp32 = {**LLAMA_8B, "weights": "fp32", "kv_format": "fp32", "attn_format": "fp32"}
    on_gpu, on_cpu = (plan(variant=fp32, systems=[system]) for system in ("h100_sxm", "cpu"))
    assert on_cpu.summary()["to_run"] == 2
    assert on_gpu.summary()["rejected"] == 2
    assert {step.rejection.partition(":")[0] for step in on_gpu.steps} == {"fp32-gpu"}


def test_what_cannot_be_is_rejected_on_a_cpu_too() -> None:
    [step, _] = plan(variant={**LLAMA_8B, "kv_heads": 6}, systems=["cpu"]).steps
    assert step.rejection.startswith("q-heads-per-kv-head: ")
