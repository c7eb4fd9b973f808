"""`trtllm-harness history`: nights in, one verdict for each series out."""

from __future__ import annotations

import csv
import json
import random
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import REPOSITORY, CommandLine
from history_runs import a_record, journal_run

from harness.results.record import SCHEMA_VERSION

CASE = REPOSITORY / "tests" / "cases" / "07-nightly-history" / "history.csv"
POLICY = ("--policy", "threshold=5%", "--policy", "nights=3,noise=3")
FIRST = datetime(2026, 3, 1, 2, 0, tzinfo=timezone.utc)

Said = dict[str, dict[str, Any]]


@pytest.fixture
def run(capsys) -> CommandLine:
    return CommandLine(capsys)


def by_letter(data: dict[str, Any]) -> Said:
    return {one["series"][0]: one for one in data["series"]}


@pytest.fixture
def case(run) -> dict[str, Any]:
    """The history of the case, judged by its policy."""
    told = run("history", CASE, *POLICY, "--as-of", "2026-03-24", "--json")
    assert told.code == 1
    return told.json


def test_small_steps_of_one_series_add_up_to_a_regression(case) -> None:
    one = by_letter(case)["A"]
    assert one["verdict"] == "regression"
    assert one["level"] == pytest.approx(1000, rel=0.002)
    assert one["now"] == pytest.approx(941, rel=0.001)
    assert one["change_pct"] == pytest.approx(-5.9, abs=0.1)
    assert one["change"]["commits"] == ["c013", "c017"]
    assert (one["change"]["first_night"], one["change"]["settled_night"]) == ("2026-03-13", "2026-03-17")
    assert "no single night falls by as much as counts" in one["text"]


def test_a_dip_of_one_night_is_transient_and_moves_nothing(case) -> None:
    one = by_letter(case)["A"]
    assert [(dip["first_night"], dip["nights"], dip["value"]) for dip in one["transients"]] == [
        ("2026-03-08", 1, 931.0)
    ]
    assert one["level_since"] == "2026-03-01"
    assert "transient: 1 night at 931.0" in one["text"]


def test_a_driver_change_is_one_note_and_blames_no_commit(case) -> None:
    said = by_letter(case)
    for letter in "BC":
        assert said[letter]["verdict"] == "environment change"
        assert said[letter]["change"]["percent"] == pytest.approx(-7, abs=0.5)
        assert said[letter]["change"]["commits"] is None
        assert said[letter]["level_since"] == "2026-03-11"
    (note,) = case["environment_changes"]
    assert note["night"] == "2026-03-11"
    assert note["causes"] == [{"what": "driver", "from": "drv-570", "to": "drv-580"}]
    assert note["moved"] == ["B-mla-kvp4-fp8", "C-g4-h128-fp8"]
    assert note["places"] == ["p2-n4"]
    assert "on p1-n1 without that change did not move" in note["text"]


def test_a_failed_run_is_no_value(case) -> None:
    one = by_letter(case)["D"]
    assert one["verdict"] == "no data"
    assert (one["last_night"], one["last_value"], one["days_without"]) == ("2026-03-14", 882.4, 10)
    assert one["failed_since"] == ["2026-03-19"]
    assert one["change_pct"] is None


def test_an_improvement_moves_the_level_up(case) -> None:
    one = by_letter(case)["E"]
    assert one["verdict"] == "improvement"
    assert (one["change"]["first_night"], one["change"]["commits"]) == ("2026-03-16", ["c016", "c016"])
    assert one["change"]["before"] == pytest.approx(410, rel=0.002)
    assert one["level"] == pytest.approx(447, rel=0.002)
    assert one["level_since"] == "2026-03-16"


def test_two_values_are_no_history_whatever_they_are(case) -> None:
    one = by_letter(case)["F"]
    assert one["verdict"] == "not enough history"
    assert "300.0, 270.0" in one["text"]


