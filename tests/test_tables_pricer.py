from __future__ import annotations

import random
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from shapes import decode, prefill

import harness
from harness.cost.ops import (
    AllReduce,
    BatchedGemm,
    DecodeAttention,
    Elementwise,
    ExpertDispatch,
    Gemm,
    Moe,
    PointToPoint,
    PrefillAttention,
)
from harness.errors import UsageError
from harness.hardware import load_system
from harness.pricing.compose import price_cases
from harness.pricing.roofline import RooflinePricer
from harness.pricing.tables import TablesPricer, tabled_systems, tables_available
from harness.pricing.tables.availability import _python_remark

SYSTEMS = ("a100_sxm", "b200_sxm", "b300_sxm", "gb200", "gb300", "h100_sxm", "h200_sxm", "l40s", "rtx_pro_6000_server")

MIXED = [
    Gemm(64, 8192, 8192, "nvfp4"),
    DecodeAttention(8, 12000, 64, 8, 128, "fp8"),
    Elementwise(1e6),
    PrefillAttention(3, 5000, 0, 64, 8, 128, "fp8", "fp8"),
    Gemm(64, 8200, 5000, "fp8_static"),
    Moe(100, 4096, 1536, 8, 128, "fp8", 8),
    DecodeAttention(8, 12000, 64, 16, 128, "fp8"),
    BatchedGemm(128, 8, 512, 128),
    Gemm(64, 128256, 4096, "bf16"),
    DecodeAttention(8, 8192, 64, 8, 128, "fp8", query_len=4),
    DecodeAttention(8, 8192, 128, 1, 576, "fp8", value_dim=512, latent=True),
    PrefillAttention(1, 4096, 0, 128, 128, 192, "bf16", "fp8", value_dim=128),
    AllReduce(65536, 8),
    ExpertDispatch(64, 7168, 8, 256, 8, "nvfp4"),
    PointToPoint(65536, 16),
]


@pytest.mark.tables
def test_each_kernel_gets_its_price_whatever_the_order_and_however_often_it_comes():
    pricer = TablesPricer("b200_sxm")
    expected = [pricer.price([kernel])[0] for kernel in MIXED]
    shuffled = random.Random(5).choices(range(len(MIXED)), k=100)
    prices = TablesPricer("b200_sxm").price([MIXED[at] for at in shuffled])
    assert prices == [expected[at] for at in shuffled]
    assert pricer.price([]) == []


@pytest.mark.tables
def test_a_price_has_a_time_or_a_refusal():
    for price in TablesPricer("b200_sxm").price(MIXED):
        assert (price.time_ms is None) == (price.refusal is not None) == (price.source is None)
        assert price.time_ms is None or price.time_ms > 0


@pytest.mark.tables
def test_kernels_without_a_table_are_unsupported():
    price = TablesPricer("h200_sxm").price([Elementwise(1e6)])[0]
    assert (price.refusal, price.note) == ("unsupported", "no table; priced by the roofline")


@pytest.mark.tables
def test_the_record_says_what_answered():
    assert TablesPricer("b300_sxm", l2_bytes=130_000_000).versions() == {
        "aiconfigurator-core": version("aiconfigurator-core"),
        "tables_trtllm": "1.3.0rc20",
        "tables_device": "NVIDIA B300 SXM6 AC",
        "tables_l2_bytes": "130000000",
    }
    assert TablesPricer("a100_sxm").versions()["tables_trtllm"] == "1.0.0"
    assert TablesPricer("b300_sxm").versions()["tables_l2_bytes"] == "126000000 (assumed)"
    assert TablesPricer("l40s").versions()["tables_l2_bytes"] == "100663296"


@pytest.mark.tables
def test_l2_size_decides_which_rows_are_warm():
    kernel = DecodeAttention(8, 32768, 64, 8, 128, "fp8")  # 536,870,912 bytes of KV
    assert TablesPricer("b200_sxm").price([kernel])[0].flags == ()
    assert TablesPricer("b200_sxm", l2_bytes=2**29 + 1).price([kernel])[0].flags == ("l2_warm",)
    assert TablesPricer("b200_sxm", l2_bytes=2**29).price([kernel])[0].flags == ()


@pytest.mark.tables
def test_the_doubtful_a100_decode_rows_are_flagged():
    price = TablesPricer("a100_sxm").price([DecodeAttention(8, 8192, 32, 8, 128, "bf16")])[0]
    assert "suspect" in price.flags
    assert "faster than 2.039 TB/s of HBM" in price.note


