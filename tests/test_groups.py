"""Which cases share a process: those that a claim compares."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapes import LLAMA_8B

from harness.runner.groups import MOST_ARMS, ArmGroup, group_arms, group_by_engine, in_order
from harness.runner.plan import Plan, make_plan
from harness.spec.base import parse
from harness.spec.study import Study, Suite


def study(name: str = "s", **changes: Any) -> Study:
    data = {
        "name": name, "title": "t", "variant": LLAMA_8B, "level": "layer", "systems": ["h200_sxm"],
        "axes": {"G": [4, 8, 16]},
        "workloads": {"decode": {"batch": [1, 8], "kvsl": [1024, 4096]}, "prefill": {"batch": 1, "isl": 512}},
        **changes,
    }  # fmt: skip
    return parse(Study, data, name)


def plan(*studies: Study, **changes: Any) -> Plan:
    studies = studies or (study(**changes),)
    return make_plan(Suite(name="s", title="t", studies=tuple(one.name for one in studies)), studies)


def claim(axis: str, **where: Any) -> dict[str, Any]:
    return {
        "id": f"{axis} {where}", "guideline": "A1d", "statement": "It is flat.", "kind": "flat_within", "axis": axis,
        "at_most_pct": 5, "scatter_pct": 5, "where": where,
    }  # fmt: skip


def arms(groups: list[ArmGroup]) -> dict[str, list[Any]]:
    """Name → what moves inside."""
    return {group.name: [step.planned.coordinates for step in group.steps] for group in groups}


def values(groups: list[ArmGroup], axis: str) -> dict[str, list[Any]]:
    return {name: [place[axis] for place in places] for name, places in arms(groups).items()}


def test_the_arms_of_a_claim_share_a_process() -> None:
    groups = group_arms(plan(claims=[claim("G")]))
    assert values(groups, "G") == {
        "decode b 1 KVSL 1024": [4, 8, 16],
        "decode b 1 KVSL 4096": [4, 8, 16],
        "decode b 8 KVSL 1024": [4, 8, 16],
        "decode b 8 KVSL 4096": [4, 8, 16],
        "prefill b 1 ISL 512": [4, 8, 16],
    }


def test_without_claims_every_axis_moves_inside_a_process_and_workloads_do_not() -> None:
    assert values(group_arms(plan(workloads={"decode": {"batch": 1, "kvsl": [1024, 4096]}})), "G") == {
        "decode b 1 KVSL 1024": [4, 8, 16],
        "decode b 1 KVSL 4096": [4, 8, 16],
    }


def test_an_axis_can_be_a_field_of_the_workload() -> None:
    groups = group_arms(
        plan(claims=[claim("kvsl", phase="decode")], workloads={"decode": {"batch": 1, "kvsl": [1, 2]}})
    )
    assert values(groups, "kvsl") == {
        "decode G 4 batch 1": [1, 2],
        "decode G 8 batch 1": [1, 2],
        "decode G 16 batch 1": [1, 2],
    }


def test_a_claim_about_one_phase_groups_no_other() -> None:
    workloads = {"decode": {"batch": 1, "kvsl": 4096}, "prefill": {"batch": 1, "isl": [512, 1024]}}
    groups = group_arms(plan(claims=[claim("G", phase="decode"), claim("isl", phase="prefill")], workloads=workloads))
    assert {name: len(places) for name, places in arms(groups).items()} == {
        "decode b 1 KVSL 4096": 3,
        "prefill G 4 batch 1": 2,
        "prefill G 8 batch 1": 2,
        "prefill G 16 batch 1": 2,
    }


def test_too_many_arms_are_cut_by_the_axes_of_later_claims_first() -> None:
    """3 values of G times 4 of KVSL are 12 arms; three at a time along the first claim's axis."""
    workloads = {"decode": {"batch": 1, "kvsl": [1024, 2048, 4096, 8192]}}
    groups = group_arms(plan(claims=[claim("G"), claim("kvsl")], workloads=workloads))
    assert values(groups, "G") == {f"decode b 1 KVSL {kvsl}": [4, 8, 16] for kvsl in (1024, 2048, 4096, 8192)}


