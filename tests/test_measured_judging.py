"""Claims on rows that ran, from records and samples to the words of the verdict."""

from __future__ import annotations

import math
from typing import Any

import pytest
from answered import ATTENTION, a_study, answered
from measured_run import Changes, Machine, frames, measured_attempts, nothing

from harness.analysis.claims import Verdict, judge
from harness.analysis.verdicts import MeasuredFigure
from harness.spec.expand import PlannedCase
from harness.spec.study import Study

RATIO = {"kind": "ratio", "axis": "G", "value": 8, "over": 1, "scatter_pct": 50}
QUIET = Machine(process_sd=0.0, sample_sd=0.0)
SCATTERING = Machine()
TIMES = {1: 1.0, 2: 0.9, 4: 0.8, 8: 0.7}


def time_ms(planned: PlannedCase) -> float:
    return TIMES[planned.coordinates["G"]]


def verdict(study: Study, machine: Machine = SCATTERING, changes: Changes = nothing) -> Verdict:
    (one,) = judge(study, *frames(measured_attempts(study, time_ms, machine, changes)))
    return one


def shifted(logs: dict[tuple[int, int], float]) -> Changes:
    """The step times of a machine without scatter: (G, replicate) → logarithm that is added."""
    return lambda planned, replicate: {
        "step_ms": time_ms(planned) * math.exp(logs.get((planned.coordinates["G"], replicate), 0.0))
    }


def test_the_interval_over_replicates_takes_the_place_of_the_scatter() -> None:
    # logs of G 8 over 1: ln 0.7 - 0.01, + 0, + 0.01; half width 9.925 x 0.01 / sqrt(3) = 0.0573: 0.661 to 0.741
    changes = shifted({(8, 0): -0.01, (8, 2): 0.01})
    narrow, wide = (verdict(a_study({**RATIO, "at_most": most}), QUIET, changes) for most in (0.745, 0.735))
    assert (narrow.verdict, wide.verdict) == ("supports", "cannot tell")
    assert narrow.key == "0.700× (0.661 to 0.741)"
    assert narrow.threshold == "G 8 over 1 at most 0.745; 99 % interval over replicates"
    assert "99 % interval over 3 replicates 0.661 to 0.741" in narrow.finding
    (figure,) = narrow.figures
    assert isinstance(figure, MeasuredFigure)
    assert (figure.low, figure.high, figure.replicates) == pytest.approx((0.661, 0.741, 3), abs=5e-4)
    assert verdict(a_study({**RATIO, "at_least": 0.75}), QUIET, changes).verdict == "contradicts"


def test_an_open_verdict_says_how_many_replicates_would_settle_it() -> None:
    # four: 5.841 x 0.01 / 2 = 0.0292, 0.680 to 0.721
    found = verdict(a_study({**RATIO, "at_most": 0.735}), QUIET, shifted({(8, 0): -0.01, (8, 2): 0.01}))
    assert found.reason == "3 replicates leave it open, about 4 would settle it"
    never = verdict(a_study({**RATIO, "at_most": 0.70001}), QUIET, shifted({(8, 0): -0.01, (8, 2): 0.01}))
    assert never.reason == "3 replicates leave it open, and so would 32"


def test_what_a_whole_process_shares_does_not_count() -> None:
    slow = shifted({(g, 1): 0.5 for g in TIMES})
    assert verdict(a_study({**RATIO, "at_most": 0.71}), QUIET, slow).key == "0.700× (0.700 to 0.700)"


def test_one_replicate_cannot_tell_and_shows_its_number() -> None:
    found = verdict(a_study({**RATIO, "at_most": 0.9}), Machine(replicates=1, process_sd=0.0, sample_sd=0.0))
    assert (found.verdict, found.reason, found.key) == ("cannot tell", "1 replicate", "0.700× (1 replicate)")
    assert "one process says nothing about the next; take --replicates 3" in found.finding


