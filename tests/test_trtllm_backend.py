"""`harness.backends.trtllm`: what is opened, for which cases it is, and prompts."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest
from trtllm_runs import DENSE, EVERY_VERSION, LATENT, SPARSE, Worker, cases, decode, prefill, settings_for

from harness.backends.base import CannotAnswer
from harness.backends.trtllm.features import Features
from harness.backends.trtllm.fit import check_sizes, sequences_of
from harness.backends.trtllm.machine import Machine
from harness.backends.trtllm.options import Options, read_options
from harness.backends.trtllm.prompts import Prompts
from harness.backends.trtllm.settings_folder import check_fields_exist, read_settings_folder
from harness.errors import UnreadableInput, UsageError
from harness.spec.variant import Variant


@pytest.fixture
def settings(tmp_path):
    return read_settings_folder(settings_for(tmp_path / "store", cases(decode()), "1.4"))


def features(*paths: str, **taken: tuple[str, ...]) -> Features:
    known = dict.fromkeys(paths, ()) | taken
    return Features("1.5", False, known, layer_wise=True, engine_backend=False, machine=Machine())


def test_paths_of_settings_are_whole(tmp_path):
    slots = cases(decode(8), variant=SPARSE, tp=4, ep=4, slots=16)
    folder = settings_for(tmp_path / "store", slots, "1.3.0rc24")
    found = read_settings_folder(folder)
    assert found.part("moe_config")["load_balancer"] == str(folder.resolve() / "moe_load_balancer.yaml")
    assert found.engine.path == folder.resolve().parents[1] / "engine"
    assert found.environment == {"ENABLE_PERFECT_ROUTER": "1"}
    assert found.name == f"{found.engine.key}/{folder.name}"


def test_a_folder_without_settings_is_named_with_what_to_give(tmp_path):
    with pytest.raises(UsageError, match="STORE/KEY/llm_args/NAME"):
        read_settings_folder(tmp_path)


def test_damaged_settings_are_named(settings, tmp_path):
    file = settings.folder / "llm_args.yaml"
    file.chmod(0o644)
    file.write_text("- no mapping\n")
    with pytest.raises(UnreadableInput, match=r"llm_args\.yaml: not a mapping"):
        read_settings_folder(settings.folder)


def test_a_field_that_the_version_lacks_is_named_with_the_version(settings):
    known = features(*settings.fields, *(f"{name}.*" for name in settings.fields))
    check_fields_exist(settings, known)
    fewer = features(*(set(known.settings) - {"max_stats_len"}))
    with pytest.raises(CannotAnswer, match=r"max_stats_len: TensorRT-LLM 1\.5 has no such setting") as raised:
        check_fields_exist(settings, fewer)
    assert raised.value.status == "unsupported"
    assert "build --trtllm-version 1.5" in raised.value.reason


@pytest.mark.parametrize(
    ("asked", "finding"),
    [
        (decode(16), "max_batch_size 8, 16 sequences"),
        (decode(4), "CUDA graphs are for batches of 8, not 4"),
        (decode(8, 8192), r"max_seq_len 2560, .* 8192 tokens"),
        (decode(8, 2048, draft_len=2), "0 draft tokens, the case has 2"),
        (prefill(8, 4096), "max_seq_len 2560, the prompts have 4096"),
        (prefill(8, 2048, chunk=512), "passes of 8192, the case has passes of 4096"),
    ],
)
def test_settings_for_another_workload_are_refused_with_what_differs(settings, asked, finding):
    check_sizes(*cases(decode()), settings)
    with pytest.raises(CannotAnswer, match=finding):
        check_sizes(*cases(asked), settings)


def test_ranks_that_would_have_different_numbers_of_sequences_are_refused():
    assert sequences_of(*cases(decode(8), tp=4, attention_dp=True)) == 2
    assert sequences_of(*cases(decode(10), tp=4)) == 10
    with pytest.raises(CannotAnswer, match="a batch of 12 works"):
        sequences_of(*cases(decode(10), tp=4, attention_dp=True))


def test_prompts_have_no_common_beginning_and_none_comes_twice():
    drawer = Prompts(seed=3, vocabulary=1000)
    drawn = [prompt for length in (64, 64, 500) for prompt in drawer.draw(200, length)]
    assert [len(prompt) for prompt in drawn] == [64] * 400 + [500] * 200
    assert len({tuple(prompt[:3]) for prompt in drawn}) == 600
    assert all(0 <= token < 1000 for prompt in drawn for token in prompt)
    # Nothing of one is a pattern of another: they begin at places of their own in the noise.
    assert all(a[3:40] != b[3:40] for a, b in combinations(drawn[:60], 2))


def test_prompts_follow_from_the_seed():
    assert Prompts(1, 500).draw(3, 9) == Prompts(1, 500).draw(3, 9) != Prompts(2, 500).draw(3, 9)
    assert [len(one) for one in Prompts(1, 500).draw(2, 1)] == [1, 1]


def test_options_are_checked_all_at_once(tmp_path):
    assert read_options({}) == Options()
    with pytest.raises(UsageError) as raised:
        read_options({"launcher": "ssh", "layers": 0, "speed": 1, "balance_ratio": 0.5, "layerwise_checkout": "/none"})
    text = str(raised.value)
    for finding in ("no option 'speed'", "layers must be", "launcher must be", "balance_ratio needs", "run.py there"):
        assert finding in text
    with pytest.raises(UsageError, match="needs balance_ratio"):
        read_options({"balance_method": "ImbalancedRanks"})


@pytest.mark.parametrize("version", EVERY_VERSION)
def test_a_double_says_that_it_simulates(tmp_path, version):
    worker = Worker(tmp_path, version, cases(decode(8), variant=SPARSE))
    facts = worker.opened.facts
    assert (facts.provenance, facts.versions, facts.device) == ("simulated", f"tensorrt_llm {version}", "NVIDIA B200")
    # The environment of the settings was there before TensorRT-LLM was imported; the tuner's cache is the run's.
    environment = json.loads(facts.details["environment"])
    assert environment["ENABLE_PERFECT_ROUTER"] == "1"
    assert Path(environment["TLLM_AUTOTUNER_CACHE_PATH"]).parent == tmp_path / "scratch" / "autotuner"
    assert Features.from_data(json.loads(facts.details["features"])).version == version
    assert facts.details["architecture"] == "Qwen3MoeForCausalLM"


def test_what_cannot_be_asked_is_answered_with_the_reason_and_the_rest_goes_on(tmp_path):
    good = cases(decode())[0]
    other = cases(decode(), variant=DENSE.model_copy(update={"kv_heads": 2}))
    elsewhere = cases(decode(), system="h200_sxm")
    serve = cases({"phase": "serve", "isl": 128, "osl": 128, "concurrency": 4})
    split = cases(decode(), tp=2)
    engine = settings_for(tmp_path / "store", [good], "1.4")
    worker = Worker(tmp_path, "1.4", [*other, *elsewhere, *serve, *split, good], engine=engine)
    assert worker.run.ended.status == "done", worker.run.ended.log_tail
    assert set(worker.measured) == {4}
    reasons = {number: one.reason for number, one in worker.unanswered.items()}
    assert "is not the variant of this case" in reasons[0]
    assert reasons[1] == "this machine has NVIDIA B200 (b200_sxm), and the case asks for h200_sxm"
    assert "not serving" in reasons[2]
    assert "tensor_parallel_size is 1, the case has 2" in reasons[3]
    assert {one.status for one in worker.unanswered.values()} == {"unsupported"}


@pytest.mark.parametrize(
    ("split", "changes", "reason"),
    [
        ({"tp": 2, "cp": 2}, {}, "Helix runs in the generation server of disaggregated serving"),
        ({"pp": 2}, {}, "the time of a stage and not of a step"),
        ({}, {"routing": "power_law_1.2"}, "cannot be told to route as power_law_1.2"),
    ],
)
def test_splits_and_routings_without_an_answer(tmp_path, split, changes, reason):
    variant = SPARSE if changes else LATENT if split.get("cp") else DENSE
    ways = {**split, "ep": 4} if split.get("cp") else split
    worker = Worker(tmp_path, "1.4", cases(decode(8, **changes), variant=variant, **ways))
    assert worker.run.ended.status == "done", worker.run.ended.log_tail
    assert reason in worker.unanswered[0].reason


def test_settings_of_another_version_are_refused_and_the_field_is_named(tmp_path):
    engine = settings_for(tmp_path / "store", cases(decode(8), variant=SPARSE), "1.3.0rc24")
    asked = cases(decode(8), variant=Variant.model_validate(SPARSE))
    worker = Worker(tmp_path, "1.2.1", asked, engine=engine)
    assert "moe_config.backend: TensorRT-LLM 1.2.1 takes" in worker.unanswered[0].reason
    assert "not AUTO" in worker.unanswered[0].reason


def test_without_an_engine_the_worker_says_what_is_needed(tmp_path):
    worker = Worker(tmp_path, "1.4", cases(decode()), engine=tmp_path)
    assert worker.run.ended.status == "unfit"
    assert "STORE/KEY/llm_args/NAME" in worker.run.ended.reason
