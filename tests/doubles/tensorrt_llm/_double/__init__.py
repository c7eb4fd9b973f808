"""The machine that the double pretends to run on, and everything behind its API."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.hardware import System

#: The folder of `harness`; used where that is not installed.
ROOT = Path(__file__).resolve().parents[4]

if find_spec("harness") is None:
    sys.path.append(str(ROOT))


def gpu() -> System:
    """The GPU named by `TRTLLM_DOUBLE_GPU`: a driver's name or a key of the harness, such as `b200_sxm`."""
    from harness.hardware import load_system, match_device_name

    name = os.environ.get("TRTLLM_DOUBLE_GPU", "NVIDIA B200")
    return match_device_name(name) or load_system(name)


def gpu_name() -> str:
    """As `torch.cuda.get_device_name` would say."""
    return gpu().gpu_name


def gpu_count() -> int:
    """As `torch.cuda.device_count` would say: `TRTLLM_DOUBLE_GPUS`, 8 if that is not set."""
    return int(os.environ.get("TRTLLM_DOUBLE_GPUS", "8"))


def sm_version() -> int:
    """100 for a B200."""
    return gpu().sm
