from __future__ import annotations

import pytest

from harness.cost.memory import fits
from harness.engines.groups import workload_groups
from harness.hardware import load_system
from harness.spec.case import Case
from harness.spec.load import load_variant
from harness.spec.parallelism import Parallelism
from harness.spec.workload import Decode, Prefill, Serve

DENSE_8B = load_variant("dense-8b")
ONE = Parallelism()


def decode(batch: int, kvsl: int, **fields) -> Decode:
    return Decode(phase="decode", batch=batch, kvsl=kvsl, **fields)


def prefill(batch: int, isl: int, **fields) -> Prefill:
    return Prefill(phase="prefill", batch=batch, isl=isl, **fields)


def case(workload, system="b200_sxm", split=ONE, variant=DENSE_8B) -> Case:
    return Case(variant=variant, parallelism=split, workload=workload, system=system)


def grouped(*cases: Case) -> list[list[str]]:
    return [[workload.label for workload in group.workloads] for group in workload_groups(cases).groups]


def test_workloads_of_one_phase_share_an_instance():
    assert grouped(case(decode(1, 2048)), case(decode(64, 2048)), case(decode(8, 32768))) == [
        ["decode b 1 KVSL 2048", "decode b 64 KVSL 2048", "decode b 8 KVSL 32768"]
    ]


@pytest.mark.parametrize(
    "other",
    [
        case(prefill(1, 2048)),
        case(Serve(phase="serve", isl=100, osl=10, concurrency=4)),
        case(decode(1, 2048, draft_len=3)),
        case(decode(1, 2048, routing="power_law_1.2")),
        case(decode(1, 2048), split=Parallelism(tp=2)),
        case(decode(1, 2048), split=Parallelism(tp=2, attention_dp=True)),
    ],
)
def test_what_an_instance_fixes_when_it_starts_parts_them(other):
    assert len(grouped(case(decode(1, 2048)), other)) == 2


def test_chunks_and_accepted_tokens_part_them_too():
    assert (
        len(grouped(case(prefill(1, 8192)), case(prefill(1, 8192, chunk=2048)), case(prefill(2, 8192, chunk=2048))))
        == 2
    )
    assert len(grouped(*(case(decode(1, 2048, draft_len=3, accepted=accepted)) for accepted in (1.0, 2.0)))) == 2


def test_the_same_group_on_two_gpus_is_one_and_says_both():
    found = workload_groups(
        [case(decode(batch, 2048), system) for system in ("b200_sxm", "h200_sxm") for batch in (1, 8)]
    )
    [group] = found.groups
    assert group.systems == ("b200_sxm", "h200_sxm")
    assert [workload.batch for workload in group.workloads] == [1, 8]


def test_a_workload_that_fits_one_gpu_only_is_in_a_group_of_that_gpu_only():
    # 64 KiB a token, 2 GiB a sequence: 128 GiB are less than what a B200 leaves for them and more than an H200 does.
    small, large = decode(32, 32768), decode(64, 32768)
    assert fits(case(large, "b200_sxm"), load_system("b200_sxm")).fits
    assert not fits(case(large, "h200_sxm"), load_system("h200_sxm")).fits

    found = workload_groups([case(one, system) for system in ("b200_sxm", "h200_sxm") for one in (small, large)])

    assert [([one.batch for one in group.workloads], group.systems) for group in found.groups] == [
        ([32, 64], ("b200_sxm",)),
        ([32], ("h200_sxm",)),
    ]
    [(left_out, verdict)] = found.too_large
    assert (left_out.workload, left_out.system) == (large, "h200_sxm")
    assert verdict.short_by_bytes > 0


def test_a_large_pass_and_a_large_cache_that_fit_one_by_one_are_parted_where_they_do_not_fit_together():
    variant = DENSE_8B.model_copy(update={"kv_format": "bf16"})
    wide = case(prefill(16, 16384, chunk=16384), "h200_sxm", variant=variant)  # 262144 tokens a pass
    long = case(prefill(1, 800_000, chunk=16384), "h200_sxm", variant=variant)  # 800000 tokens of cache
    wide_verdict, long_verdict = (fits(one, load_system("h200_sxm")) for one in (wide, long))
    assert wide_verdict.fits
    assert long_verdict.fits
    assert (
        long_verdict.kv_bytes > wide_verdict.kv_budget_bytes
    )  # what the wide pass leaves is too little for the long one

    assert len(grouped(wide, long)) == 2
    assert len(grouped(wide, case(prefill(1, 100_000, chunk=16384), "h200_sxm", variant=variant))) == 1


def test_nothing_asked_is_no_group():
    assert workload_groups([]) == ([], [])


def test_the_same_workload_twice_is_one():
    assert grouped(case(decode(1, 2048)), case(decode(1, 2048))) == [["decode b 1 KVSL 2048"]]
