"""`trtllm-harness compare` as it is used."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import CommandLine, process
from hand_run import hand_run

CASE = Path(__file__).parent / "cases" / "12-compare-two-runs"
BASE, CANDIDATE = CASE / "base.csv", CASE / "candidate.csv"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


def test_what_is_worse_comes_first_and_ends_with_1(run: CommandLine, tmp_path: Path) -> None:
    outcome = run("compare", BASE, CANDIDATE, "--out", tmp_path)
    assert outcome.code == 1
    lines = outcome.out.splitlines()
    assert lines[:2] == ["candidate.csv against base.csv", "2 workloads worse, 1 newly failing"]
    titles = [line.partition(":")[0] for line in lines if line and not line.startswith(" ") and "workload" in line]
    assert titles[-8:] == [
        "newly failing", "worse", "newly working", "failed in both", "only in base", "only in candidate",
        "not computed", "same",
    ]  # fmt: skip
    assert "Found in place, not used to pair: engine_version 1.2.0 → 1.3.0" in lines
    assert "Converted: ttft_s as ttft_ms, tpot_s as tpot_ms" in lines
    assert {path.name for path in tmp_path.iterdir()} == {
        "compare.html", "compare.md", "compare.junit.xml", "compare.json",
    }  # fmt: skip


def test_a_run_with_itself_ends_with_0(run: CommandLine, tmp_path: Path) -> None:
    hand_run(tmp_path / "run")
    outcome = run("compare", tmp_path / "run", tmp_path / "run", "--json")
    assert outcome.code == 0
    assert outcome.json["sections"] == {
        "failed in both": {"workloads": 1, "figures": 0}, "same": {"workloads": 14, "figures": 14},
    }  # fmt: skip


def test_nothing_that_pairs_ends_with_3_and_says_so(run: CommandLine, tmp_path: Path) -> None:
    hand_run(tmp_path / "run")
    outcome = run("compare", tmp_path / "run", CANDIDATE)
    assert outcome.code == 3
    assert "Nothing could be compared" in outcome.out


def test_markdown_goes_where_a_job_summary_is(run: CommandLine) -> None:
    outcome = run("compare", BASE, CANDIDATE, "--markdown")
    assert outcome.code == 1
    assert outcome.out.startswith("## candidate.csv against base.csv\n\n❌ **2 workloads worse, 1 newly failing**\n")


def test_a_policy_is_taken_and_a_strange_one_refused(run: CommandLine) -> None:
    outcome = run("compare", BASE, CANDIDATE, "--policy", "threshold:20%", "--json")
    assert "worse" not in outcome.json["sections"]
    assert outcome.code == 1  # newly failing is one whatever the policy
    assert run("compare", BASE, CANDIDATE, "--policy", "5%").code == 2


def test_columns_can_be_named(run: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("G,rack,joy\n8,r1,100\n")
    (tmp_path / "b.csv").write_text("G,rack,joy\n8,r2,80\n")
    plain = run("compare", tmp_path / "a.csv", tmp_path / "b.csv")
    assert (plain.code, "no column is a figure" in plain.err) == (2, True)
    told = ["--environment", "rack", "--metric", "joy=higher"]
    outcome = run("compare", tmp_path / "a.csv", tmp_path / "b.csv", *told, "--json")
    assert outcome.code == 1
    assert outcome.json["environment"] == {"rack": ["r1", "r2"]}
    strange = run("compare", tmp_path / "a.csv", tmp_path / "b.csv", *told, "--environment", "moon")
    assert (strange.code, "moon: neither table has such a column" in strange.err) == (2, True)
    assert run("compare", BASE, CANDIDATE, "--metric", "tpot_ms").code == 2


def test_names_cannot_steer_a_terminal(run: CommandLine, tmp_path: Path) -> None:
    for name, value in (("a", 1), ("b", 2)):
        (tmp_path / f"{name}.csv").write_text(
            f"variant,ttft_ms\n\x1b[31mred\u202e,{value}\nother,1\n", encoding="utf-8"
        )
    outcome = run("compare", tmp_path / "a.csv", tmp_path / "b.csv")
    assert "\\x1b[31mred\\u202e: ttft_ms 1.000 → 2.000" in outcome.out
    assert not {"\x1b", "\u202e"} & set(outcome.out)


def test_an_input_that_is_damaged_is_named_and_ends_with_3(run: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1nonsense")
    outcome = run("compare", tmp_path / "a.parquet", CANDIDATE)
    assert outcome.code == 3
    assert "a.parquet: no Parquet table" in outcome.err
    assert run("compare", tmp_path / "absent.csv", CANDIDATE).code == 2


def test_a_real_process_says_the_same() -> None:
    done = process("compare", BASE, BASE)
    assert done.returncode == 0
    assert "Nothing is worse or newly failing" in done.stdout
    assert done.stderr == ""