def test_a_noisy_series_says_what_it_could_not_have_seen(case) -> None:
    one = by_letter(case)["G"]
    assert (one["verdict"], one["noisy"]) == ("unchanged", True)
    assert one["noise_pct"] == pytest.approx(4, abs=0.2)  # the standard deviation of its 24 values is 4.0 %
    assert one["visible_pct"] > 3 * one["noise_pct"]
    assert "a change of 5 % could not be seen" in one["text"]
    assert one["transients"] == []


def test_offsets_are_compared_as_instants_and_two_runs_are_one_night(case) -> None:
    one = by_letter(case)["A"]
    assert (one["nights"], one["last_night"]) == (24, "2026-03-24")
    assert one["last_value"] == pytest.approx((939.0 + 941.7) / 2)


def test_a_time_without_offset_is_rejected_by_name(case) -> None:
    (text,) = case["rejected"]
    assert "E-g4-h256-fp8" in text
    assert "120" in text
    assert "'2026-03-20T07:40:00' has no offset" in text


def test_the_counts_of_the_case(case, run) -> None:
    counts = case["counts"]
    assert [counts[name] for name in ("rows", "usable", "failed", "rejected")] == [139, 137, 1, 1]
    assert {verdict: count for verdict, count in case["verdicts"].items() if count} == {
        "regression": 1,
        "environment change": 2,
        "improvement": 1,
        "no data": 1,
        "not enough history": 1,
        "unchanged": 1,
    }
    told = run("history", CASE, *POLICY)
    assert "139 rows, 137 usable values, 1 failed, 1 rejected" in told.out
    assert "7 series: 1 regression, 2 environment, 1 improvement, 1 no data, 1 short, 1 unchanged" in told.out


@pytest.mark.parametrize("seed", range(4))
def test_rows_in_any_order_give_the_same_answer(case, run, tmp_path, seed) -> None:
    header, *lines = CASE.read_text(encoding="utf-8").splitlines()
    random.Random(seed).shuffle(lines)
    shuffled = tmp_path / "history.csv"
    shuffled.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    told = run("history", shuffled, *POLICY, "--as-of", "2026-03-24", "--json").json
    place = lambda data: [text.partition(" (")[2] for text in data.pop("rejected")]  # noqa: E731  # its row is another
    assert place(told) == place(case)
    assert told == case


def test_a_later_fall_back_of_an_improvement_is_a_regression(run, tmp_path) -> None:
    steps = [4.1] * 12 + [3.7] * 10 + [4.1] * 4
    told = run("history", table(tmp_path, wobble(steps)), "--json").json["series"][0]
    assert told["verdict"] == "regression"
    assert told["level"] == pytest.approx(3.7, rel=0.002)


def table(folder: Path, steps_ms: Iterable[float | None], **columns: Any) -> Path:
    """A CSV table of one series, a night a row; None is a night without a row."""
    path = folder / "table.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["run_started", "variant", "step_ms", *columns])
        for night, value in enumerate(steps_ms):
            if value is not None:
                cells = [column[night] if isinstance(column, list) else column for column in columns.values()]
                writer.writerow([(FIRST + timedelta(days=night)).isoformat(), "v", f"{value:.5f}", *cells])
    return path


def wobble(values: Sequence[float]) -> list[float]:
    """The values with noise of about 0.3 %, always the same."""
    draw = random.Random(7)
    return [value * (1 + draw.gauss(0, 0.003)) for value in values]


def nights(root: Path, steps_ms: Sequence[float | None], **changes: Any) -> list[Path]:
    """A run folder for each night, of one case."""
    made = []
    for night, value in enumerate(steps_ms):
        started = FIRST + timedelta(days=night)
        made.append(journal_run(root / f"night-{night:02d}", [a_record(1, started, value, **changes)]))
    return made


