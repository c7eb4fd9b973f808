"""The command `trtllm-harness`. Each command lives in a module of its own, loaded when it is used."""

from __future__ import annotations

import importlib
import os
import sys

import click

from harness import __version__
from harness.errors import ExitCode, HarnessError

#: Command → its one-line help, so that `--help` loads no command.
COMMANDS = {
    "variants": "List and show synthetic model variants.",
    "lint": "Check shapes, formats and parallelism against a GPU, all findings at once.",
    "plan": "Show what a study or suite would run.",
    "price": "Price one operation or one case.",
    "run": "Run a study or suite and write its report.",
    "report": "Write a report from one or more runs.",
    "doctor": "Say what this machine can do and what is missing.",
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Commands in the order of the work."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the module of one command."""
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"harness.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table above."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trtllm-harness")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Measure and price synthetic transformer variants on NVIDIA GPUs with TensorRT-LLM.

    \b
    trtllm-harness run demo --out reports/demo      price a suite and write its report
    trtllm-harness price gemm --gpu b200_sxm ...    ask for one number

    Exit codes: 0 fine, 1 worse than a baseline, 2 usage or lint error, 3 incomplete, 4 environment unfit,
    124 budget exhausted, 130 interrupted.
    """


def entry_point() -> None:
    """Run the command line; every expected error becomes one message and its documented exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code. `--debug` is taken anywhere on the line."""
    debug = "--debug" in arguments
    try:
        outcome = cli.main(
            [argument for argument in arguments if argument != "--debug"],
            prog_name="trtllm-harness",
            standalone_mode=False,
        )
        sys.stdout.flush()
    except Exception as error:
        if debug:
            raise
        return _explain(error)
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    except SystemExit:  # click's way out when the reader, `head` for example, has seen enough
        return ExitCode.OK
    return outcome if isinstance(outcome, int) else ExitCode.OK


def _explain(error: Exception) -> int:
    """Print what went wrong and return the exit code that says so."""
    if isinstance(error, click.exceptions.Abort):
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    if isinstance(error, click.ClickException):
        error.show()
        return ExitCode.USAGE
    if isinstance(error, HarnessError):
        for line in str(error).splitlines():
            click.echo(f"error: {line}", err=True)
        return error.exit_code
    if isinstance(error, ImportError):  # pyarrow beside an older NumPy, for example
        click.echo(f"error: an installed package cannot be loaded: {error}", err=True)
        return ExitCode.ENVIRONMENT
    if isinstance(error, BrokenPipeError):  # the same, noticed at the last flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    click.echo(f"internal error: {type(error).__name__}: {error} (again with --debug for the traceback)", err=True)
    return ExitCode.INCOMPLETE


if __name__ == "__main__":
    entry_point()