def test_an_axis_of_too_many_values_is_cut_evenly() -> None:
    axes = {"layers": list(range(1, 12))}
    groups = group_arms(plan(claims=[claim("layers")], axes=axes, workloads={"decode": {"batch": 1, "kvsl": 64}}))
    assert values(groups, "layers") == {
        "decode b 1 KVSL 64, part 1 of 2": [1, 2, 3, 4, 5, 6],
        "decode b 1 KVSL 64, part 2 of 2": [7, 8, 9, 10, 11],
    }


def test_names_tell_studies_systems_and_series_apart() -> None:
    work = {"workloads": {"decode": {"batch": 1, "kvsl": 4096}}, "systems": ["h200_sxm", "b200_sxm"]}
    series = [{"name": "wide", "set": {"hidden": 8192}}, {"name": "narrow"}]
    groups = group_arms(plan(study("one", **work), study("two", series=series, **{**work, "systems": ["h200_sxm"]})))
    assert [group.name for group in groups] == [
        "one: decode b 1 KVSL 4096 on h200_sxm",
        "one: decode b 1 KVSL 4096 on b200_sxm",
        "two: decode b 1 KVSL 4096 wide on h200_sxm",
        "two: decode b 1 KVSL 4096 narrow on h200_sxm",
    ]


def test_what_is_not_asked_is_in_no_group() -> None:
    left_out = [{"when": {"G": 8}, "reason": "on purpose"}]
    axes = {"layers": [32, 400], "G": [4, 8]}
    groups = group_arms(
        plan(level="model", axes=axes, exclude=left_out, workloads={"decode": {"batch": 1, "kvsl": 64}})
    )
    assert [(place["layers"], place["G"]) for places in arms(groups).values() for place in places] == [(32, 4)]


@given(
    layers=st.lists(st.integers(1, 40), min_size=1, max_size=12, unique=True),
    kvsl=st.lists(st.integers(1, 4096), min_size=1, max_size=6, unique=True),
    claimed=st.lists(st.sampled_from(["layers", "kvsl", "G"]), unique=True),
)
def test_every_step_is_in_exactly_one_group_that_is_small_enough(
    layers: list[int], kvsl: list[int], claimed: list[str]
) -> None:
    asked = plan(
        axes={"layers": layers, "G": [4, 8]}, claims=[claim(axis) for axis in claimed],
        workloads={"decode": {"batch": 1, "kvsl": kvsl}},
    )  # fmt: skip
    groups = group_arms(asked)
    assert sorted(step.number for group in groups for step in group.steps) == list(range(len(asked.steps)))
    assert max(len(group.steps) for group in groups) <= MOST_ARMS
    assert len({group.name for group in groups}) == len(groups)


def test_an_engine_is_loaded_once_for_all_its_steps() -> None:
    groups = group_by_engine(plan().steps, lambda step: step.planned.case.variant.name)
    assert {group.name: len(group.steps) for group in groups} == {f"llama-8b G={g}": 5 for g in (4, 8, 16)}


def test_the_first_replicate_keeps_the_order_and_later_ones_have_orders_of_their_own() -> None:
    groups = group_arms(plan(workloads={"decode": {"batch": list(range(1, 30)), "kvsl": 64}}))
    first, second, third = (in_order(groups, replicate, seed=7) for replicate in range(3))
    assert first == groups
    assert sorted(second, key=groups.index) == groups
    assert second != first
    assert third not in (first, second)
    assert in_order(groups, 1, seed=7) == second
    assert in_order(groups, 1, seed=8) != second


@pytest.mark.parametrize("count", [8, 9, 16, 17])
def test_pieces_are_as_even_as_can_be(count: int) -> None:
    axes = {"layers": list(range(1, count + 1))}
    sizes = [len(g.steps) for g in group_arms(plan(axes=axes, workloads={"decode": {"batch": 1, "kvsl": 64}}))]
    assert sum(sizes) == count
    assert len(sizes) == -(-count // MOST_ARMS)
    assert max(sizes) - min(sizes) <= 1
