"""The torch backend as a worker uses it, on this processor: what it answers, what it says of it, what it refuses."""

from __future__ import annotations

import importlib

import pytest

from harness.backends.base import CannotAnswer, Setting
from harness.backends.registry import make_backend
from harness.backends.torch_ops.backend import TorchBackend
from harness.cost.decompose import decompose
from harness.errors import EnvironmentUnfit, UsageError
from harness.spec.case import Case

pytestmark = pytest.mark.torch

FP32 = {"weights": "fp32", "kv_format": "fp32", "attn_format": "fp32"}
SHAPE = {"layers": 64, "hidden": 256, "q_heads": 16, "kv_heads": 16, "head_dim": 64, "ffn": 256, "vocab": 64, **FP32}
DECODE = {"phase": "decode", "batch": 1, "kvsl": 2048}
PREFILL = {"phase": "prefill", "batch": 1, "isl": 32}


def make_case(workload=DECODE, system="cpu", parallelism=None, **changes):
    data = {"variant": {**SHAPE, **changes}, "workload": workload, "system": system}
    return Case.model_validate({**data, "parallelism": parallelism} if parallelism else data)


def opened(clock=None, **options):
    backend = TorchBackend(clock)
    backend.open(Setting(options={"device": "cpu", "threads": 1, **options}))
    return backend


@pytest.fixture(scope="module")
def backend():
    made = opened()
    yield made
    made.close()


@pytest.fixture(scope="module")
def arm(backend):
    made = backend.prepare(make_case(), "layer")
    yield made
    made.close()


def test_it_says_once_what_answers():
    backend = make_backend("torch")
    facts = backend.open(Setting(options={"device": "cpu", "threads": 1}))
    backend.close()

    assert backend.name == "torch"
    assert facts.provenance == "measured"
    assert facts.versions == f"torch {importlib.import_module('torch').__version__}"
    assert facts.device
    assert facts.gpu_uuids == ()
    assert facts.details["threads"] == 1
    assert facts.details["bandwidth_ceiling_bytes_per_s"] > 1e8


def test_so_many_layers_run_that_no_cache_holds_them_and_the_time_is_scaled_to_all(arm):
    facts = arm.facts
    cache = facts.details["last_level_cache_bytes"]
    per_layer = 4 * (256 * 3 * 1024 + 1024 * 256 + 3 * 256 * 256) + 2 * 4 * 16 * 64 * 2048

    assert facts.scale == 64 / facts.layers_run
    assert facts.hbm_bytes == facts.layers_run * per_layer
    assert facts.layers_run == max(4, min(64, int(4 * cache / per_layer) + 1))
    assert facts.details["distinct_weights_and_caches"] == facts.layers_run
    assert (facts.details["dtype"], facts.details["attention"]) == ("float32", "folded rows")
    assert facts.details["sdpa"] in {"flash", "math"}
    assert facts.details["cuda_graph"] is False


def test_iterations_are_timed_one_by_one_and_are_no_faster_than_memory(arm):
    assert arm.facts.details["beyond_cache"] is True, "this machine's cache holds 64 layers: give the case more"
    taken = arm.take(3)

    assert len(taken.times_ms) == 3
    assert min(taken.times_ms) > 0
    assert taken.invalid == ""


class Stopwatch:
    """A clock that lets the work run and then says what it was told to."""

    def __init__(self, says_ms):
        self.says_ms = says_ms

    def times_ms(self, run, count):
        return [self.says_ms for _ in range(count) if run() or True]

    def ops_ms(self, run):
        raise NotImplementedError


def test_a_time_in_which_memory_cannot_have_been_read_makes_the_row_invalid():
    backend = opened(Stopwatch(1e-3))
    arm = backend.prepare(make_case(kv_heads=16), "layer")
    taken = arm.take(2)
    arm.close()

    assert taken.times_ms == (1e-3, 1e-3)
    assert "GB of weights and KV in 0.001 ms are" in taken.invalid
    assert "GB/s at most here: not all of it was read" in taken.invalid


def test_a_cache_that_fits_into_the_processors_own_is_not_judged():
    backend = opened(Stopwatch(1e-3), layers=1)
    arm = backend.prepare(make_case({**DECODE, "kvsl": 16}), "layer")

    assert arm.facts.details["beyond_cache"] is False
    assert arm.take(1).invalid == ""
    arm.close()


def test_ops_are_timed_by_their_names_in_the_case(arm):
    times = arm.op_times()

    assert [one.op for one in times] == [op.name for op in decompose(make_case(), "layer")]
    assert all(one.time_us > 0 for one in times)


def test_a_prefill_in_chunks_has_one_time_per_op(backend):
    case = make_case({**PREFILL, "isl": 96, "chunk": 48}, layers=2)
    arm = backend.prepare(case, "layer")
    names = [one.op for one in arm.op_times()]
    facts = arm.facts
    arm.close()

    assert names == list(dict.fromkeys(op.name for op in decompose(case, "layer")))
    assert facts.details["attention"] == "causal; masked blocks"
    assert facts.layers_run == 2


