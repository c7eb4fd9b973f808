"""Options that several commands share, and how they print."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from harness import catalog
from harness.errors import UsageError
from harness.files import checked_path
from harness.spec.bounds import MAX_HEADS, MAX_SIZE, MAX_WAYS

F = TypeVar("F", bound=Callable[..., Any])

#: Sizes, and counts of heads, experts and ways, on a command line: as large as a study may have them.
SIZE = click.IntRange(1, MAX_SIZE)
SIZE_OR_ZERO = click.IntRange(0, MAX_SIZE)
HEADS = click.IntRange(1, MAX_HEADS)
WAYS = click.IntRange(1, MAX_WAYS)


class Entry(click.ParamType):  # type: ignore[type-arg]
    """A name in `model_configs/`, or a path; completes the names."""

    def __init__(self, *kinds: catalog.Kind) -> None:
        self.name = " or ".join(kind.removesuffix("s").replace("studie", "study") for kind in kinds)
        self._kinds = kinds

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name as it is given, or tell why no file is called so."""
        PathType().convert(value, param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Known names that start with what was typed, then files."""
        known = [name for kind in self._kinds for name in catalog.names(kind) if name.startswith(incomplete)]
        return [CompletionItem(name) for name in known] or [CompletionItem(incomplete, type="file")]


class PathType(click.ParamType):  # type: ignore[type-arg]
    """A path that a file can have, or a `folder`: not blank, no NUL byte, not too long; completes files."""

    name = "path"

    def __init__(self, *, folder: bool = False) -> None:
        self._folder = folder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path, or tell why it is none."""
        try:
            path = checked_path(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)
        if self._folder and path.is_file():
            self.fail(f"{path} is a file, not a folder", param, ctx)
        return path

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Let the shell complete files."""
        return [CompletionItem(incomplete, type="file")]


class Gpu(click.ParamType):  # type: ignore[type-arg]
    """A key of `gpus.yaml`; completes the known ones. What it means is checked where it is used."""

    name = "gpu"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Known GPUs that start with what was typed."""
        from harness.hardware import known_systems

        return [CompletionItem(key) for key in known_systems() if key.startswith(incomplete)]


_AXIS = click.option(
    "-a", "--axis", "axes", multiple=True, metavar="NAME=VALUES", help="Replace an axis: G=1,2,4 or G=2^0..2^6."
)
_SET = click.option(
    "--set", "sets", multiple=True, metavar="FIELD=VALUE", help="Change a field: workloads.decode.kvsl=65536."
)
_GPU = click.option(
    "--gpu", "systems", multiple=True, type=Gpu(), help="GPU to use instead of the study's. Repeatable."
)
_ON = click.option(
    "--on",
    type=click.Choice(["auto", "tables", "roofline"]),
    default="auto",
    show_default=True,
    help="Who answers: published kernel measurements or the roofline; auto prefers the tables.",
)
_EXTRAPOLATE = click.option(
    "--allow-extrapolation", is_flag=True, help="Answer outside the measured range where an error band is known."
)
_AS_IS = click.option(
    "--tables-as-is", is_flag=True, help="Take NVFP4 GEMM rows as they are, although un-tuned at small m."
)
_OVERLAP = click.option(
    "--helix-overlap",
    is_flag=True,
    help="Assume that Helix's exchange hides beside attention (HOP-B); said in the output.",
)
_MEMORY = click.option("--ignore-memory", is_flag=True, help="Ask whole models too that do not fit into memory.")


def study_options(function: F) -> F:
    """`-a`, `--set` and `--gpu`: change a study from the command line."""
    return _AXIS(_SET(_GPU(function)))


def pricing_options(function: F) -> F:
    """`--on`, `--allow-extrapolation` and `--tables-as-is`."""
    return _ON(pricing_flags(function))


def pricing_flags(function: F) -> F:
    """`--allow-extrapolation` and `--tables-as-is`."""
    return _EXTRAPOLATE(_AS_IS(function))


def deployment_options(function: F) -> F:
    """`--helix-overlap` and `--ignore-memory`: questions about whole models."""
    return _OVERLAP(_MEMORY(function))


memory_option = _MEMORY
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")


def echo_json(data: Any) -> None:
    """Print JSON, one document."""
    click.echo(json.dumps(data, indent=2, allow_nan=False))


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Let what others print, native code too, go to stderr meanwhile, so that stdout holds the answer alone."""
    sys.stdout.flush()
    before = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(before, 1)
        os.close(before)
