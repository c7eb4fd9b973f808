"""Cases at level `model`, in real worker processes on the double of TensorRT-LLM, compared with the double's own clock.

The double's first iteration takes 30 s, its records lag by one, its CUDA graphs are padded, its batches form late, and
it says in a file how long each of its iterations truly took.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from statistics import fmean

import pytest
from thorough import mostly_thorough
from trtllm_runs import (
    DENSE,
    DOUBLES,
    EVERY_VERSION,
    LATENT,
    PERSONALITIES,
    SPARSE,
    Worker,
    cases,
    decode,
    prefill,
    settings_for,
    true_times,
)
from trtllm_runs import off_pct as off
from workers import TESTS

from harness.backends.base import CannotAnswer
from harness.backends.trtllm.iteration_stats import parse_stats
from harness.backends.trtllm.iterations import Iteration, decode_steps
from harness.backends.trtllm.llm_decode import DecodeArm
from harness.backends.trtllm.prompts import Prompts
from harness.backends.trtllm.session import Burst
from harness.backends.trtllm.settings_folder import read_settings_folder

#: Which figure each version is read by, and how often an instance is started to find out.
SOURCES = {
    "1.2.1": ("prevDeviceStepTimeMS of the next iteration (print_iter_log)", 2),
    "1.3.0rc8": ("prevDeviceStepTimeMS of the next iteration (print_iter_log)", 2),
    "1.3.0rc24": ("prevDeviceStepTimeMS of the next iteration (get_stats)", 1),
    "1.4": ("gpuForwardTimeMS (get_stats)", 1),
}


@pytest.mark.parametrize("version", mostly_thorough(PERSONALITIES, {"1.2.1", "1.3.0rc24", "1.4"}))
def test_decode_steps_are_those_of_the_clock(tmp_path, version):
    worker = Worker(tmp_path, version, cases(decode(8, 2048), decode(3, 1024)))
    assert worker.run.ended.status == "done", worker.run.ended.log_tail
    for number, (batch, kvsl) in enumerate([(8, 2048), (3, 1024)]):
        found = worker.measured[number].measurement
        details = found.facts.details
        steps = true_times(worker.truth, contexts=0, generations=batch, settling=False)
        assert not found.invalid
        assert len(found.times_ms) >= 30
        assert abs(off(found.times_ms, steps)) < 1
        assert (details["step_time_source"], details["instances_started"]) == SOURCES[version]
        assert details["kv_length_mean"] == pytest.approx(kvsl, rel=0.003)
        assert found.facts.layers_run == DENSE.layers


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_a_batch_that_forms_late_is_measured_when_it_is_complete_and_at_its_length(tmp_path, version):
    # Each prompt fills a pass of its own, so that the first sequence has generated 15 tokens when the last one begins.
    worker = Worker(tmp_path, version, cases(decode(16, 8192)))
    found = worker.measured[0].measurement
    steps = true_times(worker.truth, contexts=0, generations=16, settling=False)
    assert abs(off(found.times_ms, steps)) < 1
    assert found.facts.details["steps_before_batch_complete"] >= 15
    # True lengths, of the iterations that were complete.
    lengths = [row["kv_mean"] for row in worker.truth if (row["contexts"], row["generations"]) == (0, 16)]
    assert min(lengths) < 8192 < max(lengths)
    assert found.facts.details["kv_length_mean"] == pytest.approx(8192, rel=0.002)


@pytest.mark.parametrize("version", mostly_thorough(PERSONALITIES, {"1.3.0rc24", "1.4"}))
def test_prefills_are_those_of_the_clock(tmp_path, version):
    # The first one fills an iteration, the others leave room in it.
    asked = [(4, 512), (2, 512), (1, 1024)]
    worker = Worker(tmp_path, version, cases(*(prefill(batch, isl) for batch, isl in asked)))
    assert worker.run.ended.status == "done", worker.run.ended.log_tail
    for number, (batch, isl) in enumerate(asked):
        found = worker.measured[number].measurement
        passes = true_times(worker.truth, contexts=batch, generations=0, context_tokens=batch * isl, first=False)
        assert not found.invalid
        assert abs(off(found.times_ms, passes)) < 1
    ways = [worker.measured[number].measurement.facts.details["prefill_given"] for number in range(3)]
    assert ways[0] == "batches that fill their iterations, one after the other"
    newest = version == "1.4"
    assert set(ways[1:]) == {"one batch at a time" if newest else "one batch behind prompts that fill one iteration"}


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_a_prefill_in_chunks_is_the_sum_of_its_chunks(tmp_path, version):
    worker = Worker(tmp_path, version, cases(prefill(1, 4096, chunk=1024), prefill(1, 2560, chunk=1024)))
    by_call = defaultdict(list)
    for row in worker.truth:
        if row["contexts"]:
            by_call[row["generate"]].append((row["context_tokens"], row["device_ms"]))
    for number, tokens in enumerate([4096, 2560]):
        found = worker.measured[number].measurement
        assert not found.invalid
        whole = [time for call in by_call.values() for time in _passes(call, tokens)]
        assert abs(off(found.times_ms, whole)) < 1


def _passes(call, tokens):
    """Times of whole prefills of one prompt, from the end of a call, where no pilot is."""
    taken, time_ms = 0, 0.0
    for chunk, device_ms in reversed(call):
        taken, time_ms = taken + chunk, time_ms + device_ms
        if taken == tokens:
            yield time_ms
            taken, time_ms = 0, 0.0
        elif taken > tokens:
            return


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_the_slowest_of_several_ranks_is_what_is_measured(tmp_path, version):
    worker = Worker(tmp_path, version, cases(decode(8), variant=SPARSE, tp=2, ep=2), TRTLLM_DOUBLE_NOISE="1,0.5,30")
    found = worker.measured[0].measurement
    details = found.facts.details
    assert (details["ranks"], details["ranks_reported"]) == (2, 2)
    alike = {"contexts": 0, "generations": 8, "settling": False}
    each = [true_times(worker.truth, **alike, rank=rank) for rank in (0, 1)]
    # One rank is slower by far, so that a rank of its own would be seen.
    assert abs(off(*each)) > 3
    assert abs(off(found.times_ms, true_times(worker.truth, **alike))) < 1
    assert "ENABLE_PERFECT_ROUTER" in details["expert_balance"]


@pytest.mark.parametrize("version", ["1.2.1", "1.4"])
def test_under_attention_dp_the_batch_is_a_rank_s(tmp_path, version):
    worker = Worker(tmp_path, version, cases(decode(8), variant=LATENT, tp=4, ep=4, attention_dp=True))
    found = worker.measured[0].measurement
    assert (found.facts.details["batch_per_rank"], found.facts.details["ranks_reported"]) == (2, 4)
    whole = [row for row in worker.truth if not row["settling"]]
    assert abs(off(found.times_ms, true_times(whole, contexts=0, generations=2))) < 1


@pytest.mark.parametrize("version", ["1.2.1", "1.4"])
def test_draft_tokens_are_verified_as_asked(tmp_path, version):
    worker = Worker(tmp_path, version, cases(decode(8, draft_len=3, accepted=2.0), variant=LATENT))
    found = worker.measured[0].measurement
    assert (found.facts.details["drafted_per_step"], found.facts.details["accepted_per_step"]) == (3.0, 2.0)
    steps = true_times(worker.truth, contexts=0, generations=8, query=4, settling=False)
    assert abs(off(found.times_ms, steps)) < 1
    # Three tokens a step: the length grows three times as fast, and its mean is as asked all the same.
    assert found.facts.details["kv_length_span"] == pytest.approx(3 * 63, rel=0.02)
    assert found.facts.details["kv_length_mean"] == pytest.approx(2048, rel=0.003)


def test_draft_tokens_that_are_not_drafted_or_not_accepted_are_invalid(tmp_path):
    asked = cases(decode(8, draft_len=3, accepted=2.0))
    (tmp_path / "a").mkdir()
    worker = Worker(tmp_path / "a", "1.2.1", asked)
    assert worker.unanswered[0].status == "invalid"
    assert "drafted per sequence and step, 3 asked" in worker.unanswered[0].reason
    (tmp_path / "b").mkdir()
    worker = Worker(tmp_path / "b", "1.4", asked)
    assert worker.unanswered[0].reason == "draft tokens: 0 accepted per sequence and step, 2 asked"


@pytest.mark.parametrize(
    ("version", "failure", "asked", "words"),
    [
        ("1.2.1", "wrong-length", decode(8), "output lengths: "),
        ("1.4", "wrong-length", decode(8), "output lengths: "),
        ("1.2.1", "reuse", decode(8), "kv reuse: "),
        ("1.4", "reuse", prefill(2, 512), "kv reuse: "),
        ("1.2.1", "lost-stats", decode(8), "lost statistics: "),
        ("1.3.0rc24", "lost-stats", decode(8), "lost statistics: "),
        ("1.4", "lost-stats", prefill(2, 512), "lost statistics: "),
    ],
)
def test_what_did_not_do_its_work_is_invalid_and_named(tmp_path, version, failure, asked, words):
    worker = Worker(tmp_path, version, cases(asked), TRTLLM_DOUBLE_FAIL=failure)
    assert worker.run.ended.status == "done", worker.run.ended.log_tail
    assert not worker.measured
    assert worker.unanswered[0].status == "invalid"
    assert worker.unanswered[0].reason.startswith(words)


@pytest.mark.parametrize(
    ("version", "altered", "words"),
    [
        ("1.2.1", "iter_log_unit=us", "host_step_time with its unit, ms or s: "),
        ("1.4", "missing_statistics=numGenRequests", "has no numGenRequests"),
    ],
)
def test_iterations_told_in_another_form_are_invalid_and_the_form_is_named(tmp_path, version, altered, words):
    worker = Worker(tmp_path, version, cases(decode(8)), TRTLLM_DOUBLE_ALTER=altered)
    assert worker.unanswered[0].status == "invalid"
    assert words in worker.unanswered[0].reason


@pytest.mark.parametrize(
    ("version", "altered", "source", "overlap"),
    [
        # A release of 2025: neither records nor lines tell a device time.
        ("1.2.1", "iter_log=elapsed", "iterLatencyMS without overlap (get_stats)", False),
        ("1.4", "gpu_forward_time=false", "prevDeviceStepTimeMS of the next iteration (get_stats)", True),
    ],
)
def test_the_next_best_figure_of_time_is_taken_where_one_is_missing(tmp_path, version, altered, source, overlap):
    worker = Worker(tmp_path, version, cases(decode(8)), TRTLLM_DOUBLE_ALTER=altered)
    found = worker.measured[0].measurement
    assert (found.facts.details["step_time_source"], found.facts.details["overlap_scheduler"]) == (source, overlap)
    steps = true_times(worker.truth, contexts=0, generations=8, settling=False)
    # Without overlap the host is in it, which the double has wait for 0.35 ms.
    host_ms = 0 if overlap else 0.35
    assert abs(off(found.times_ms, [step + host_ms for step in steps])) < 1


#: What get_stats says of one call, and the truth about it.
RAW = """
import json, sys
from tensorrt_llm import LLM, SamplingParams
llm = LLM(model=sys.argv[1], **json.loads(sys.argv[2]))
llm.generate([[7 * i + 1, *range(200)] for i in range(8)], SamplingParams(max_tokens=60, end_id=-1, ignore_eos=True))
print("records", json.dumps(llm.get_stats()))
"""


def test_a_naive_reading_of_the_same_stream_is_wrong(tmp_path):
    folder = settings_for(tmp_path / "store", cases(decode(8, 256)), "1.3.0rc24")
    settings = read_settings_folder(folder)
    truth = tmp_path / "truth.jsonl"
    environment = {
        **os.environ, "PYTHONPATH": f"{DOUBLES}:{TESTS}:{TESTS.parent}", "TRTLLM_DOUBLE": "1.3.0rc24",
        "TRTLLM_DOUBLE_SEED": "3", "TRTLLM_DOUBLE_TRUTH": str(truth), "TRTLLM_DOUBLE_FORM": "late",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", RAW, str(settings.engine.path), json.dumps(dict(settings.fields))],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("records ")]
    records = json.loads(line.removeprefix("records "))
    rows = [json.loads(text) for text in truth.read_text().splitlines()]
    steps = {row["iteration"]: row["device_ms"] for row in rows if row.get("generations") == 8 and not row["contexts"]}
    true = fmean(steps.values())
    # Taken as it stands, the first iteration and its 30 s are in the mean; the time of each row is another row's.
    naive = [record["prevDeviceStepTimeMS"] for record in records if record["prevDeviceStepTimeMS"]]
    assert fmean(naive) > 100 * true
    latency = [one["iterLatencyMS"] for one in records if one["inflightBatchingStats"]["numGenRequests"] == 8]
    assert fmean(latency) > 1.5 * true
    rows_off = [abs(one["prevDeviceStepTimeMS"] / steps[one["iter"]] - 1) for one in records if one["iter"] in steps]
    assert max(rows_off) > 0.1
    # Read by the rules, every step that is kept is exactly its own.
    selected = decode_steps(parse_stats(records, "get_stats"), 8, 201)
    assert len(selected.times_ms) > 30
    assert list(selected.times_ms) == [steps[number] for number in selected.numbers]


class Scripted:
    """A session whose batch never is complete: sequences end before the last one begins."""

    time_source, time_place, started = "gpuForwardTimeMS", "gpuForwardTimeMS (get_stats)", 1

    def __init__(self, settings):
        self.settings, self.prompts = settings, Prompts(1, 1000)
        self.asked = []

    def run(self, requests):
        self.asked.append(requests)
        rows = tuple(
            Iteration(number=number, contexts=1, generations=min(number, 7), completed=number // 8, gpu_forward_ms=5.0)
            for number in range(1, 40)
        )
        return Burst(rows, rows)


def test_a_batch_that_is_never_complete_is_invalid_with_what_was_seen(tmp_path):
    settings = read_settings_folder(settings_for(tmp_path / "store", cases(decode(8)), "1.4"))
    session = Scripted(settings)
    with pytest.raises(CannotAnswer, match=r"never complete for long enough: .* 117 has contexts") as raised:
        DecodeArm(session, *cases(decode(8)))
    assert raised.value.status == "invalid"
    # Each time sequences were given more to yield, never more than the settings have room for.
    outputs = [requests[0].output_tokens for requests in session.asked]
    assert outputs[0] < outputs[1]
    assert all(len(one.prompt) + one.output_tokens <= 2560 for requests in session.asked for one in requests)
    assert len({tuple(one.prompt) for requests in session.asked for one in requests}) == 8 * len(session.asked)
