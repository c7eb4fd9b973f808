"""The words of a report: what a term, a flag, a source, a status and an axis mean."""

from __future__ import annotations

from collections.abc import Iterable

from harness.analysis.words import symbol
from harness.results.metrics import METRICS
from harness.spec.study import Study

#: Provenance → what kind of number it is.
PROVENANCES: dict[str, str] = {
    "composed": "priced from published kernel measurements; nothing ran here",
    "modelled": "computed from the roofline; no kernel was measured and nothing ran here",
    "measured": "timed on the machine named in the row; each number is the median over fresh processes",
    "imported": "taken from a report of another tool",
    "simulated": "made by a test double; says nothing about any GPU",
}

#: What a report says in front of numbers of the roofline.
ROOFLINE_ONLY = "priced from the roofline; install trtllm-harness[tables] for verdicts"

#: Status → why a row has no number.
STATUSES: dict[str, str] = {
    "ok": "has a number",
    "unsupported": "no such kernel or no such slice of the tables exists",
    "refused": "the kernel exists, but the question lies outside what may be answered honestly",
    "rejected": "lint or the memory check found it impossible before any pricing",
    "skipped": "left out by the study, with its reason",
    "build_failed": "the engine could not be prepared",
    "oom": "ran out of GPU memory",
    "timeout": "took longer than allowed",
    "crash": "the process died",
    "invalid": "ran, but did not do what the case says",
    "lost": "its result never arrived",
}

#: Level → what a time is of.
LEVELS: dict[str, str] = {
    "layer": "time of the decoder layers",
    "model": "time of the whole model, embedding and lm_head included",
    "serve": "time of served requests",
}

#: Source → how the time of one op was got, best to worst.
SOURCES: dict[str, str] = {
    "exact": "a row of the published tables, as it stands",
    "interpolated": "between measured rows of the same slice",
    "estimated": "derived from measured rows by a stated rule: the lesser of two, a part taken off, slices added",
    "formula": "a formula on top of measured rows, for example the part of a window",
    "extrapolated": "outside the measured grid, at a stated distance",
    "modelled": "from the roofline",
}

#: Flag → what a reader has to know before using the number.
FLAGS: dict[str, str] = {
    "l2_warm": "the measured KV cache fits in L2, and replaying one layer reads it from there; a whole model reads HBM",
    "sinks": "the only published rows of this slice were collected with attention sinks",
    "extrapolated": "lies outside the measured grid; the note of the op gives the distance and the error band",
    "unmeasured": "no measurement covers this regime; the nearest one stands in for it",
    "noisy": "others kept the machine busy while it was timed, or its samples scatter more than the target",
    "suspect": "a check of the number failed",
    "throttled": "the GPU lowered its clock while it was timed",
    "shared_gpu": "another process used the GPU meanwhile",
    "partial": "a part of what was asked is missing",
}

#: Metrics that a report explains.
_IN_REPORT = (
    *("prefill_compute_ms", "step_ms", "tpot_ms", "ttft_ms", "tok_s_per_gpu", "tok_s_per_user"),
    *("tflop_per_s", "gb_per_s", "ratio"),
)

#: Words of a report that are no metric.
TERMS: dict[str, str] = {
    "composed": "The model is taken apart into kernels, each is priced from a published measurement, and the times are "
    "added. No overlap, no host time and no gap between kernels is included.",
    "roofline": "max(FLOPs / peak, bytes / bandwidth) + launch overhead for every op, added. Peaks are dense and at "
    "the clock of the datasheet.",
    "G": "Query heads per KV head, QH / KH. 1 is multi-head, QH is multi-query attention.",
    "Hsz": "Width of one attention head.",
    "ISL": "Input tokens of one prompt (prefill).",
    "KVSL": "Tokens in the KV cache of one sequence (decode).",
    "step": "One generation step: every sequence of the batch gets its next token.",
    "cliff": "A case much slower than its neighbour along an axis and its roofline explain. Its size is time after / "
    "time before at equal work; where the work grows too, what of that the work does not explain (beyond its work).",
    "sources, share of time": "For each phase, how much of the summed time of all rows comes from which source.",
    "deciding rows": "The rows at which a claim is judged. Those flagged l2_warm are faster than in a whole model.",
    "supports, contradicts, cannot tell": "What the rows say about a claim under the threshold written in the study. "
    "'Cannot tell' means that the rows do not decide it.",
}

