"""Which cases share an engine, a process and its settings, and what keeps others from having one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trtllm_runs import DENSE

from harness.backends.base import BackendFacts
from harness.errors import UsageError
from harness.runner.engine_groups import EngineHere, engine_arms, limits_for
from harness.runner.engine_needs import Assigned, EngineAsk, assign, version_of
from harness.runner.groups import MOST_ARMS, ArmGroup, in_order
from harness.runner.limits import Limits
from harness.runner.plan import Plan, make_plan
from harness.spec.base import parse
from harness.spec.study import Study, Suite

HERE = BackendFacts("simulated", "tensorrt_llm 1.3.0rc24", "NVIDIA B200", (), {"version": "1.3.0rc24", "gpus": 8})
ASK = EngineAsk()


def plan(*changes: dict[str, Any]) -> Plan:
    studies = []
    for number, one in enumerate(changes or ({},)):
        data = {
            "name": f"s{number}", "title": "t", "variant": DENSE.model_dump(mode="json"), "level": "model",
            "systems": ["b200_sxm"], "axes": {"kv_heads": [4, 8]},
            "workloads": {"decode": {"batch": [1, 8], "kvsl": [1024, 4096]}, "prefill": {"batch": 1, "isl": 512}},
            **one,
        }  # fmt: skip
        studies.append(parse(Study, data, f"s{number}"))
    return make_plan(Suite(name="s", title="t", studies=tuple(one.name for one in studies)), studies)


def groups(assigned: Assigned, launcher: str = "spawn") -> list[ArmGroup]:
    """The groups, had every engine been built."""
    here = {
        number: EngineHere(one.need.spec.key, Path(one.need.spec.key) / one.settings.name)
        for number, one in assigned.served.items()
    }
    return engine_arms([step for step in assigned.plan.steps if step.number in here], here, launcher)


def shape(found: list[ArmGroup]) -> dict[str, int]:
    return {group.name: len(group.steps) for group in found}


def test_a_group_is_everything_that_one_engine_serves_with_one_set_of_settings() -> None:
    assert shape(groups(assign(plan(), ASK, HERE))) == {
        "model decode of dense kv_heads=4": 4,
        "model prefill of dense kv_heads=4": 1,
        "model decode of dense kv_heads=8": 4,
        "model prefill of dense kv_heads=8": 1,
    }


def test_studies_that_ask_for_one_engine_share_its_process() -> None:
    decode = {"workloads": {"decode": {"batch": 1, "kvsl": 1024}}, "axes": {"kv_heads": [4]}}
    (group,) = groups(assign(plan(decode, decode), ASK, HERE))
    assert [step.planned.study for step in group.steps] == ["s0", "s1"]


def test_whole_models_are_not_cut_and_layers_are() -> None:
    many = {"axes": {}, "workloads": {"decode": {"batch": [1, 2, 4, 8], "kvsl": [1024, 2048, 4096]}}}
    assert shape(groups(assign(plan(many), ASK, HERE))) == {"model decode of dense": 12}
    found = groups(assign(plan({**many, "level": "layer"}), ASK, HERE))
    assert shape(found) == {f"layer decode of dense, part {number} of 2": 6 for number in (1, 2)}
    assert max(len(group.steps) for group in found) <= MOST_ARMS


def test_engines_come_in_the_order_of_the_plan_and_then_in_another() -> None:
    found = groups(assign(plan(), ASK, HERE))
    assert in_order(found, 0, seed=1) == found
    assert in_order(found, 1, seed=1) == in_order(found, 1, seed=1)
    orders = [in_order(found, replicate, seed=1) for replicate in range(1, 6)]
    assert any(order != found for order in orders)
    assert all(sorted(group.name for group in order) == sorted(shape(found)) for order in orders)


def test_mpirun_is_for_several_ranks_of_whole_models() -> None:
    work = {"axes": {"parallelism.tp": [1, 2]}, "workloads": {"decode": {"batch": 1, "kvsl": 1024}}}
    for level, launcher, expected in (
        ("model", "mpirun", [(1, False), (2, True)]),
        ("model", "spawn", [(1, False), (2, False)]),
        ("layer", "mpirun", [(1, False), (2, False)]),
    ):
        found = groups(assign(plan({**work, "level": level}), ASK, HERE), launcher)
        assert [(one.engine.ranks, one.engine.by_mpirun) for one in found if one.engine] == expected


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"systems": ["h200_sxm"]}, "this machine has NVIDIA B200 (b200_sxm), and the case asks for h200_sxm"),
        ({"axes": {"parallelism.tp": [16]}}, "the case needs 16 GPUs, and here are 8"),
        ({"level": "op", "ops": ["layer.attn.attention"]}, "TensorRT-LLM answers prefill and decode at levels layer"),
        ({"variant": {**DENSE.model_dump(mode="json"), "gated_ffn": False}}, "gate"),
    ],
)
def test_what_no_engine_serves_is_unsupported(changes: dict[str, Any], reason: str) -> None:
    decode = {"workloads": {"decode": {"batch": 1, "kvsl": 1024}}}
    asked = plan({**decode, **changes})
    assigned = assign(asked, ASK, HERE)
    assert not assigned.served
    assert set(assigned.refused) == {step.number for step in asked.steps if step.will_run}
    assert assigned.refused
    assert all(reason in text for text in assigned.refused.values())
    assert not assigned.needs.engines


def test_a_case_that_fits_its_gpu_in_no_company_is_rejected() -> None:
    asked = plan({"axes": {}, "workloads": {"decode": {"batch": [1, 4096], "kvsl": 131072}}})
    assigned = assign(replace(asked, ignore_memory=True), ASK, HERE)
    assert [step.rejection[:8] for step in assigned.plan.steps] == ["", "memory: "]
    assert set(assigned.served) == {0}


def test_memory_is_no_matter_for_layers() -> None:
    asked = plan({"axes": {}, "level": "layer", "workloads": {"decode": {"batch": [1, 4096], "kvsl": 131072}}})
    assigned = assign(asked, ASK, HERE)
    assert set(assigned.served) == {0, 1}
    assert len(assigned.needs.engines) == 1


def test_lint_judges_for_the_version_that_is_installed() -> None:
    sparse = {
        "axes": {}, "workloads": {"decode": {"batch": 8, "kvsl": 1024}},
        "variant": {**DENSE.model_dump(mode="json"), "ffn": 0, "experts": {"count": 16, "top_k": 2, "inter": 512}},
        "parallelism": {"tp": 8, "ep": 8, "attention_dp": True},
    }  # fmt: skip
    asked = replace(ASK, moe_backend="WIDEEP")
    older = replace(HERE, details={"version": "1.2.1", "gpus": 8})
    assert set(assign(plan(sparse), asked, older).served) == {0}
    (step,) = assign(plan(sparse), asked, HERE).plan.steps
    assert "WIDEEP" in step.rejection


def test_settings_are_for_the_version_that_is_installed_or_asked_for() -> None:
    local = replace(HERE, details={"version": "1.3.0rc24+cu130", "gpus": 8})
    assert version_of(ASK, local) == "1.3.0rc24"
    assert version_of(replace(ASK, version="v1.4"), local) == "1.4"
    with pytest.raises(UsageError, match=r"1\.0\.0 is older than 1\.2\.1"):
        version_of(replace(ASK, version="1.0.0"), local)


def test_settings_of_one_case_are_those_of_its_whole_plan() -> None:
    asked = plan({"axes": {}, "workloads": {"decode": {"batch": [1, 8], "kvsl": 1024}}})
    part = replace(asked, steps=asked.steps[:1], whole=asked.steps)
    assert assign(part, ASK, HERE).served[0].settings == assign(asked, ASK, HERE).served[0].settings
    alone = replace(asked, steps=asked.steps[:1])
    assert assign(alone, ASK, HERE).served[0].settings.args.fields["max_batch_size"] == 1


def test_what_decides_numbers_is_part_of_who_answers() -> None:
    assert ASK.told == []
    assert replace(ASK, store="/somewhere", tuner="/else").told == []
    assert replace(ASK, moe_backend="TRTLLM", weights="modelopt").told == ["weights modelopt", "moe_backend TRTLLM"]


def test_limits_grow_with_ranks_and_with_what_fills_the_cache() -> None:
    work = {"axes": {"parallelism.tp": [1, 4]}, "workloads": {"decode": {"batch": 8, "kvsl": 100_000}}}
    one, four = groups(assign(plan(work), ASK, HERE))
    base = Limits(startup_s=900, idle_s=120, arm_s=900)
    assert limits_for(base, one) == Limits(startup_s=900, idle_s=920, arm_s=1700)
    assert limits_for(base, four) == Limits(startup_s=1080, idle_s=920, arm_s=1880)
    (layers,) = groups(assign(plan({**work, "level": "layer", "axes": {}}), ASK, HERE))
    assert limits_for(base, layers) == base
    assert limits_for(base, ArmGroup("no engine", ())) == base
