"""Options of commands as data, and the commands made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

#: Names, type, default, and whether it is a flag or may be given often.
Option = tuple[str, Any, Any]
FILE = click.Path(dir_okay=False)
FLAG = "flag"


def add(options: Sequence[Option]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that gives a command these options; `a/b` is a pair of flags, `-m,--model` two names."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for names, kind, default in reversed(options):
            every = names.split(",")
            made = (
                click.option(*every, is_flag=True, default=default)
                if kind == FLAG
                else click.option(*every, type=kind, default=default, required=default is ..., show_default=True)
                if default is not ...
                else click.option(*every, type=kind, required=True)
            )
            command = made(command)
        return command

    return decorate


def not_run(what: str) -> None:
    """The end of a command whose behaviour the double does not have."""
    raise click.ClickException(f"the double of TensorRT-LLM does not run {what}")