#: Words of a report of rows that ran.
TERMS_OF_RUNS: dict[str, str] = {
    "replicate": "One fresh process that timed the case. A sample is one timed iteration of it, device time, that of "
    "the slowest rank; the number of a replicate is the median of its samples.",
    "99 % interval": "Where a number may lie, from how replicates agree (Student's t on logarithms). One replicate has "
    "none.",
}

#: Coordinates as an axis title names them: title and unit.
AXES: dict[str, tuple[str, str]] = {
    "G": ("G, query heads per KV head", ""),
    "Hsz": ("Hsz, head size", "values"),
    "batch": ("Batch b", "sequences"),
    "isl": ("ISL, prompt length", "tokens"),
    "kvsl": ("KVSL, cached tokens per sequence", "tokens"),
    "chunk": ("Chunk", "tokens"),
    "draft_len": ("Draft tokens per step", "tokens"),
    "ffn": ("H', FFN intermediate size", "values"),
    "hidden": ("H, hidden size", "values"),
    "layers": ("Layers", ""),
    "q_heads": ("QH, query heads", ""),
    "kv_heads": ("KH, KV heads", ""),
    "head_dim": ("Hsz, head size", "values"),
    "window": ("Window", "tokens"),
    "kv_format": ("KV cache format", ""),
    "weights": ("Weight format", ""),
    "shape": ("Shape", ""),
    "system": ("GPU", ""),
    "series": ("Series", ""),
    "phase": ("Phase", ""),
}

#: Categories of ops in the order in which reports stack them.
CATEGORIES: dict[str, str] = {
    "attention": "attention",
    "projection": "QKV and output projections",
    "ffn": "FFN",
    "moe": "experts and router",
    "norm": "norms",
    "embedding": "embedding",
    "lm_head": "lm_head",
    "communication": "communication",
}


def limits_title(provenance: str) -> str:
    """What stands above the limits of a study, which are those of the tables."""
    if provenance == "modelled":
        return "What the published tables cannot show (these numbers are the roofline's)"
    if provenance in {"measured", "simulated"}:
        return "Limits that the study states"
    return "What the data cannot show"


def axis_title(name: str) -> str:
    """Title of an axis with its unit: `ISL, prompt length (tokens)`; an unknown axis is its own title."""
    title, unit = AXES.get(name, (name, ""))
    return f"{title} ({unit})" if unit else title


def level_text(study: Study) -> str:
    """What the times of a study are of."""
    return f"time of {', '.join(study.ops)} alone" if study.ops else LEVELS[study.level]


def short_name(name: str) -> str:
    """A coordinate's symbol, as findings write it: `b` for batch, `KVSL`."""
    return "GPU" if name == "system" else symbol(name)


def flag_meaning(flag: str) -> str:
    """What a flag means; a flag without an entry says so rather than nothing."""
    return FLAGS.get(flag, "see the notes of its ops")


def measured_by(versions: Iterable[str]) -> str:
    """Whose kernels were measured and who published it: `TensorRT-LLM 1.3.0rc20, aiconfigurator-core 0.12.0`.

    `versions` are `answered_with` texts of records; what they say besides (device, size of L2) stands in the rows.
    """
    found = dict.fromkeys(piece.strip() for text in versions for piece in text.split(","))
    named = {piece.removeprefix("tables_"): None for piece in found}
    kernels = [piece.replace("trtllm", "TensorRT-LLM") for piece in named if piece.startswith("trtllm ")]
    packages = [piece for piece in named if piece.startswith("aiconfigurator-core ")]
    return ", ".join([*kernels, *packages]) or ", ".join(named)


def glossary(*, ran: bool = False) -> list[tuple[str, str]]:
    """Term and meaning of every word that a report uses, metrics first; `ran` where it has rows that ran."""
    metrics = (METRICS[name] for name in _IN_REPORT)
    words = {**TERMS, **(TERMS_OF_RUNS if ran else {})}
    return [*((f"{metric.title} ({metric.unit})", metric.meaning) for metric in metrics), *words.items()]
