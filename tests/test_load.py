"""Studies, suites and variants from files, changed from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from shapes import LLAMA_8B

from harness import files
from harness.errors import UsageError
from harness.spec.expand import expand
from harness.spec.load import Overrides, base_variant, case_from_sets, load_study, load_suite, load_variant

STUDY: dict[str, Any] = {
    "title": "Group size",
    "variant": "small",
    "axes": {"G": [4, 8]},
    "workloads": {"decode": {"batch": 1, "kvsl": 4096}},
    "systems": ["b200_sxm"],
}


@pytest.fixture
def configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a model_configs/ of its own."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "model_configs"
    shape = {key: value for key, value in LLAMA_8B.items() if key != "name"}
    for path, data in {
        "variants/small.yaml": shape,
        "studies/groups.yaml": STUDY,
        "suites/both.yaml": {"title": "Both", "studies": ["groups"], "systems": ["h200_sxm"]},
    }.items():
        files.write_atomic(root / path, files.dump_yaml(data))
    return root


def planned(name: str, **overrides: Any) -> list[Any]:
    study = load_study(name, Overrides(**overrides))
    return expand(study, base_variant(study))


def test_names_and_paths_are_the_same(configs: Path) -> None:
    by_name, by_path = load_study("groups"), load_study(configs / "studies" / "groups.yaml")
    assert by_name == by_path
    assert by_name.name == "groups"
    assert base_variant(by_name).name == "small"


def test_unknown_names_list_the_known_ones(configs: Path) -> None:
    with pytest.raises(UsageError, match="no studies entry is called 'group'; did you mean 'groups'"):
        load_study("group")
    with pytest.raises(UsageError, match="no suite or study is called 'boths'"):
        load_suite("boths")
    with pytest.raises(UsageError, match=r"missing\.yaml: no such file"):
        load_study("missing.yaml")


def test_axis_and_field_overrides(configs: Path) -> None:
    cases = planned("groups", axes=["G=2^0..2^2"], sets=["workloads.decode.kvsl=[1024, 65536]"], systems=["gb200"])
    assert [one.coordinates["G"] for one in cases] == [1, 1, 2, 2, 4, 4]
    assert {one.coordinates["kvsl"] for one in cases} == {1024, 65536}
    assert {one.case.system for one in cases} == {"gb200"}


def test_a_baseline_gives_way_where_the_axis_is_narrowed(configs: Path) -> None:
    files.write_atomic(configs / "studies" / "based.yaml", files.dump_yaml({**STUDY, "baseline": {"G": 8}}))
    assert load_study("based", Overrides(axes=["G=4,8"])).baseline == {"G": 8}
    assert load_study("based", Overrides(axes=["G=16,32"])).baseline == {}


def test_overrides_reach_the_series_that_have_their_own(configs: Path) -> None:
    series = [
        {"name": "a", "axes": {"G": [1, 2]}, "workloads": {"decode": {"batch": 1, "kvsl": 8}}},
        {"name": "b", "axes": {"ffn": [512]}},
    ]
    files.write_atomic(configs / "studies" / "two.yaml", files.dump_yaml({**STUDY, "axes": {}, "series": series}))
    cases = planned("two", axes=["G=16"], sets=["workloads.decode.kvsl=99"])
    assert [(one.series, one.coordinates.get("G"), one.coordinates["kvsl"]) for one in cases] == [
        ("a", 16, 99),
        ("b", None, 99),
    ]


def test_an_axis_of_the_study_and_of_a_series_are_both_replaced(configs: Path) -> None:
    series = [{"name": "own", "axes": {"G": [1, 2]}}, {"name": "common"}]
    files.write_atomic(configs / "studies" / "two.yaml", files.dump_yaml({**STUDY, "series": series}))
    cases = planned("two", axes=["G=16"])
    assert [(one.series, one.coordinates["G"]) for one in cases] == [("own", 16), ("common", 16)]


def test_an_axis_can_be_added(configs: Path) -> None:
    plain = {key: value for key, value in STUDY.items() if key != "axes"}
    files.write_atomic(configs / "studies" / "plain.yaml", files.dump_yaml(plain))
    assert [one.coordinates["G"] for one in planned("plain", axes=["G=2,4"])] == [2, 4]


def test_in_a_suite_an_axis_is_replaced_where_it_is(configs: Path) -> None:
    others = {**STUDY, "axes": {"ffn": [512, 1024]}}
    files.write_atomic(configs / "studies" / "widths.yaml", files.dump_yaml(others))
    files.write_atomic(
        configs / "suites" / "two.yaml", files.dump_yaml({"title": "t", "studies": ["groups", "widths"]})
    )
    groups, widths = load_suite("two", Overrides(axes=["G=1", "vocab=1000"]))[1]
    assert groups.axes == {"G": [1], "vocab": [1000]}
    assert widths.axes == {"ffn": [512, 1024], "vocab": [1000]}


def test_a_suite_names_a_study_once(configs: Path) -> None:
    suite = configs / "suites" / "twice.yaml"
    files.write_atomic(suite, files.dump_yaml({"title": "t", "studies": ["groups", "groups"]}))
    with pytest.raises(UsageError, match=r"twice\.yaml: studies: names groups twice"):
        load_suite("twice")
    files.write_atomic(suite, files.dump_yaml({"title": "t", "studies": ["groups", "../studies/groups.yaml"]}))
    with pytest.raises(UsageError, match=r"twice\.yaml: studies: groups is there twice"):
        load_suite("twice")
    files.write_atomic(suite, files.dump_yaml({"title": "t", "studies": ["group"]}))
    with pytest.raises(UsageError, match=r"twice\.yaml: studies: no studies entry is called 'group'; did you mean"):
        load_suite("twice")


def test_a_field_of_a_named_variant_is_set(configs: Path) -> None:
    cases = planned("groups", sets=["variant.ffn=512", "variant.weights.ffn=nvfp4"])
    assert {one.case.variant.ffn for one in cases} == {512}
    assert {one.case.variant.weights.ffn for one in cases} == {"nvfp4"}
    assert {one.case.variant.hidden for one in cases} == {LLAMA_8B["hidden"]}
    inline = {**STUDY, "variant": LLAMA_8B}
    files.write_atomic(configs / "studies" / "inline.yaml", files.dump_yaml(inline))
    assert {one.case.variant.ffn for one in planned("inline", sets=["variant.ffn=512"])} == {512}


def test_labelled_points_are_picked_by_label(configs: Path) -> None:
    axes = {"shape": {"wide": {"ffn": 4096}, "narrow": {"ffn": 512}}}
    files.write_atomic(configs / "studies" / "shapes.yaml", files.dump_yaml({**STUDY, "axes": axes}))
    assert [one.case.variant.ffn for one in planned("shapes", axes=["shape=narrow"])] == [512]
    with pytest.raises(UsageError, match="axis shape has no point tall; it has wide, narrow"):
        planned("shapes", axes=["shape=tall"])


def test_a_study_is_a_suite_of_one_and_a_suite_sets_the_gpus(configs: Path) -> None:
    suite, studies = load_suite("groups")
    assert (suite.name, [study.name for study in studies]) == ("groups", ["groups"])
    assert load_suite("both")[1][0].systems == ("h200_sxm",)
    assert load_suite("both", Overrides(systems=["gb300"]))[1][0].systems == ("gb300",)
    assert load_suite(configs / "suites" / "both.yaml")[0].title == "Both"
    assert load_suite(configs / "studies" / "groups.yaml")[0].name == "groups"


def test_a_misspelt_key_is_found_in_the_file_that_has_it(configs: Path) -> None:
    path = configs / "studies" / "wrong.yaml"
    files.write_atomic(path, files.dump_yaml({**STUDY, "axs": {"G": [1]}}))
    with pytest.raises(UsageError, match=r"wrong\.yaml: unknown key 'axs'; did you mean 'axes'\?"):
        load_study("wrong")


@pytest.mark.parametrize(("axes", "sets"), [(["G"], []), (["G="], []), ([], ["workloads"])])
def test_half_an_override_is_an_error(configs: Path, axes: list[str], sets: list[str]) -> None:
    with pytest.raises(UsageError, match="expected"):
        load_study("groups", Overrides(axes, sets))


def test_a_variant_and_a_case_from_texts(configs: Path) -> None:
    assert load_variant("small", ["kv_heads=4", "weights.ffn=nvfp4"]).weights.ffn == "nvfp4"
    case = case_from_sets(
        "small", ["variant.kv_heads=2", "workload.phase=decode", "workload.batch=8", "workload.kvsl=64"], "b200_sxm"
    )
    assert (case.variant.kv_heads, case.workload.batch, case.system) == (2, 8, "b200_sxm")
    with pytest.raises(UsageError, match="the workload is missing"):
        case_from_sets("small", ["workload.batch=8"], "b200_sxm")
    with pytest.raises(UsageError, match=r"--set: 'workload\.kvsl' is missing"):
        case_from_sets("small", ["workload.phase=decode", "workload.batch=8"], "b200_sxm")
    with pytest.raises(UsageError, match="hiden"):
        load_variant("small", ["hiden=3"])
