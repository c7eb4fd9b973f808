"""What an installed TensorRT-LLM can do, asked of the doubles; and what `doctor` makes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from command_line import PROCESS, REPOSITORY, CommandLine

from harness.backends.trtllm.features import Features, detect, glance
from harness.backends.trtllm.machine import Gpu, Machine
from harness.errors import MissingExtra

DETECT = """
import contextlib, json, sys
from harness.backends.trtllm.features import detect, glance
with contextlib.redirect_stdout(sys.stderr):
    seen, found = glance(), detect(probe_commands=True)
print(json.dumps({"glance": [seen.installed, seen.is_double], "features": found.to_data()}))
"""


def environment(version: str, **more: str) -> dict[str, str]:
    doubles = REPOSITORY / "tests" / "doubles"
    path = os.pathsep.join(map(str, (doubles, REPOSITORY / "tests", REPOSITORY)))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "PATH": f"{doubles / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "TRTLLM_DOUBLE": version,
        **more,
    }


def features_of(version: str, **more: str) -> Features:
    done = subprocess.run(
        [sys.executable, "-c", DETECT], env=environment(version, **more), capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    assert told["glance"] == [True, True]
    return Features.from_data(told["features"])


def test_without_tensorrt_llm_there_is_nothing_to_ask() -> None:
    assert not glance().installed
    with pytest.raises(MissingExtra, match="container"):
        detect()


@pytest.mark.parametrize(
    ("version", "engine", "has_auto", "has_wideep"),
    [
        ("1.2.1", True, False, True),
        ("1.3.0rc8", True, True, True),
        ("1.3.0rc24", False, True, True),
        ("1.4", False, True, False),
    ],
)
def test_features_are_those_of_the_version(version: str, engine: bool, has_auto: bool, has_wideep: bool) -> None:
    found = features_of(version, TRTLLM_DOUBLE_GPUS="4", TRTLLM_DOUBLE_GPU="NVIDIA H200")
    assert (found.version, found.is_double, found.engine_backend, found.layer_wise) == (version, True, engine, True)
    assert ("AUTO" in found.moe_backends, "WIDEEP" in found.moe_backends) == (has_auto, has_wideep)
    assert {gpu.name for gpu in found.gpus} == {"NVIDIA H200"}
    assert (len(found.gpus), found.gpus[0].sm) == (4, 90)
    assert found.has("kv_cache_config.enable_block_reuse")
    assert not found.has("kv_cache_config.speed")
    assert Features.from_data(json.loads(json.dumps(found.to_data()))) == found


def made(**settings: tuple[str, ...]) -> Features:
    paths = {name.replace("__", "."): values for name, values in settings.items()}
    return Features("1.2.1", True, paths, False, False, Machine())


def test_settings_that_are_not_there_are_named_with_what_they_may_have_become() -> None:
    features = made(max_batch_size=(), moe_config=(), moe_config__backend=("CUTLASS", "TRTLLM"))
    given = {"max_batch_sizes": 4, "moe_config": {"backend": "WIDEEP", "speed": 1}, "max_batch_size": 8}
    assert features.misfits(given) == [
        "max_batch_sizes: TensorRT-LLM 1.2.1 has no such setting; did it become 'max_batch_size'?",
        "moe_config.backend: TensorRT-LLM 1.2.1 takes CUTLASS, TRTLLM, not WIDEEP",
        "moe_config.speed: TensorRT-LLM 1.2.1 has no such setting; did it become 'moe_config'?",
    ]
    assert features.misfits({"max_batch_size": 8, "moe_config": {"backend": None}}) == []


def test_a_setting_that_is_a_plain_mapping_takes_any_key() -> None:
    features = Features("1.2.1", True, {"cp_config": (), "cp_config.*": ()}, False, False, Machine())
    assert features.misfits({"cp_config": {"cp_type": "HELIX", "tokens_per_block": 32}}) == []


# --- doctor


def doctor(*arguments: str, env: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        [*PROCESS, "doctor", "--json", *arguments], env=env, capture_output=True, text=True, check=True
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_doctor_reports_the_features_of_a_double() -> None:
    told = doctor(env=environment("1.3.0rc24", TRTLLM_DOUBLE_GPUS="2", TRTLLM_DOUBLE_ALTER="banner=true"))
    assert told["trtllm"]["version"] == "1.3.0rc24"
    checks = {check["name"].strip(): check for check in told["checks"]}
    assert checks["TensorRT-LLM"]["found"] == "1.3.0rc24, a test double"
    assert checks["NVIDIA GPU"]["found"] == "2 × NVIDIA B200, SM 100, 2 with NVLink"
    assert not checks["engine backend"]["ok"]
    assert "MARLIN" in checks["MoE backends"]["found"]


def test_doctor_says_what_is_missing_and_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = Machine(
        gpus_unknown_because="NVML: Driver Not Loaded", shared_memory_gib=0.0625, rank_variable="SLURM_PROCID"
    )
    monkeypatch.setattr("harness.backends.trtllm.machine.look", lambda: bare)
    told = CommandLine(capsys)("doctor", "--json").json
    advice = {check["name"]: check["advice"] for check in told["checks"] if not check["ok"]}
    assert {"NVIDIA driver", "NVIDIA GPU", "TensorRT-LLM", "shared memory", "mpirun", "no launcher around"} <= set(
        advice
    )
    assert "docker run" in advice["TensorRT-LLM"]
    assert "--ipc=host" in advice["shared memory"]
    assert "apt-get install openmpi-bin" in advice["mpirun"]
    assert all(advice.values())


def test_doctor_with_a_real_node_has_nothing_to_advise_of_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = (Gpu("NVIDIA B200", 100, 180.0, "GPU-0", 18),) * 8
    node = Machine(gpus=gpus, driver="580.95.05", shared_memory_gib=1000.0, mpirun="/usr/bin/mpirun", mpi4py=True)
    monkeypatch.setattr("harness.backends.trtllm.machine.look", lambda: node)
    told = CommandLine(capsys)("doctor").out
    assert "yes NVIDIA GPU: 8 × NVIDIA B200, SM 100, 8 with NVLink" in told
    assert "no  NVIDIA" not in told
    assert "no  shared memory" not in told


def test_doctor_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom harness.cli.main import run\ncode = run(['doctor'])\n"
        "print(code, *sorted({'torch', 'tensorrt_llm', 'pandas'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert done.stderr.split() == ["0"]


def test_a_package_that_cannot_be_loaded_is_told(tmp_path: Any) -> None:
    broken = tmp_path / "tensorrt_llm"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('libcuda.so.1: cannot open shared object file')\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(REPOSITORY)))}
    seen = {check["name"]: check for check in doctor(env=env)["checks"]}["TensorRT-LLM"]
    assert (seen["ok"], seen["found"]) == (True, "a version that it does not tell")
    probed = {check["name"]: check for check in doctor("--probe", env=env)["checks"]}["TensorRT-LLM"]
    assert (probed["ok"], probed["found"]) == (False, "ImportError: libcuda.so.1: cannot open shared object file")
    done = subprocess.run([*PROCESS, "selftest"], env=env, capture_output=True, text=True)
    assert (done.returncode, "cannot be loaded: libcuda.so.1" in done.stderr) == (4, True)
