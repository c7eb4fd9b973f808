"""The account of skipped tests, which decides whether a run that skipped something is green."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")


@pytest.fixture
def run(tmp_path):
    """Run pytest in a process of its own over test code, under this project's conftest."""
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    gpu: x\n    torch: x\n    tables: x\n")

    def run(code: str, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_it.py").write_text("import pytest\n" + code)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)

    return run


PASSES = "def test_passes(): pass\n"
SKIPS_UNMARKED = PASSES + "def test_unmarked(): pytest.skip('whatever')\n"
SKIPS_GPU = PASSES + "@pytest.mark.gpu\ndef test_on_gpu(): pytest.skip('no GPU')\n"


def test_without_the_option_a_skip_is_no_failure(run):
    assert run(SKIPS_UNMARKED).returncode == 0


def test_a_skip_that_no_marker_explains_fails_the_run_and_is_named(run):
    done = run(SKIPS_UNMARKED, "--allow-skips", "gpu")

    assert done.returncode == 1
    assert "not allowed: 1\n  test_it.py::test_unmarked: Skipped: whatever" in done.stdout
    assert "1 passed, 1 skipped" in done.stdout


def test_an_allowed_skip_is_counted(run):
    done = run(SKIPS_GPU, "--allow-skips", "gpu,torch")

    assert done.returncode == 0
    assert "allowed: gpu 1\nnot allowed: 0" in done.stdout


def test_the_same_skip_fails_where_its_marker_is_not_allowed(run):
    for allowed in ("torch", "none"):
        done = run(SKIPS_GPU, "--allow-skips", allowed)
        assert (done.returncode, "test_it.py::test_on_gpu: " in done.stdout) == (1, True)


def test_a_module_that_skips_itself_is_not_allowed(run):
    done = run("pytest.importorskip('no_such_module')\n" + PASSES, "--allow-skips", "gpu")

    assert done.returncode != 0
    assert "test_it.py: Skipped: could not import 'no_such_module'" in done.stdout


def test_a_failure_that_was_expected_is_no_skip(run):
    done = run(PASSES + "@pytest.mark.xfail\ndef test_x(): assert False\n", "--allow-skips", "none")

    assert done.returncode == 0
    assert "not allowed: 0" in done.stdout


def test_a_failing_run_stays_a_failing_run(run):
    assert run("def test_x(): assert False\n", "--allow-skips", "none").returncode == 1


def test_a_marker_skips_its_tests_where_what_it_needs_is_missing(run):
    torch_is_missing = "import sys\nsys.modules['torch'] = None\n"
    done = run(torch_is_missing + "@pytest.mark.torch\ndef test_x(): assert False\n", "--allow-skips", "torch")

    assert "1 skipped" in done.stdout
    assert "allowed: torch 1" in done.stdout


def test_a_misspelt_marker_is_refused(run):
    done = run(PASSES, "--allow-skips", "gpus")

    assert done.returncode == 4
    assert "--allow-skips: no such marker: gpus" in done.stderr
