from __future__ import annotations

import subprocess
import sys

import pytest

from harness.cost.ops import Gemm, Moe
from harness.errors import EnvironmentUnfit, UnreadableInput
from harness.pricing.tables.engine import Engine, EngineError
from harness.pricing.tables.store import TableStore

pytestmark = pytest.mark.tables


@pytest.fixture(scope="module")
def engine():
    return Engine("h200_sxm", "1.3.0rc20")


def test_one_shape_that_it_cannot_answer_does_not_spoil_the_others(engine):
    good, bad = Gemm(64, 8200, 5000, "bf16"), Gemm(64, 64, 10**6, "fp8_block")
    alone = engine.gemm_times_ms([good])[0]
    times = engine.gemm_times_ms([good, bad, good, Gemm(64, 8192, 8192, "nvfp4"), Gemm(64, 10**12, 8192, "bf16"), good])
    assert [times[0], times[2], times[5]] == [alone] * 3
    assert times[1] == EngineError("the engine of aiconfigurator-core has no answer (PerfDataNotAvailableError)")
    assert isinstance(times[3], EngineError)
    assert isinstance(times[4], EngineError)


def test_questions_are_answered_in_order_whatever_their_m(engine):
    kernels = [Gemm(m, n, 4096, "bf16") for m in (100, 7, 100) for n in (1000, 2000)]
    assert engine.gemm_times_ms(kernels) == [engine.gemm_times_ms([kernel])[0] for kernel in kernels]


def test_a_shape_outside_the_roster_is_an_error_without_a_path(engine):
    (answer,) = engine.moe_times_ms([Moe(64, 4096, 1600, 8, 128, "fp8", 8)])
    assert isinstance(answer, EngineError)
    assert "/" not in answer.reason


def test_it_opens_no_socket_and_says_nothing():
    code = """
import logging, socket, warnings
def connect(*_):
    raise AssertionError("a socket was opened")
socket.socket.connect = socket.getaddrinfo = connect
logging.basicConfig(level=logging.DEBUG)
warnings.simplefilter("always")
from harness.cost.ops import Gemm
from harness.errors import EnvironmentUnfit
from harness.pricing.tables.engine import Engine
assert Engine("gb300", "1.3.0rc20").gemm_times_ms([Gemm(100, 8192, 8192, "nvfp4")])[0] > 0
try:
    Engine("b200_sxm", "9.9.9").gemm_times_ms([Gemm(1, 128, 128, "bf16")])
except EnvironmentUnfit:
    print("unfit")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert (done.stdout, done.stderr, done.returncode) == ("unfit\n", "", 0)


@pytest.mark.parametrize("system", ["b200_sxm", "no_such_gpu"])
def test_tables_that_it_does_not_know_are_a_clear_error(system):
    with pytest.raises(EnvironmentUnfit, match="install the package again") as caught:
        Engine(system, "9.9.9").gemm_times_ms([Gemm(1, 128, 128, "bf16")])
    assert "site-packages" not in str(caught.value)


def test_a_missing_table_is_a_clear_error():
    with pytest.raises(UnreadableInput) as caught:
        TableStore("b200_sxm", "9.9.9").gemm()
    assert str(caught.value) == (
        "b200_sxm/gemm/trtllm/9.9.9/gemm_perf.parquet of aiconfigurator-core is missing or damaged "
        "(FileNotFoundError); install the package again"
    )


def test_what_it_makes_of_exchanges_is_told_and_not_taken() -> None:
    """A row comes back; beyond 8 GPUs it scales the whole row by (15/16)/(7/8) and by the ratio of bandwidths, 9."""
    engine = Engine("b200_sxm", "1.3.0rc20")
    row, beyond = (engine.all_reduce_time_ms(524_288, gpus) for gpus in (8, 16))
    assert row == pytest.approx(0.017780159711837766)
    assert beyond == pytest.approx(row * (15 / 16) / (7 / 8) * 9)
    assert isinstance(engine.nccl_time_ms("alltoall", "half", 1 << 20, 8), float)
    refused = engine.nccl_time_ms("no_such_collective", "half", 1 << 20, 8)
    assert isinstance(refused, EngineError)
