from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.runner.telemetry.stretches import around, covered_share, energy, merged, within


def at(*times: float) -> list[SimpleNamespace]:
    return [SimpleNamespace(time_s=time) for time in times]


def times(readings: list[SimpleNamespace]) -> list[float]:
    return [reading.time_s for reading in readings]


def counter(power_w: float, step_s: float, until_s: float, read_every_s: float = 0.05) -> list[tuple[float, float]]:
    """What is read of a counter that jumps every `step_s` by what was used in that time."""
    reads = [index * read_every_s for index in range(round(until_s / read_every_s) + 1)]
    return [(time, power_w * step_s * int(time / step_s + 1e-9)) for time in reads]


def test_readings_around_and_within_windows():
    readings = at(0, 1, 2, 3, 4, 5)
    assert times(around(readings, [(1.5, 1.7), (3.2, 3.5)])) == [1, 2, 3, 4]
    assert times(around(readings, [(-1, 9)])) == [0, 1, 2, 3, 4, 5]
    assert times(within(readings, [(1, 2.5), (3.9, 4.1)])) == [1, 2, 4]
    assert times(within(readings, [(1.5, 1.7)], 0.5)) == [1, 2]


def test_windows_that_all_but_touch_are_one_stretch():
    # Gaps of 0.05 and 0.5 before windows of 1 s: under and over a tenth.
    assert merged([(1.05, 2.05), (0, 1), (2.55, 3.55)]) == [(0, 2.05), (2.55, 3.55)]


def test_coverage_is_the_time_between_readings_close_together():
    readings = at(0, 0.1, 0.2, 0.9, 1.0)
    assert covered_share(readings, [(0, 1)], 0.25) == pytest.approx(0.3)
    assert covered_share(readings, [(0.05, 0.15)], 0.25) == 1
    assert covered_share(readings, [(0.3, 0.8)], 0.25) == 0
    assert covered_share(readings, [(0.95, 1.05)], 0.25) == pytest.approx(0.5)
    assert covered_share([], [(0, 1)], 0.25) == 0


def test_energy_of_a_long_stretch():
    # 500 W, 2 s in the middle of it.
    assert energy(counter(500, 0.1, 5), [(1.03, 3.03)]).joules == pytest.approx(1000, rel=1e-9)


def test_energy_of_windows_that_touch_is_of_their_time_only():
    windows = [(1 + index * 0.0105, 1.01 + index * 0.0105) for index in range(200)]
    assert energy(counter(500, 0.1, 5), windows).joules == pytest.approx(500 * 200 * 0.01, rel=1e-6)


def test_windows_between_those_of_others_are_too_short_for_the_counter():
    windows = [(1 + index * 0.04, 1.01 + index * 0.04) for index in range(50)]
    none = energy(counter(500, 0.1, 5), windows)
    assert none.joules is None
    assert none.why_not == (
        "no energy: samples come in stretches of 10 ms between those of other rows, and the energy counter moves "
        "every 100 ms (10 of its steps are needed)"
    )


def test_a_counter_that_stands_still_goes_back_or_was_not_read_gives_no_energy():
    assert energy([(0.1 * index, 5) for index in range(50)], [(1, 3)]).why_not.startswith("the energy counter moved")
    assert energy([(0, 9), (1, 10), (2, 0), (3, 1)], [(0, 3)]).why_not == "the energy counter went backwards"
    assert energy(counter(500, 0.1, 2), [(1, 3)]).why_not == "no energy: the counter was not read over the whole time"


@given(
    power_w=st.floats(50, 1400),
    step_s=st.sampled_from([0.02, 0.05, 0.1, 0.25]),
    start_s=st.floats(0.5, 2),
    length_s=st.floats(3, 7),
)
def test_energy_under_constant_power_is_power_times_time(power_w, step_s, start_s, length_s):
    read = counter(power_w, step_s, 10, read_every_s=0.05)
    joules = energy(read, [(start_s, start_s + length_s)]).joules
    # Ends are known to one reading or one step each, whichever is longer.
    assert joules == pytest.approx(power_w * length_s, abs=power_w * max(step_s, 0.05))
