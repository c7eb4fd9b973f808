"""Make the engines and settings of a run be there before anything is measured, and say what their processes are given.

The autotuner of TensorRT-LLM chooses kernels by timing them, and keeps what it chose in the file that
TLLM_AUTOTUNER_CACHE_PATH names (TensorRT-LLM's registry of environment variables). All processes of a run share one for
each engine, settings and version, so that replicates time the same kernels.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.engines.needs import EngineNeed
from harness.engines.prepare import Prepared, prepare, survey
from harness.engines.settings import Settings
from harness.engines.store import EngineStore
from harness.errors import HarnessError, Interrupted
from harness.runner.engine_groups import EngineHere
from harness.runner.engine_needs import Assigned, Served, engines_of
from harness.spec.axes import Scalar

TUNER_CACHE = "TLLM_AUTOTUNER_CACHE_PATH"


@dataclass(slots=True)
class Ready:
    """What is there now, by number of the step, and why the engine of others could not be made."""

    here: dict[int, EngineHere] = field(default_factory=dict)
    failed: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Key of the engine, and the reason."""


def make_ready(assigned: Assigned, store: Path, tuner: Path, before_each: Callable[[str], None]) -> Ready:
    """Build what is not there yet and keep what is. A failure costs the cases of its engine.

    `before_each` is called before an engine is looked at, and with what is done where it is made; it may raise. `tuner`
    is the folder of the autotuner's caches. Raises EnvironmentUnfit where there is no room for what is missing.
    """
    engines, ready = EngineStore(store), Ready()
    needs = engines_of(assigned.needs, assigned.served.values())
    found = survey(engines, needs, lambda _: before_each(""))
    for need in needs:
        before_each("" if need.spec.key in found.whole else f"building engine {need.spec.key}, {need.names[0]}")
        steps = {number: one for number, one in assigned.served.items() if one.need.spec.key == need.spec.key}
        try:
            made = prepare(engines, need, found)
        except Interrupted:
            raise
        except HarnessError as error:
            reason = "; ".join(str(error).splitlines())
            ready.failed |= dict.fromkeys(steps, (need.spec.key, reason))
            continue
        ready.here |= _here(steps, need, made, tuner)
    return ready


def _here(steps: dict[int, Served], need: EngineNeed, made: Prepared, tuner: Path) -> dict[int, EngineHere]:
    folders = {_content(one.settings): one.path for one in made.settings}
    tuner.mkdir(parents=True, exist_ok=True)
    made_of: dict[Path, EngineHere] = {}
    found = {}
    for number, served in steps.items():
        folder = folders[_content(served.settings)]
        if folder not in made_of:
            made_of[folder] = _engine_here(need, served.settings, made, folder, tuner)
        found[number] = made_of[folder]
    return found


def _content(settings: Settings) -> tuple[str, tuple[tuple[str, str], ...]]:
    """What the store tells settings apart by."""
    return settings.name, tuple(sorted(settings.texts().items()))


def _engine_here(need: EngineNeed, settings: Settings, made: Prepared, folder: Path, tuner: Path) -> EngineHere:
    cache = os.environ.get(TUNER_CACHE) or str(tuner / f"{need.spec.key}-{folder.name}.json")
    fields: dict[str, Any] = settings.args.fields
    graphs = fields.get("cuda_graph_config")
    details: dict[str, Scalar] = {
        "weights": made.engine.manifest.weights.mode,
        "autotuner_cache": cache,
        "cuda_graph_batches": ", ".join(map(str, graphs["batch_sizes"])) if graphs else "none",
        # Programmatic dependent launch: on from 1.2 on, where nothing else is said.
        "pdl": os.environ.get("TRTLLM_ENABLE_PDL", "not set"),
    }
    if "moe_config" in fields:
        details["moe_backend_asked"] = str(fields["moe_config"].get("backend", "not set"))
    return EngineHere(need.spec.key, folder, {**settings.args.environment, TUNER_CACHE: cache}, details)
