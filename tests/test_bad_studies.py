"""Studies that cannot be: one clear message each, whatever is wrong and wherever it stands."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shapes import LLAMA_8B

from harness import files
from harness.errors import HarnessError, UsageError
from harness.runner.plan import make_plan
from harness.spec.load import Overrides, load_suite

CLAIM = {
    "id": "c", "guideline": "A1d", "statement": "G 8 is no slower", "kind": "ratio", "axis": "G", "value": 8, "over": 4,
    "at_most": 1.1, "scatter_pct": 5, "where": {"phase": "decode"}, "judge_at": {"batch": 1},
}  # fmt: skip

STUDY: dict[str, Any] = {
    "title": "Group size",
    "variant": LLAMA_8B,
    "set": {"kv_format": "fp8"},
    "axes": {"G": [4, 8], "shape": {"flat": {"hidden": 8192, "layers": 8}, "deep": {"hidden": 2048, "layers": 64}}},
    "hold": {"G": "q_heads"},
    "workloads": {"decode": {"batch": [1, 8], "kvsl": 4096}, "prefill": {"batch": 1, "isl": 1024}},
    "parallelism": {"tp": 1},
    "systems": ["b200_sxm"],
    "series": [{"name": "one", "set": {"ffn": 8192}}, {"name": "two", "axes": {"attn_format": ["bf16", "fp8"]}}],
    "baseline": {"G": 4},
    "exclude": [{"when": {"batch": 8, "series": "one"}, "reason": "not asked"}],
    "claims": [CLAIM],
    "plots": [{"title": "p", "x": "G", "lines": "batch", "where": {"phase": "decode"}}],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The study above with one dotted path set."""
    study = deepcopy(STUDY)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    inner: Any = study
    for part in parents:
        inner = inner[part]
    inner[last] = value
    return study


def plan(study: object, folder: Path, **overrides: Any) -> int:
    """How many cases a study has, by the way that every command takes."""
    path = folder / "s.yaml"
    files.write_atomic(path, files.dump_yaml(study))
    return len(make_plan(*load_suite(path, Overrides(**overrides))).steps)


