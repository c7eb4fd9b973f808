"""Two results against each other: case 12 line by line, and what each rule says."""

from __future__ import annotations

import itertools
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from answered import a_study
from hand_run import STUDY, SUITE, hand_run
from hypothesis import given
from hypothesis import strategies as st
from measured_run import Machine, measured_attempts, write

from harness.analysis.compare import AUTO, Comparison, Pair, Policy, compare, parse_policy
from harness.analysis.compare.judging import by_interval
from harness.analysis.inputs import read_results
from harness.errors import ExitCode, UsageError
from harness.report.compare import comparison_data
from harness.results.store import Attempt, open_run, read_attempts

CASE = Path(__file__).parent / "cases" / "12-compare-two-runs"

#: (G, Hsz, weights, tp, kvp, phase) and figure → base, candidate, change in %, verdict; of expected.md.
FIGURES = {
    ("4", "128", "fp8", "8", "1", "prefill", "ttft_ms"): (200.0, 220.0, 10.0, "worse"),
    ("4", "128", "nvfp4", "8", "1", "prefill", "ttft_ms"): (125.0, 120.0, -4.0, "same"),
    ("4", "128", "fp8", "8", "1", "decode", "tpot_ms"): (20.0, 20.0, 0.0, "same"),
    ("4", "128", "fp8", "8", "1", "decode", "output_tok_s_per_gpu"): (400.0, 400.0, 0.0, "same"),
    ("4", "128", "nvfp4", "8", "1", "decode", "tpot_ms"): (12.5, 13.5, 8.0, "worse"),
    ("4", "128", "nvfp4", "8", "1", "decode", "output_tok_s_per_gpu"): (640.0, 592.0, -7.5, "worse"),
    ("1", "128", "nvfp4", "8", "1", "decode", "tpot_ms"): (18.0, 18.0, 0.0, "same"),
    ("1", "128", "nvfp4", "8", "1", "decode", "output_tok_s_per_gpu"): (0.0, 350.0, None, "not computed"),
}
STATES = {
    ("8", "128", "nvfp4", "4", "2", "decode"): "only in base",
    ("8", "128", "nvfp4", "8", "1", "decode"): "only in candidate",
    ("4", "256", "nvfp4", "8", "1", "decode"): "only in base",
    ("8", "64", "nvfp4", "8", "1", "decode"): "newly working",
    ("2", "128", "nvfp4", "8", "1", "decode"): "newly failing",
    ("16", "128", "nvfp4", "8", "1", "decode"): "failed in both",
}


def of(base: Path, candidate: Path, policy: Policy = AUTO) -> Comparison:
    return compare(read_results(base), read_results(candidate), policy)


def place(one: Any) -> tuple[str, ...]:
    said = dict(one.workload.key)
    return tuple(said[name] for name in ("group_size", "head_size", "weight_dtype", "tp", "kvp", "phase"))


