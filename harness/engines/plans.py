"""TensorRT plans: built by `trtllm-build` from a checkpoint configuration alone, where the version still has it.

Which versions have it, what a plan can hold and where that was read is in `harness/data/tensorrt_plans.yaml`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from harness.engines.engine_spec import CONFIG_FILE, EngineSpec
from harness.engines.places import OnWait
from harness.engines.sealed import SCHEMA_VERSION, Seal, damage, key_of, read_seal, seal
from harness.engines.settings import Settings
from harness.engines.store import PLANS, EngineStore, Outcome
from harness.errors import EnvironmentUnfit, ExitCode, HarnessError, UnreadableInput, UsageError
from harness.files import read_yaml
from harness.lint.versions import version_key
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant, WeightFormat

BUILDER = "trtllm-build"
CHECKPOINT_FILE = "checkpoint.json"

_FACTS_FILE = Path(__file__).resolve().parent.parent / "data" / "tensorrt_plans.yaml"
_LOG_FILE = ".build.log"
_LOG_LINES = 5

#: MoeConfig.ExpertScaleNormalizationMode.RENORMALIZE: the weights of the chosen experts add up to 1.
_RENORMALIZE = 1


class PlanFailed(HarnessError):
    """`trtllm-build` did not make the plan; the message ends with what it said last."""

    exit_code = ExitCode.INCOMPLETE


class PlanSizes(NamedTuple):
    """The largest batch, pass and sequence that a plan is made for."""

    max_batch_size: int
    max_num_tokens: int
    max_seq_len: int


@dataclass(frozen=True, slots=True)
class PlanSpec:
    """One plan to build. It runs on the GPU and TensorRT-LLM that built it and on no other."""

    checkpoint: Mapping[str, Any]
    sizes: PlanSizes
    trtllm: str
    gpu: str

    @property
    def inputs(self) -> dict[str, Any]:
        """Everything that decides the plan."""
        return {
            "schema": SCHEMA_VERSION,
            "checkpoint": dict(self.checkpoint),
            "sizes": self.sizes._asdict(),
            "trtllm": self.trtllm,
            "gpu": self.gpu,
        }


@lru_cache(maxsize=1)
def _facts() -> dict[str, Any]:
    data = read_yaml(_FACTS_FILE)
    if not isinstance(data, dict):
        raise UnreadableInput(f"{_FACTS_FILE}: not a mapping")
    return data


def check_version(version: str) -> None:
    """Raise UsageError where a TensorRT-LLM version builds no plans, with what is known of the removal."""
    removal = _facts()["removal"]
    if version_key(version) < version_key(removal["gone_since"]):
        return
    raise UsageError(
        f"--engine tensorrt: TensorRT-LLM {version} builds no TensorRT plans. {removal['what']} (gone since "
        f"{removal['gone_since']}, last seen in {removal['last_seen_in']}; {removal['evidence'][0]}). "
        f"Use {removal['instead']}"
    )


def checkpoint_config(
    variant: Variant, architecture: str, config: Mapping[str, Any], parallelism: Parallelism
) -> dict[str, Any]:
    """Return the checkpoint configuration for `trtllm-build --model_config`; `config` is the engine's config.json.

    Fields are those that TensorRT-LLM's own conversion takes from it. Raises UsageError with every reason why there is
    no plan of this variant or parallelism.
    """
    reasons = list(_reasons(variant, architecture, parallelism))
    if reasons:
        raise UsageError(*(f"{variant.name}: --engine tensorrt: {reason}; use --engine pytorch" for reason in reasons))
    kind, experts = _facts()["architectures"][architecture], variant.experts
    checkpoint = {
        "architecture": architecture,
        "dtype": "bfloat16",
        "logits_dtype": "float32",
        "vocab_size": variant.vocab,
        "hidden_size": variant.hidden,
        "intermediate_size": experts.inter if experts else variant.ffn,
        "num_hidden_layers": variant.layers,
        "num_attention_heads": variant.q_heads,
        "num_key_value_heads": variant.kv_heads,
        "head_size": variant.head_dim,
        "max_position_embeddings": config["max_position_embeddings"],
        "position_embedding_type": "rope_gpt_neox",
        "rotary_base": config["rope_theta"],
        "norm_epsilon": config["rms_norm_eps"],
        "hidden_act": "swiglu" if experts else "silu",
        "attn_bias": False,
        "tie_word_embeddings": variant.tie_embeddings,
        "mapping": _mapping(parallelism),
        "quantization": _quantization(variant),
    }
    if kind.startswith("qwen"):
        checkpoint["qwen_type"] = "qwen3_moe" if experts else "qwen3"
    if experts:
        checkpoint["moe"] = {
            "num_experts": experts.count, "top_k": experts.top_k, "normalization_mode": _RENORMALIZE
        }  # fmt: skip
        checkpoint["moe_intermediate_size"] = experts.inter
    return checkpoint


def plan_spec(variant: Variant, engine: EngineSpec, settings: Settings, trtllm: str, gpu: str) -> PlanSpec:
    """Return the plan for the workloads of some settings; raises as `checkpoint_config`."""
    config = json.loads(engine.files[CONFIG_FILE])
    sizes = PlanSizes(*(settings.args.fields[name] for name in PlanSizes._fields))
    checkpoint = checkpoint_config(variant, engine.architecture, config, settings.group.parallelism)
    return PlanSpec(checkpoint, sizes, trtllm, gpu)


def _reasons(variant: Variant, architecture: str, split: Parallelism) -> Iterator[str]:
    """Why there is no plan."""
    facts = _facts()
    if architecture not in facts["architectures"]:
        yield f"{architecture} is no model that {BUILDER} knows; it knows {', '.join(facts['architectures'])}"
    formats = _weight_formats(variant)
    if len(formats) > 1:
        yield f"weights are {' and '.join(sorted(formats))}, and a configuration alone cannot mix formats"
    yield from (f"weights {name} are not established in a plan" for name in formats if name not in facts["weights"])
    if variant.weights.lm_head != "bf16":
        yield f"weights.lm_head is {variant.weights.lm_head}, and a plan leaves it bf16"
    if variant.kv_format not in facts["kv"]:
        yield f"kv_format {variant.kv_format} is not established in a plan; there are {', '.join(facts['kv'])}"
    if variant.experts and (variant.experts.dense_layers or variant.experts.shared_inter):
        yield "experts.dense_layers and experts.shared_inter have no field in these models"
    if set(variant.attention) != {"full"}:
        yield f"attention is {', '.join(sorted(set(variant.attention)))}; these models have full attention only"
    for name, value, what in (
        ("cp", split.cp > 1, "Helix"),
        ("attention_dp", split.attention_dp, "attention data parallelism"),
        ("slots", split.slots, "expert load balancing"),
        ("pp_partition", split.pp_partition, "uneven pipeline stages"),
    ):
        if value:
            yield f"parallelism.{name}: {what} is part of the PyTorch backend only"


def _weight_formats(variant: Variant) -> set[WeightFormat]:
    weights, experts = variant.weights, variant.experts
    formats = {weights.attention}
    if experts:
        formats.add(weights.experts)
    if not experts or experts.dense_layers:
        formats.add(weights.ffn)
    return formats


def _mapping(split: Parallelism) -> dict[str, int]:
    return {
        "world_size": split.world_size,
        "tp_size": split.tp,
        "pp_size": split.pp,
        "moe_tp_size": split.expert_tp,
        "moe_ep_size": split.ep,
    }


def _quantization(variant: Variant) -> dict[str, Any]:
    [weights], facts = _weight_formats(variant), _facts()
    quantization: dict[str, Any] = {
        "quant_algo": facts["weights"][weights],
        "kv_cache_quant_algo": facts["kv"][variant.kv_format],
    }
    if weights == "nvfp4":
        quantization["group_size"] = 16
    if weights != "bf16":
        # Patterns of module names in TensorRT-LLM's own naming.
        quantization["exclude_modules"] = ["lm_head", *(["*.mlp.router"] if variant.experts else [])]
    return quantization


def build_arguments(configuration: Path, output: Path, sizes: PlanSizes) -> list[str]:
    """The arguments of `trtllm-build` (tensorrt_llm/commands/build.py at 008b2b8)."""
    return [
        "--model_config", str(configuration),
        "--output_dir", str(output),
        "--max_batch_size", str(sizes.max_batch_size),
        "--max_num_tokens", str(sizes.max_num_tokens),
        "--max_input_len", str(sizes.max_seq_len),
        "--max_seq_len", str(sizes.max_seq_len),
        "--kv_cache_type", "paged",
        "--log_level", "warning",
    ]  # fmt: skip


def this_gpu() -> str:
    """The name of this machine's GPUs. Raises EnvironmentUnfit where there is none or no `trtllm-build`."""
    if not shutil.which(BUILDER):
        raise EnvironmentUnfit(
            f"--engine tensorrt: {BUILDER} is not on PATH; it comes with TensorRT-LLM up to "
            f"{_facts()['removal']['last_seen_in']}, in NVIDIA's container"
        )
    if not shutil.which("nvidia-smi"):
        raise EnvironmentUnfit("--engine tensorrt: no nvidia-smi on PATH; a plan is built on the GPU that runs it")
    listed = subprocess.run(
        ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    found = sorted(set(filter(None, map(str.strip, listed.stdout.splitlines()))))
    if listed.returncode or not found:
        raise EnvironmentUnfit("--engine tensorrt: nvidia-smi finds no GPU; a plan is built on the GPU that runs it")
    return ", ".join(found)


def build_plan(
    store: EngineStore, key: str, name: str, spec: PlanSpec, on_wait: OnWait | None = None
) -> tuple[Path, Outcome]:
    """Build a plan beside an engine unless it is there; return its folder and what that took.

    The folder has the configuration, what `trtllm-build` wrote (`config.json`, `rank0.engine` …) and a manifest. Raises
    PlanFailed with the end of the builder's output.
    """
    inputs = spec.inputs
    folder = store.home(key) / PLANS / f"{name}-{key_of(inputs)[:12]}"
    if plan_is_whole(folder):
        return folder, "kept"
    existed = folder.exists()

    def fill(building: Path, file_mode: int) -> None:
        (building / CHECKPOINT_FILE).write_text(json.dumps(spec.checkpoint, indent=2) + "\n")
        _run_builder(building, spec)
        seal(
            building,
            file_mode,
            lambda entries: Seal(key=key_of(inputs), inputs=inputs, files=entries),
        )

    store.place(key, folder, fill, plan_is_whole, on_wait)
    return folder, "rebuilt" if existed else "built"


def plan_is_whole(folder: Path) -> bool:
    """Whether a plan is there and undamaged."""
    try:
        return not damage(folder, read_seal(folder, Seal))
    except HarnessError:
        return False


def read_plan(folder: Path) -> dict[str, Any]:
    """What a plan was made from: `checkpoint`, `sizes`, `trtllm`, `gpu`. Raises as `read_seal`."""
    return read_seal(folder, Seal).inputs


def _run_builder(folder: Path, spec: PlanSpec) -> None:
    arguments = build_arguments(folder / CHECKPOINT_FILE, folder, spec.sizes)
    log = folder / _LOG_FILE
    with log.open("wb") as output:
        done = subprocess.run([BUILDER, *arguments], stdout=output, stderr=subprocess.STDOUT, check=False)
    ranks = [folder / f"rank{rank}.engine" for rank in range(spec.checkpoint["mapping"]["world_size"])]
    absent = [path.name for path in (folder / CONFIG_FILE, *ranks) if not path.is_file()]
    if done.returncode or absent:
        said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-_LOG_LINES:]
        what = f"ended with {done.returncode}" if done.returncode else f"wrote no {', '.join(absent)}"
        raise PlanFailed(f"{BUILDER} {what}: {' | '.join(said) or 'it said nothing'}")