def test_disturbed_rows_decide_nothing_and_the_load_is_told() -> None:
    busy = {"flags": ["noisy"], "foreign_cpus": 1.31}
    all_of_it = verdict(a_study({**RATIO, "at_most": 0.9}), changes=lambda _, __: busy)
    assert (all_of_it.verdict, all_of_it.reason) == ("cannot tell", "others kept up to 1.31 processors busy (noisy)")
    assert "6 of 6 rows decide nothing because others kept up to 1.31 processors busy (noisy); none is left" in (
        all_of_it.finding
    )
    assert all_of_it.key.endswith("× (3 replicates)")
    two = verdict(a_study({**RATIO, "at_most": 0.9}), changes=lambda _, replicate: busy if replicate else {})
    assert (two.verdict, two.reason) == ("cannot tell", "others kept up to 1.31 processors busy (noisy)")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            {"flags": ["throttled"], "throttle_reasons": "sw_thermal"},
            "the GPU lowered its clock (throttled: sw_thermal)",
        ),
        ({"flags": ["shared_gpu"], "foreign_processes": 2}, "2 other processes used the GPU meanwhile (shared_gpu)"),
        ({"flags": ["noisy"], "foreign_cpus": None}, "the machine was not quiet (noisy)"),
    ],
)
def test_every_disturbance_has_its_words(columns: dict[str, Any], said: str) -> None:
    assert verdict(a_study({**RATIO, "at_most": 0.9}), changes=lambda _, __: columns).reason == said


def test_undisturbed_replicates_decide_where_there_are_enough() -> None:
    wrong = {"flags": ["noisy"], "foreign_cpus": 3.0, "step_ms": 99.0}
    machine = Machine(replicates=4)
    found = verdict(a_study({**RATIO, "at_most": 0.9}), machine, lambda _, replicate: wrong if replicate == 2 else {})
    assert found.verdict == "supports"
    assert found.caveats == ("2 of 8 rows are left out because others kept up to 3.00 processors busy (noisy)",)


def test_invalid_and_failed_rows_enter_nothing() -> None:
    def failing(planned: PlannedCase, replicate: int) -> dict[str, Any]:
        bad = planned.coordinates["G"] == 8 and replicate == 1
        return {"status": "invalid", "reason": "generated 3 tokens of 10"} if bad else {}

    machine = Machine(replicates=5)
    found = verdict(a_study({**RATIO, "at_most": 0.9}), machine, failing)
    assert found.verdict == "supports"
    assert found.caveats == ("1 of 10 rows have no number (invalid)",)
    assert all(isinstance(one, MeasuredFigure) and one.replicates == 4 for one in found.figures)


def test_a_case_that_always_fails_cannot_be_told() -> None:
    found = verdict(
        a_study({**RATIO, "at_most": 0.9}),
        changes=lambda planned, _: {"status": "oom", "reason": "needs 90 GB"} if planned.coordinates["G"] == 8 else {},
    )
    assert (found.verdict, found.reason) == ("cannot tell", "needed rows are oom")
    assert found.finding.count("needs 90 GB") == 1


def test_replicates_without_all_rows_are_no_replicates() -> None:
    found = verdict(
        a_study({**RATIO, "at_most": 0.9}),
        changes=lambda planned, k: (
            {"status": "crash", "reason": "SIGSEGV"} if (planned.coordinates["G"], k) in {(8, 0), (1, 1)} else {}
        ),
    )
    assert (found.verdict, found.reason) == ("cannot tell", "replicates are incomplete")


def test_arms_of_different_processes_compare_by_replicate_and_say_so() -> None:
    found = verdict(
        a_study({**RATIO, "at_most": 0.9}), changes=lambda planned, _: {"arms": f"G {planned.coordinates['G']}"}
    )
    assert found.verdict == "supports"
    assert found.caveats == ("values that are compared come from different processes, replicate by replicate",)


def test_rounds_are_used_where_one_process_timed_all_arms() -> None:
    machine = Machine(replicates=5, rounds=41, process_sd=0.0, round_sd=0.2, sample_sd=0.001)
    study = a_study({**RATIO, "at_most": 0.9})
    records, ops, samples = frames(measured_attempts(study, time_ms, machine))
    (paired,) = judge(study, records, ops, samples)
    shuffled = samples.assign(
        times_ms=[list(reversed(one)) if i % 2 else one for i, one in enumerate(samples["times_ms"])]
    )
    (unpaired,) = judge(study, records, ops, shuffled)
    widths = [one.figures[0].high - one.figures[0].low for one in (paired, unpaired)]  # type: ignore[attr-defined]
    assert widths[0] < widths[1] / 10


