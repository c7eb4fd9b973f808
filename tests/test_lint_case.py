"""Variant preflight: the eleven variants in `cases/01-variant-preflight`, judged by the file's own limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.files import read_yaml
from harness.lint import Finding, Summary, Target, facts_from_limits, lint, verdict
from harness.spec.base import parse
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant

CASE = Path(__file__).parent / "cases" / "01-variant-preflight" / "variants.yaml"
DATA: Any = read_yaml(CASE)

#: The file's words → ours.
FIELDS = {
    "layers": "layers", "hidden": "hidden", "q_heads": "q_heads", "kv_heads": "kv_heads", "head_size": "head_dim",
    "ffn": "ffn", "vocab": "vocab", "weight_dtype": "weights", "kv_dtype": "kv_format",
}  # fmt: skip


def judge(name: str, **options: Any) -> list[Finding]:
    row = {**DATA["defaults"], **next(one for one in DATA["variants"] if one["name"] == name)}
    shape = parse(Variant, {"name": name} | {ours: row[theirs] for theirs, ours in FIELDS.items()}, name)
    target = Target(row["target"], DATA["targets"][row["target"]]["sm"])
    return lint(shape, Parallelism(tp=row["tp"]), target, facts=facts_from_limits(DATA["limits"]), **options)


# Verdict, rule, field, value as shown, limit as shown, a setting that works: from expected.md.
EXPECTED = [
    ("v01", "ok", None),
    ("v02", "ok", None),
    ("v03", "error", ("head-size-multiple", "head_dim", "100", "a multiple of 8", "pad to head_dim 128")),
    ("v04", "error", ("nvfp4-gpu", "weights.attention, weights.ffn", "nvfp4", "sm 100 or later", "fp8")),
    ("v05", "error", ("nvfp4-alignment", "ffn", "1856 / tp 8 = 232", "a multiple of 16", "tp 1, 2, 4")),
    ("v06", "error", ("fp8-block-alignment", "ffn", "1536 / tp 8 = 192", "a multiple of 128", "tp 1, 2, 4")),
    ("v07", "error", ("q-heads-per-kv-head", "q_heads", "32", "a multiple of kv_heads 6", "kv_heads 4, 8")),
    ("v08", "warning", ("group-size-unlisted", "group_size", "7", "one of 1, 2, 3, 4, 8", "q_heads 32")),
    ("v09", "warning", ("kv-heads-duplicated", "parallelism.tp", "8", "at most kv_heads 4", "tp 1, 2, 4")),
    ("v10", "error", ("kv-heads-split", "parallelism.tp", "4", "a divisor or a multiple of kv_heads 6", "tp 1, 2")),
    (
        "v11",
        "warning",
        ("head-size-unfused", "head_dim", "256", "one of 64, 128, 192 with fp8 KV on desk (sm 120)", "head_dim 192"),
    ),
]


@pytest.mark.parametrize(("name", "wanted", "reason"), EXPECTED, ids=[row[0] for row in EXPECTED])
def test_verdict_and_reason(name: str, wanted: str, reason: tuple[str, ...] | None) -> None:
    findings = judge(name)

    assert verdict(findings) == wanted
    if reason is None:
        assert findings == []
        return
    [finding] = findings
    rule, field, value, limit, works = reason
    assert (finding.rule, finding.severity, finding.variant, finding.field) == (rule, wanted, name, field)
    assert str(finding.value) == value
    assert limit in finding.limit
    assert works in finding.works
    for part in (name, field, value, finding.limit, finding.works):
        assert part in finding.message


def test_totals() -> None:
    summary = Summary()
    for name, *_ in EXPECTED:
        summary.add(name, "any", judge(name))

    assert summary.totals == {"ok": 2, "warning": 3, "error": 6}
    assert [name for name, worst in summary.verdicts.items() if worst == "error"] == [
        "v03",
        "v04",
        "v05",
        "v06",
        "v07",
        "v10",
    ]


def test_each_reason_is_told_in_figures() -> None:
    def told(name: str) -> str:
        return judge(name)[0].message

    assert "no list of fused kernels either (64, 80, 96, 128, 192, 256)" in told("v03")
    assert "node-h is sm 90" in told("v04")
    assert "weight-only" in told("v04")
    assert "232 mod 16 = 8" in told("v05")
    assert "192 mod 128 = 64" in told("v06")
    assert "may come from a fallback kernel" in told("v08")
    assert "each KV head is held by 2 ranks and KV bytes per GPU stop shrinking at tp 4" in told("v09")
    assert "neither divides the other" in told("v10")
    assert "in silence" in told("v11")


@pytest.mark.parametrize("name", ["v09", "v11"])
def test_strict_makes_errors_of_what_policy_may_refuse(name: str) -> None:
    assert verdict(judge(name, strict=True)) == "error"


def test_a_fallback_kernel_stays_a_warning_under_strict() -> None:
    assert verdict(judge("v08", strict=True)) == "warning"


@pytest.mark.parametrize("sm", [103, 120])
def test_newer_parts_are_not_older_than_100(sm: int) -> None:
    v04 = next(row for row in DATA["variants"] if row["name"] == "v04")
    shape = Variant(name="v04", layers=32, vocab=128256, weights=v04["weight_dtype"], **{
        ours: v04[theirs] for theirs, ours in FIELDS.items() if theirs in v04 and ours != "weights"
    })  # fmt: skip

    assert lint(shape, Parallelism(), Target("newer", sm), facts=facts_from_limits(DATA["limits"])) == []


def test_only_the_limits_of_the_file_are_used() -> None:
    shape = Variant(
        name="bare", layers=2, hidden=100, q_heads=64, kv_heads=1, head_dim=100, ffn=100, vocab=100, weights="nvfp4"
    )

    assert lint(shape, Parallelism(), Target("old", 70), facts=facts_from_limits({})) == []


def test_an_unknown_limit_is_named() -> None:
    with pytest.raises(UsageError, match="unknown key 'nvfp4_blok'; did you mean 'nvfp4_block'"):
        facts_from_limits({"nvfp4_blok": 16})
