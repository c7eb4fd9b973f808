"""The two versions of transformers that a configuration has to mean the same to, each in a Python of its own.

4.57 is what runs the tests; another with 5.x is named by the environment variable HARNESS_TRANSFORMERS5_PYTHON.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_SCRIPT = Path(__file__).with_name("transformers_read.py")

#: Major version → what to run.
VERSIONS = [pytest.param(version, marks=pytest.mark.torch) for version in ("4", "5")]


def python_of(version: str) -> str:
    if version == "4":
        return sys.executable
    named = os.environ.get("HARNESS_TRANSFORMERS5_PYTHON")
    if not named:
        pytest.skip("HARNESS_TRANSFORMERS5_PYTHON names no Python with transformers 5")
    return named


@functools.cache
def read(version: str, *folders: Path) -> dict[str, Any]:
    """Folder's name → what transformers of this major version makes of it."""
    done = subprocess.run(
        [python_of(version), _SCRIPT, *folders],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["version"].startswith(f"{version}."), f"this is transformers {said['version']}"
    return said["folders"]
