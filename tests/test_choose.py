"""Who answers a run, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import MissingExtra, UsageError
from harness.runner.choose import Choice, choose


def everything(_: str) -> bool:
    return True


def nothing(_: str) -> bool:
    return False


def h200() -> list[str]:
    return ["NVIDIA H200"]


@pytest.mark.parametrize("on", ["torch", "trtllm", "package.module:Class"])
def test_a_backend_named_is_taken(on: str) -> None:
    assert choose(on, ["h200_sxm"], installed=nothing) == Choice(on, "asked for")


@pytest.mark.parametrize("on", ["tables", "roofline"])
def test_a_pricer_named_is_taken(on: str) -> None:
    assert choose(on, ["h200_sxm"], installed=everything, here=h200) == Choice(None)


def test_auto_measures_where_tensorrt_llm_and_the_gpu_are() -> None:
    assert choose("auto", ["b200_sxm", "h200_sxm"], installed=everything, here=h200) == Choice(
        "trtllm", "TensorRT-LLM and h200_sxm are here"
    )


@pytest.mark.parametrize(
    ("systems", "installed", "here"),
    [
        (["b200_sxm"], everything, h200),
        (["h200_sxm"], nothing, h200),
        (["h200_sxm"], everything, list),
        (["h200_sxm"], everything, lambda: ["NVIDIA H200 NVL"]),
    ],
)
def test_auto_prices_elsewhere(systems: list[str], installed: object, here: object) -> None:
    assert choose("auto", systems, installed=installed, here=here).backend is None  # type: ignore[arg-type]


def test_auto_never_takes_a_double(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "doubles"))
    assert choose("auto", ["h200_sxm"], here=h200).backend is None
    assert choose("trtllm", ["h200_sxm"], here=h200).backend == "trtllm"


def test_auto_measures_a_cpu_with_pytorch() -> None:
    choice = choose("auto", ["cpu"], installed=lambda name: name == "torch")
    assert choice == Choice("torch", "only a backend answers for cpu, and PyTorch is installed")
    with pytest.raises(MissingExtra, match=r"system cpu.*pip install 'trtllm-harness\[torch\]'"):
        choose("auto", ["cpu"], installed=nothing)


def test_a_cpu_and_a_gpu_are_no_one_question() -> None:
    with pytest.raises(UsageError, match="cpu and h200_sxm are answered by different means"):
        choose("auto", ["h200_sxm", "cpu", "h200_sxm"], installed=everything, here=h200)
