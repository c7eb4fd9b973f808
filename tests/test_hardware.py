from __future__ import annotations

import pytest
import yaml
from pydantic import ValidationError

from harness.errors import UnreadableInput, UsageError
from harness.hardware import (
    CPU,
    GPUS_FILE,
    System,
    check_system,
    is_gpu,
    known_systems,
    load_system,
    match_device_name,
    read_systems,
)

KEYS = (
    "a100_sxm",
    "h100_sxm",
    "h200_sxm",
    "b200_sxm",
    "b300_sxm",
    "gb200",
    "gb300",
    "l40s",
    "rtx_pro_6000_server",
    "gh200",
)

FACTS = [name for name in System.model_fields if name not in {"key", "unconfirmed", "derived", "evidence", "notes"}]


def test_the_systems_are_those_of_the_tables_and_gh200():
    assert known_systems() == KEYS


# Device names and identities as drivers report them; memory is nvidia-smi's MiB.
@pytest.mark.parametrize(
    ("key", "name", "compute_capability", "sm", "sms", "memory_mib"),
    [
        ("a100_sxm", "NVIDIA A100-SXM4-80GB", "8.0", 80, 108, 81920),
        ("h100_sxm", "NVIDIA H100 80GB HBM3", "9.0", 90, 132, 81559),
        ("h200_sxm", "NVIDIA H200", "9.0", 90, 132, 143771),
        ("b200_sxm", "NVIDIA B200", "10.0", 100, 148, 183359),
        ("b300_sxm", "NVIDIA B300 SXM6 AC", "10.3", 103, 148, 275040),
        ("gb200", "NVIDIA GB200", "10.0", 100, 152, 189471),
        ("gb300", "NVIDIA GB300", "10.3", 103, 152, 284208),
        ("l40s", "NVIDIA L40S", "8.9", 89, 142, 46068),
        ("rtx_pro_6000_server", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", 120, 188, 97887),
        ("gh200", "NVIDIA GH200 480GB", "9.0", 90, 132, 97871),
    ],
)
def test_identity(key, name, compute_capability, sm, sms, memory_mib):
    system = load_system(key)
    assert (system.key, system.gpu_name, system.compute_capability) == (key, name, compute_capability)
    assert (system.sm, system.sms) == (sm, sms)
    assert system.memory_bytes == memory_mib * 2**20
    assert match_device_name(name) is system


# Dense TFLOP/s: tf32, bf16, fp8, nvfp4, int8.
@pytest.mark.parametrize(
    ("key", "peaks"),
    [
        ("a100_sxm", (156, 312, None, None, 624)),
        ("h100_sxm", (494.7, 989.4, 1978.9, None, 1978.9)),
        ("h200_sxm", (494.7, 989.4, 1978.9, None, 1978.9)),
        ("gh200", (494.7, 989.4, 1978.9, None, 1978.9)),
        ("b200_sxm", (1100, 2250, 4500, 9000, 4500)),
        ("b300_sxm", (1100, 2250, 4500, 13500, 153.5)),
        ("gb200", (1250, 2500, 5000, 10000, 5000)),
        ("gb300", (1250, 2500, 5000, 15000, 165)),
        ("l40s", (183, 362.05, 733, None, 733)),
        ("rtx_pro_6000_server", (233.9, 467.8, 935.6, 1871.2, 935.6)),
    ],
)
def test_dense_peaks(key, peaks):
    system = load_system(key)
    for name, tflop_per_s in zip(("tf32", "bf16", "fp8", "nvfp4", "int8"), peaks, strict=True):
        if tflop_per_s is None:
            assert system.peak_flop_per_s[name] is None
        else:
            assert system.peak(name) == pytest.approx(tflop_per_s * 1e12, rel=1e-12)


@pytest.mark.parametrize("key", KEYS)
def test_the_bf16_peak_is_sms_times_clock(key):
    system = load_system(key)
    product = system.sms * system.bf16_flop_per_clock_per_sm * system.datasheet_sm_clock_mhz * 1e6
    assert product == pytest.approx(system.peak("bf16"), rel=1e-3)
    if system.max_sm_clock_mhz is not None:
        assert system.datasheet_sm_clock_mhz <= system.max_sm_clock_mhz


# SMs x FLOP/clock x the maximum clock, by hand: what a short kernel may reach.
@pytest.mark.parametrize(
    ("key", "tflop_per_s"),
    [
        ("a100_sxm", 311.9),
        ("h100_sxm", 1070.5),
        ("h200_sxm", 1070.5),
        ("b200_sxm", 2382.4),
        ("b300_sxm", 2463.6),
        ("gb200", 2567.6),
        ("l40s", 366.4),
        ("rtx_pro_6000_server", 467.8),
    ],
)
def test_bf16_at_the_maximum_clock(key, tflop_per_s):
    system = load_system(key)
    at_max = system.sms * system.bf16_flop_per_clock_per_sm * system.max_sm_clock_mhz / 1e6
    assert at_max == pytest.approx(tflop_per_s, abs=0.1)
    assert at_max * 1e12 >= system.peak("bf16") * 0.999


# FLOP per byte where compute and memory take the same time.
@pytest.mark.parametrize(
    ("key", "bf16", "fp8", "nvfp4"),
    [
        ("a100_sxm", 153, None, None),
        ("h100_sxm", 295, 591, None),
        ("h200_sxm", 206, 412, None),
        ("b200_sxm", 293, 587, 1173),
        ("b300_sxm", 293, 587, 1760),
        ("gb200", 315, 631, 1261),
        ("gb300", 315, 631, 1892),
        ("l40s", 419, 848, None),
        ("rtx_pro_6000_server", 293, 586, 1172),
    ],
)
def test_ridge_points(key, bf16, fp8, nvfp4):
    system = load_system(key)
    for name, ridge in (("bf16", bf16), ("fp8", fp8), ("nvfp4", nvfp4)):
        if ridge is not None:
            assert round(system.peak(name) / system.memory_bandwidth_bytes_per_s) == ridge


@pytest.mark.parametrize(
    ("key", "bus_bits", "clock_mhz"),
    [("b200_sxm", 7680, 3996), ("b300_sxm", 7680, 3996), ("gb200", 7936, 3996), ("rtx_pro_6000_server", 512, 12481)],
)
def test_bandwidth_is_bus_width_times_clock(key, bus_bits, clock_mhz):
    bytes_per_s = bus_bits / 8 * clock_mhz * 1e6 * 2
    assert load_system(key).memory_bandwidth_bytes_per_s == pytest.approx(bytes_per_s, rel=1e-3)


# NVLink, NIC and host link in GB/s, one direction; GPUs per NVLink domain and node.
@pytest.mark.parametrize(
    ("key", "links"),
    [
        ("a100_sxm", (300, 25, 32, 8, 8)),
        ("h100_sxm", (450, 50, 64, 8, 8)),
        ("h200_sxm", (450, 50, 64, 8, 8)),
        ("b200_sxm", (900, 50, 64, 8, 8)),
        ("b300_sxm", (900, 100, 128, 8, 8)),
        ("gb200", (900, 50, 450, 72, 4)),
        ("gb300", (900, 100, 450, 72, 4)),
        ("l40s", (None, 50, 32, 1, 8)),
        ("rtx_pro_6000_server", (None, 50, 64, 1, 8)),
        ("gh200", (450, None, 450, 1, 1)),
    ],
)
def test_links(key, links):
    system = load_system(key)
    rates = (
        system.nvlink_bandwidth_bytes_per_s,
        system.nic_bandwidth_bytes_per_s,
        system.host_link_bandwidth_bytes_per_s,
    )
    assert tuple(rate and rate / 1e9 for rate in rates) == links[:3]
    assert (system.gpus_per_domain, system.gpus_per_node) == links[3:]


@pytest.mark.parametrize(
    ("key", "l2_mib", "tdp_w"),
    [
        ("a100_sxm", 40, 400),
        ("h100_sxm", 50, 700),
        ("h200_sxm", None, 700),
        ("b200_sxm", 126.5, 1000),
        ("b300_sxm", None, 1100),
        ("gb200", None, 1200),
        ("gb300", 129, 1400),
        ("l40s", 96, 350),
        ("rtx_pro_6000_server", 128, 600),
        ("gh200", None, 1000),
    ],
)
def test_l2_and_power(key, l2_mib, tdp_w):
    system = load_system(key)
    assert system.l2_bytes == (None if l2_mib is None else l2_mib * 2**20)
    assert system.tdp_w == tdp_w


def test_exactly_these_facts_are_null():
    nulls = {
        (key, name)
        for key in KEYS
        for name, value in {**dict(load_system(key)), **load_system(key).peak_flop_per_s}.items()
        if value is None
    }
    assert nulls == {
        ("a100_sxm", "fp8"),
        ("a100_sxm", "nvfp4"),
        ("h100_sxm", "nvfp4"),
        ("h200_sxm", "nvfp4"),
        ("gh200", "nvfp4"),
        ("l40s", "nvfp4"),
        ("h200_sxm", "l2_bytes"),
        ("b300_sxm", "l2_bytes"),
        ("gb200", "l2_bytes"),
        ("gh200", "l2_bytes"),
        ("gb300", "max_sm_clock_mhz"),
        ("l40s", "nvlink_bandwidth_bytes_per_s"),
        ("rtx_pro_6000_server", "nvlink_bandwidth_bytes_per_s"),
        ("gh200", "nic_bandwidth_bytes_per_s"),
    }


@pytest.mark.parametrize("key", KEYS)
def test_every_fact_has_a_dated_source_or_is_marked_unconfirmed(key):
    system = load_system(key)
    sourced = {field for evidence in system.evidence for field in evidence.fields}
    missing = [name for name in FACTS if getattr(system, name) is not None and name not in sourced]
    assert set(missing) <= set(system.unconfirmed)


@pytest.mark.parametrize("key", KEYS)
def test_the_sm_version_is_the_compute_capability(key):
    assert str(load_system(key).sm) == load_system(key).compute_capability.replace(".", "")


def test_a_format_that_the_gpu_lacks_has_no_substitute():
    with pytest.raises(UsageError) as caught:
        load_system("a100_sxm").peak("fp8")
    assert str(caught.value) == (
        "a100_sxm (NVIDIA A100-SXM4-80GB, compute capability 8.0) has no fp8 tensor-core rate; it has tf32, bf16, int8"
    )
    with pytest.raises(UsageError, match="has no nvfp4 tensor-core rate; it has tf32, bf16, fp8, int8"):
        load_system("h200_sxm").peak("nvfp4")


@pytest.mark.parametrize(
    ("typed", "meant"), [("b200", "b200_sxm"), ("H200-SXM", "h200_sxm"), ("h100sxm", "h100_sxm"), ("gb-300", "gb300")]
)
def test_an_unknown_gpu_lists_the_known_ones_and_guesses(typed, meant):
    with pytest.raises(UsageError) as caught:
        load_system(typed)
    assert str(caught.value) == f"unknown GPU {typed!r}. Did you mean {meant}? Known: {', '.join(KEYS)}"


@pytest.mark.parametrize("typed", ["mi300x", ""])
def test_a_gpu_like_no_other_gets_no_guess(typed):
    with pytest.raises(UsageError, match=rf"unknown GPU '{typed}'\. Known: a100_sxm, "):
        load_system(typed)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA GB300", "gb300"),
        ("NVIDIA B300 SXM6 AC", "b300_sxm"),
        ("NVIDIA GB200", "gb200"),
        ("nvidia  b200 ", "b200_sxm"),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA H200 MIG 1g.18gb", None),
        ("NVIDIA B300", None),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", None),
        ("", None),
    ],
)
def test_a_device_name_counts_as_a_whole(name, key):
    system = match_device_name(name)
    assert (system and system.key) == key