def shuffled(path: Path, to: Path, seed: int) -> Path:
    """The same rows and columns in another order."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    columns = random.Random(seed).sample(list(frame.columns), len(frame.columns))
    frame.sample(frac=1, random_state=seed)[columns].to_csv(to, index=False)
    return to


# Case 12


@pytest.mark.parametrize("seed", range(4))
def test_case_12_in_any_order(tmp_path: Path, seed: int) -> None:
    base, candidate = CASE / "base.csv", CASE / "candidate.csv"
    if seed:
        base, candidate = shuffled(base, tmp_path / "a.csv", seed), shuffled(candidate, tmp_path / "b.csv", seed + 9)
    found = of(base, candidate)
    told = {
        (*place(pair), pair.figure.name): (
            pair.base and pair.base.median,
            pair.candidate and pair.candidate.median,
            None if pair.change is None else round(100 * pair.change, 6) + 0.0,
            pair.verdict,
        )
        for pair in found.pairs
    }
    assert told == FIGURES
    assert {place(one): one.state for one in found.unpaired} == STATES
    assert (found.counts["base"].workloads, found.counts["base"].rows) == (10, 10)
    assert (found.counts["candidate"].workloads, found.counts["candidate"].rows) == (9, 11)
    assert found.paired_workloads == 5
    assert (len(found.computed), len(found.section("not computed").pairs)) == (7, 1)
    assert found.section("worse").workloads == 2
    assert found.environment == {"engine_version": ("1.2.0", "1.3.0")}
    assert found.exit_code == ExitCode.WORSE
    (zero,) = found.section("not computed").pairs
    assert zero.reason == "base value is 0"


def test_one_bad_repeat_of_three_moves_the_median_little_and_its_spread_is_kept() -> None:
    (pair,) = [
        pair for pair in of(CASE / "base.csv", CASE / "candidate.csv").section("worse").pairs
        if pair.figure.name == "tpot_ms"
    ]  # fmt: skip
    assert pair.candidate is not None
    assert pair.candidate.values == (13.0, 13.5, 19.0)
    assert pair.policy == "threshold:5%"


def test_the_order_of_rows_changes_no_word(tmp_path: Path) -> None:
    plain = comparison_data(of(CASE / "base.csv", CASE / "candidate.csv"))
    frame = pd.read_csv(CASE / "candidate.csv", dtype=str, keep_default_na=False)
    (tmp_path / "x").mkdir()
    frame.iloc[::-1].to_csv(tmp_path / "x" / "candidate.csv", index=False)
    other = comparison_data(of(CASE / "base.csv", tmp_path / "x" / "candidate.csv"))
    for data in (plain, other):
        del data["candidate"]["path"]
    assert plain == other


@pytest.mark.parametrize("name", ["base.csv", "candidate.csv"])
def test_a_table_compared_with_itself_is_the_same(name: str) -> None:
    found = of(CASE / name, CASE / name)
    assert {pair.verdict for pair in found.computed} == {"same"}
    assert {one.state for one in found.unpaired} == {"failed in both"}
    assert found.exit_code == ExitCode.OK


# What is paired


def csv(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_an_unknown_column_keeps_rows_apart_and_is_named(tmp_path: Path) -> None:
    base = csv(tmp_path / "a.csv", "G,eagle,ttft_ms", "8,yes,1")
    candidate = csv(tmp_path / "b.csv", "G,eagle,ttft_ms", "8,no,1")
    found = of(base, candidate)
    assert not found.pairs
    assert {one.state: one.reason for one in found.unpaired} == {
        "only in base": "nearest in candidate: eagle yes → no; never paired",
        "only in candidate": "nearest in base: eagle no → yes; never paired",
    }
    assert found.is_empty
    assert found.exit_code == ExitCode.INCOMPLETE


def test_a_column_of_one_side_keeps_all_apart_and_the_remedy_is_said(tmp_path: Path) -> None:
    found = of(csv(tmp_path / "a.csv", "G,eagle,ttft_ms", "8,yes,1"), csv(tmp_path / "b.csv", "G,ttft_ms", "8,1"))
    assert found.exit_code == ExitCode.INCOMPLETE
    assert any("only base says eagle" in note and "--environment" in note for note in found.notes)


def test_a_figure_of_one_side_is_not_computed(tmp_path: Path) -> None:
    found = of(csv(tmp_path / "a.csv", "G,ttft_ms,tpot_ms", "8,1,2"), csv(tmp_path / "b.csv", "G,ttft_ms", "8,1"))
    assert [(pair.figure.name, pair.verdict, pair.reason) for pair in found.pairs] == [
        ("ttft_ms", "same", ""), ("tpot_ms", "not computed", "only in base"),
    ]  # fmt: skip


def test_throughput_that_falls_to_nothing_is_worse_and_a_time_of_nothing_is_none(tmp_path: Path) -> None:
    base = csv(tmp_path / "a.csv", "G,ttft_ms,tok_s", "8,1,2")
    found = of(base, csv(tmp_path / "b.csv", "G,ttft_ms,tok_s", "8,0,0"))
    assert {pair.figure.name: (pair.verdict, pair.change) for pair in found.pairs} == {
        "ttft_ms": ("not computed", None), "tok_s": ("worse", -1.0),
    }  # fmt: skip


def test_only_what_failed_on_both_sides_is_no_success(tmp_path: Path) -> None:
    base = csv(tmp_path / "a.csv", "G,status,ttft_ms", "8,oom,")
    assert of(base, base).exit_code == ExitCode.INCOMPLETE


def test_failed_repeats_are_said_beside_those_that_count(tmp_path: Path) -> None:
    base = csv(tmp_path / "a.csv", "G,status,ttft_ms", "8,ok,10")
    (pair,) = of(base, csv(tmp_path / "b.csv", "G,status,ttft_ms", "8,ok,10", "8,crash,", "8,ok,10.2")).pairs
    assert pair.candidate is not None
    assert pair.candidate.note == "1 of 3 attempts failed (crash)"


@pytest.mark.parametrize(("value", "verdict"), [(105, "same"), (105.001, "worse"), (95, "same"), (94.99, "better")])
def test_a_threshold_counts_what_is_beyond_it(tmp_path: Path, value: float, verdict: str) -> None:
    found = of(csv(tmp_path / "a.csv", "G,ttft_ms", "8,100"), csv(tmp_path / "b.csv", "G,ttft_ms", f"8,{value}"))
    assert found.pairs[0].verdict == verdict


def test_policies_are_read_and_others_refused() -> None:
    assert parse_policy("threshold:3%") == Policy("threshold", 3.0)
    assert parse_policy("interval").of("imported", 1) == "interval"
    assert AUTO.of("imported", 1) == "threshold"
    assert AUTO.of("imported", 2) == AUTO.of("measured", 1) == "interval"
    assert Policy("threshold", 5.0).of("composed", 1) == "exact"
    for text in ("threshold", "threshold:0%", "threshold:5", "threshold:200%", "median"):
        with pytest.raises(UsageError, match="threshold:N%"):
            parse_policy(text)


# Replicates


def test_an_interval_worked_out_by_hand() -> None:
    # ln: base 0, 0.01, 0.02; candidate 0.05, 0.06, 0.07: difference 0.05, each variance 1e-4, se = sqrt(2e-4 / 3) =
    # 0.0081650, 4 degrees of freedom, t(0.995) = 4.604095: 0.05 ± 0.0375924, so from +1.248 % to +9.154 %.
    base, candidate = ([math.exp(at + step) for step in (0.0, 0.01, 0.02)] for at in (0.0, 0.05))
    told = by_interval(base, candidate, "lower")
    assert (told.verdict, told.change) == ("worse", pytest.approx(math.expm1(0.05)))
    assert (told.low, told.high) == (pytest.approx(0.0124850, abs=1e-6), pytest.approx(0.0915430, abs=1e-6))
    assert by_interval(candidate, base, "lower").verdict == "better"
    assert by_interval(base, candidate, "higher").verdict == "better"


def test_what_the_interval_cannot_tell_says_how_many_replicates_would() -> None:
    base, candidate = ([math.exp(at + step) for step in (0.0, 0.01, 0.02)] for at in (0.0, 0.04))
    told = by_interval(base, candidate, "lower")  # 0.04 ± 0.0376: from +0.24 % on
    # Beyond 1 % (0.00995) with t(0.995, 2K - 2) · sqrt(2e-4 / K) < 0.03005: K = 4 gives 3.707 · 0.00707 = 0.0262.
    assert (told.verdict, told.needed) == ("inconclusive", 4)
    assert told.reason == "between +0.2 % and +8.1 %; about 4 replicates on each side would settle it"


def test_inside_two_percent_is_the_same() -> None:
    values = [1.0, 1.001, 0.999, 1.0005]
    told = by_interval(values, [value * 1.002 for value in values], "lower")
    assert told.verdict == "same"
    assert told.high is not None
    assert 0.002 < told.high < 0.02


def test_replicates_without_any_scatter_are_judged_by_their_difference() -> None:
    assert by_interval([1.0, 1.0], [1.05, 1.05], "lower").verdict == "worse"
    assert by_interval([1.0, 1.0], [1.005, 1.005], "lower").verdict == "same"


REPLICATES = st.lists(st.floats(0.5, 2.0), min_size=2, max_size=6)


@given(REPLICATES, REPLICATES)
def test_the_other_way_round_is_the_opposite(base: list[float], candidate: list[float]) -> None:
    opposite = {"worse": "better", "better": "worse"}
    there, back = by_interval(base, candidate, "lower"), by_interval(candidate, base, "lower")
    assert back.verdict == opposite.get(there.verdict, there.verdict)
    assert there.change is not None
    assert back.change == pytest.approx(1 / (1 + there.change) - 1)


@given(REPLICATES)
def test_the_very_same_values_are_the_same(values: list[float]) -> None:
    assert by_interval(values, values[::-1], "lower").verdict == "same"


# Run folders


def measured(
    folder: Path, factor: float = 1.0, *, replicates: int = 5, seed: int = 1, changes: dict[str, Any] | None = None,
    scatter: float = 0.005,
) -> Path:  # fmt: skip
    study = a_study()
    machine = Machine(replicates=replicates, seed=seed, process_sd=scatter, sample_sd=0.002)
    made = measured_attempts(study, lambda _: 10.0 * factor, machine, lambda _, __: changes or {}, folder.name.upper())
    write(folder, study, made)
    return folder


def test_a_measured_run_that_is_slower_is_worse_and_its_ops_are_blamed(tmp_path: Path) -> None:
    found = of(measured(tmp_path / "a", scatter=0.001), measured(tmp_path / "b", 1.05, seed=2, scatter=0.001))
    assert {pair.verdict for pair in found.pairs} == {"worse"}
    assert {pair.policy for pair in found.pairs} == {"interval"}
    for pair in found.pairs:
        assert pair.low is not None
        assert pair.high is not None
        assert pair.low < 0.05 < pair.high
        # every op of these runs takes the same part of a step, so that attention, the largest, moved most
        assert pair.blame[0].op == "layer.attn.attention"
        assert pair.blame[0].candidate_us / pair.blame[0].base_us == pytest.approx(1.05, rel=0.01)
    assert found.exit_code == ExitCode.WORSE


@pytest.mark.parametrize("replicates", [1, 2, 3])
def test_a_run_compared_with_itself_is_the_same_whatever_it_has(tmp_path: Path, replicates: int) -> None:
    run = measured(tmp_path / "a", replicates=replicates, scatter=0.05)
    found = of(run, run)
    assert {pair.verdict for pair in found.pairs} == {"same"}
    assert len(found.pairs) == 4
    assert found.exit_code == ExitCode.OK


def test_one_replicate_says_what_it_cannot_say(tmp_path: Path) -> None:
    found = of(measured(tmp_path / "a"), measured(tmp_path / "b", 1.5, replicates=1, seed=2))
    assert {pair.verdict for pair in found.pairs} == {"inconclusive"}
    assert found.pairs[0].reason == (
        "candidate has 1 replicate, and one process says nothing about the next; measure at least 3 on each side"
    )
    assert found.exit_code == ExitCode.OK
    forced = of(tmp_path / "a", tmp_path / "b", parse_policy("threshold:5%"))
    assert {pair.verdict for pair in forced.pairs} == {"worse"}


def test_a_change_that_the_clock_explains_is_put_back(tmp_path: Path) -> None:
    fast = measured(tmp_path / "a", changes={"sm_clock_mhz": 1800.0}, scatter=0.001)
    slow = measured(tmp_path / "b", 1.05, seed=2, changes={"sm_clock_mhz": 1800.0 / 1.05}, scatter=0.001)
    found = of(fast, slow)
    assert {pair.verdict for pair in found.pairs} == {"inconclusive"}
    assert found.pairs[0].clock.startswith("only the clock moved: Decode step +")
    assert found.pairs[0].clock.endswith("(SM clock 1800 → 1714 MHz)")
    steady = measured(tmp_path / "c", 1.05, seed=2, changes={"sm_clock_mhz": 1800.0}, scatter=0.001)
    pair = of(fast, steady).pairs[0]
    assert (pair.verdict, pair.clock[:11]) == ("worse", "cycles too:")


def test_disturbed_replicates_decide_nothing(tmp_path: Path) -> None:
    noisy = measured(tmp_path / "b", 1.5, seed=2, changes={"flags": ["noisy"], "foreign_cpus": 1.3})
    found = of(measured(tmp_path / "a"), noisy)
    assert {pair.verdict for pair in found.pairs} == {"inconclusive"}
    assert found.pairs[0].reason == (
        "every replicate of candidate was disturbed: others kept up to 1.30 processors busy (noisy)"
    )


def test_disturbed_replicates_stand_aside_where_there_are_others(tmp_path: Path) -> None:
    study = a_study()

    def first_is_noisy(_: object, replicate: int) -> dict[str, Any]:
        return {"flags": ["noisy"], "step_ms": 99.0} if replicate == 0 else {}

    made = measured_attempts(study, lambda _: 10.0, Machine(replicates=6, process_sd=0.001), first_is_noisy, "B")
    write(tmp_path / "b", study, made)
    found = of(measured(tmp_path / "a", scatter=0.001), tmp_path / "b")
    assert {pair.verdict for pair in found.pairs} == {"same"}
    assert {pair.candidate.count for pair in found.pairs if pair.candidate} == {5}
    assert found.pairs[0].candidate is not None
    assert found.pairs[0].candidate.note.startswith("1 disturbed left aside: ")


def test_a_threshold_decides_nothing_of_disturbed_rows_either(tmp_path: Path) -> None:
    base = csv(tmp_path / "a.csv", "G,flags,ttft_ms", "8,,100")
    found = of(base, csv(tmp_path / "b.csv", "G,flags,ttft_ms", "8,throttled,200"))
    assert [pair.verdict for pair in found.pairs] == ["inconclusive"]
    found = of(base, csv(tmp_path / "c.csv", "G,flags,ttft_ms", "8,throttled,200", "8,,101"))
    assert [pair.verdict for pair in found.pairs] == ["same"]


def test_chance_in_a_large_table_is_no_verdict(tmp_path: Path) -> None:
    # One workload of 60 stands out by itself at p < 0.01, but not among 60 (Benjamini–Hochberg: 0.01 / 60).
    lines = [f"{at},{repeat},{value}" for at in range(60) for repeat, value in enumerate((100, 101, 100.5))]
    other = [f"{at},{repeat},{value}" for at in range(1, 60) for repeat, value in enumerate((100.2, 101.1, 100.4))]
    odd = [f"0,{repeat},{value}" for repeat, value in enumerate((104, 104.5, 105))]
    base = csv(tmp_path / "a.csv", "G,repeat,ttft_ms", *lines)
    found = of(base, csv(tmp_path / "b.csv", "G,repeat,ttft_ms", *other, *odd))
    pair = next(pair for pair in found.pairs if dict(pair.workload.key)["g"] == "0")
    assert pair.p is not None
    assert 0.01 / 60 < pair.p < 0.01
    assert pair.verdict == "inconclusive"
    assert pair.reason.startswith("worse by itself; among 60 comparisons it may be chance")
    assert pair.replicates_needed is not None
    alone = of(
        csv(tmp_path / "c.csv", "G,repeat,ttft_ms", *lines[:3]), csv(tmp_path / "d.csv", "G,repeat,ttft_ms", *odd)
    )
    assert [one.verdict for one in alone.pairs] == ["worse"]


def edited(run: Path, to: Path, edit: Any, *, drop: tuple[int, ...] = ()) -> Path:
    """A copy of a run, its records edited."""
    attempts, _ = read_attempts(run)
    kept = [one for number, one in enumerate(attempts) if number not in drop]
    with open_run(to, SUITE, [STUDY]) as folder:
        folder.append([Attempt(replace(one.record, **edit(one.record)), one.ops, one.samples) for one in kept])
        folder.write_environment({})
    return to


def test_priced_numbers_are_compared_exactly_and_their_cause_is_named(tmp_path: Path) -> None:
    hand_run(tmp_path / "a")

    def newer(record: Any) -> dict[str, Any]:
        first = record.attempt_id == "RUN.000000"
        return (
            {"answered_with": "trtllm 1.4.0", "step_ms": record.step_ms * (1.002 if first else 1.0005)}
            if record.step_ms
            else {}
        )

    found = of(tmp_path / "a", edited(tmp_path / "a", tmp_path / "b", newer))
    (changed,) = found.section("prediction changed").pairs
    assert changed.change == pytest.approx(0.002)
    assert changed.reason == "tables or rules: aiconfigurator-core 0.12.0, trtllm 1.3.0rc20 → trtllm 1.4.0"
    assert len(found.section("same").pairs) == 13
    assert [one.state for one in found.unpaired] == ["failed in both"]
    assert found.exit_code == ExitCode.OK


def test_numbers_of_other_kinds_and_levels_never_meet(tmp_path: Path) -> None:
    hand_run(tmp_path / "a")
    found = of(tmp_path / "a", hand_run(tmp_path / "b", answered_by="roofline").path)
    assert not found.pairs
    assert found.exit_code == ExitCode.INCOMPLETE
    assert found.notes[0] == "provenance is composed in base and modelled in candidate: never compared with each other"
    deeper = edited(tmp_path / "a", tmp_path / "c", lambda _: {"level": "model"})
    assert "level is layer in base and model in candidate" in of(tmp_path / "a", deeper).notes[0]


def test_a_case_that_is_missing_or_fails_is_never_dropped(tmp_path: Path) -> None:
    hand_run(tmp_path / "a")

    def broken(record: Any) -> dict[str, Any]:
        if record.attempt_id != "RUN.000001":
            return {}
        return {"status": "oom", "reason": "CUDA out of memory", "step_ms": None}

    found = of(tmp_path / "a", edited(tmp_path / "a", tmp_path / "b", broken, drop=(0,)))
    told = {one.state: (one.base_status, one.candidate_status, one.reason) for one in found.unpaired}
    assert told["newly failing"] == ("ok", "oom", "CUDA out of memory")
    assert told["only in base"] == ("ok", "", "")
    assert found.exit_code == ExitCode.WORSE


def test_a_variant_that_is_gone_needs_no_file_to_be_compared(tmp_path: Path) -> None:
    """The study of a run names its variant; records say all that pairing needs."""
    hand_run(tmp_path / "a")
    study = tmp_path / "a" / "study.yaml"
    study.write_text(study.read_text().replace("name: hand", "name: removed-long-ago", 1))
    assert of(tmp_path / "a", tmp_path / "a").exit_code == ExitCode.OK


def test_damage_of_an_input_is_incomplete_and_what_can_be_read_is_compared(tmp_path: Path) -> None:
    hand_run(tmp_path / "a")
    hand_run(tmp_path / "b")
    with (tmp_path / "b" / "journal.jsonl").open("a") as file:
        file.write("nonsense\n")
    (tmp_path / "b" / "ops.parquet").write_bytes(b"nonsense")
    found = of(tmp_path / "a", tmp_path / "b")
    assert len(found.section("same").pairs) == 14
    assert len(found.damage) == 1
    assert found.exit_code == ExitCode.INCOMPLETE


def test_two_reports_of_trtllm_bench_compare_by_threshold(tmp_path: Path) -> None:
    report = Path(__file__).parent / "cases" / "03-bench-report-normalise" / "run_stream.json"
    data = json.loads(report.read_text())
    data["streaming_metrics"]["avg_ttft_ms"] *= 1.2
    (tmp_path / "new.json").write_text(json.dumps(data))
    found = of(report, tmp_path / "new.json")
    assert [(pair.figure.name, pair.policy) for pair in found.section("worse").pairs] == [("ttft_ms", "threshold:5%")]
    assert len(found.section("same").pairs) == 7


def test_a_report_that_contradicts_itself_is_said_to(tmp_path: Path) -> None:
    report = Path(__file__).parent / "cases" / "03-bench-report-normalise" / "run_bad_pergpu.json"
    found = of(report, report)
    assert found.pairs[0].base is not None
    assert found.pairs[0].base.note == "flagged suspect: the report contradicts itself"


def test_replicates_of_several_drivers_in_one_side_are_told(tmp_path: Path) -> None:
    base = csv(tmp_path / "a.csv", "G,driver,ttft_ms", "8,570,1", "8,580,1.1")
    assert "base has rows of several drivers taken together: 570, 580" in of(base, base).notes


def test_every_pair_and_workload_is_in_one_section() -> None:
    found = of(CASE / "base.csv", CASE / "candidate.csv")
    listed: list[Any] = list(itertools.chain(*((*one.pairs, *one.unpaired) for one in found.sections)))
    assert len(listed) == len(found.pairs) + len(found.unpaired)
    assert isinstance(listed[1], Pair)
    assert [one.name for one in found.sections] == [
        "newly failing", "worse", "newly working", "failed in both", "only in base", "only in candidate",
        "not computed", "same",
    ]  # fmt: skip
