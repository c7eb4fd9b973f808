"""What a run ran on and with: versions and host facts, nothing that identifies a user or a folder."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

from harness.version import __version__

#: Packages whose version can change a number or a verdict.
_PACKAGES = ("aiconfigurator-core", "numpy", "pandas", "pyarrow", "pydantic", "scipy", "tensorrt-llm", "torch")


def package_versions() -> dict[str, str]:
    """Installed versions of the packages that matter; absent ones are left out."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def environment_facts() -> dict[str, Any]:
    """Harness, Python, operating system, processor count and package versions."""
    return {
        "harness": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "host": platform.node(),
        "cpus": os.cpu_count(),
        "packages": package_versions(),
    }