def test_the_study_that_is_spoilt_below_is_a_good_one(tmp_path: Path) -> None:
    assert plan(STUDY, tmp_path) == 2 * 2 * (1 + 2) * (2 + 1)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        # What a part of a study is.
        ("axes", None, "s.yaml: axes: expected a mapping, found nothing; leave it out where it is empty"),
        ("axes", [], "s.yaml: axes: expected a mapping, found a list"),
        ("series", 3, "s.yaml: series: expected a list of mappings"),
        ("series/0", "one", "s.yaml: series: expected a list of mappings"),
        ("series/0/axes", "G", "s.yaml: series.0.axes: expected a mapping, found a text"),
        ("workloads", ["decode"], "s.yaml: workloads: expected a mapping, found a list"),
        ("workloads/decode", 1, "s.yaml: workloads.decode: Input should be a mapping (found 1)"),
        ("baseline", "G", "s.yaml: baseline: expected a mapping, found a text"),
        ("systems", "b200_sxm", "s.yaml: systems: Input should be a list (found 'b200_sxm')"),
        ("claims/0", 7, "s.yaml: claims.0: Input should be a mapping of fields"),
        ("variant", 3, "s.yaml: variant: Input should be a mapping of fields"),
        ("variant", "dense-9b", "s.yaml: variant: no variants entry is called 'dense-9b'; did you mean 'dense-8b'?"),
        ("variant", "x" * 300, "the name is too long: a file's name has up to 255 bytes"),
        ("variant", "a\0b", "s.yaml: variant: 'a\\x00b': a path holds no NUL byte"),
        ("variant", "", "s.yaml: variant: an empty path names no file"),
        ("axes/1", [1], "s.yaml: axes: 1 is no name; quote it: '1'"),
        ("title", 3, "s.yaml: title: Input should be a valid string (found 3)"),
        ("name", "two\nlines", "s.yaml: name: a name has no line breaks"),
        ("name", "x" * 201, "s.yaml: name: 201 characters are too many for a name; 200 are the limit"),
        # Axes.
        ("axes/G", [{"a": 1}], "s.yaml: axes: axis G: a mapping is no point; give numbers or texts"),
        ("axes/G", "8..4", "axis G: 8..4 counts down; write 4..8"),
        ("axes/G", "2^0..2^500", "no size is larger than 2^40"),
        ("axes/ffn", "1..99999999999", "has 99,999,999,999 points, more than 100,000"),
        ("axes/G", ["4", 4], "axis G: '4' is no group size"),
        ("axes/vocab", [True, "1"], "vocab: Input should be a valid integer (found True)"),
        ("axes/shape/flat", None, "axis shape: the point 'flat' has to be fields to move"),
        ("axes/name", ["a", "b"], "axis name: a variant is named by its coordinates"),
        ("axes/shape/flat/name", "flat", "axis shape: a variant is named by its coordinates"),
        ("set/name", "x", "s.yaml: set: a variant is named by its file and its coordinates"),
        ("axes/kv_heads", [4, 8], "axes G and kv_heads both set kv_heads; leave it to one of them"),
        ("axes/hidden", [4096], "axes shape and hidden both set hidden"),
        ("axes", {"weights": ["fp8"], "weights.ffn": ["fp8"]}, "axes weights and weights.ffn both set weights.ffn"),
        ("axes/batch", {"a": {"ffn": 8}}, "axis batch: 'batch' is a field of the workload; call an axis of labelled"),
        ("axes/value", {"a": {"ffn": 8}}, "axis value: 'value' is a column of the records"),
        ("axes/window", {"none": 0}, "axis window: 'window' is a column of the records"),
        ("axes/G", {"a": {"ffn": 8}}, "axis G: these points are no values of G"),
        ("axes/phase", ["decode"], "axis phase: there is no field 'phase'; sweep the workload"),
        ("set/q_heads", "many", "axis G: q_heads must be a whole number from 1 to 65536 (found 'many')"),
        # Sizes.
        ("set/vocab", 2**40 + 1, "vocab: Input should be less than or equal to 1099511627776"),
        (
            "variant/layers",
            10**6,
            "s.yaml: variant.layers: Input should be less than or equal to 10000 (found 1000000)",
        ),
        ("parallelism/tp", 2**20, "tp: Input should be less than or equal to 4096 (found 1048576)"),
        ("parallelism/attention_dp", "yes", "attention_dp: Input should be a valid boolean (found 'yes')"),
        ("workloads/decode/kvsl", 2**63, "workloads.decode.kvsl: Input should be less than or equal to 1099511627776"),
        ("workloads/decode/batch", ["8", 8], "workloads.decode.batch: Input should be a valid integer (found '8')"),
        ("workloads/decode/accepted", float("inf"), "axis workloads.decode.accepted: inf is no point"),
        ("workloads/decode/batch", {"small": 1}, "decode.batch: a workload has no labelled points"),
        ("workloads/decode/batch", "1..2:0", "axis workloads.decode.batch: 1..2:0: a step of 0 never arrives"),
        (
            "workloads/prefill",
            {"batch": 1, "isl": 2**20, "chunk": 512},
            "chunk 512 cuts isl 1048576 into 2,048 chunks, more than 1,024; a chunk of 1024 or more works",
        ),
        (
            "workloads/again",
            {"phase": "decode", "batch": 8, "kvsl": 4096},
            "workloads.again: decode b 8 KVSL 4096 is there twice",
        ),
        # Coordinates.
        ("exclude/0/when", {"bach": 1}, "exclude: when: bach: there is no such coordinate; did you mean 'batch'?"),
        (
            "exclude/0/when",
            {"batch": {}},
            "s.yaml: exclude.0.when: batch: has to be a text, a number or a list of them",
        ),
        ("exclude/0/when", {}, "s.yaml: exclude.0.when: Dictionary should have at least 1 item"),
        ("baseline/H", 4, "baseline H: there is no such coordinate"),
        ("baseline/G", [4], "baseline G: [4] is not on the axis, which has 4, 8"),
        (
            "plots/0/where",
            {"phase": None},
            "s.yaml: plots.0.where: phase: has to be a text, a number or a list of them",
        ),
        ("claims/0/where", {"G": [[8]]}, "s.yaml: claims.0.where: G: has to be a text, a number or a list of them"),
        ("claims/0/judge_at", {"batch": {"a": 1}}, "s.yaml: claims.0.judge_at: batch: has to be a text"),
        # Claims.
        ("claims/0/at_most", float("inf"), "s.yaml: claims.0.at_most: Input should be a finite number (found inf)"),
        ("claims/0/at_most", True, "s.yaml: claims.0.at_most: Input should be a valid number (found True)"),
        ("claims/0/scatter_pct", float("nan"), "s.yaml: claims.0.scatter_pct: Input should be a finite number"),
        ("claims", [CLAIM, CLAIM], "s.yaml: claim ids repeat: c"),
        # Twice.
        ("systems", ["b200_sxm", "b200_sxm"], "s.yaml: systems: names b200_sxm twice"),
        ("series/1/name", "one", "s.yaml: series repeat: one"),
    ],
)
def test_what_cannot_be_is_one_clear_message(tmp_path: Path, path: str, value: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(changed(path, value), tmp_path)
    assert message in str(caught.value)
    assert "study s" in str(caught.value) or str(tmp_path / "s.yaml") in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"axes": ["G={a:1}"]}, "-a G={a:1}: a mapping is no point of an axis"),
        ({"axes": ["G=[1]"]}, "-a G=[1]: a list is no point of an axis"),
        ({"axes": ["G=~"]}, "-a G=~: nothing is no point of an axis"),
        ({"axes": ["G=1,,2"]}, "-a G=1,,2: expected NAME=VALUES"),
        ({"axes": ["=1"]}, "-a =1: expected NAME=VALUES"),
        ({"axes": ["G=8..4"]}, "axis G: 8..4 counts down; write 4..8"),
        ({"axes": ["G='"]}, "-a G=':1:2: found unexpected end of stream"),
        ({"axes": ["shape=tall"]}, "axis shape has no point tall; it has flat, deep"),
        ({"sets": ["axes=~"]}, "s.yaml: axes: expected a mapping, found nothing"),
        ({"sets": ["series=1", "workloads.decode.batch=2"]}, "s.yaml: series: expected a list of mappings"),
        ({"sets": ["series.one.set.ffn=8"]}, "--set series.one.set.ffn: 'series' is a list; set it as a whole"),
        ({"sets": ["workloads..batch=8"]}, "--set workloads..batch=8: expected FIELD=VALUE"),
        ({"sets": ["title={"]}, "--set title={:1:2: "),
        ({"systems": ["b200_sxm", "b200_sxm"]}, "systems: names b200_sxm twice"),
    ],
)
def test_so_is_what_cannot_be_on_the_command_line(tmp_path: Path, overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        plan(STUDY, tmp_path, **overrides)
    assert message in str(caught.value)


def test_many_findings_of_one_kind_are_counted_not_listed(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        plan(changed("axes/layers", "9901..10001"), tmp_path)
    assert str(caught.value) == "study s: axes shape and layers both set layers; leave it to one of them"
    with pytest.raises(UsageError) as caught:
        plan({**STUDY, "axes": {"layers": "10001..10100"}, "baseline": {}, "series": [], "exclude": []}, tmp_path)
    assert len(caught.value.findings) == 21
    assert caught.value.findings[-1] == "study s: … and 80 more like these"


ODD = st.sampled_from(
    [
        None, True, 0, -1, 1.5, 2**64, float("nan"), "", "x", "2^0..2^9", "9..1", "a" * 300, "\0", [], [None], [1, 1],
        [[1]], {}, {"a": {}}, {"a": 1}, {1: 2}, {"hidden": 1}, "name", "mla", "b200_sxm", "decode",
    ]
)  # fmt: skip


def spoil(data: st.DataObject, node: Any) -> None:
    """Put something odd somewhere."""
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(node[key], dict | list) or not node[key] or data.draw(st.booleans()):
            break
        node = node[key]
    if isinstance(node, dict) and data.draw(st.booleans()):
        node[data.draw(st.sampled_from(["ffn", "G", "phase", "x", "", "where", "chunk", "layers"]))] = node.pop(key)
    else:
        node[key] = data.draw(ODD)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_is_odd_ends_in_a_plan_or_in_a_message(tmp_path: Path, data: st.DataObject) -> None:
    study = deepcopy(STUDY)
    spoil(data, study)
    with suppress(HarnessError):
        assert plan(study, tmp_path) > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('title: "\\ud800"', "half of a surrogate pair"),
        ("title: &a [*a]", "its aliases (*name) spell out more than 1,000,000 values"),
        ("- 1", "expected a mapping of fields, found a list"),
        ("", "expected a mapping of fields, found nothing"),
        ("[" * 2000, "nested too deeply"),
    ],
)
def test_every_command_says_what_is_wrong_with_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    run = CommandLine(capsys)
    for command in (["plan", path], ["lint", path], ["run", path, "--on", "roofline", "--out", tmp_path / "out"]):
        outcome = run(*command)
        assert (outcome.code, outcome.out) == (2, "")
        assert message in outcome.err
        assert outcome.err.startswith(f"error: {path}")
    assert not (tmp_path / "out").exists()