def test_rates_pair_the_other_way_round() -> None:
    study = a_study({**RATIO, "at_least": 1.3, "quantity": {"measure": "gb_per_s"}, "value": 1, "over": 2})
    machine = Machine(replicates=3, process_sd=0.0, round_sd=0.3, sample_sd=0.0005)
    (found,) = judge(study, *frames(measured_attempts(study, lambda _: 1.0, machine)))
    (figure,) = found.figures
    # the same time for both, so that the rates differ as their bytes do
    records, _, _ = frames(measured_attempts(study, lambda _: 1.0, machine))
    of = {row["group_size"]: row["hbm_bytes"] for row in records.to_dict("records")}
    assert figure.value == pytest.approx(of[1.0] / of[2.0], rel=1e-3)
    assert found.verdict == "supports"


def test_ops_pair_by_process() -> None:
    found = verdict(a_study({**RATIO, "at_most": 0.9, "quantity": ATTENTION}))
    assert found.verdict == "supports"
    assert "over 3 replicates" in found.finding


@pytest.mark.parametrize(
    ("claim", "key"),
    [
        ({"kind": "flat_within", "at_most_pct": 2}, "42.9 % (42.9 % to 42.9 %)"),
        ({"kind": "exponent", "expect": -0.2, "tolerance": 0.1}, "-0.19 to -0.15 (± 0.00 at most)"),
        ({"kind": "gain_per_doubling", "at_least": 1.1}, "1.11×, 1.12×, 1.14× (± 0.0 % at most)"),
        ({"kind": "saturation", "gain_below_pct": 5, "at_least": 8}, "gains up to G 8 (± 0.0 % at most)"),
        ({"kind": "best_at", "values": 8}, "8 best, next 1.14× (± 0.0 % at most)"),
    ],
)
def test_every_kind_has_its_intervals(claim: dict[str, Any], key: str) -> None:
    found = verdict(a_study({**claim, "axis": "G", "scatter_pct": 50}), QUIET)
    assert found.key == key
    assert found.verdict == ("contradicts" if claim["kind"] == "flat_within" else "supports")


def test_median_over_is_taken_of_the_readings_of_a_replicate() -> None:
    study = a_study(
        {**RATIO, "at_most": 0.71, "median_over": "batch"}, workloads={"decode": {"batch": [1, 8, 32], "kvsl": 65536}}
    )
    at_8 = {1: 0.9, 8: 0.7, 32: 0.2}

    def time(planned: PlannedCase) -> float:
        return 100.0 * (at_8[planned.case.workload.batch] if planned.coordinates["G"] == 8 else 1.0)

    (found,) = judge(study, *frames(measured_attempts(study, time, QUIET)))
    assert (found.verdict, found.key) == ("supports", "0.700× (0.700 to 0.700)")
    assert "median over b; single ones 0.200× to 0.900×" in found.finding


def test_simulated_rows_are_judged_as_measured_ones_are() -> None:
    assert verdict(a_study({**RATIO, "at_most": 0.9}), changes=lambda _, __: {"provenance": "simulated"}).key.endswith(
        ")"
    )


def test_priced_rows_are_judged_as_ever() -> None:
    study = a_study({**RATIO, "at_most": 0.9, "quantity": ATTENTION})
    (found,) = judge(study, *answered(study, lambda kernel: 100.0 / kernel.group_size))
    assert found.threshold.endswith("scatter allowed 50 %")
    assert not any(isinstance(figure, MeasuredFigure) for figure in found.figures)


def test_twenty_runs_on_a_scattering_machine_have_no_false_verdict() -> None:
    study = a_study({**RATIO, "at_most": 1.0}, {**RATIO, "id": "d", "at_least": 0.98})
    said = []
    for seed in range(20):
        attempts = measured_attempts(study, lambda _: 1.0, Machine(seed=seed, rounds=21, has_ops=False))
        said += [(one.claim_id, one.verdict) for one in judge(study, *frames(attempts))]
    assert ("c", "supports") not in said
    assert ("c", "contradicts") not in said
    assert ("d", "contradicts") not in said