@pytest.mark.tables
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_answers(system):
    pricer = TablesPricer(system)
    kernels = [
        DecodeAttention(8, 6000, 32, 8, 128, "bf16"),
        PrefillAttention(2, 5000, 0, 32, 8, 128, "bf16", "bf16"),
        Gemm(100, 4096, 4096, "bf16"),
        Moe(100, 4096, 14336, 2, 8, "bf16", 8, 1, "power_law_1.2"),
    ]
    assert [price.source for price in pricer.price(kernels)] == ["interpolated"] * 4


@pytest.mark.tables
@pytest.mark.parametrize(("system", "weights"), [("b200_sxm", "nvfp4"), ("b200_sxm", "fp8"), ("h200_sxm", "bf16")])
def test_a_model_with_8_experts_has_a_price(system, weights):
    """Mixtral 8x7B: its router has 8 columns, its experts have rows."""
    shape = {"hidden": 4096, "ffn": 0, "vocab": 32000, "experts": {"count": 8, "top_k": 2, "inter": 14336}}
    case = decode(batch=32, kvsl=4096, system=system, weights=weights, **shape)
    [price] = price_cases([case], "model", TablesPricer(system), RooflinePricer(load_system(system)))
    assert price.status == "ok"
    router = next(one for one in price.ops if one.op.name == "layer.moe.router")
    assert (router.op.kernel.n, router.price.source) == (8, "estimated")
    assert {one.price.source for one in price.ops if one.op.category == "moe"} >= {"exact"}


@pytest.mark.tables
def test_tables_are_available_and_name_their_systems():
    assert tables_available() == (True, f"aiconfigurator-core {version('aiconfigurator-core')}")
    assert tabled_systems() == SYSTEMS


@pytest.mark.tables
def test_a_system_without_tables_is_an_error_that_names_those_with():
    with pytest.raises(
        UsageError, match="no measured TensorRT-LLM kernels of gh200; there are tables of a100_sxm, b200"
    ):
        TablesPricer("gh200")


def _python(code: str, *options: str, path: str = "") -> str:
    done = subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": path}
    )
    return done.stdout


@pytest.fixture
def without_packages(tmp_path):
    """A module search path that holds the harness and PyYAML and nothing else."""
    for package in (harness, yaml):
        folder = Path(package.__file__).parent
        (tmp_path / folder.name).symlink_to(folder, target_is_directory=True)
    return str(tmp_path)


def test_without_the_package_the_message_says_how_to_get_it(without_packages):
    code = (
        "from harness.errors import MissingExtra\n"
        "from harness.pricing.tables import TablesPricer, tabled_systems, tables_available\n"
        "print(tables_available(), tabled_systems())\n"
        "try: TablesPricer('b200_sxm')\n"
        "except MissingExtra as error: print(error)\n"
    )
    available, error = _python(code, "-S", path=without_packages).splitlines()
    assert available.startswith("(False, 'the measured tables cannot be read: aiconfigurator-core is not installed")
    assert available.endswith(" ()")
    assert error.startswith(
        "pricing from measured kernel tables needs an optional dependency: pip install 'trtllm-harness[tables]' "
        "(aiconfigurator-core is not installed"
    )


def test_a_python_without_wheels_is_told_so():
    assert _python_remark((3, 12)) == ""
    assert _python_remark((3, 10)) == (
        "; its wheels exist for CPython 3.11 to 3.13 only and this is Python 3.10: "
        "use one of those, or price from the roofline"
    )


def test_looking_for_tables_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from harness.pricing.tables import tabled_systems, tables_available\n"
        "tables_available(), tabled_systems()\n"
        "heavy = 'aiconfigurator_core numpy pandas pyarrow scipy'.split()\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    assert _python(code, path=":".join(sys.path)).strip() == "[]"


@pytest.mark.tables
def test_fp32_has_no_rows_in_any_shape():
    fp32 = {"weights": "fp32", "kv_format": "fp32", "attn_format": "fp32"}
    moe = {"ffn": 0, "experts": {"count": 128, "top_k": 8, "inter": 1536}}
    mla = {"attention": "mla", "mla": {}}
    pricer, roofline = TablesPricer("b200_sxm"), RooflinePricer(load_system("b200_sxm"))
    cases = [ask(**shape) for ask in (decode, prefill) for shape in (fp32, fp32 | moe, fp32 | mla)]
    for price in price_cases(cases, "model", pricer, roofline):
        assert price.status == "unsupported"
        kernels = [one for one in price.ops if not isinstance(one.op.kernel, Elementwise)]
        assert {one.price.refusal for one in kernels} == {"unsupported"}