def test_the_processor_of_this_machine_is_a_key_without_facts():
    assert not is_gpu(CPU)
    assert is_gpu("b200_sxm")
    check_system("cpu")
    with pytest.raises(UsageError, match=r"^cpu is the processor of the machine that runs a case: .* --on torch$"):
        load_system("cpu")
    with pytest.raises(UsageError, match="unknown GPU 'cpu0'"):
        check_system("cpu0")


def test_a_system_cannot_be_changed():
    with pytest.raises(ValidationError):
        load_system("b200_sxm").sms = 1


def test_the_file_means_the_same_to_a_reader_of_yaml_1_1():
    plain = yaml.safe_load(GPUS_FILE.read_text())
    for key, facts in plain.items():
        assert facts["memory_bandwidth_bytes_per_s"] == load_system(key).memory_bandwidth_bytes_per_s
        assert facts["peak_flop_per_s"] == load_system(key).peak_flop_per_s


def test_a_damaged_file_is_named_with_every_finding(tmp_path):
    path = tmp_path / "gpus.yaml"
    text = GPUS_FILE.read_text()
    text = text.replace("sms: 108", "sms: '108'").replace("  fp8: 4500.0e+12", "  fp9: 4500.0e+12", 1)
    text = text.replace("fields: [max_sm_clock_mhz]", "fields: [clock]")
    path.write_text(text)

    with pytest.raises(UnreadableInput) as caught:
        read_systems(path)

    lines = str(caught.value).splitlines()
    assert [line.removeprefix(f"{path}: ") for line in lines] == [
        "a100_sxm: sms: Input should be a valid integer",
        "h200_sxm: Value error, evidence for facts that do not exist: clock",
        (
            "b200_sxm: peak_flop_per_s: Value error, needs exactly tf32, bf16, fp8, nvfp4, int8; "
            "null where the GPU has no such rate"
        ),
    ]


def test_a_file_that_is_no_mapping_is_refused(tmp_path):
    (tmp_path / "gpus.yaml").write_text("- b200_sxm\n")
    with pytest.raises(UnreadableInput, match="expected GPUs by key"):
        read_systems(tmp_path / "gpus.yaml")
