"""Cases at level `layer`: what the layer-wise runner is asked, by module and by command, and what its lines say."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

import pytest
from trtllm_runs import DENSE, DOUBLES, EVERY_VERSION, LATENT, SPARSE, Worker, cases, decode, prefill

from harness.backends.base import CannotAnswer
from harness.backends.trtllm.layerwise_command import parse_results, slowest_ranks
from harness.backends.trtllm.layerwise_module import _call
from harness.backends.trtllm.layerwise_problem import Part, layer_case
from harness.backends.trtllm.options import Options
from harness.errors import UnreadableInput

LINE = (
    "[RANK 0]  batch_size 64  seq_len_q 1  seq_len_kv_cache 4096  mean 212.4  median 211.9  min 208.0  max 240.7  "
    "P90 215.3  (us)"
)


def asked(workload, options=None, architecture="Qwen3ForCausalLM", **what):
    (case,) = cases(workload, **what)
    return layer_case(case, case.workload.batch // case.parallelism.dp, options or Options(), architecture)


@pytest.fixture
def checkout(tmp_path):
    """A checkout of TensorRT-LLM as far as the double has one."""
    examples = tmp_path / "checkout" / "examples"
    examples.mkdir(parents=True)
    (examples / "layer_wise_benchmarks").symlink_to(DOUBLES / "layer_wise_benchmarks")
    return str(tmp_path / "checkout")


def truth_ms(worker, **what):
    """Median over iterations of the device time of these layers and lengths, slowest rank."""
    ranks = defaultdict(list)
    for row in worker.truth:
        if all(row.get(name) == value for name, value in what.items()):
            ranks[row["rank"]].append(row["device_ms"])
    return max(median(times) for times in ranks.values())


def test_result_lines_of_every_order_are_read_and_others_are_passed_over():
    figures, before = "mean 212.4  median 211.9  min 208.0  max 240.7", "min 208.0  max 240.7  mean 212.4  median 211.9"
    early = LINE.replace(figures, before)
    balanced = LINE.replace("  mean", "  balance_ratio 0.5  mean").replace("[RANK 0]", "1: [RANK 3]")
    lines = ["Namespace(model='m')", LINE, early, balanced, "[RANK 0] something else"]
    shape = (64, 1, 4096)
    assert parse_results(lines, "log") == [(0, shape, 0.2119), (0, shape, 0.2119), (3, shape, 0.2119)]


@pytest.mark.parametrize(
    ("changed", "missing"),
    [
        (LINE.replace("(us)", "(ms)"), r"\(us\)"),
        (LINE.replace("median 211.9  ", ""), "median"),
        (LINE.replace("seq_len_q", "query"), "seq_len_q"),
    ],
)
def test_a_line_of_another_form_is_named_and_is_no_zero(changed, missing):
    with pytest.raises(UnreadableInput, match=rf"log: .* without {missing}: .*RANK 0"):
        parse_results([changed], "log")


def test_of_each_sample_the_slowest_rank_counts():
    shape, other = (8, 1, 64), (4, 1, 64)
    told = [(0, shape, 1.0), (1, shape, 3.0), (0, other, 9.0), (1, shape, 1.0), (0, shape, 2.0), (0, shape, 5.0)]
    assert slowest_ranks(told, 2) == {shape: [3.0, 2.0], other: []}


def test_a_draft_is_verified_by_as_many_query_tokens_more():
    (problem,) = asked(decode(8, 2048, draft_len=3)).problems
    assert (problem.run_type, problem.batch, problem.query, problem.kv) == ("GEN", 8, 4, 2048)
    assert problem.part == Part((0, 1, 2, 3), 4, "NotModified")


def test_a_prefill_in_chunks_is_a_problem_for_each():
    found = asked(prefill(2, 1280, chunk=512)).problems
    assert [(one.run_type, one.batch, one.query, one.kv) for one in found] == [
        ("CTX", 2, 512, 0), ("CTX", 2, 512, 512), ("CTX", 2, 256, 1024),
    ]  # fmt: skip


def test_dense_layers_before_experts_are_a_part_of_their_own():
    found = asked(decode(), variant={**LATENT, "layers": 9}, options=Options(layers=2))
    assert [one.part for one in found.problems] == [Part((0,), 1, "NotModified"), Part((1, 2), 8, "Balanced")]
    assert (found.layers_run, found.ranks, found.scaled_from) == (3, 1, None)


def test_kinds_of_attention_run_in_the_proportion_of_the_model():
    pattern = {**DENSE.model_dump(), "layers": 12, "attention": ["sliding", "sliding", "full"], "window": 128}
    (problem,) = asked(decode(), variant=pattern, options=Options(layers=4)).problems
    assert problem.part.layers == (0, 1, 2, 3, 4, 5)
    # Ten layers are no whole number of patterns: all of them run.
    (problem,) = asked(decode(), variant={**pattern, "layers": 10}, options=Options(layers=4)).problems
    assert (problem.part.layers, problem.part.scale) == (tuple(range(10)), 1.0)


def test_enough_layers_run_to_be_beyond_the_cache_of_the_gpu():
    large = DENSE.model_copy(update={"layers": 80, "hidden": 8192, "ffn": 28672})
    assert len(asked(decode(), variant=large).problems[0].part.layers) == 1
    small = DENSE.model_copy(update={"layers": 200})
    layers = len(asked(decode(1, 128), variant=small).problems[0].part.layers)
    # A layer reads 2·(1024·(16 + 2·4)·64 + 16·64·1024 + 3·1024·4096) bytes and a little KV; the L2 of a B200 is 126 MB.
    per_layer = 2 * (1024 * 24 * 64 + 1024 * 1024 + 3 * 1024 * 4096)
    assert 4 * 126e6 / per_layer - 2 < layers < 4 * 133e6 / per_layer + 2


@pytest.mark.parametrize(
    ("what", "options", "reason"),
    [
        ({"pp": 2}, Options(), "no pipeline stages"),
        ({"variant": SPARSE, "tp": 2, "ep": 1}, Options(), "ep = tp can be measured"),
        ({"variant": SPARSE, "tp": 2, "ep": 2}, Options(layerwise_gpus=1), "takes DeepseekV3ForCausalLM, not Qwen3"),
    ],
)
def test_what_the_runner_cannot_be_asked(what, options, reason):
    with pytest.raises(CannotAnswer, match=reason):
        asked(decode(), options, **what)


def test_an_uneven_routing_is_asked_by_the_runner_s_own_words():
    uneven = decode(routing="power_law_1.2")
    with pytest.raises(CannotAnswer, match="balance_method=ImbalancedExperts"):
        asked(uneven, variant=SPARSE)
    options = Options(balance_method="ImbalancedExperts", balance_ratio=0.25)
    part = asked(uneven, options, variant=SPARSE).problems[0].part
    assert (part.balance_method, part.balance_ratio) == ("ImbalancedExperts", 0.25)


def test_fewer_gpus_stand_for_all():
    found = asked(decode(), Options(layerwise_gpus=1), "DeepseekV3ForCausalLM", variant=LATENT, tp=4, ep=4)
    assert (found.ranks, found.scaled_from) == (1, 4)


def test_a_release_that_needs_something_else_is_an_answer_that_names_it():
    def create(model, *, layers, cosmic_ray_rate):
        raise AssertionError

    with pytest.raises(CannotAnswer, match="needs cosmic_ray_rate, which nothing here knows"):
        _call(create, "model", layers=[1], moe_backend="CUTLASS")


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_layers_in_process_are_those_of_the_clock(tmp_path, version):
    worker = Worker(tmp_path, version, cases(decode(8, 2048), decode(4, 1024)), level="layer")
    assert worker.run.ended.status == "done", worker.run.ended.log_tail
    assert worker.opened.facts.provenance == "simulated"
    for number, (batch, kvsl) in enumerate([(8, 2048), (4, 1024)]):
        found = worker.measured[number].measurement
        true = truth_ms(worker, run_type="GEN", batch=batch, q=1, kv=kvsl)
        assert found.facts.scale * median(found.times_ms) == pytest.approx(true, rel=0.01)
        assert found.facts.details["layer_runner"] == "in process"
        assert found.op_times == ()


@pytest.mark.parametrize("version", ["1.2.1", "1.4"])
def test_parts_add_up_with_the_layers_that_they_stand_for(tmp_path, version):
    variant = {**LATENT, "layers": 9}
    worker = Worker(
        tmp_path, version, cases(decode(8, draft_len=2), variant=variant), level="layer", options={"layers": 2}
    )
    found = worker.measured[0].measurement
    shape = {"run_type": "GEN", "batch": 8, "q": 3, "kv": 2048}
    true = truth_ms(worker, layers=[0], **shape) + 8 / 2 * truth_ms(worker, layers=[1, 2], **shape)
    assert found.facts.layers_run == 3
    assert found.facts.scale * median(found.times_ms) == pytest.approx(true, rel=0.01)
    details = found.facts.details
    assert (details["layer_numbers"], details["balance"]) == ("0-0 for 1; 1-2 for 8", "Balanced")
    assert "experts are chosen in one group" in details["architecture_adds"]


def test_a_prefill_at_level_layer_runs_without_a_graph(tmp_path):
    worker = Worker(tmp_path, "1.3.0rc24", cases(prefill(1, 1024, chunk=512)), level="layer")
    found = worker.measured[0].measurement
    true = sum(truth_ms(worker, run_type="CTX", batch=1, q=512, kv=past) for past in (0, 512))
    assert median(found.times_ms) == pytest.approx(true, rel=0.01)


def test_what_the_runner_refuses_is_told_in_its_words(tmp_path):
    worker = Worker(tmp_path, "1.4", cases(decode()), level="layer", TRTLLM_DOUBLE_FAIL="nan")
    assert worker.unanswered[0].reason.endswith("ValueError: Has nan, please fix weights initialization")


def test_several_ranks_without_a_checkout_are_told_what_to_give(tmp_path):
    worker = Worker(tmp_path, "1.4", cases(decode(), tp=2), level="layer")
    assert "2 ranks needs --backend-option layerwise_checkout=PATH" in worker.unanswered[0].reason


@pytest.mark.mpi
def test_several_ranks_are_timed_by_the_command_and_the_slowest_counts(tmp_path, checkout):
    worker = Worker(
        tmp_path, "1.3.0rc24", cases(decode(8, 2048), decode(4, 2048), tp=2), level="layer",
        options={"layerwise_checkout": checkout}, TRTLLM_DOUBLE_NOISE="1,0.5,30",
    )  # fmt: skip
    assert worker.run.ended.status == "done", worker.run.ended.log_tail
    for number, batch in enumerate([8, 4]):
        found = worker.measured[number].measurement
        true = truth_ms(worker, run_type="GEN", batch=batch, q=1, kv=2048)
        assert median(found.times_ms) == pytest.approx(true, rel=0.01)
        assert (found.facts.details["ranks"], len(found.times_ms)) == (2, 60)
    # Both arms share each process, of two ranks; one is started for each turn of the arm that had most.
    measured = [one.measurement for one in worker.measured.values()]
    turns = max((len(one.warmup_ms) + len(one.times_ms)) // 60 for one in measured)
    processes = {row["process"] for row in worker.truth}
    assert len(processes) == 2 * turns
    batches = {pid: {row["batch"] for row in worker.truth if row["process"] == pid} for pid in processes}
    assert all(found == {4, 8} for found in batches.values())


@pytest.mark.parametrize("flags", ["current", "early"])
def test_one_gpu_stands_for_four_by_the_command(tmp_path, checkout, flags):
    worker = Worker(
        tmp_path, "1.2.1", cases(decode(8), variant=LATENT, tp=4, ep=4), level="layer",
        options={"layerwise_checkout": checkout, "layerwise_gpus": 1},
        TRTLLM_DOUBLE_ALTER=f"layer_wise_line={flags}",
    )  # fmt: skip
    assert worker.run.ended.status == "done", worker.run.ended.log_tail
    found = worker.measured[0].measurement
    shape = {"run_type": "GEN", "batch": 8, "q": 1, "kv": 2048}
    true = truth_ms(worker, layers=[0], **shape) + truth_ms(worker, layers=[1, 2], **shape)
    assert median(found.times_ms) == pytest.approx(true, rel=0.01)
    assert (found.facts.details["scaled_from"], found.facts.details["ranks"]) == (4, 1)


def test_a_release_without_the_module_needs_the_command(tmp_path, checkout):
    missing = {"TRTLLM_DOUBLE_ALTER": "layer_wise=false"}
    (tmp_path / "a").mkdir()
    worker = Worker(tmp_path / "a", "1.2.1", cases(decode()), level="layer", **missing)
    assert "a release without the layer-wise runner needs" in worker.unanswered[0].reason


def test_a_command_that_fails_is_an_answer(tmp_path, checkout):
    worker = Worker(
        tmp_path, "1.4", cases(decode(8), variant=LATENT, tp=4, ep=4), level="layer",
        options={"layerwise_checkout": checkout, "layerwise_gpus": 1}, TRTLLM_DOUBLE_FAIL="nan",
    )  # fmt: skip
    assert worker.unanswered[0].status == "invalid"
    assert "the layer-wise command ended with 1" in worker.unanswered[0].reason


def test_a_command_that_prints_no_result_is_an_answer(tmp_path):
    folder = tmp_path / "checkout" / "examples" / "layer_wise_benchmarks"
    folder.mkdir(parents=True)
    (folder / "run.py").write_text("print('all good')\n")
    options = {"layerwise_checkout": str(tmp_path / "checkout"), "layerwise_gpus": 1}
    worker = Worker(tmp_path, "1.4", cases(decode(8), variant=LATENT, tp=4, ep=4), level="layer", options=options)
    assert worker.unanswered[0].reason == "the layer-wise command printed no result for this case"