def test_run_folders_under_a_root_are_nights(run, tmp_path) -> None:
    nights(tmp_path / "runs", [*wobble([5.0] * 12), *wobble([5.3] * 3)])
    told = run("history", tmp_path / "runs", "--json")
    assert told.code == 1
    (one,) = told.json["series"]
    assert (one["verdict"], one["metric"], one["nights"]) == ("regression", "step_ms", 15)
    assert one["change"]["first_night"] == "2026-03-13"


def test_a_failed_last_night_is_neither_zero_nor_fine(run, tmp_path) -> None:
    nights(tmp_path, [*wobble([5.0] * 12), None, None, None])
    told = run("history", tmp_path, "--json")
    (one,) = told.json["series"]
    assert (one["verdict"], one["failed_since"]) == ("no data", ["2026-03-13", "2026-03-14", "2026-03-15"])
    assert told.code == 1  # newly failing


def test_one_failed_night_is_said_at_once(run, tmp_path) -> None:
    nights(tmp_path, [*wobble([5.0] * 12), None])
    told = run("history", tmp_path, "--json")
    (one,) = told.json["series"]
    assert (told.code, one["verdict"], one["failed_since"]) == (1, "unchanged", ["2026-03-13"])
    assert "since then it failed (crash) on 2026-03-13" in one["text"]


def test_a_failure_that_was_run_again_the_same_night_is_over(run, tmp_path) -> None:
    nights(tmp_path, [*wobble([5.0] * 12), None])
    journal_run(tmp_path / "again", [a_record(1, FIRST + timedelta(days=12, hours=4), 5.0)])
    told = run("history", tmp_path, "--json")
    assert (told.code, told.json["series"][0]["failed_since"]) == (0, [])


def test_a_case_that_never_worked_has_no_data_and_is_nothing_new(run, tmp_path) -> None:
    for night in range(6):
        started = FIRST + timedelta(days=night)
        journal_run(tmp_path / f"{night}", [a_record(1, started, 5.0), a_record(2, started, None)])
    told = run("history", tmp_path, "--json")
    never = next(one for one in told.json["series"] if one["nights"] == 0)
    assert (never["verdict"], never["days_without"]) == ("no data", 6)
    assert "never had a value" in never["text"]
    assert told.code == 3


def test_nights_across_the_change_of_clocks_and_of_the_year(run, tmp_path) -> None:
    # Los Angeles set its clocks forward on 8 March 2026; 20:30 there was 04:30 UTC before and 03:30 after.
    rows = ["2025-12-31T20:30:00-08:00", "2026-01-01T20:30:00-08:00", "2026-03-07T20:30:00-08:00"]
    rows += ["2026-03-08T20:30:00-07:00", "2026-03-09T20:30:00-07:00"]
    path = tmp_path / "table.csv"
    path.write_text("run_started,variant,step_ms\n" + "".join(f"{at},v,5.0\n" for at in rows), encoding="utf-8")
    told = run("history", path, "--json").json
    assert told["as_of"] == "2026-03-10"
    (one,) = told["series"]
    assert one["nights"] == 5
    data = page_data(run, path, tmp_path)
    assert data["nights"] == ["2026-01-01", "2026-01-02", "2026-03-08", "2026-03-09", "2026-03-10"]


def page_data(run: CommandLine, path: Path, folder: Path) -> dict[str, Any]:
    run("history", path, "--out", folder / "out")
    text = (folder / "out" / "history.html").read_text(encoding="utf-8")
    told = text.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    return json.loads(told)


def test_a_clock_that_stepped_back_does_not_split_a_run(run, tmp_path) -> None:
    nights(tmp_path, wobble([5.0] * 6))
    late = FIRST + timedelta(days=6, hours=0)
    records = [
        a_record(1, late, 5.0),
        a_record(2, late, 7.0, started_at=(late - timedelta(days=1, hours=3)).isoformat()),
    ]
    journal_run(tmp_path / "set-back", records, started=late)
    told = run("history", tmp_path, "--json").json
    assert "set-back: its clock was set back while it ran (1 rows start before it did)" in told["remarks"][0]
    assert {one["last_night"] for one in told["series"]} == {"2026-03-07"}


