from __future__ import annotations

import json

import pytest

from harness.engines.engine_spec import engine_spec, positions
from harness.engines.needs import EngineOptions, merged, study_needs, variant_need
from harness.engines.settings import parallelism_slug, read_settings
from harness.errors import UnreadableInput, UsageError
from harness.files import parse_yaml
from harness.spec.case import Case
from harness.spec.load import load_variant
from harness.spec.parallelism import Parallelism
from harness.spec.workload import Decode, Prefill

DENSE = load_variant("dense-8b").model_copy(update={"vocab": 1024})
OPTIONS = EngineOptions("1.3.0rc20")


def case(variant=DENSE, batch=8, kvsl=4096, system="b200_sxm", **split) -> Case:
    workload = Decode(phase="decode", batch=batch, kvsl=kvsl)
    return Case(variant=variant, parallelism=Parallelism(**split), workload=workload, system=system)


def changed(**changes) -> object:
    return DENSE.model_copy(update=changes)


# ---- engines


def test_a_variant_under_two_names_is_one_engine_with_both():
    needs = study_needs([case(changed(name="one")), case(changed(name="two"), batch=16)], OPTIONS)

    [need] = needs.engines
    assert need.names == ["one", "two"]
    [settings] = need.settings
    assert settings.args.fields["max_batch_size"] == 16


def test_variants_of_one_study_take_one_architecture():
    wide = changed(q_heads=24, kv_heads=8)  # H 4096 is no multiple of 24
    together = study_needs([case(), case(wide)], OPTIONS)
    alone = study_needs([case()], OPTIONS)

    assert [need.spec.architecture for need in together.engines] == ["Qwen3ForCausalLM"] * 2
    assert [need.spec.architecture for need in alone.engines] == ["LlamaForCausalLM"]


def test_a_variant_that_no_model_can_be_is_named_and_the_others_stay():
    needs = study_needs([case(), case(changed(name="ungated", gated_ffn=False))], OPTIONS)

    assert [need.names for need in needs.engines] == [["dense-8b"]]
    assert any("ungated" in problem and "gated_ffn" in problem for problem in needs.problems)


def test_engines_of_several_studies_are_merged_with_the_settings_of_all():
    one = study_needs([case(batch=8)], OPTIONS)
    two = study_needs([case(batch=8), case(batch=32), case(changed(name="other", layers=2))], OPTIONS)
    whole = merged([one, two])

    assert [need.names for need in whole.engines] == [["dense-8b"], ["other"]]
    assert [settings.args.fields["max_batch_size"] for settings in whole.engines[0].settings] == [8, 32]


def test_what_fits_no_gpu_keeps_its_engine_and_has_no_settings():
    needs = study_needs([case(kvsl=10**8)], OPTIONS)
    assert [need.settings for need in needs.engines] == [[]]
    assert [case.workload.kvsl for case, _ in needs.too_large] == [10**8]


def test_a_variant_alone_has_no_settings():
    need = variant_need(DENSE, OPTIONS)
    assert (need.names, need.settings) == (["dense-8b"], [])
    assert need.spec.key == engine_spec(DENSE).key


@pytest.mark.parametrize(
    ("longest", "expected"), [(0, 131072), (131072, 131072), (131073, 262144), (262144, 262144), (10**6, 1 << 20)]
)
def test_positions_are_the_usual_ones_or_the_next_power_of_two(longest, expected):
    assert positions(longest) == expected
    assert json.loads(engine_spec(DENSE, longest=longest).files["config.json"])["max_position_embeddings"] == expected


def test_the_seed_of_weights_that_are_not_there_makes_no_engine():
    assert engine_spec(DENSE, seed=1).key == engine_spec(DENSE, seed=2).key


# ---- settings


def test_settings_are_named_by_version_parallelism_and_phase():
    [need] = study_needs([case(tp=4, pp=2)], OPTIONS).engines
    [settings] = need.settings
    texts = settings.texts()

    assert settings.name == "1.3.0rc20-tp4-pp2-decode"
    assert set(texts) == {"llm_args.yaml"}
    assert texts["llm_args.yaml"].startswith("# TensorRT-LLM 1.3.0rc20, tp 4 · pp 2\n# ")
    assert parse_yaml(texts["llm_args.yaml"]) == settings.args.fields


def test_prompts_and_decode_are_settings_of_their_own():
    prompt = Case(variant=DENSE, workload=Prefill(phase="prefill", batch=2, isl=8192), system="b200_sxm")
    [need] = study_needs([case(), prompt], OPTIONS).engines
    assert [settings.name for settings in need.settings] == ["1.3.0rc20-1gpu-decode", "1.3.0rc20-1gpu-prefill"]
    assert need.settings[1].args.fields["max_num_tokens"] == 2 * 8192
    assert need.settings[1].args.fields["enable_chunked_prefill"] is False


@pytest.mark.parametrize(
    ("split", "slug"),
    [
        (Parallelism(), "1gpu"),
        (Parallelism(tp=8, ep=8, attention_dp=True, slots=144), "tp8-ep8-adp-eplb144"),
        (Parallelism(tp=4, cp=2), "tp4-kvp2"),
        (Parallelism(pp=2, pp_partition=(20, 12)), "pp2-stages20_12"),
    ],
)
def test_a_parallelism_becomes_a_part_of_a_file_name(split, slug):
    assert parallelism_slug(split) == slug


def test_settings_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(UnreadableInput, match=r"llm_args\.yaml: no such file"):
        read_settings(tmp_path)
    (tmp_path / "llm_args.yaml").write_text("[]\n")
    with pytest.raises(UnreadableInput, match=r"llm_args\.yaml: not a mapping"):
        read_settings(tmp_path)
    (tmp_path / "llm_args.yaml").write_text("max_batch_size: 8\n")
    (tmp_path / "environment.json").write_text('{"ENABLE_PERFECT_ROUTER": "1"}')
    assert read_settings(tmp_path) == {
        "fields": {"max_batch_size": 8},
        "environment": {"ENABLE_PERFECT_ROUTER": "1"},
    }


def test_options_that_no_model_takes_are_an_error_of_the_variant():
    with pytest.raises(UsageError, match="no architecture is called 'GPT5'"):
        variant_need(DENSE, EngineOptions("1.2.1", architecture="GPT5"))
