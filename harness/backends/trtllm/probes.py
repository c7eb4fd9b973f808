"""Small observations of an installed TensorRT-LLM, each in a process of its own: some of them end it on purpose.

    python -m harness.backends.trtllm.probes NAME OUT.json

What is seen goes to OUT.json, what TensorRT-LLM prints to stdout. Models are tiny, have dummy weights and run on one
GPU, but for Helix, which takes two.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.backends.trtllm.features import PACKAGE, detect
from harness.engines.engine_spec import engine_spec
from harness.spec.variant import Experts, Mla, Variant, WeightFormats

#: Sequences, prompt and answer of the observations. A graph of four sequences is filled up with one dummy; a prefill is
#: to take far longer than a decode step.
BATCH, GRAPH_BATCH, PROMPT, ANSWER = 3, 4, 4096, 24
#: Records that the ring of `ring` holds, far fewer than the iterations.
RING = 8
#: Names the checkout of TensorRT-LLM that `layer_lines` runs.
CHECKOUT_VARIABLE = "TRTLLM_HARNESS_CHECKOUT"
#: Draft tokens of `acceptance`, of which one is to be accepted.
DRAFT = 2

_DENSE = Variant(name="selftest", layers=2, hidden=512, q_heads=8, kv_heads=4, head_dim=64, ffn=1024, vocab=1024)
_EXPERTS = _DENSE.model_copy(update={"ffn": 0, "experts": Experts(count=8, top_k=2, inter=512)})
_LATENT = Variant(
    name="selftest", layers=2, hidden=1024, q_heads=8, kv_heads=8, head_dim=128, ffn=1024, vocab=1024,
    attention=("mla",), mla=Mla(q_lora_rank=512), experts=Experts(count=8, top_k=2, inter=512, dense_layers=1),
)  # fmt: skip


def package(_: Path) -> dict[str, Any]:
    """What can be seen without a model."""
    arguments = importlib.import_module(f"{PACKAGE}.llmapi.llm_args").TorchLlmArgs
    refused = {}
    unknown: dict[str, Any] = {"harness_selftest": 1}
    for name, extra in (("top", unknown), ("inner", {"kv_cache_config": unknown})):
        try:
            arguments(model="selftest", **extra)
        except ValueError as error:
            refused[name] = "harness_selftest" in str(error)
        else:
            refused[name] = False
    return {"refused": refused}


def decode(folder: Path) -> dict[str, Any]:
    """The same prompts twice, with an incomplete graph; records of each call and what came out."""
    llm = _open(folder, _DENSE)
    prompts = _prompts()
    seen = []
    for _ in range(2):
        outputs = llm.generate(prompts, _sampling(ANSWER), use_tqdm=False)
        seen.append({"lengths": [len(one.outputs[0].token_ids) for one in outputs], "records": _drain(llm)})
    return {"calls": seen}


def ring(folder: Path) -> dict[str, Any]:
    """More iterations than the ring of statistics holds."""
    llm = _open(folder, _DENSE, max_stats_len=RING)
    llm.generate(_prompts(), _sampling(8 * RING), use_tqdm=False)
    return {"numbers": [record["iter"] for record in _drain(llm)], "iterations": 8 * RING}


def head_size(folder: Path) -> dict[str, Any]:
    """A head size for which there is no kernel."""
    return _runs(folder, _DENSE.model_copy(update={"head_dim": 72}))


def wideep(folder: Path) -> dict[str, Any]:
    """A mixture of experts on a backend that was removed."""
    return _runs(folder, _EXPERTS, moe_config={"backend": "WIDEEP"})


def block_scales(folder: Path) -> dict[str, Any]:
    """FP8 block scales on the backend that AUTO takes."""
    formats = WeightFormats(attention="fp8_block", ffn="fp8_block", experts="fp8_block")
    return _runs(folder, _EXPERTS.model_copy(update={"weights": formats}), moe_config={"backend": "AUTO"})


def nvfp4(folder: Path) -> dict[str, Any]:
    """NVFP4 weights."""
    formats = WeightFormats(attention="nvfp4", ffn="nvfp4", experts="nvfp4")
    return _runs(folder, _DENSE.model_copy(update={"weights": formats}))


def helix(folder: Path) -> dict[str, Any]:
    """KV parallelism without a context server, on two GPUs."""
    block = 32
    cache = {"enable_block_reuse": False, "tokens_per_block": block, "max_tokens": 32768}
    split = {"context_parallel_size": 2, "cp_config": {"cp_type": "HELIX", "tokens_per_block": block}}
    return _runs(folder, _LATENT, kv_cache_config=cache, **split)


def acceptance(folder: Path) -> dict[str, Any]:
    """Draft tokens of which one is to be accepted in each step."""
    has_old_name = "speculative_config.num_nextn_predict_layers" in detect().settings
    length = {"num_nextn_predict_layers": DRAFT} if has_old_name else {"max_draft_len": DRAFT}
    llm = _open(folder, _LATENT, speculative_config={"decoding_type": "MTP", **length}, drafts=DRAFT)
    llm.generate(_prompts(), _sampling(ANSWER), use_tqdm=False)
    return {"records": _drain(llm)}


def layer_lines(folder: Path) -> dict[str, Any]:
    """What the layer-wise benchmarks of a checkout print."""
    checkout = os.environ.get(CHECKOUT_VARIABLE)
    if not checkout:
        return {"missing": "needs a checkout of NVIDIA/TensorRT-LLM: --layerwise-checkout PATH"}
    _write(folder, _EXPERTS)
    sizes = {"batch-size": 2, "seq-len-q": 1, "seq-len-kv-cache": 256, "warmup-times": 3, "run-times": 5}
    options = [f"--{name}={value}" for name, value in {"model": folder, "layer-indices": 0, **sizes}.items()]
    command = [sys.executable, "run.py", "config_gen.yaml", "--no-enable-attention-dp", *options]
    place = Path(checkout) / "examples" / "layer_wise_benchmarks"
    done = subprocess.run(command, cwd=place, stdout=subprocess.PIPE, text=True, check=False)
    return {"code": done.returncode, "lines": done.stdout.splitlines()}


PROBES: dict[str, Callable[[Path], dict[str, Any]]] = {
    one.__name__: one
    for one in (package, decode, ring, head_size, wideep, block_scales, nvfp4, helix, acceptance, layer_lines)
}
#: Environment of a probe beside what it inherits.
ENVIRONMENT: dict[str, dict[str, str]] = {
    "decode": {"TLLM_LOG_LEVEL": "INFO"},
    "acceptance": {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "1"},
}


def _open(folder: Path, variant: Variant, *, drafts: int = 0, **changes: Any) -> Any:
    """An LLM of a variant, with its folder written first."""
    _write(folder, variant)
    if drafts:
        config = folder / "config.json"
        fields = {**json.loads(config.read_text(encoding="utf-8")), "num_nextn_predict_layers": 1}
        config.write_text(json.dumps(fields), encoding="utf-8")
    settings: dict[str, Any] = {
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "max_batch_size": GRAPH_BATCH,
        "max_num_tokens": 16384,
        "max_seq_len": 8192,
        "kv_cache_config": {"enable_block_reuse": False, "max_tokens": 32768},
        "cuda_graph_config": {"batch_sizes": [GRAPH_BATCH], "enable_padding": True},
        "disable_overlap_scheduler": False,
        "enable_iter_perf_stats": True,
        "print_iter_log": True,
        **changes,
    }
    return importlib.import_module(PACKAGE).LLM(model=str(folder), **settings)


def _write(folder: Path, variant: Variant) -> None:
    for name, text in engine_spec(variant).files.items():
        (folder / name).write_text(text, encoding="utf-8")


def _runs(folder: Path, variant: Variant, **changes: Any) -> dict[str, Any]:
    """Whether it answers, or what it raises; what ends the process is seen from outside."""
    try:
        llm = _open(folder, variant, **changes)
        llm.generate(_prompts(), _sampling(2), use_tqdm=False)
    except Exception as error:  # noqa: BLE001  # whatever it is, it is what is asked for
        return {"raised": type(error).__name__, "text": str(error)[:2000]}
    return {"ran": True}


def _prompts() -> list[list[int]]:
    # Nothing secret; the same each time.
    rng = random.Random(7)  # noqa: S311
    return [[rng.randrange(16, 1000) for _ in range(PROMPT)] for _ in range(BATCH)]


def _sampling(tokens: int) -> Any:
    return importlib.import_module(PACKAGE).SamplingParams(max_tokens=tokens, ignore_eos=True, end_id=2, pad_id=2)


def _drain(llm: Any) -> list[dict[str, Any]]:
    records = []
    while found := llm.get_stats(timeout=2):
        records += [json.loads(one) if isinstance(one, str) else one for one in found]
        if len(records) > 100_000:
            break
    return records


def main(arguments: Sequence[str]) -> None:
    """Make one observation and write it down."""
    name, out = arguments
    with tempfile.TemporaryDirectory() as folder:
        seen = PROBES[name](Path(folder))
        Path(out).write_text(json.dumps(seen, default=str), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
