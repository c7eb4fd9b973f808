"""Named baselines: pinned, listed and moved by a user, and by nothing else."""

from __future__ import annotations

import pytest
import yaml
from command_line import REPOSITORY, CommandLine

CASE = REPOSITORY / "tests" / "cases" / "07-nightly-history" / "history.csv"
POLICY = ("--policy", "threshold=5%,nights=3")


@pytest.fixture
def run(capsys, tmp_path, monkeypatch) -> CommandLine:
    """The command line in an empty folder, with a baseline of 10 March pinned."""
    monkeypatch.chdir(tmp_path)
    command = CommandLine(capsys)
    told = command("baseline", "pin", "release", CASE, "--as-of", "2026-03-10", "--note", "shipped")
    assert told.out == "pinned release: 6 series on p1-n1, p2-n4 as of 2026-03-10 in reports/baselines.yaml\n"
    return command


def said(run, *arguments) -> dict:
    told = run("history", CASE, *POLICY, *arguments, "--json").json
    return {one["series"][0]: one for one in told["series"]}


def test_a_baseline_is_readable_yaml(run, tmp_path) -> None:
    data = yaml.safe_load((tmp_path / "reports" / "baselines.yaml").read_text(encoding="utf-8"))
    assert (data["release"]["night"], data["release"]["note"]) == ("2026-03-10", "shipped")
    first = data["release"]["levels"][0]
    assert (first["label"], first["unit"]) == ("A-g8-h128-nvfp4, decode_tok_s_per_gpu", "tok/s/GPU")
    assert first["value"] == pytest.approx(1001, rel=0.002)
    assert first["environment"] == {"driver": "drv-570", "host": "p1-n1"}


def test_series_are_held_against_it_and_their_own_level_is_shown(run) -> None:
    one = said(run, "--baseline", "release")["E"]
    assert (one["verdict"], one["baseline"]) == ("improvement", "release")
    assert one["level"] == pytest.approx(410, rel=0.003)
    assert one["own_level"] == pytest.approx(447, rel=0.003)
    told = run("history", CASE, *POLICY, "--baseline", "release")
    assert "baseline release of 2026-03-10" in told.out
    assert "own level 447.4" in told.out


def test_a_baseline_of_another_environment_decides_nothing(run) -> None:
    one = said(run, "--baseline", "release")["B"]
    assert one["verdict"] == "environment change"
    assert "not held against baseline release of 2026-03-10: driver drv-570 there and drv-580 here" in one["text"]


def test_nothing_moves_it_by_itself(run, tmp_path) -> None:
    before = (tmp_path / "reports" / "baselines.yaml").read_text(encoding="utf-8")
    run("history", CASE, *POLICY, "--baseline", "release")
    told = run("baseline", "pin", "release", CASE)
    assert told.code == 2
    assert "`trtllm-harness baseline move release ...` moves it" in told.err
    assert (tmp_path / "reports" / "baselines.yaml").read_text(encoding="utf-8") == before


def test_moving_it_accepts_a_regression(run) -> None:
    assert said(run, "--baseline", "release")["A"]["verdict"] == "regression"
    told = run("baseline", "move", "release", CASE, "--note", "accepted")
    assert "from 2026-03-10" in told.out
    assert "A-g8-h128-nvfp4, decode_tok_s_per_gpu: 1001.92 to 941.449 tok/s/GPU (-6.0 %)" in told.out
    assert said(run, "--baseline", "release")["A"]["verdict"] == "unchanged"
    assert "moved from 2026-03-10: accepted" in run("baseline", "list").out


def test_a_series_that_is_gone_keeps_its_level_when_the_baseline_moves(run) -> None:
    run("baseline", "move", "release", CASE)
    levels = run("baseline", "list", "--json").json["baselines"]["release"]["levels"]
    nights = {one["label"][0]: one["night"] for one in levels}
    assert (nights["D"], nights["A"]) == ("2026-03-10", "2026-03-24")


def test_there_may_be_none(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = CommandLine(capsys)
    assert "no baselines" in command("baseline", "list").out
    assert command("baseline", "move", "release", CASE).code == 2
    assert "is no name of a baseline" in command("baseline", "pin", "a/b", CASE).err


@pytest.mark.parametrize("text", ["- 1\n", "a: 1\n", "a: {night: 2026-03-10}\n", "a: [\n"])
def test_a_damaged_file_is_named(run, tmp_path, text) -> None:
    (tmp_path / "reports" / "baselines.yaml").write_text(text, encoding="utf-8")
    told = run("history", CASE, "--baseline", "release")
    assert (told.code, "baselines.yaml: no baselines" in told.err) == (3, True), told.err


def test_what_a_baseline_lacks_is_named(run, tmp_path) -> None:
    file = tmp_path / "reports" / "baselines.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("  levels:", "  level:"), encoding="utf-8")
    assert "baselines.yaml: no baselines: release: levels is missing" in run("baseline", "list").err
    file.write_text("release: 1\n", encoding="utf-8")
    assert "no baselines: release: has to be a mapping with night" in run("baseline", "list").err


def test_another_file_can_be_named(run, tmp_path) -> None:
    other = tmp_path / "elsewhere" / "b.yaml"
    run("baseline", "pin", "other", CASE, "--baselines", other)
    assert said(run, "--baseline", "other", "--baselines", other)["A"]["baseline"] == "other"
