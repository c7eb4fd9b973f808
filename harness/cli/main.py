"""The command `trtllm-harness`. Each command lives in a module of its own, loaded when it is used."""

from __future__ import annotations

import contextlib
import importlib
import io
import keyword
import os
import sys

import click

from harness.errors import ExitCode, HarnessError
from harness.version import __version__

#: Command → its one-line help, so that `--help` loads no command.
COMMANDS = {
    "variants": "List and show synthetic model variants.",
    "systems": "List and show the GPUs that are known.",
    "lint": "Check shapes, formats and parallelism against a GPU, all findings at once.",
    "plan": "Show what a study or suite would run.",
    "price": "Price one operation or one case.",
    "run": "Run a study or suite and write its report.",
    "rerun": "Ask one case of a run again and show both answers.",
    "import": "Take reports of other tools into records.",
    "profile": "Read profiles of real runs, kernel by kernel.",
    "report": "Write a report from one or more runs.",
    "compare": "Say what changed between two results, and whether replicates are sure of it.",
    "history": "Judge every series of many nights.",
    "baseline": "Pin, list and move named baselines.",
    "build": "Make engines and settings that TensorRT-LLM loads.",
    "engines": "List, show, verify and prune engines.",
    "doctor": "Say what this machine can do and what is missing.",
    "selftest": "Check what is taken for granted of TensorRT-LLM on this machine.",
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
        module = f"{name}_" if keyword.iskeyword(name) else name
        command: click.Command = importlib.import_module(f"harness.cli.{module}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table above."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trtllm-harness")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Compare synthetic transformer variants on NVIDIA GPUs, priced from measured TensorRT-LLM kernels.

    \b
    trtllm-harness run demo --out reports/demo      price a suite and write its report
    trtllm-harness run cpu-smoke --on torch --out …  measure one on this machine
    trtllm-harness price gemm --gpu b200_sxm ...    ask for one number

    Exit codes: 0 fine, 1 worse than a baseline, 2 usage or lint error, 3 incomplete, 4 environment unfit,
    124 budget exhausted, 130 interrupted.
    """


def entry_point() -> None:
    """Run the command line; every expected error becomes one message and its documented exit code."""
    if sys.stderr is None:  # closed; what is said there goes nowhere
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123  # as long as the process
    if sys.stdout is None:
        _tell("standard output is closed; send it to a file, or to /dev/null")
        sys.exit(ExitCode.ENVIRONMENT)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a locale without · or × prints ? for it
            stream.reconfigure(errors="replace")
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
        return _interrupted()
    except SystemExit:  # click's way out when the reader, `head` for example, has seen enough
        return ExitCode.OK
    return outcome if isinstance(outcome, int) else ExitCode.OK


def _explain(error: Exception) -> int:
    """Print what went wrong and return the exit code that says so."""
    if isinstance(error, click.exceptions.Abort):
        return _interrupted()
    if isinstance(error, click.ClickException):
        with contextlib.suppress(OSError):
            error.show()
        return ExitCode.USAGE
    if isinstance(error, HarnessError):
        _tell(*str(error).splitlines())
        return error.exit_code
    if isinstance(error, ImportError):  # pyarrow beside an older NumPy, for example
        _tell(f"an installed package cannot be loaded: {error}")
        return ExitCode.ENVIRONMENT
    if isinstance(error, OSError) and error.filename is None:  # files that cannot be written are errors of the harness
        return _unprinted(error)
    if isinstance(error, OSError):
        _tell(f"{os.fsdecode(error.filename)}: {error.strerror}")
        return ExitCode.ENVIRONMENT
    _tell(f"{type(error).__name__}: {error} (again with --debug for the traceback)", kind="internal error")
    return ExitCode.INCOMPLETE


def _interrupted() -> int:
    with contextlib.suppress(OSError):
        click.echo("interrupted", err=True)
    return ExitCode.INTERRUPTED


def _unprinted(error: OSError) -> int:
    """What cannot be printed is dropped, so that nothing tries again at exit; a reader who left early is no error."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
            continue
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if isinstance(error, BrokenPipeError):
        return ExitCode.OK
    _tell(f"standard output cannot be written: {error.strerror or error}; what went to files is whole")
    return ExitCode.ENVIRONMENT


def _tell(*lines: str, kind: str = "error") -> None:
    """Say it on standard error, where anybody still listens."""
    with contextlib.suppress(OSError):
        for line in lines:
            click.echo(f"{kind}: {line}", err=True)


if __name__ == "__main__":
    entry_point()
