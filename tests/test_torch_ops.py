"""What the torch backend times is the work of the case: its layers equal a float64 reference."""

from __future__ import annotations

import importlib

import pytest

from harness.cost.decompose import decompose
from harness.spec.case import Case

pytestmark = pytest.mark.torch

FP32 = {"weights": "fp32", "kv_format": "fp32", "attn_format": "fp32"}
SMALL = {"layers": 2, "hidden": 64, "q_heads": 8, "kv_heads": 2, "head_dim": 16, "ffn": 96, "vocab": 128}

#: Norm-wise, over the stream after two layers: some roundings of fp32, of bf16 (8 bits), of FP8 inputs (4 bits).
BOUNDS = {"fp32": 2e-6, "bf16": 2e-2, "fp8": 8e-2}


def make_case(workload, formats=FP32, **changes):
    return Case.model_validate({"variant": {**SMALL, **formats, **changes}, "workload": workload, "system": "cpu"})


def prefill(isl=40, batch=2, **more):
    return {"phase": "prefill", "batch": batch, "isl": isl, **more}


def decode(kvsl=37, batch=3, **more):
    return {"phase": "decode", "batch": batch, "kvsl": kvsl, **more}


@pytest.fixture
def lab():
    """What is imported with PyTorch: the reference, and the layers of a case."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    layer = importlib.import_module("harness.backends.torch_ops.layer")
    sizing = importlib.import_module("harness.backends.torch_ops.sizing")
    found = importlib.import_module("float64_layers")

    def stack(case, dtype="float32", seed=1):
        generator = torch.Generator().manual_seed(seed)
        with torch.inference_mode():
            return layer.Stack(case, sizing.layer_kinds(case.variant), getattr(torch, dtype), generator, seed)

    def distance(case, made):
        with torch.inference_mode():
            ends = made.run()
        return found.distance(found.computed(case, made, ends), found.reference(case, made))

    found.stack, found.distance_of, found.torch = stack, distance, torch
    return found


MOE = {"experts": {"count": 8, "top_k": 2, "inter": 48, "shared_inter": 32, "dense_layers": 1}}
SLIDING = {"attention": ["sliding", "full"], "window": 7}
CASES = {
    "prefill": make_case(prefill()),
    "prefill, multi-head": make_case(prefill(), kv_heads=8),
    "prefill, multi-query": make_case(prefill(), kv_heads=1),
    "prefill in chunks": make_case(prefill(chunk=16)),
    "prefill in long chunks": make_case(prefill(isl=100, chunk=40)),
    "prefill, sliding in long chunks": make_case(prefill(isl=100, chunk=40), **SLIDING),
    "prefill in chunks, the last of one token": make_case(prefill(isl=33, chunk=16)),
    "prefill, sliding": make_case(prefill(), **SLIDING),
    "prefill, sliding in chunks": make_case(prefill(isl=41, chunk=8), **SLIDING),
    "prefill longer than a block of queries": make_case(prefill(isl=300, batch=1), **{**SLIDING, "window": 100}),
    "prefill within the window": make_case(prefill(isl=6), **SLIDING),
    "prefill, experts": make_case(prefill(), **MOE),
    "prefill, experts in chunks": make_case(prefill(isl=37, chunk=16), **MOE),
    "prefill, experts by a power law": make_case(prefill(routing="power_law_1.2"), **MOE),
    "prefill, without gate": make_case(prefill(), gated_ffn=False),
    "prefill, a layer without attention": make_case(prefill(), attention=["none", "full"]),
    "decode": make_case(decode()),
    "decode, multi-head": make_case(decode(), kv_heads=8),
    "decode, multi-query": make_case(decode(), kv_heads=1),
    "decode, draft tokens": make_case(decode(draft_len=3)),
    "decode, sliding": make_case(decode(), **SLIDING),
    "decode, sliding, draft tokens": make_case(decode(draft_len=3), **SLIDING),
    "decode within the window": make_case(decode(kvsl=4, draft_len=2), **SLIDING),
    "decode, fewer choices than experts": make_case(decode(), **MOE),
    "decode, experts not in whole rounds": make_case(decode(batch=5), **MOE),
    "decode, experts by a power law": make_case(decode(batch=9, routing="power_law_1.01"), **MOE),
}


@pytest.mark.parametrize("name", CASES)
def test_layers_in_fp32_equal_the_float64_reference(lab, name):
    case = CASES[name]
    assert lab.distance_of(case, lab.stack(case)) < BOUNDS["fp32"]


@pytest.mark.parametrize(
    "name", ["prefill", "prefill, sliding in chunks", "prefill, experts", "decode", "decode, draft tokens"]
)
def test_layers_in_bf16_equal_it_to_the_roundings_of_bf16(lab, name):
    case = CASES[name].model_copy(update={"variant": bf16_of(CASES[name].variant)})
    found = lab.distance_of(case, lab.stack(case, "bfloat16"))
    assert 1e-4 < found < BOUNDS["bf16"]


@pytest.mark.parametrize("name", ["prefill", "prefill, experts", "decode", "decode, experts not in whole rounds"])
def test_layers_with_fp8_weights_equal_it_to_the_roundings_of_fp8_inputs(lab, name):
    case = CASES[name].model_copy(update={"variant": bf16_of(CASES[name].variant, "fp8")})
    found = lab.distance_of(case, lab.stack(case, "bfloat16"))
    assert 5e-3 < found < BOUNDS["fp8"]


def bf16_of(variant, weights="bf16"):
    data = {**variant.model_dump(), "weights": weights, "kv_format": "bf16", "attn_format": "bf16"}
    return type(variant).model_validate(data)


def test_a_reference_with_one_key_less_is_told_apart(lab):
    case = CASES["decode"]
    made = lab.stack(case)
    with lab.torch.inference_mode():
        found = lab.computed(case, made, made.run())
        made.layers[0].cache.keys[:, :, 5] = 0
    assert lab.distance(found, lab.reference(case, made)) > 100 * BOUNDS["fp32"]


@pytest.mark.parametrize("name", CASES)
def test_ops_run_are_those_of_the_case_in_number(lab, name):
    case, ran = CASES[name], []

    def noting(op, run, *arguments):
        ran.append(op)
        return run(*arguments)

    with lab.torch.inference_mode():
        lab.stack(case).run(noting)
    asked = {}
    for op in decompose(case, "layer"):
        asked[op.name] = asked.get(op.name, 0) + op.count
    assert {op: ran.count(op) for op in ran} == asked


def test_a_second_run_gives_the_same(lab):
    case = CASES["decode, sliding, draft tokens"]
    made = lab.stack(case)
    with lab.torch.inference_mode():
        first, second = (lab.computed(case, made, made.run()) for _ in range(2))
    assert (first == second).all()


def test_layers_differ_in_weights_and_caches(lab):
    made = lab.stack(CASES["decode"])
    one, other = made.layers
    assert not lab.torch.equal(one.cache.keys, other.cache.keys)
    assert not lab.torch.equal(one.linears["layer.ffn.down"].weight, other.linears["layer.ffn.down"].weight)
    assert one.cache.keys.count_nonzero() == one.cache.keys.numel()


def test_weights_have_the_shapes_of_the_ops(lab):
    made = lab.stack(CASES["prefill, experts"])
    shapes = {name: tuple(linear.value.shape) for layer in made.layers for name, linear in layer.linears.items()}
    assert shapes == {
        "layer.attn.qkv_proj": (192, 64),
        "layer.attn.o_proj": (64, 128),
        "layer.ffn.gate_up": (192, 64),
        "layer.ffn.down": (64, 96),
        "layer.moe.router": (8, 64),
        "layer.moe.shared.gate_up": (64, 64),
        "layer.moe.shared.down": (64, 32),
    }
