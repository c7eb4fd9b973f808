"""The packages that make weights: whether they are there and can, and how they are kept quiet."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata

from harness.engines.module_formats import ModuleFormats
from harness.errors import EnvironmentUnfit, MissingExtra

_VALUES_PER_THREAD = 1 << 20

#: Releases of Model Optimizer: the first that packs NVFP4 without a GPU, the oldest that was tried.
_NVFP4_ON_CPU_SINCE = (0, 45)
_OLDEST_MODELOPT = (0, 37)
_OLDEST_TRANSFORMERS = (4, 57)

_PACKAGES = ("numpy", "torch", "transformers")
_MODELOPT_PACKAGES = ("nvidia-modelopt", "accelerate", "requests", "safetensors")


def check_packages(formats: ModuleFormats, installed: Callable[[str], str] = metadata.version) -> dict[str, str]:
    """Return package → version of those that decide the bytes of weights in these formats; nothing is imported.

    `installed` returns the version of a package. Raises MissingExtra where one is not installed, EnvironmentUnfit where
    its version cannot do it.
    """
    quantised = formats != ModuleFormats()
    needed = _PACKAGES + _MODELOPT_PACKAGES if quantised else _PACKAGES
    found = {}
    for name in needed:
        try:
            found[name] = installed(name)
        except metadata.PackageNotFoundError:
            raise MissingExtra("modelopt", "writing weights", f"{name} is not installed") from None
    if release_of(found["transformers"]) < _OLDEST_TRANSFORMERS:
        raise EnvironmentUnfit(f"transformers {found['transformers']} is too old to make weights with; 4.57 does it")
    if quantised:
        _check_modelopt(found["nvidia-modelopt"], formats)
    return {name: version for name, version in found.items() if name in {*_PACKAGES, "nvidia-modelopt"}}


def import_packages(formats: ModuleFormats) -> None:
    """Import what makes weights in these formats, before anything large is in memory.

    PuLP, which Model Optimizer imports, keeps a traceback of its import, and with it whatever those who asked for the
    import hold (pulp/apis, 3.3.2).

    Raises MissingExtra where one of their own dependencies is not installed.
    """
    names = ["torch", "transformers"]
    if formats != ModuleFormats():
        names += ["modelopt.torch.quantization", "modelopt.torch.export"]
    for name in names:
        try:
            with quiet():
                importlib.import_module(name)
        except ImportError as error:
            raise MissingExtra("modelopt", "writing weights", f"{name} cannot be imported: {error}") from error


def _check_modelopt(version: str, formats: ModuleFormats) -> None:
    release = release_of(version)
    if release < _OLDEST_MODELOPT:
        raise EnvironmentUnfit(f"NVIDIA Model Optimizer {version} is too old to make weights with; 0.47 does it")
    fp4 = "nvfp4" in {formats.weights, *(formats.layers or {}).values()}
    if fp4 and release < _NVFP4_ON_CPU_SINCE:
        raise EnvironmentUnfit(
            f"NVIDIA Model Optimizer {version} packs NVFP4 on a GPU only, and weights are made on the CPU; install "
            "nvidia-modelopt 0.45 or later (in another environment where this one pins it: an engine is a folder that "
            "can be copied), or take --weights none"
        )


def release_of(version: str) -> tuple[int, int]:
    """The first two numbers of a version."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


@contextlib.contextmanager
def fitting_threads(largest: int) -> Iterator[None]:
    """Let torch use no more threads than a matrix of `largest` values is worth.

    Threads that wait for each other after every small operation take ten times as long where cores are shared.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(max(1, min(before, largest // _VALUES_PER_THREAD)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what the packages print, warn and log from the terminal; errors are raised as ever."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),  # progress bars
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