def test_experts_are_in_the_facts(backend):
    experts = {"count": 8, "top_k": 2, "inter": 32}
    arm = backend.prepare(make_case({**DECODE, "batch": 3, "kvsl": 8}, layers=2, experts=experts, ffn=0), "layer")
    details = arm.facts.details
    arm.close()

    assert details["experts"] == "one batched GEMM"
    assert (details["experts_touched"], details["expert_tokens_most"]) == (6, 1)


def test_an_attention_kernel_can_be_asked_for_by_name():
    backend = opened(sdpa="math", layers=1)
    arm = backend.prepare(make_case(PREFILL), "layer")

    assert arm.facts.details["sdpa"] == "math"
    arm.close()


def test_without_any_kernel_that_can_the_reasons_are_told():
    backend = opened(sdpa="cudnn", layers=1)
    with pytest.raises(CannotAnswer, match=r"no attention kernel of PyTorch takes this case \(cudnn: ") as refused:
        backend.prepare(make_case(PREFILL), "layer")
    assert refused.value.status == "unsupported"


BF16 = dict.fromkeys(FP32, "bf16")
MLA = {"attention": "mla", "mla": {}}


@pytest.mark.parametrize(
    ("case", "level", "reason"),
    [
        (make_case(), "model", "torch runs decoder layers: level model is not answered; --level layer is"),
        (make_case({"phase": "serve", "isl": 8, "osl": 8, "concurrency": 1}), "layer", "it serves no requests"),
        (make_case(parallelism={"tp": 2}, **BF16), "layer", "torch runs on one GPU, and this needs 2"),
        (make_case(**MLA), "layer", "multi-head latent attention"),
        (make_case(head_dim=63), "layer", "head_dim 63 is odd"),
        (make_case(system="b200_sxm"), "layer", "and the case asks for b200_sxm"),
        (make_case(**BF16), "layer", "torch on a processor runs fp32 only, and the case has bf16"),
        (
            make_case(weights="fp8", kv_format="bf16", attn_format="bf16"),
            "layer",
            "--set weights=fp32 --set kv_format=fp32 --set attn_format=fp32",
        ),
    ],
)
def test_what_it_cannot_run_is_unsupported_with_the_reason(backend, case, level, reason):
    with pytest.raises(CannotAnswer) as refused:
        backend.prepare(case, level)

    assert refused.value.status == "unsupported"
    assert reason in refused.value.reason


def test_what_does_not_fit_is_told_before_it_is_allocated(backend):
    with pytest.raises(
        CannotAnswer, match=r"1 layers need 8\d\d\.\d\d GiB \(weights .*KV 8\d\d\.\d\d.*GiB are free"
    ) as refused:
        backend.prepare(make_case({**DECODE, "batch": 100, "kvsl": 2**20}), "layer")
    assert refused.value.status == "oom"


def test_an_allocation_that_fails_is_out_of_memory():
    torch = importlib.import_module("torch")
    device = importlib.import_module("harness.backends.torch_ops.device")
    options = importlib.import_module("harness.backends.torch_ops.options")
    made = device.open_device(options.Options(device="cpu", threads=1))

    with (
        pytest.raises(CannotAnswer, match=r"out of memory while trying, .* GiB were free: ") as refused,
        made.guard("trying"),
    ):
        torch.empty(2**45)
    assert refused.value.status == "oom"
    with pytest.raises(RuntimeError, match="something else"), made.guard("trying"):
        raise RuntimeError("something else")


def test_unknown_and_impossible_options_are_all_named():
    with pytest.raises(UsageError) as refused:
        TorchBackend().open(Setting(options={"thread": 2, "threads": 0, "device": "tpu", "sdpa": "best"}))
    assert refused.value.findings == (
        "--on torch has no option 'thread'; it has device, threads, layers, sdpa",
        "--on torch: threads must be a whole number of at least 1, not 0",
        "--on torch: device must be one of cuda, cpu, not 'tpu'",
        "--on torch: sdpa must be one of cudnn, flash, efficient, math, not 'best'",
    )


def test_a_gpu_that_is_not_there_is_no_silent_processor():
    torch = importlib.import_module("torch")
    if torch.cuda.is_available():
        assert make_backend("torch").open(Setting(options={"device": "cuda"})).gpu_uuids
    else:
        with pytest.raises(EnvironmentUnfit, match="finds no GPU; device=cpu runs on the processor"):
            TorchBackend().open(Setting(options={"device": "cuda"}))


def test_the_processors_caches_are_added_up_as_its_kernel_lists_them(tmp_path):
    device = importlib.import_module("harness.backends.torch_ops.device")
    for cpu, shared in enumerate(("0-1", "0-1", "2-3", "2-3")):
        for index, (level, size, by) in enumerate(((1, "32K", str(cpu)), (3, "32768K", shared))):
            folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            for name, text in (("level", level), ("size", size), ("shared_cpu_list", by)):
                (folder / name).write_text(f"{text}\n")

    assert device.cpu_cache_bytes(tmp_path) == 2 * 32 * 2**20
    assert device.cpu_cache_bytes(tmp_path / "none") is None


def test_the_processor_is_named_as_linux_names_it(tmp_path):
    device = importlib.import_module("harness.backends.torch_ops.device")
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: AMD EPYC 9R14\nstepping\t: 1\n")

    assert device.cpu_name(info) == "AMD EPYC 9R14"
    assert device.cpu_name(tmp_path / "none") == "cpu"
