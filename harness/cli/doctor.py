"""`trtllm-harness doctor`: what this machine can do, what is missing and how to get it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from harness.cli.options import echo_json, json_option, stdout_to_stderr

if TYPE_CHECKING:
    from harness.backends.trtllm.features import Features, Glance
    from harness.backends.trtllm.machine import Machine

#: Command that starts the container in which TensorRT-LLM is installed; docs/gpu-node.md has the whole of it.
CONTAINER = (
    'docker run --rm -it --gpus all --ipc=host --ulimit memlock=-1 --ulimit stack=67108864 -v "$PWD":/work -w /work '
    "nvcr.io/nvidia/tensorrt-llm/release:1.2.1"
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at."""

    name: str
    ok: bool
    found: str
    advice: str = ""


@click.command("doctor")
@click.option("--probe", is_flag=True, help="Import TensorRT-LLM and ask its commands; takes a minute.")
@json_option
def command(probe: bool, as_json: bool) -> None:
    """Say what this machine can do and what is missing. Exits 0: a missing option is no fault."""
    from harness.results.environment import environment_facts

    facts = environment_facts()
    features, checks = _look(probe=probe)
    if as_json:
        told = {"trtllm": features.to_data()} if features else {}
        echo_json({**facts, **told, "checks": [asdict(check) for check in checks]})
        return
    click.echo(
        f"trtllm-harness {facts['harness']}, Python {facts['python']}, {facts['platform']}, {facts['cpus']} CPUs"
    )
    click.echo("packages: " + ", ".join(f"{name} {version}" for name, version in facts["packages"].items()))
    for check in checks:
        click.echo(f"  {'yes' if check.ok else 'no ':<4}{check.name}: {check.found}")
        if check.advice:
            click.echo(f"      {check.advice}")


def _look(*, probe: bool) -> tuple[Features | None, list[Check]]:
    from harness.backends.trtllm.features import glance
    from harness.backends.trtllm.machine import look

    seen = glance()
    features: Features | None = None
    trouble = ""
    # A double is light; the real one is imported where that is asked for.
    if seen.installed and (probe or seen.is_double):
        features, trouble = _features(probe=probe)
    machine = features.machine if features else look()
    checks = [_roofline(), _tables(), *_machine(machine), _trtllm(seen, features, trouble)]
    if features:
        checks += _features_checks(features)
    return features, checks


def _features(*, probe: bool) -> tuple[Features | None, str]:
    from harness.backends.trtllm.features import detect

    try:
        with stdout_to_stderr():  # it prints its version when it is imported
            return detect(probe_commands=probe), ""
    except Exception as error:  # noqa: BLE001  # whatever its import raises is what is to be told
        return None, f"{type(error).__name__}: {' '.join(str(error).split())}"


def _roofline() -> Check:
    from harness.hardware import known_systems

    return Check("roofline", True, f"{len(known_systems())} GPUs: {', '.join(known_systems())}")


def _tables() -> Check:
    from harness.pricing.tables import tabled_systems, tables_available

    available, why = tables_available()
    name = "published kernel measurements"
    if not available:
        return Check(name, False, why, "pip install 'trtllm-harness[tables]' (CPython 3.11 to 3.13)")
    return Check(name, True, f"{len(tabled_systems())} GPUs: {', '.join(tabled_systems())}")


def _machine(machine: Machine) -> Iterator[Check]:
    from harness.backends.trtllm.machine import SHARED_MEMORY, SHARED_MEMORY_GIB

    driver_advice = "" if machine.driver else "apt-get install nvidia-driver-580-server on the host, then nvidia-smi"
    yield Check("NVIDIA driver", bool(machine.driver), machine.driver or "none", driver_advice)
    yield _gpus(machine)
    has_library = importlib.util.find_spec("pynvml") is not None
    yield Check(
        "nvidia-ml-py",
        has_library,
        "clocks, power and other users of a GPU can be read" if has_library else "not installed",
        "" if has_library else "pip install 'trtllm-harness[gpu]'",
    )
    size = machine.shared_memory_gib
    is_large = size is not None and size >= SHARED_MEMORY_GIB
    yield Check(
        "shared memory",
        is_large,
        f"no {SHARED_MEMORY}" if size is None else f"{SHARED_MEMORY} has {size:.2f} GiB",
        ""
        if is_large
        else f"for several GPUs start the container with --ipc=host, or --shm-size={SHARED_MEMORY_GIB:.0f}g",
    )
    yield Check(
        "mpirun",
        bool(machine.mpirun),
        machine.mpirun or "not on PATH",
        "" if machine.mpirun else "only for --backend-option launcher=mpirun: apt-get install openmpi-bin",
    )
    if machine.rank_variable:
        yield Check(
            "no launcher around",
            False,
            f"{machine.rank_variable} is set: this process is a rank of a batch system or of mpirun",
            "its variables are cleared for ranks that a run starts; start one process, not one per rank",
        )


def _gpus(machine: Machine) -> Check:
    if not machine.gpus:
        why = machine.gpus_unknown_because or "none is visible"
        return Check("NVIDIA GPU", False, why, f"on a machine with one: {CONTAINER}")
    names = dict.fromkeys(gpu.name for gpu in machine.gpus)
    told = ", ".join(f"{sum(gpu.name == name for gpu in machine.gpus)} × {name}" for name in names)
    linked = sum(gpu.nvlinks > 0 for gpu in machine.gpus)
    return Check("NVIDIA GPU", True, f"{told}, SM {machine.gpus[0].sm}, {linked} with NVLink")


def _trtllm(seen: Glance, features: Features | None, trouble: str) -> Check:
    name = "TensorRT-LLM"
    if not seen.installed:
        return Check(name, False, "not installed", CONTAINER)
    if trouble:
        return Check(
            name, False, trouble, "driver, CUDA and PyTorch have to be those it was built for: use the container"
        )
    if features is None:
        return Check(name, True, seen.version or "a version that it does not tell", "what it has: doctor --probe")
    return Check(name, True, f"{features.version}{', a test double' if features.is_double else ''}")


def _features_checks(features: Features) -> Iterator[Check]:
    yield Check("  settings of the LLM API", True, f"{len(features.settings)} fields")
    yield Check("  MoE backends", bool(features.moe_backends), ", ".join(features.moe_backends))
    advice = "level layer needs --backend-option layerwise_checkout=PATH, a checkout of NVIDIA/TensorRT-LLM"
    yield _yes("  runner of single layers", features.layer_wise, advice)
    yield _yes("  engine backend", features.engine_backend, "removed in 1.3; the PyTorch backend is used")
    if features.commands:
        yield Check("  commands", True, ", ".join(features.commands))


def _yes(name: str, is_there: Any, advice: str) -> Check:
    return Check(name, bool(is_there), "there" if is_there else "not there", "" if is_there else advice)
