"""Identity of a case."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from shapes import LLAMA_8B, decode, over, prefill

from harness.spec.case import Case
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant

DATA = {"variant": LLAMA_8B, "workload": {"phase": "decode", "batch": 8, "kvsl": 4096}, "system": "b200_sxm"}


@given(st.permutations(list(LLAMA_8B.items())), st.permutations(["variant", "workload", "system"]))
def test_case_id_ignores_order(fields: list[tuple[str, object]], order: list[str]) -> None:
    data = {**DATA, "variant": dict(fields)}
    assert Case.model_validate({key: data[key] for key in order}).case_id == Case.model_validate(DATA).case_id


def test_case_id_ignores_the_name_and_defaults_spelt_out() -> None:
    spelt_out = {**LLAMA_8B, "name": "other", "attention": ["full"], "kv_format": "bf16", "weights": "bf16"}
    assert Case.model_validate({**DATA, "variant": spelt_out}).case_id == Case.model_validate(DATA).case_id


def test_case_id_knows_everything_else() -> None:
    asked = [
        decode(),
        decode(batch=9),
        decode(kvsl=4097),
        decode(system="h200_sxm"),
        decode(kv_heads=4),
        decode(kv_format="fp8"),
        decode(weights={"ffn": "fp8"}),
        decode(workload={"routing": "power_law_1.2"}),
        decode().model_copy(update={"parallelism": Parallelism(tp=2)}),
    ]
    assert len({case.case_id for case in asked}) == len(asked)


def test_a_derived_moe_tp_is_the_same_case() -> None:
    spelt_out = decode().model_copy(update={"parallelism": Parallelism(tp=8, ep=4, moe_tp=2)})
    derived = decode().model_copy(update={"parallelism": Parallelism(tp=8, ep=4)})
    assert spelt_out.case_id == derived.case_id


def test_what_repeats_the_rest_is_the_same_case() -> None:
    plain = prefill(isl=4096)
    for chunk in (4096, 8192):
        assert prefill(isl=4096, workload={"chunk": chunk}).case_id == plain.case_id
    assert prefill(isl=4096, workload={"chunk": 4095}).case_id != plain.case_id
    assert decode(attention=["full", "full"]).case_id == decode().case_id
    mixed = decode(attention=["full", "sliding"], window=128)
    assert mixed.case_id != decode(window=128).case_id
    assert over(decode(), pp_partition=[32]).case_id == decode().case_id
    assert over(decode(), pp_partition=[31]).case_id != decode().case_id


def test_case_id_is_what_it_was() -> None:
    """Identities join runs over years: these may never change."""
    assert decode().case_id == "6ef717e89725ba1b"
    assert decode(weights="fp8").case_id == "d3f7c747112753b1"
    assert decode(weights="nvfp4", kv_format="fp8").case_id == "024220603f27f441"
    assert prefill(weights="fp8_block", attn_format="fp8", kv_format="fp8").case_id == "ddce05d687bd8693"


def test_a_case_comes_back_from_its_json() -> None:
    case = decode(weights="nvfp4", attention=["sliding", "full"], window=128)
    assert Case.model_validate_json(case.model_dump_json(exclude_defaults=True)) == case


def test_variants_compare_by_value() -> None:
    assert Variant(**LLAMA_8B) == Variant(**LLAMA_8B)