def test_one_corrupt_table_among_good_ones_costs_itself(run, tmp_path) -> None:
    good = [
        {"run_started": (FIRST + timedelta(days=day)).isoformat(), "variant": "v", "step_ms": 5.0} for day in range(6)
    ]
    for half, name in enumerate(("a", "b")):
        pq.write_table(pa.Table.from_pylist(good[3 * half : 3 * half + 3]), tmp_path / f"{name}.parquet")
    (tmp_path / "broken.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:200])
    told = run("history", tmp_path, "--json")
    assert told.code == 3
    assert [one["nights"] for one in told.json["series"]] == [6]
    assert "broken.parquet" in told.json["unreadable"][0]
    assert "broken.parquet" in told.err


def test_a_corrupt_parquet_copy_in_a_run_folder_costs_nothing(run, tmp_path) -> None:
    *_, last = nights(tmp_path, wobble([5.0] * 6))
    (last / "records.parquet").write_bytes(b"PAR1")
    told = run("history", tmp_path, "--json")
    assert (told.code, told.json["series"][0]["nights"]) == (0, 6)


def test_a_record_of_a_newer_schema_is_named_and_left_out(run, tmp_path) -> None:
    nights(tmp_path, wobble([5.0] * 6))
    record = a_record(1, FIRST + timedelta(days=6), 5.0, schema_version=SCHEMA_VERSION + 1)
    later = journal_run(tmp_path / "later", [a_record(1, FIRST + timedelta(days=6), 5.0)])
    line = json.loads((later / "journal.jsonl").read_text(encoding="utf-8"))
    line["record"]["schema_version"] = record.schema_version
    (later / "journal.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    told = run("history", tmp_path, "--json")
    assert told.code == 3
    assert told.json["series"][0]["nights"] == 6
    assert "later release" in told.json["unreadable"][0]


def test_a_removed_variant_has_no_data_and_after_a_while_costs_nothing(run, tmp_path) -> None:
    for night, value in enumerate(wobble([5.0] * 40)):
        started = FIRST + timedelta(days=night)
        records = [a_record(1, started, value), *([a_record(2, started, 7.0)] if night < 10 else [])]
        journal_run(tmp_path / f"{night:02d}", records)
    told = run("history", tmp_path, "--json", "--as-of", "2026-03-20")
    removed = next(one for one in told.json["series"] if one["last_night"] == "2026-03-10")
    assert (removed["verdict"], told.code) == ("no data", 3)
    assert "10 nights without a value, not run since" in removed["text"]
    assert run("history", tmp_path).code == 0  # 30 nights: it is not coming back


def test_a_copy_of_a_run_counts_once(run, tmp_path) -> None:
    made = nights(tmp_path, wobble([5.0] * 6))
    shutil.copytree(made[-1], tmp_path / "copy")
    told = run("history", tmp_path, "--json").json
    assert (told["counts"]["rows"], told["counts"]["usable"], told["counts"]["duplicates"]) == (7, 6, 1)


def test_two_runs_of_a_night_are_two_samples(run, tmp_path) -> None:
    nights(tmp_path, wobble([5.0] * 6))
    started = FIRST + timedelta(days=5, hours=3)
    journal_run(tmp_path / "again", [a_record(1, started, 5.2)])
    one = run("history", tmp_path, "--json").json["series"][0]
    assert one["nights"] == 6
    assert one["last_value"] == pytest.approx((wobble([5.0] * 6)[-1] + 5.2) / 2)


def test_a_run_can_be_counted_to_another_night(run, tmp_path) -> None:
    nights(tmp_path, wobble([5.0] * 6))
    told = run("history", tmp_path, "--night", "night-05=2026-03-08", "--json").json
    assert told["series"][0]["last_night"] == "2026-03-08"
    wrong = run("history", tmp_path, "--night", "night-77=2026-03-08")
    assert (wrong.code, "no run is called so" in wrong.err) == (2, True)


def test_a_disturbed_row_decides_nothing(run, tmp_path) -> None:
    nights(tmp_path, wobble([5.0] * 8))
    journal_run(tmp_path / "busy", [a_record(1, FIRST + timedelta(days=8), 9.0, flags=["shared_gpu"])])
    told = run("history", tmp_path, "--json").json
    assert told["counts"]["disturbed"] == 1
    assert told["series"][0]["last_night"] == "2026-03-08"


def test_a_value_of_zero_is_rejected_even_where_the_row_is_ok(run, tmp_path) -> None:
    told = run("history", table(tmp_path, [5.0, 5.0, 0.0, 5.0, 5.0, 5.0]), "--json").json
    assert told["counts"]["rejected"] == 1
    assert "step_ms is 0, and no measurement is" in told["rejected"][0]


def test_a_prediction_changes_with_its_tables_and_is_no_regression(run, tmp_path) -> None:
    for night in range(8):
        with_tables = f"aiconfigurator-core 0.{12 if night < 5 else 13}.0"
        record = a_record(
            1, FIRST + timedelta(days=night), 5.0 if night < 5 else 5.4, provenance="composed", answered_by="tables",
            answered_with=with_tables, host=None, gpu_uuid=None, device=None,
        )  # fmt: skip
        journal_run(tmp_path / f"{night}", [record])
    told = run("history", tmp_path, "--json")
    (one,) = told.json["series"]
    assert (told.code, one["verdict"]) == (0, "environment change")
    assert "prediction changed" in one["text"]
    assert "answered_with went from aiconfigurator-core 0.12.0 to aiconfigurator-core 0.13.0" in one["text"]


def test_hosts_in_turn_have_a_level_each(run, tmp_path) -> None:
    hosts = ["n1", "n2"] * 10
    steps = [value * (1.0 if host == "n1" else 1.05) for value, host in zip(wobble([5.0] * 20), hosts, strict=True)]
    one = run("history", table(tmp_path, steps, host=hosts), "--json", "--policy", "news=7").json["series"][0]
    assert one["verdict"] == "unchanged"


def test_a_row_that_does_not_name_its_driver_ran_on_that_of_the_night_before(run, tmp_path) -> None:
    drivers = ["570"] * 6 + [""] + ["570"] * 6
    told = run("history", table(tmp_path, wobble([5.0] * 13), driver=drivers, host="n1"), "--json").json
    assert told["environment_changes"] == []
    assert told["series"][0]["verdict"] == "unchanged"


def test_a_night_that_stands_out_last_is_said_and_not_yet_a_regression(run, tmp_path) -> None:
    told = run("history", table(tmp_path, [*wobble([5.0] * 20), 5.6]), "--json")
    (one,) = told.json["series"]
    assert (told.code, one["verdict"]) == (0, "transient")
    assert "a change if it lasts 2 nights" in one["text"]


def test_one_more_night_is_read_from_its_folder_and_the_rest_from_the_cache(run, tmp_path, monkeypatch) -> None:
    from harness.analysis.history import index

    steps = wobble([5.0] * 8)
    nights(tmp_path, steps[:7])
    before = run("history", tmp_path, "--json").json
    journal_run(tmp_path / "night-07", [a_record(1, FIRST + timedelta(days=7), steps[7])])
    asked: list[str] = []
    read: Callable[..., Any] = index.read_results
    monkeypatch.setattr(index, "read_results", lambda path, options: (asked.append(path.name), read(path, options))[1])
    told = run("history", tmp_path, "--json").json
    assert asked == ["night-07"]
    assert told == run("history", tmp_path, "--no-cache", "--json").json
    assert (before["series"][0]["nights"], told["series"][0]["nights"]) == (7, 8)


def test_a_run_that_grew_and_a_damaged_cache_are_read_again(run, tmp_path) -> None:
    *_, last = nights(tmp_path, wobble([5.0] * 6))
    run("history", tmp_path)
    records = [a_record(1, FIRST + timedelta(days=5), 5.0), a_record(2, FIRST + timedelta(days=5), 7.0)]
    shutil.rmtree(last)
    journal_run(last, records)
    for cached in (tmp_path / ".history-cache").iterdir():
        cached.write_bytes(cached.read_bytes()[:300])
    assert len(run("history", tmp_path, "--json").json["series"]) == 2


def test_without_ruptures_the_message_says_how_to_get_it(run, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ruptures", None)
    told = run("history", CASE)
    assert told.code == 4
    assert "pip install 'trtllm-harness[history]'" in told.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "treshold=3"], "did you mean threshold?"),
        (["--policy", "threshold=0"], "has to be a number from 0.01 to 90"),
        (["--policy", "nights=2.5"], "has to be a whole number from 1 to 30"),
        (["--as-of", "24.3.2026"], "has to be a date such as 2026-03-11"),
        (["--metric", "ttft_ms"], "metrics that have some: decode_tok_s_per_gpu"),
        (["--as-of", "2020-01-01"], "no series to judge as of 2020-01-01: the first night is 2026-03-01"),
        (["--environment", "moon"], "moon: no table has such a column"),
        (["--json", "--csv"], "take one"),
        (["--baseline", "release"], "no baseline is called release"),
    ],
)
def test_what_cannot_be_is_said_in_one_message(run, tmp_path, monkeypatch, arguments, message) -> None:
    monkeypatch.chdir(tmp_path)
    told = run("history", CASE, *arguments)
    assert (told.code, message in told.err) == (2, True), told.err


