"""The facts of lint: read whole or not at all, dated, with evidence, and in step with the published tables."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UnreadableInput, UsageError
from harness.files import dump_yaml, read_yaml
from harness.hardware import known_systems, load_system
from harness.lint.document import BEGIN, END, rule_table, with_table
from harness.lint.facts import RULES_FILE, Dated, Facts, in_force, read_rulebook, rulebook
from harness.lint.versions import version_key, within
from harness.spec.base import Spec

REPOSITORY = Path(__file__).resolve().parent.parent
FACTS = rulebook().facts


def dated(value: Any) -> Iterator[Dated]:
    """Every fact inside a value."""
    if isinstance(value, Dated):
        yield value
    if isinstance(value, Spec):
        value = [getattr(value, name) for name in type(value).model_fields]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            yield from dated(inner)


def test_every_fact_has_evidence_and_a_date() -> None:
    facts = [one for one in dated(FACTS) if one.evidence != "that of the backend"]

    assert len(facts) > 50
    # A kernel of a MoE backend has the date of its backend.
    undated = [one for one in facts if one.read is None]
    assert {type(one).__name__ for one in undated} <= {"MoeKernel"}
    assert all(one.read <= dt.date(2026, 11, 30) for one in facts if one.read)


def test_evidence_is_something_others_can_look_up() -> None:
    told = [one.evidence for one in dated(FACTS)] + [info.evidence for info in rulebook().rules.values()]

    assert not [text for text in told if re.search(r"/work/|/home/|/tmp/", text)]


def test_a_broken_file_is_refused_with_every_finding(tmp_path: Path) -> None:
    data: Any = read_yaml(RULES_FILE)
    data["rules"]["idle-ranks"]["severity"] = "fatal"
    data["facts"]["formats"][0]["min_sm"] = 100
    data["facts"]["helix"]["empty_ranks"]["since"] = "soon"
    data["facts"]["largest_group"] = 32
    path = tmp_path / "rules.yaml"
    path.write_text(dump_yaml(data))

    with pytest.raises(UnreadableInput) as caught:
        read_rulebook(path)

    text = str(caught.value)
    assert "rules.idle-ranks.severity" in text
    assert "give sm or min_sm, not both" in text
    assert "'soon' is no TensorRT-LLM version" in text
    assert "unknown key 'facts.largest_group'; did you mean 'largest_group_size'?" in text


def test_versions_are_ordered() -> None:
    ordered = [
        "0.21.0rc2",
        "1.2",
        "1.2.1",
        "1.3.0rc2",
        "1.3.0rc15",
        "1.3.0rc15.post1",
        "1.3.0rc20",
        "1.3.0",
        "1.4.0rc4",
    ]

    assert all(version_key(earlier) < version_key(later) for earlier, later in itertools.pairwise(ordered))
    assert version_key("v1.2") == version_key("1.2.0")
    assert within("1.3.0rc7", since="1.3.0rc7", before="")
    assert not within("1.3.0rc7", since="", before="1.3.0rc7")
    assert within("", since="9.9", before="0.1")
    with pytest.raises(UsageError, match="'main' is no TensorRT-LLM version"):
        version_key("main")


def test_the_assumed_version_is_that_of_the_tables() -> None:
    assert FACTS.target_version == "1.3.0rc20"


@pytest.mark.parametrize(
    ("sm", "computes"), [(90, False), (99, False), (100, True), (103, True), (110, False), (120, True)]
)
def test_sm_versions_are_exact(sm: int, computes: bool) -> None:
    assert FACTS.computes("weights", "nvfp4", sm, "1.3.0rc20") is computes


def test_nothing_is_assumed_where_nothing_is_known() -> None:
    assert Facts().computes("weights", "nvfp4", 70, "1.3.0rc20")


def test_every_known_gpu_has_fast_group_sizes_and_a_factor_of_its_sm() -> None:
    for key in known_systems():
        sm = load_system(key).sm
        assert any(one.covers(sm) for one in FACTS.fast_group_sizes), key
        assert any(one.sm == sm for one in FACTS.group_size_factors), key


def test_the_document_holds_the_table_of_rules() -> None:
    path = REPOSITORY / "docs" / "lint.md"

    assert path.read_text() == with_table(path.read_text()), "run: python -m harness.lint.document docs/lint.md"
    assert rule_table().count("\n") == len(rulebook().rules) + 1


def test_a_document_without_a_place_for_the_table_is_refused() -> None:
    assert with_table(f"a\n{BEGIN}\nold\n{END}\nz") == f"a\n{BEGIN}\n{rule_table()}\n{END}\nz"
    with pytest.raises(UsageError, match="no place for the rules"):
        with_table("no markers")


# What the published tables say, read here once more.


def rows(system: str, operation: str) -> Any:
    pandas = pytest.importorskip("pandas")
    core = pytest.importorskip("aiconfigurator_core")
    root = Path(core.__file__).parent / "systems" / "data" / system
    [path] = root.rglob(f"trtllm/{'1.0.0' if system == 'a100_sxm' else '1.3.0rc20'}/{operation}_perf.parquet")
    return pandas.read_parquet(path)


MEASURED = [key for key in known_systems() if key != "gh200"]


@pytest.mark.tables
@pytest.mark.parametrize("system", MEASURED)
def test_the_group_size_factor_is_that_of_the_rows(system: str) -> None:
    [factor] = [one for one in FACTS.group_size_factors if one.system == system]
    table = rows(system, "generation_attention")
    table = table[(table.window_size == 0) & (table.kernel_source == "torch_flow")]
    heads = table.num_key_value_heads.where(table.num_key_value_heads > 0, table.num_heads)
    table = table.assign(kvsl=table.isl + table.step, kv_heads=heads, group=table.num_heads / heads)
    same = ["batch_size", "kvsl", "kv_heads", "head_dim", "kv_cache_dtype"]
    latency = table.groupby([*same, "group"]).latency.min().unstack("group").reset_index()
    slow, fast = factor.group_sizes
    ratio = (latency[slow] / latency[fast])[latency.batch_size * latency.kvsl >= 65536].dropna()

    assert len(ratio) == factor.pairs
    assert ratio.min() == pytest.approx(factor.factor_min, abs=0.05)
    assert ratio.median() == pytest.approx(factor.factor_median, abs=0.05)
    assert ratio.max() == pytest.approx(factor.factor_max, abs=0.05)


@pytest.mark.tables
@pytest.mark.parametrize("system", MEASURED)
def test_fast_group_sizes_are_those_with_rows(system: str) -> None:
    table = rows(system, "generation_attention")
    groups = table.num_heads / table.num_key_value_heads.where(table.num_key_value_heads > 0, table.num_heads)
    [fast] = [one for one in FACTS.fast_group_sizes if one.covers(load_system(system).sm)]

    assert sorted(fast.sizes) == sorted(int(size) for size in groups.unique() if size <= 32)


@pytest.mark.tables
@pytest.mark.parametrize("system", MEASURED)
def test_head_sizes_with_rows_are_fused_sizes(system: str) -> None:
    sm, version = load_system(system).sm, "1.0.0" if system == "a100_sxm" else "1.3.0rc20"
    table = rows(system, "context_attention")
    formats = {"bfloat16": "bf16", "fp8": "fp8"}
    seen = {
        (formats[attention], formats[kv], int(size))
        for attention, kv, size in zip(table.attn_dtype, table.kv_cache_dtype, table.head_dim, strict=True)
    }
    fused = {
        (attention, kv, size)
        for one in in_force(FACTS.fused_head_sizes, version)
        if one.covers(sm)
        for attention in one.attention
        for kv in one.kv
        for size in one.sizes
    }

    # What fmha_v2 of sm 120 lacks has rows all the same; they do not say which path ran.
    assert seen - fused == ({("bf16", "fp8", 256), ("fp8", "fp8", 256)} if sm == 120 else set())


@pytest.mark.tables
@pytest.mark.parametrize("system", MEASURED)
@pytest.mark.parametrize("operation", ["gemm", "moe"])
def test_formats_compute_where_they_have_rows(system: str, operation: str) -> None:
    table = rows(system, operation)
    names = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
    seen = {names[name] for name in table[f"{operation}_dtype"].unique() if name in names}
    sm = load_system(system).sm
    if operation == "gemm":
        known = {name for name in names.values() if FACTS.computes("weights", name, sm, "1.3.0rc20")}
    else:
        kernels = in_force(FACTS.moe_backends["AUTO"].kernels, "1.3.0rc20")
        known = {one.format for one in kernels if one.covers(sm)}

    assert seen == known
