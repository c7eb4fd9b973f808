"""Whether the measured tables are installed, and where; looks without importing the package.

The tables come with the PyPI package aiconfigurator-core. Its wheels are built for CPython 3.11 to 3.13 only (Linux
x86-64 and aarch64, macOS arm64); under Python 3.10 pip finds a placeholder that cannot be installed offline. Its query
interface changed between minor versions, so one minor is taken.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

from harness.errors import MissingExtra

PACKAGE = "aiconfigurator-core"
_MODULE = "aiconfigurator_core"
_MINOR = "0.12."
_PYTHONS = ((3, 11), (3, 13))
_BESIDE = ("numpy", "pyarrow", "scipy", "yaml")


def tables_available() -> tuple[bool, str]:
    """Say whether measured tables can answer here, and the version that would or how to get them."""
    problem = _problem()
    return (False, f"the measured tables cannot be read: {problem}") if problem else (True, f"{PACKAGE} {version()}")


def require_tables() -> None:
    """Raise MissingExtra where `tables_available` says no."""
    problem = _problem()
    if problem:
        raise MissingExtra("tables", "pricing from measured kernel tables", problem)


def version() -> str:
    """The installed version of the package; raises importlib.metadata.PackageNotFoundError without it."""
    return importlib.metadata.version(PACKAGE)


def systems_root() -> Path:
    """The folder of the installed package that holds the tables of every system; raises MissingExtra without it."""
    spec = importlib.util.find_spec(_MODULE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("tables", "pricing from measured kernel tables", f"{PACKAGE} is not installed")
    return Path(next(iter(spec.submodule_search_locations))) / "systems"


def tabled_systems() -> tuple[str, ...]:
    """The systems with TensorRT-LLM tables of the version that is read, sorted; empty without the package."""
    if not tables_available()[0]:
        return ()
    from harness.pricing.tables.assumptions import table_versions

    return tuple(
        key for key, release in sorted(table_versions().items()) if table_path(key, release, "gemm", "gemm").is_file()
    )


def table_path(system_key: str, release: str, family: str, table: str) -> Path:
    """Where one table of one system lies: <system>/<family>/trtllm/<release>/<table>_perf.parquet."""
    return systems_root() / "data" / system_key / family / "trtllm" / release / f"{table}_perf.parquet"


def nccl_path(system_key: str, version: str) -> Path:
    """Where one system's NCCL measurements lie: <system>/comm/nccl/<version of NCCL>/nccl_perf.parquet."""
    return systems_root() / "data" / system_key / "comm" / "nccl" / version / "nccl_perf.parquet"


def _problem() -> str:
    if importlib.util.find_spec(_MODULE) is None:
        return f"{PACKAGE} is not installed{_python_remark()}"
    try:
        installed = version()
    except importlib.metadata.PackageNotFoundError:
        return f"{PACKAGE} is not installed{_python_remark()}"
    if not installed.startswith(_MINOR):
        return f"{PACKAGE} {installed} is installed, {_MINOR}* is needed"
    missing = [name for name in _BESIDE if importlib.util.find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed"
    return "" if (systems_root() / "data").is_dir() else f"{PACKAGE} {installed} has no data folder; install it again"


def _python_remark(here: tuple[int, int] = sys.version_info[:2]) -> str:
    first, last = _PYTHONS
    if first <= here <= last:
        return ""
    return (
        f"; its wheels exist for CPython {_dotted(first)} to {_dotted(last)} only and this is Python {_dotted(here)}: "
        f"use one of those, or price from the roofline"
    )


def _dotted(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))
