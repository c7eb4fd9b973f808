"""What a study needs on disk: engines, one per shape, precision and architecture, and settings for its workloads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from harness.cost.kv_cache import TOKENS_PER_BLOCK
from harness.cost.memory import MemoryVerdict
from harness.engines.engine_spec import EngineSpec, engine_spec, positions
from harness.engines.groups import WorkloadGroup, workload_groups
from harness.engines.hf_config import common_architecture
from harness.engines.instance import instance_sizes
from harness.engines.llm_args import OUTPUT_TOKENS, llm_args
from harness.engines.manifest import WeightsMode, engine_variant
from harness.engines.settings import Settings
from harness.errors import UsageError
from harness.spec.case import Case
from harness.spec.variant import Variant


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What is asked of every engine alike."""

    version: str
    """TensorRT-LLM's."""
    architecture: str | None = None
    weights: WeightsMode = "none"
    seed: int = 0
    moe_backend: str | None = None
    """TensorRT-LLM's `moe_config.backend` in all settings; None is what the version takes by itself."""


@dataclass(slots=True)
class EngineNeed:
    """One engine, the variants that it serves, and the settings of its instances."""

    spec: EngineSpec
    variant: Variant
    """The first of them, with its name."""
    names: list[str]
    settings: list[Settings]


@dataclass(slots=True)
class Needs:
    """Engines in the order of the study, and what stands in the way of others."""

    engines: list[EngineNeed] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    too_large: list[tuple[Case, MemoryVerdict]] = field(default_factory=list)
    """Cases that fit the memory of their GPU in no company; no settings are made for them."""
    unserved: list[tuple[Case, str]] = field(default_factory=list)
    """Cases without engine or settings for another reason, each with that problem."""


def study_needs(cases: Iterable[Case], options: EngineOptions, *, whole_model: bool = True) -> Needs:
    """Return what the cases of one study need; without `whole_model` for runs of single layers, whatever their memory.

    All its variants take one architecture where one can be all of them, so that they are compared like with like. A
    variant that no architecture can be is a problem and keeps none of the others from being there.
    """
    by_variant: dict[Variant, list[Case]] = {}
    for case in cases:
        by_variant.setdefault(engine_variant(case.variant), []).append(case)
    architecture = options.architecture or common_architecture(by_variant)
    needs = Needs()
    for alike in by_variant.values():
        try:
            needs.engines.append(_need(alike, options, architecture, needs, whole_model=whole_model))
        except UsageError as error:
            needs.problems += error.findings
            needs.unserved += [(case, "; ".join(error.findings)) for case in alike]
    return needs


def variant_need(variant: Variant, options: EngineOptions) -> EngineNeed:
    """Return the engine of one variant, without workloads and so without settings. Raises UsageError."""
    spec = engine_spec(variant, architecture=options.architecture, weights=options.weights, seed=options.seed)
    return EngineNeed(spec, variant, [variant.name], [])


def merged(parts: Sequence[Needs]) -> Needs:
    """The needs of several studies: equal engines are one, with the settings of all."""
    whole = Needs()
    by_key: dict[str, EngineNeed] = {}
    for part in parts:
        whole.problems += part.problems
        whole.too_large += part.too_large
        whole.unserved += part.unserved
        for need in part.engines:
            known = by_key.setdefault(need.spec.key, need)
            if known is not need:
                known.names += need.names
                known.settings += need.settings
    whole.engines = list(by_key.values())
    for need in whole.engines:
        need.names = list(dict.fromkeys(need.names))
    return whole


def _need(
    cases: Sequence[Case], options: EngineOptions, architecture: str | None, needs: Needs, *, whole_model: bool
) -> EngineNeed:
    variant = cases[0].variant
    groups, too_large = workload_groups(cases, whole_model=whole_model)
    longest = max((_sequence(group) for group in groups), default=0)
    spec = engine_spec(variant, architecture=architecture, weights=options.weights, seed=options.seed, longest=longest)
    settings = []
    for group in groups:
        try:
            args = llm_args(
                variant,
                group.parallelism,
                group.workloads,
                options.version,
                load_format="auto" if spec.weights else "dummy",
                moe_backend=options.moe_backend,
                max_positions=positions(longest),
            )
        except UsageError as error:
            needs.problems += [f"{variant.name}, {group.parallelism.label}: {text}" for text in error.findings]
            needs.unserved += [(case, "; ".join(error.findings)) for case in cases if group.serves(case)]
        else:
            settings.append(Settings(group, args))
    needs.too_large += too_large
    return EngineNeed(spec, variant, list(dict.fromkeys(case.variant.name for case in cases)), settings)


def _sequence(group: WorkloadGroup) -> int:
    return instance_sizes(group.parallelism, group.workloads, TOKENS_PER_BLOCK, OUTPUT_TOKENS).sequence
