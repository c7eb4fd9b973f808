"""The torch backend on a GPU: its layers equal the float64 reference there too, and its times are believable."""

from __future__ import annotations

import pytest

from harness.backends.base import CannotAnswer, Setting
from harness.backends.torch_ops.backend import TorchBackend
from harness.cost.decompose import decompose
from harness.hardware import match_device_name
from harness.spec.case import Case

pytestmark = [pytest.mark.torch, pytest.mark.gpu]

SMALL = {"layers": 2, "hidden": 256, "q_heads": 8, "kv_heads": 2, "head_dim": 64, "ffn": 384, "vocab": 128}
SLIDING = {"attention": ["sliding", "full"], "window": 48}
EXPERTS = {"experts": {"count": 8, "top_k": 2, "inter": 128, "shared_inter": 64, "dense_layers": 1}}
PREFILL = {"phase": "prefill", "batch": 2, "isl": 160}
DECODE = {"phase": "decode", "batch": 3, "kvsl": 200}

CASES = {
    "prefill": (PREFILL, {}),
    "prefill in chunks": ({**PREFILL, "chunk": 64}, {}),
    "prefill, sliding": (PREFILL, SLIDING),
    "prefill, sliding in chunks": ({**PREFILL, "chunk": 64}, SLIDING),
    "prefill, experts": (PREFILL, EXPERTS),
    "decode": (DECODE, {}),
    "decode, multi-query": (DECODE, {"kv_heads": 1}),
    "decode, draft tokens": ({**DECODE, "draft_len": 3}, {}),
    "decode, sliding, draft tokens": ({**DECODE, "draft_len": 3}, SLIDING),
    "decode, experts": (DECODE, EXPERTS),
    "decode, experts by a power law": ({**DECODE, "routing": "power_law_1.2"}, EXPERTS),
}


@pytest.fixture(scope="module")
def backend():
    made = TorchBackend()
    facts = made.open(Setting())
    system = match_device_name(facts.device)
    if system is None:
        pytest.skip(f"{facts.device} is no system that the harness knows")
    yield made, system.key
    made.close()


def make_case(system, name, **formats):
    work, changes = CASES[name]
    return Case.model_validate({"variant": {**SMALL, **changes, **formats}, "workload": work, "system": system})


@pytest.mark.parametrize("weights", ["bf16", "fp8"])
@pytest.mark.parametrize("name", CASES)
def test_layers_equal_the_float64_reference(backend, name, weights):
    import float64_layers
    import torch

    made, system = backend
    case = make_case(system, name, weights=weights)
    arm = made.prepare(case, "layer")
    with torch.inference_mode():
        found = float64_layers.computed(case, arm.stack, arm.stack.run())
    wanted = float64_layers.reference(case, arm.stack)
    times = arm.take(3)
    ops = arm.op_times()
    arm.close()

    assert float64_layers.distance(found, wanted) < (2e-2 if weights == "bf16" else 8e-2)
    assert min(times.times_ms) > 0
    assert {one.op for one in ops} == {op.name for op in decompose(case, "layer")}
    assert arm.facts.details["cuda_graph"] is (case.workload.phase == "decode")


def test_a_decode_step_that_reads_a_large_cache_is_no_faster_than_memory(backend):
    made, system = backend
    data = {"variant": {**SMALL, "layers": 8, "kv_heads": 8}, "workload": {**DECODE, "batch": 8, "kvsl": 32768}}
    arm = made.prepare(Case.model_validate({**data, "system": system}), "layer")
    taken = arm.take(20)
    arm.close()

    assert arm.facts.details["beyond_cache"] is True
    assert taken.invalid == ""


def test_another_gpus_case_is_refused(backend):
    made, system = backend
    other = "h100_sxm" if system != "h100_sxm" else "h200_sxm"
    with pytest.raises(CannotAnswer, match=f"and the case asks for {other}"):
        made.prepare(make_case(other, "decode"), "layer")
