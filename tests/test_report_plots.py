"""Plots: what is drawn, what is not, and that a reader can tell the lines apart."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hand_run import STUDY_DATA, hand_run
from hypothesis import given
from hypothesis import strategies as st

from harness.report.content import build_report
from harness.report.palette import inks
from harness.report.plots import Chart, quantity_title
from harness.report.scales import linear_axis, log2_axis, log_axis, readable_unit
from harness.results.store import Run
from harness.spec.base import parse
from harness.spec.claims import Quantity
from harness.spec.study import Study


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return hand_run(tmp_path_factory.mktemp("runs") / "hand")


@pytest.fixture(scope="module")
def attention(run: Run) -> Chart:
    return build_report([run]).sections[0].charts[0]


def lines(chart: Chart, panel: int, what: str) -> list[dict[str, Any]]:
    return [trace for trace in chart.panels[panel].figure["data"] if trace["meta"]["is"] == what]


def drawn_with(tmp_path: Path, **plot: Any) -> tuple[Chart, ...]:
    data = {**STUDY_DATA, "plots": [{"title": "p", "x": "G", **plot}]}
    return build_report([hand_run(tmp_path / "run", study=parse(Study, data, "s"))]).sections[0].charts


def test_a_panel_for_each_gpu_and_a_line_for_each_batch(attention: Chart) -> None:
    assert [panel.title for panel in attention.panels] == ["B200", "H200"]
    assert [key.label for key in attention.keys] == ["b 1", "b 8"]
    assert attention.subtitle == "decode, KVSL 32768"
    small, large = lines(attention, 0, "value")
    assert (small["x"], small["y"]) == ([8, 16, 32, 64], [20, 20, 20, 200])
    assert (large["x"], large["y"]) == ([8, 16, 32, 64], [80, 50, 40, 1600])


def test_rows_without_a_number_are_counted_and_not_drawn(attention: Chart) -> None:
    assert [trace["x"] for trace in lines(attention, 1, "value")] == [[8, 16, 32], [8, 16, 32]]
    assert attention.missing == 2


def test_the_roofline_is_a_second_dashed_line_in_the_same_colour(attention: Chart) -> None:
    for what, dash in (("value", "solid"), ("roofline", "6px,4px")):
        assert [trace["line"]["dash"] for trace in lines(attention, 0, what)] == [dash, dash]
    colours = [[trace["line"]["color"] for trace in lines(attention, 0, what)] for what in ("value", "roofline")]
    assert colours[0] == colours[1]
    # K and V in FP8: 32768 x 8 x 128 x 2 bytes; Q and O in bf16: 64 x 128 x 2 x 2 bytes; 7.672 TB/s; 2.16 µs to launch
    assert lines(attention, 0, "roofline")[0]["y"][0] == pytest.approx(67141632 / 7.672e6 + 2.16, abs=0.001)


def test_axes_carry_units_and_the_values_that_were_asked(attention: Chart) -> None:
    layout = attention.panels[0].figure["layout"]
    assert layout["xaxis"]["title"]["text"] == "G, query heads per KV head"
    assert layout["yaxis"]["title"]["text"] == "layer.attn.attention,<br>one layer (µs)"
    assert (layout["xaxis"]["type"], layout["xaxis"]["ticktext"]) == ("log", ["8", "16", "32", "64"])
    assert layout["yaxis"] == attention.panels[1].figure["layout"]["yaxis"]


def test_flagged_rows_have_open_markers_and_say_why(attention: Chart) -> None:
    small, large = lines(attention, 0, "value")
    assert (set(small["marker"]["symbol"]), set(large["marker"]["symbol"])) == ({"circle-open"}, {"square"})
    assert small["text"][0] == ("b 1, G 8<br><b>20.00 µs</b><br>roofline 10.91 µs<br>source: exact<br>flags: l2_warm")
    assert attention.has_flags


def test_a_cliff_is_a_band_from_the_last_good_value_to_the_first_bad_one(attention: Chart) -> None:
    layout = attention.panels[0].figure["layout"]
    assert [(band["x0"], band["x1"]) for band in layout["shapes"]] == [(32, 64)]
    (note,) = layout["annotations"]
    assert note["text"] == "×10.0–40.0"
    assert note["x"] == pytest.approx((math.log10(32) + math.log10(64)) / 2)
    assert "shapes" not in attention.panels[1].figure["layout"]


def test_a_modelled_run_draws_the_roofline_alone(tmp_path: Path) -> None:
    chart = build_report([hand_run(tmp_path / "run", answered_by="roofline")]).sections[0].charts[0]
    assert (chart.provenance, chart.has_roofline) == ("modelled", False)
    assert all(trace["line"]["dash"] == "6px,4px" for trace in chart.panels[0].figure["data"])
    assert len(chart.panels[0].figure["data"]) == 2


def test_a_line_never_has_two_points_at_one_place(tmp_path: Path) -> None:
    (chart,) = drawn_with(tmp_path, y={"op": "layer.attn.attention", "measure": "time_us"})
    assert [key.label for key in chart.keys] == ["B200, b 1", "B200, b 8", "H200, b 1", "H200, b 8"]
    for trace in chart.panels[0].figure["data"]:
        assert len(set(trace["x"])) == len(trace["x"])


def test_text_values_get_a_place_each_in_the_order_of_the_study(tmp_path: Path) -> None:
    (chart,) = drawn_with(tmp_path, x="system", lines="G", where={"batch": 1}, x_scale="category")
    axis = chart.panels[0].figure["layout"]["xaxis"]
    assert (axis["type"], axis["categoryarray"]) == ("category", ["B200", "H200"])
    assert [trace["x"] for trace in lines(chart, 0, "value")] == [["B200", "H200"]] * 3 + [["B200"]]


def test_a_band_on_the_time_of_a_phase_says_of_which_op_it_is(run: Run) -> None:
    step = build_report([run]).sections[0].charts[1]
    (note,) = step.panels[0].figure["layout"]["annotations"]
    assert note["text"] == "attn.attention<br>×10.0–40.0"


def test_work_that_grows_is_taken_out_of_a_band(tmp_path: Path) -> None:
    """With 2 KV heads, G 64 over 32 has twice the query heads: 40 and 10 times are 20 and 5 beyond that."""
    data = {**STUDY_DATA, "hold": {"G": "kv_heads"}, "set": {"kv_heads": 2}, "plots": STUDY_DATA["plots"][:1]}
    (chart,) = build_report([hand_run(tmp_path / "run", study=parse(Study, data, "s"))]).sections[0].charts
    (note,) = chart.panels[0].figure["layout"]["annotations"]
    assert note["text"] == "×5.00–20.0<br>beyond<br>its work"


def titles(charts: tuple[Chart, ...]) -> list[str]:
    return [chart.title for chart in charts]


def test_a_plot_of_nothing_gives_way_to_one_of_every_axis(tmp_path: Path) -> None:
    assert titles(drawn_with(tmp_path / "a", where={"batch": 7})) == ["Decode step over G"]
    assert titles(drawn_with(tmp_path / "b", x="isl")) == ["Decode step over G"]


class TestAutomatic:
    """Plots of a study that names none."""

    def charts(self, folder: Path, **changes: Any) -> tuple[Chart, ...]:
        study = parse(Study, {**STUDY_DATA, "plots": [], "claims": [], **changes}, "s")
        return build_report([hand_run(folder / "run", study=study)]).sections[0].charts

    def test_the_time_of_the_phase_over_the_axis_a_line_for_each_batch(self, tmp_path: Path) -> None:
        (chart,) = self.charts(tmp_path)
        assert [panel.title for panel in chart.panels] == ["B200", "H200"]
        assert [key.label for key in chart.keys] == ["b 1", "b 8"]
        layout = chart.panels[0].figure["layout"]
        assert layout["xaxis"]["ticktext"] == ["8", "16", "32", "64"]
        assert layout["yaxis"]["title"]["text"] == "Decode step,<br>decoder layers (ms)"

    def test_axes_of_numbers_come_before_others(self, tmp_path: Path) -> None:
        charts = self.charts(tmp_path, axes={"kv_format": ["bf16", "fp8"], "G": [8, 16, 32, 64]})
        assert titles(charts) == ["Decode step over G", "Decode step over KV"]
        assert charts[1].panels[0].figure["layout"]["xaxis"]["type"] == "category"

    def test_without_axes_what_moves_in_the_workload(self, tmp_path: Path) -> None:
        work = {"decode": {"batch": [1, 8], "kvsl": [16384, 32768]}}
        assert titles(self.charts(tmp_path, axes={}, exclude=[], workloads=work)) == [
            "Decode step over b", "Decode step over KVSL",
        ]  # fmt: skip

    def test_more_lines_than_can_be_told_apart_are_thinned_to_one_place(self, tmp_path: Path) -> None:
        contexts = [4096, 8192, 16384, 32768, 65536]
        (chart,) = self.charts(tmp_path, workloads={"decode": {"batch": [1, 8], "kvsl": contexts}})
        assert [key.label for key in chart.keys] == [f"KVSL {kvsl}" for kvsl in contexts]
        assert chart.subtitle == "decode, b 1"


@pytest.mark.parametrize(
    ("unit", "values", "log", "expected"),
    [
        ("µs", [20, 1500], True, (1, "µs")),  # the middle is 173 µs
        ("µs", [20, 20_000], True, (1e-3, "ms")),  # the top has five digits
        ("µs", [500, 8000], True, (1e-3, "ms")),  # the middle is 2000 µs
        ("µs", [100, 999], False, (1, "µs")),
        ("µs", [100, 1001], False, (1e-3, "ms")),
        ("ms", [0.02, 0.5], True, (1e3, "µs")),
        ("ms", [900, 4000], True, (1e-3, "s")),
        ("TFLOP/s", [500, 40_000], True, (1, "TFLOP/s")),
        ("s", [1e6, 1e6], False, (1, "s")),
    ],
)
def test_times_are_drawn_in_a_unit_that_reads_well(
    unit: str, values: list[float], log: bool, expected: tuple[float, str]
) -> None:
    assert readable_unit(unit, values, log=log) == expected


def test_a_plot_in_another_unit_says_so_everywhere(tmp_path: Path) -> None:
    (chart,) = drawn_with(
        tmp_path,
        panels="system",
        lines="batch",
        y={"op": "layer.attn.attention", "measure": "time_us"},
        y_scale="linear",
    )
    assert lines(chart, 0, "value")[1]["y"] == pytest.approx([0.08, 0.05, 0.04, 1.6])
    assert lines(chart, 0, "roofline")[0]["y"][0] == pytest.approx(0.0109, abs=1e-4)
    assert chart.panels[0].figure["layout"]["yaxis"]["title"]["text"].endswith("(ms)")
    assert "<b>0.08000 ms</b>" in lines(chart, 0, "value")[1]["text"][0]


def test_plotly_accepts_every_figure(run: Run) -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects")
    for chart in build_report([run]).sections[0].charts:
        for panel in chart.panels:
            assert len(graph_objects.Figure(panel.figure).data) == 4


@pytest.mark.parametrize("level", ["layer", "model"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_time_of_a_whole_phase_says_of_which_phase_and_level(phase: str, level: Any) -> None:
    title = quantity_title(Quantity(), phase, level)
    assert title.startswith({"prefill": "Prefill compute", "decode": "Decode step"}[phase])
    assert ("decoder layers" in title) == (level == "layer")
    assert title.endswith("(ms)")


def test_every_measure_has_its_unit_on_the_axis() -> None:
    assert quantity_title(Quantity(op="lm_head", measure="tflop_per_s"), "decode", "model") == "lm_head (TFLOP/s)"
    assert quantity_title(Quantity(category="ffn"), "decode", "model") == "ffn, all layers (ms)"
    assert quantity_title(Quantity(measure="tok_s_per_gpu"), "decode", "model") == "Throughput (tok/s/GPU)"


@given(st.lists(st.floats(min_value=1e-3, max_value=1e6), min_size=1, max_size=12))
def test_every_point_is_inside_its_axis(values: list[float]) -> None:
    for axis in (log_axis(values, "t"), log2_axis(values, "t")):
        low, high = axis["range"]
        assert all(low < math.log10(value) < high for value in values)
        assert len(axis["tickvals"]) == len(axis["ticktext"])
    low, high = linear_axis(values, "t")["range"]
    assert low == 0
    assert high > max(values)


def test_a_flat_line_looks_flat() -> None:
    low, high = log_axis([100, 101], "t")["range"]
    assert 10 ** (high - low) >= 2


def test_ticks_that_would_overlap_have_no_label() -> None:
    assert log2_axis([128, 129, 256, 257, 512], "t")["ticktext"] == ["128", "", "256", "", "512"]


def contrast(colour: str, ground: str) -> float:
    """WCAG 2.1 contrast ratio."""

    def luminance(text: str) -> float:
        parts = [int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    one, other = sorted((luminance(colour), luminance(ground)))
    return (other + 0.05) / (one + 0.05)


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("count", range(1, 11))
def test_lines_differ_from_each_other_and_from_the_ground(count: int, ordered: bool) -> None:
    made = inks(count, ordered=ordered)
    assert len({(ink.light, ink.symbol) for ink in made}) == count
    assert len({(ink.dark, ink.symbol) for ink in made}) == count
    assert min(contrast(ink.light, "#ffffff") for ink in made) > 3
    assert min(contrast(ink.dark, "#101318") for ink in made) > 4