def test_a_table_of_which_no_row_has_a_night_says_why(run, tmp_path) -> None:
    (tmp_path / "t.csv").write_text("run_started,variant,step_ms\n2026-03-01T02:00:00,mine,5\n", encoding="utf-8")
    told = run("history", tmp_path / "t.csv")
    assert told.code == 2
    assert "none of 1 rows has a night and a value, such as t.csv: row 1 (mine, step_ms 5)" in told.err


def test_a_table_of_failures_alone_is_judged(run, tmp_path) -> None:
    rows = "run_started,status,variant,step_ms\n2026-03-01T02:00:00Z,crash,mine,5\n"
    (tmp_path / "t.csv").write_text(rows, encoding="utf-8")
    told = run("history", tmp_path / "t.csv", "--json")
    (one,) = told.json["series"]
    assert (one["verdict"], one["text"]) == ("no data", "never had a value; failed (crash) on 2026-03-01")


def test_links_that_lead_nowhere_cost_themselves(run, tmp_path) -> None:
    shutil.copy(CASE, tmp_path / "good.csv")
    (tmp_path / "circle.csv").symlink_to("circle.csv")
    (tmp_path / "gone.csv").symlink_to("nowhere.csv")
    (tmp_path / "round").symlink_to(".")
    told = run("history", tmp_path, *POLICY, "--json").json
    assert len(told["series"]) == 7
    assert sorted(text.partition(": ")[2].rpartition("/")[2] for text in told["remarks"]) == [
        "circle.csv: no such file or folder", "gone.csv: no such file or folder",
    ]  # fmt: skip


def test_a_folder_without_runs_is_a_usage_error(run, tmp_path) -> None:
    told = run("history", tmp_path)
    assert told.code == 2
    assert "holds no run folder and no CSV or Parquet table of runs" in told.err


def test_csv_has_one_line_for_each_series(run) -> None:
    told = run("history", CASE, *POLICY, "--csv")
    rows = list(csv.DictReader(told.out.splitlines()))
    assert [row["verdict"] for row in rows][:3] == ["regression", "environment change", "environment change"]
    assert rows[0]["commits"] == "c013 to c017"
