"""Checks of what TensorRT-LLM takes and refuses. What each is about says `harness/data/trtllm_evidence.yaml`."""

from __future__ import annotations

import re
from statistics import median

from harness.backends.trtllm.evidence import release_of
from harness.backends.trtllm.iteration_stats import parse_stats
from harness.backends.trtllm.observations import Missing, Observations, check, demand, need
from harness.engines.llm_fields import allowed_values, field_table, has_field


@check
def _arguments_are_strict(seen: Observations) -> str:
    refused = seen.data("package")["refused"]
    taken = [place for place, was in refused.items() if not was]
    demand(not taken, f"an unknown setting was taken: {', '.join(taken)}")
    return "unknown settings are refused, at the top and within a config"


@check
def _settings_are_known(seen: Observations) -> str:
    version = release_of(seen.features.version)
    need(version, f"{seen.features.version} is no version of a release")
    known = [path for path in field_table() if has_field(path, version)]
    missing = [path for path in known if not seen.features.has(path)]
    demand(not missing, f"not there: {', '.join(missing)}")
    return f"{len(known)} settings are there"


@check
def _moe_backends_are_known(seen: Observations) -> str:
    has = seen.features.moe_backends
    version = release_of(seen.features.version)
    need(version, f"{seen.features.version} is no version of a release")
    written = allowed_values("moe_config.backend", version)
    missing = [name for name in written if name not in has]
    demand(not missing, f"{', '.join(missing)} not among {', '.join(has)}")
    return ", ".join(has)


@check
def _engine_backend_is_there(seen: Observations) -> str:
    demand(seen.features.engine_backend, "tensorrt_llm._tensorrt_engine is not there")
    return "tensorrt_llm._tensorrt_engine is there"


@check
def _engine_backend_is_gone(seen: Observations) -> str:
    demand(not seen.features.engine_backend, "tensorrt_llm._tensorrt_engine is there")
    return "tensorrt_llm._tensorrt_engine is not there"


@check
def _layer_wise_runner_imports(seen: Observations) -> str:
    demand(seen.features.layer_wise, "tensorrt_llm.tools.layer_wise_benchmarks has no runner that can be imported")
    return "it imports"


def _ends(seen: Observations, probe: str) -> tuple[str, str]:
    """`ran`, `raised` or `died`, and what it said."""
    found = seen.of(probe)
    if found.returncode is None:
        raise Missing(f"the probe '{probe}' took too long")
    if found.data is None:
        return "died", found.log
    return ("ran", "") if found.data.get("ran") else ("raised", f"{found.data['text']}\n{found.log}")


@check
def _layer_wise_lines_are_in_us(seen: Observations) -> str:
    data = seen.data("layer_lines")
    need("missing" not in data, data.get("missing", ""))
    lines = [line for line in data["lines"] if "seq_len_kv_cache" in line and "median" in line]
    said = next((line for line in reversed(data["lines"]) if line.strip()), "it said nothing")
    need(lines, f"no result line, exit code {data['code']}: {said.strip()[:200]}")
    names = ("mean", "median", "min", "max", "P90")
    missing = [name for name in names if not re.search(rf"\b{name}\s+\d+(\.\d+)?\b", lines[0])]
    demand(not missing and "(us)" in lines[0], f"a result line of another form: {lines[0].strip()[:200]}")
    return str(lines[0]).strip()[:120]


@check
def _head_size_aborts(seen: Observations) -> str:
    how, said = _ends(seen, "head_size")
    by_signal = (seen.of("head_size").returncode or 0) < 0
    demand(how == "died" and by_signal, f"a model with head size 72 {how}, and was not ended by a signal")
    demand("72" in said, "the log does not name the head size")
    return f"ended by signal {-(seen.of('head_size').returncode or 0)}"


@check
def _head_size_raises(seen: Observations) -> str:
    how, said = _ends(seen, "head_size")
    demand(how == "raised" and "72" in said, f"a model with head size 72 {how}")
    return said.splitlines()[0][:160]


@check
def _wideep_is_refused(seen: Observations) -> str:
    how, said = _ends(seen, "wideep")
    demand(how == "raised", f"a model with WIDEEP {how}")
    return said.splitlines()[0][:160]


@check
def _block_scales_run_with_auto(seen: Observations) -> str:
    need(any(gpu.sm in {100, 103} for gpu in seen.features.gpus), "no GPU of SM 100 or 103 is here")
    how, said = _ends(seen, "block_scales")
    demand(how == "ran", f"it {how}: {said[:200]}")
    return "it ran"


@check
def _nvfp4_needs_blackwell(seen: Observations) -> str:
    need(any(gpu.sm == 90 for gpu in seen.features.gpus), "no GPU of SM 90 is here")
    how, _ = _ends(seen, "nvfp4")
    demand(how != "ran", "it ran")
    return f"it {how}"


@check
def _nvfp4_is_dequantised_on_hopper(seen: Observations) -> str:
    need(any(gpu.sm == 90 for gpu in seen.features.gpus), "no GPU of SM 90 is here")
    how, said = _ends(seen, "nvfp4")
    demand(how == "ran", f"it {how}: {said[:200]}")
    return "it ran"


@check
def _helix_alone_is_refused(seen: Observations) -> str:
    need(len(seen.features.gpus) >= 2, "it takes two GPUs")
    how, said = _ends(seen, "helix")
    demand(how != "ran", "it ran")
    return said.splitlines()[0][:160] if said.strip() else f"it {how}"


@check
def _acceptance_is_forced(seen: Observations) -> str:
    records = parse_stats(seen.data("acceptance")["records"], "get_stats()")
    steps = [row for row in records if row.drafted_tokens and not row.contexts]
    need(bool(steps), "no record tells of draft tokens")
    rates = [(row.accepted_tokens or 0) / row.generations for row in steps]
    demand(median(rates) == 1.0, f"{median(rates):g} draft tokens accepted per step and sequence, not 1")
    return "one draft token is accepted per step and sequence"
