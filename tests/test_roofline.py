"""The roofline, by hand: H200 has 989.4 TFLOP/s in bf16, 4.8 TB/s, 2.74 µs from kernel to kernel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cost.collectives import AllReduce, HelixAllToAll, PointToPoint
from harness.cost.ops import DecodeAttention, Elementwise, Gemm, PrefillAttention, hbm_bytes
from harness.hardware import known_systems, load_system
from harness.pricing.roofline import RooflinePricer, launch_overhead_us, link_latency_us

H200 = RooflinePricer(load_system("h200_sxm"))


def test_a_large_gemm_is_bound_by_compute() -> None:
    limit = H200.time(Gemm(8192, 8192, 8192, "bf16"))
    assert limit is not None
    assert limit.bound == "compute"
    assert limit.time_ms == pytest.approx(2 * 8192**3 / 989.4e12 * 1e3 + 0.00274)


def test_one_row_is_bound_by_memory() -> None:
    limit = H200.time(Gemm(1, 8192, 8192, "bf16"))
    assert limit is not None
    assert limit.bound == "memory"
    assert limit.time_ms == pytest.approx((2 * 8192**2 + 2 * 2 * 8192) / 4.8e12 * 1e3 + 0.00274)


def test_a_tiny_kernel_is_bound_by_its_launch() -> None:
    limit = H200.time(Elementwise(4096))
    assert limit is not None
    assert limit.bound == "launch"


def test_fp8_kv_halves_a_decode_step_that_is_bound_by_memory() -> None:
    bf16, fp8 = (H200.price([DecodeAttention(64, 32768, 8, 8, 128, kv)])[0].time_ms for kv in ("bf16", "fp8"))
    assert bf16 is not None
    assert fp8 is not None
    assert (bf16 - 0.00274) / (fp8 - 0.00274) == pytest.approx(2, rel=1e-3)


def test_a_format_the_gpu_has_no_rate_for_is_unsupported() -> None:
    [price] = H200.price([Gemm(1, 128, 128, "nvfp4")])
    assert (price.time_ms, price.refusal) == (None, "unsupported")
    assert "NVIDIA H200 has no nvfp4 tensor-core rate" in price.note
    [price] = RooflinePricer(load_system("a100_sxm")).price([PrefillAttention(1, 128, 0, 8, 8, 128, "fp8", "fp8")])
    assert price.refusal == "unsupported"


def test_overheads_are_dated_facts_and_unmeasured_gpus_take_the_largest() -> None:
    assert launch_overhead_us("b200_sxm") == 2.16
    assert launch_overhead_us("gh200") == max(launch_overhead_us(key) for key in known_systems())


@given(
    st.sampled_from([key for key in known_systems() if key != "a100_sxm"]), st.integers(1, 4096), st.integers(1, 512)
)
def test_nothing_beats_its_bandwidth(key: str, m: int, n: int) -> None:
    pricer, kernel = RooflinePricer(load_system(key)), Gemm(m, 64 * n, 4096, "fp8_static")
    limit = pricer.time(kernel)
    assert limit is not None
    assert hbm_bytes(kernel) / (limit.time_ms / 1000) <= pricer.system.memory_bandwidth_bytes_per_s
    assert kernel.flops / (limit.time_ms / 1000) <= pricer.system.peak("fp8")


# Exchanges between GPUs


def test_a_large_all_reduce_is_bound_by_nvlink() -> None:
    """2^29 bf16 values over 8 B200: 7/8 of 2 GiB, 900 GB/s, 4.77 µs."""
    limit = RooflinePricer(load_system("b200_sxm")).time(AllReduce(1 << 29, 8))
    assert limit is not None
    assert limit.bound == "comm"
    assert limit.time_ms == pytest.approx(2 * 7 / 8 * (1 << 30) / 900e9 * 1e3 + 0.00477)


def test_what_leaves_the_domain_goes_at_the_network_cards_rate() -> None:
    """16 H200 are two nodes of 8: 1/8 of the message at 50 GB/s, while 2·7/8 of it stay on NVLink at 450 GB/s."""
    limit = H200.time(AllReduce(1 << 29, 16))
    assert limit is not None
    outside_ms, inside_ms = (1 << 30) / 8 / 50e9 * 1e3, 2 * 7 / 8 * (1 << 30) / 450e9 * 1e3
    assert limit.time_ms == pytest.approx(max(outside_ms, inside_ms) + 0.00266 + 0.005)


def test_a_rack_is_one_domain() -> None:
    """72 GPUs of a GB200 rack share NVLink; 16 B200 do not."""
    wide = HelixAllToAll(8, 64, 128, 16)
    rack, nodes = (RooflinePricer(load_system(key)).time(wide) for key in ("gb200", "b200_sxm"))
    assert rack is not None
    assert nodes is not None
    assert rack.time_ms == pytest.approx(wide.link_bytes / 900e9 * 1e3 + 0.00383)
    assert nodes.time_ms == pytest.approx(wide.link_bytes * 8 / 15 / 50e9 * 1e3 + 0.00477 + 0.005)


def test_without_nvlink_a_node_shares_pcie() -> None:
    limit = RooflinePricer(load_system("l40s")).time(PointToPoint(1 << 20, 2))
    assert limit is not None
    assert limit.time_ms == pytest.approx(2 * (1 << 20) / 32e9 * 1e3 + 0.00702)


def test_a_gpu_without_neighbours_exchanges_nothing() -> None:
    [price] = RooflinePricer(load_system("gh200")).price([AllReduce(4096, 2)])
    assert (price.time_ms, price.refusal) == (None, "unsupported")
    assert "no link of known bandwidth for an exchange between 2 GPUs" in price.note


def test_latencies_are_dated_facts_and_unmeasured_gpus_take_the_largest_with_nvlink() -> None:
    with_nvlink = [key for key in known_systems() if load_system(key).nvlink_bandwidth_bytes_per_s]
    assert link_latency_us("gh200") == max(link_latency_us(key) for key in with_nvlink)
    assert link_latency_us("b200_sxm", beyond=True) == 4.77 + 5.0


@pytest.mark.parametrize("key", known_systems())
def test_no_gpu_has_a_rate_for_fp32(key: str) -> None:
    """Tensor cores have TF32, which is another arithmetic."""
    asked = (
        Gemm(1, 128, 128, "fp32"),
        DecodeAttention(1, 128, 8, 8, 128, "fp32"),
        PrefillAttention(1, 128, 0, 8, 8, 128, "fp32", "fp32"),
    )
    for price in RooflinePricer(load_system(key)).price(asked):
        assert (price.time_ms, price.refusal) == (None, "unsupported")
        assert price.note.endswith("has no fp32 tensor-core rate")
