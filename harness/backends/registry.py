"""Backends by name. A test or another package names its own as `package.module:Class`."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping

from harness.backends.base import Backend
from harness.backends.signature import Signature
from harness.errors import UsageError
from harness.spec.axes import Scalar

#: Name → where its class is, and the package without which it cannot work.
_KNOWN = {
    "torch": ("harness.backends.torch_ops.backend:TorchBackend", "torch"),
    "trtllm": ("harness.backends.trtllm.backend:TrtllmBackend", "tensorrt_llm"),
}
#: What `harness.backends.base.Backend` has.
_PARTS = ("name", "open", "prepare", "close")

#: Name → what gives the failures that a backend knows.
_FAILURES = {"trtllm": "harness.backends.trtllm.failures:signatures"}


#: Name → what opens a backend that loads engines before there is one.
_OPENINGS = {"trtllm": "harness.backends.trtllm.opening:TrtllmOpening"}

#: Name → what reads and checks its options.
_OPTIONS = {
    "torch": "harness.backends.torch_ops.options:read_options",
    "trtllm": "harness.backends.trtllm.options:read_options",
}


def loads_engines(name: str) -> bool:
    """Whether a backend loads an engine with settings into each process."""
    return name in _OPENINGS


def opening_of(name: str) -> str:
    """The backend that says what is here without having to answer: itself, but for one that loads engines."""
    return _OPENINGS.get(name, name)


def known_failures(name: str) -> tuple[Signature, ...]:
    """Return what failures of a backend write, for `run_worker`; none for a backend that brings no list."""
    module, _, attribute = _FAILURES.get(name, "").partition(":")
    if not module:
        return ()
    found: tuple[Signature, ...] = getattr(importlib.import_module(module), attribute)()
    return found


def known_backends() -> tuple[str, ...]:
    """Names that `--on` takes beside those of pricers."""
    return tuple(_KNOWN)


def is_backend(name: str) -> bool:
    """Whether `--on NAME` means a backend: a known one, or a class given as `package.module:Class`."""
    return name in _KNOWN or ":" in name


def is_installed(name: str) -> bool:
    """Whether a known backend and the package that it drives can be found; nothing heavy is imported."""
    place, package = _KNOWN[name]
    try:
        here = importlib.util.find_spec(place.partition(":")[0])
    except ModuleNotFoundError:
        return False
    return here is not None and importlib.util.find_spec(package) is not None


def make_backend(name: str) -> Backend:
    """Return a new backend. Raises UsageError where there is none of this name."""
    place = _KNOWN[name][0] if name in _KNOWN else name
    module, _, attribute = place.partition(":")
    known = f"known: {', '.join(_KNOWN)}, or package.module:Class"
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"no backend {name!r} ({error}); {known}") from error
    if not isinstance(kind, type) or not all(hasattr(kind, part) for part in _PARTS):
        raise UsageError(f"no backend {name!r} (it is no class with {', '.join(_PARTS)}); {known}")
    made: Backend = kind()
    return made


def check_options(name: str, options: Mapping[str, Scalar]) -> None:
    """Raise UsageError where a known backend does not take these options; another one says so when it is opened."""
    module, _, attribute = _OPTIONS.get(name, "").partition(":")
    if module:
        getattr(importlib.import_module(module), attribute)(options)
