"""The documentation is true: its commands run, its links lead somewhere, its examples give what they show.

Blocks marked `sh` are executed line by line, in the order of the document, in one scratch folder a document. Blocks
marked `sh gpu-node` are parsed by the real command line and not run. Blocks marked `python` are executed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import tomllib
from command_line import REPOSITORY, CommandLine

from harness.cli.main import COMMANDS, cli
from harness.cost.ops import DecodeAttention
from harness.files import parse_yaml
from harness.hardware import load_system
from harness.pricing.roofline import RooflinePricer
from harness.spec.base import parse
from harness.spec.expand import expand
from harness.spec.load import base_variant
from harness.spec.study import Study
from harness.spec.variant import Variant

DOCUMENTS = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(
    r"(?<!\!)\[[^\]]*\]\((?P<target>[^)#\s]+)[^)]*\)|!\[[^\]]*\]\((?P<image>[^)\s]+)\)|(?:src|srcset)=\"(?P<src>[^\"]+)\""
)


@dataclass(frozen=True)
class Block:
    info: str
    body: str

    def lines(self) -> Iterator[str]:
        """Commands, continuation lines joined, comments dropped."""
        for line in self.body.replace("\\\n", " ").splitlines():
            command = line.partition(" # ")[0].strip()
            if command and not command.startswith("#"):
                yield command


def blocks(document: Path) -> list[Block]:
    return [Block(match["info"].strip(), match["body"]) for match in BLOCK.finditer(document.read_text())]


def relative(document: Path) -> str:
    return str(document.relative_to(REPOSITORY))


def left(context: click.Context) -> list[str]:
    """What a group has not parsed itself; click 8.2 renamed the first half."""
    held = context._protected_args if hasattr(context, "_protected_args") else context.protected_args
    return [*held, *context.args]


def parse_only(arguments: list[str]) -> None:
    """Parse a command line without running it; raises what a user would see."""
    context: click.Context = cli.make_context("trtllm-harness", arguments, resilient_parsing=False)
    command: click.Command = cli
    rest = left(context)
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, name
        command = found
        context = command.make_context(name, rest, parent=context)
        rest = left(context)


def check_elsewhere(command: str) -> None:
    """A command that is not ours: what it needs of this repository is there."""
    words = shlex.split(command)
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in words[1:] if "=" not in word} <= set(targets), command
    elif "pip" in words:
        extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert set(re.findall(r"\[([a-z,]+)\]", command)) <= {*extras, "tables,dev"}, command
    elif words[0] == "python" and words[1].endswith(".py"):
        assert (REPOSITORY / words[1]).is_file(), command
    else:
        assert words[0] in {"git", "cd", "bash", "eval", "export", "python"}, f"not checked: {command}"


def parse_mapping(text: str) -> dict[str, object]:
    data = parse_yaml(text)
    assert isinstance(data, dict)
    return data


@pytest.mark.tables
@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_commands_run(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = CommandLine(capsys)
    for block in blocks(document):
        if block.info == "yaml" and block.body.startswith("layers:"):
            parse(Variant, parse_mapping(block.body), relative(document))
        if block.info == "yaml" and "workloads:" in block.body:
            study = parse(Study, {"name": "example", **parse_mapping(block.body)}, relative(document))
            assert expand(study, base_variant(study))
        if block.info == "python":
            exec(compile(block.body, relative(document), "exec"), {"__name__": "documentation"})
        if block.info not in {"sh", "sh gpu-node"}:
            continue
        for command in block.lines():
            program, *arguments = shlex.split(command)
            if program != "trtllm-harness":
                check_elsewhere(command)
            elif block.info == "sh gpu-node":
                parse_only(arguments)
            else:
                outcome = run(*arguments)
                assert outcome.code == 0, f"{command}\n{outcome.out}{outcome.err}"


def test_a_command_for_a_gpu_node_is_really_parsed() -> None:
    parse_only(shlex.split("price gemm --gpu b200_sxm --m 1 --n 128 --k 128 --format bf16"))
    for wrong in ("price gemm --gpu b200_sxm", "run demo --outt x", "prise gemm"):
        with pytest.raises(click.ClickException):
            parse_only(shlex.split(wrong))


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_links_lead_somewhere(document: Path) -> None:
    for match in LINK.finditer(document.read_text()):
        target = match["target"] or match["image"] or match["src"]
        if not re.match(r"[a-z]+:", target):
            assert (document.parent / target).exists(), target


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented(name: str) -> None:
    text = (REPOSITORY / "docs" / "commands.md").read_text()
    assert f"## {name}" in text


def test_the_readme_shows_problem_command_table_and_picture_first() -> None:
    first_screen = "\n".join((REPOSITORY / "README.md").read_text().splitlines()[:60])
    assert "make demo" in first_screen
    assert "make test" in first_screen
    assert re.search(r"^\|.*\|$", first_screen, re.MULTILINE)
    assert re.search(r"<img |!\[", first_screen)


@pytest.mark.tables
def test_the_table_in_the_readme_is_what_the_pricers_say() -> None:
    from harness.pricing.tables import TablesPricer

    rows = re.findall(r"^\| (\d+) \| (\d+) \| (.+) \|$", (REPOSITORY / "README.md").read_text(), re.MULTILINE)
    assert [int(group) for group, *_ in rows] == [8, 16, 32, 64]
    for group, kv_heads, cells in rows:
        kernel = DecodeAttention(8, 32768, int(group) * int(kv_heads), int(kv_heads), 128, "fp8")
        shown = [float(cell.strip(" *")) for cell in cells.split("|")]
        expected = []
        for system in ("b200_sxm", "h200_sxm"):
            limit = RooflinePricer(load_system(system)).time(kernel)
            [price] = TablesPricer(system).price([kernel])
            assert price.source == "exact"
            assert price.time_ms is not None
            assert limit is not None
            expected += [price.time_ms * 1000, limit.time_ms * 1000]
        assert shown == [round(time_us, 1) for time_us in expected]
