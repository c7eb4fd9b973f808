"""`trtllm-harness variants import`, and model folders where a variant goes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command_line import CommandLine
from model_folders import CONFIGS, published

from harness.files import dump_yaml
from harness.spec.expand import expand
from harness.spec.load import base_variant, load_study, load_variant


def test_a_folder_is_linted_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    run = CommandLine(capsys)
    linted = run("lint", CONFIGS / "deepseek-v3", "--gpu", "b200_sxm", "-p", "tp=8", "--json")
    assert (linted.code, linted.json["totals"]) == (0, {"ok": 1, "warning": 0, "error": 0})
    assert run("variants", "show", CONFIGS / "phi-4", "--json").json["parameters"] == 14_659_507_200
    refused = run("lint", CONFIGS / "gpt-oss-120b")
    assert refused.code == 2
    assert "weights.experts would be mxfp4" in refused.err
    assert "Traceback" not in refused.err


def test_a_known_name_comes_before_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(CONFIGS / "phi-4", "dense-8b")
    shutil.copytree(CONFIGS / "phi-4", "elsewhere")
    assert load_variant("dense-8b").hidden == 4096
    assert load_variant("dense-8b/config.json").hidden == 5120
    assert load_variant("elsewhere") == published("phi-4").model_copy(update={"name": "elsewhere"})


def test_a_study_takes_a_folder(tmp_path: Path) -> None:
    study = {
        "title": "Group size",
        "variant": str(CONFIGS / "phi-4"),
        "axes": {"G": [4, 8]},
        "workloads": {"decode": {"batch": 1, "kvsl": 64}},
        "systems": ["b200_sxm"],
    }
    (tmp_path / "groups.yaml").write_text(dump_yaml(study))
    loaded = load_study(tmp_path / "groups.yaml")
    assert [one.case.variant.kv_heads for one in expand(loaded, base_variant(loaded))] == [10, 5]


def test_a_folder_becomes_a_variant_to_perturb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = CommandLine(capsys)
    done = run("variants", "import", CONFIGS / "gemma-3-27b", "--name", "mine")
    assert (done.code, done.out) == (0, "wrote model_configs/variants/mine.yaml: 27,008,663,808 parameters\n")
    written = load_variant("mine")
    assert written == published("gemma-3-27b").model_copy(update={"name": "mine"})
    assert run("lint", "mine", "--gpu", "b200_sxm", "--set", "kv_heads=8").code == 0

    again = run("variants", "import", CONFIGS / "phi-4", "--name", "mine")
    assert again.code == 2
    assert "mine.yaml: is there already; --force replaces it" in again.err
    assert load_variant("mine") == written
    assert run("variants", "import", CONFIGS / "phi-4", "--name", "mine", "--force").code == 0
    assert load_variant("mine").hidden == 5120


def test_import_writes_where_it_is_told_and_takes_what_is_settled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = CommandLine(capsys), tmp_path / "new" / "oss.yaml"
    unsettled = run("variants", "import", CONFIGS / "gpt-oss-120b", "--out", out)
    assert (unsettled.code, out.exists()) == (2, False)
    done = run("variants", "import", CONFIGS / "gpt-oss-120b", "--out", out, "--set", "weights.experts=nvfp4", "--json")
    assert done.json == {"path": str(out), "name": "oss", "parameters": 116_789_048_640}
    assert load_variant(out).weights.experts == "nvfp4"


@pytest.mark.parametrize("options", [["--name", "a/b"], ["--out", "mine.json"]])
def test_import_wants_a_name_that_is_found_again(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    outcome = CommandLine(capsys)("variants", "import", CONFIGS / "phi-4", *options)
    assert outcome.code == 2
    assert "is no name for a variant's file" in outcome.err


def test_import_wants_a_folder_with_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = CommandLine(capsys)("variants", "import", tmp_path)
    assert outcome.code == 2
    assert f"{tmp_path / 'config.json'}: no such file" in outcome.err
