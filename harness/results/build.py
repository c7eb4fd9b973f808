"""Make the record of a case: its shape, its price, what follows from them."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from harness import __version__
from harness.cost.kv_cache import kv_bytes_per_sequence
from harness.cost.ops import Kernel, hbm_bytes
from harness.pricing.compose import CasePrice, PricedOp
from harness.results.record import PROVENANCE_OF, OpRow, Record, Status
from harness.results.store import Attempt
from harness.spec.case import Case
from harness.spec.expand import PlannedCase
from harness.spec.workload import Decode, Serve


@dataclass(frozen=True, slots=True)
class Answerer:
    """Who answers the cases of one system."""

    name: str
    """`tables` or `roofline`."""
    versions: str
    """Readable versions of what answers."""


def priced_attempt(
    planned: PlannedCase, price: CasePrice, answerer: Answerer, attempt_id: str, started_at: str
) -> Attempt:
    """The attempt of a priced case."""
    figures = _figures(planned.case, planned.level, price)
    record = _record(planned, answerer, attempt_id, started_at, price.status, price.reason, price.flags, figures)
    return Attempt(record, tuple(_op_row(attempt_id, i, op) for i, op in enumerate(price.ops)))


def unpriced_attempt(
    planned: PlannedCase, status: Status, reason: str, answerer: Answerer, attempt_id: str, started_at: str
) -> Attempt:
    """The attempt of a case that was never asked: skipped by its study or rejected by lint."""
    return Attempt(_record(planned, answerer, attempt_id, started_at, status, reason, [], {}))


def _record(
    planned: PlannedCase,
    answerer: Answerer,
    attempt_id: str,
    started_at: str,
    status: Status,
    reason: str | None,
    flags: list[str],
    figures: dict[str, Any],
) -> Record:
    case = planned.case
    return Record(
        attempt_id=attempt_id,
        run_id=attempt_id.partition(".")[0],
        case_id=case.case_id,
        study=planned.study,
        series=planned.series,
        coordinates=json.dumps(planned.coordinates),
        level=planned.level,
        level_ops=",".join(planned.ops) or None,
        phase=case.workload.phase,
        started_at=started_at,
        status=status,
        reason=reason,
        flags=flags,
        answered_by=answerer.name,
        provenance=PROVENANCE_OF[answerer.name],
        answered_with=answerer.versions,
        harness_version=__version__,
        case=json.dumps(case.model_dump(mode="json", exclude_defaults=True)),
        **_shape(case),
        **figures,
    )


def _shape(case: Case) -> dict[str, Any]:
    variant, split, work = case.variant, case.parallelism, case.workload
    experts = variant.experts
    return {
        "system": case.system,
        "variant": variant.name,
        **{
            name: getattr(variant, name)
            for name in ("layers", "hidden", "q_heads", "kv_heads", "head_dim", "ffn", "vocab")
        },
        "group_size": variant.group_size,
        "attention": ",".join(variant.attention),
        "window": variant.window,
        "experts": experts.count if experts else None,
        "top_k": experts.top_k if experts else None,
        "expert_inter": experts.inter if experts else None,
        "attention_weights": variant.weights.attention,
        "ffn_weights": variant.weights.ffn,
        "expert_weights": variant.weights.experts if experts else None,
        "kv_format": variant.kv_format,
        "attn_format": variant.attn_format,
        "world_size": split.world_size,
        **{name: getattr(split, name) for name in ("tp", "pp", "cp", "ep", "attention_dp")},
        "batch": work.batch,
        **{name: getattr(work, name, None) for name in ("isl", "chunk", "kvsl", "draft_len", "accepted")},
        "routing": work.routing,
    }


def _figures(case: Case, level: str, price: CasePrice) -> dict[str, Any]:
    """Everything that is computed; what does not apply or has no answer stays null."""
    work = case.workload
    figures: dict[str, Any] = {
        "flops": sum(one.op.flops for one in price.ops) or None,
        "hbm_bytes": sum(one.op.hbm_bytes for one in price.ops) or None,
        "roofline_ms": price.roofline_ms,
        "roofline_bound": price.bound,
        "kv_bytes_per_gpu": _kv_bytes_per_gpu(case),
    }
    if price.time_ms is None or isinstance(work, Serve):
        return figures
    shares = {source: round(share, 6) for source, share in price.source_shares().items()}
    figures |= {"worst_source": price.worst_source, "source_shares": json.dumps(shares)}
    time_ms = price.time_ms
    figures["step_ms" if isinstance(work, Decode) else "prefill_compute_ms"] = time_ms
    if level == "model":  # the time of a part says nothing about tokens a second
        figures["tok_s_per_gpu"] = work.tokens / time_ms * 1000 / case.parallelism.world_size
    if level == "model" and isinstance(work, Decode):
        figures["tpot_ms"] = time_ms / (1 + work.accepted)
        figures["tok_s_per_user"] = 1000 / figures["tpot_ms"]
    return figures


def _kv_bytes_per_gpu(case: Case) -> float:
    work, split = case.workload, case.parallelism
    context = work.kvsl if isinstance(work, Decode) else work.isl
    sequences = -(-work.batch // split.dp)
    return sequences * kv_bytes_per_sequence(case.variant, context, split)


def _op_row(attempt_id: str, position: int, priced: PricedOp) -> OpRow:
    op, price = priced.op, priced.price
    time_us = None if price.time_ms is None else price.time_ms * 1000
    return OpRow(
        attempt_id=attempt_id,
        position=position,
        op=op.name,
        category=op.category,
        kernel=kernel_text(op.kernel),
        count=op.count,
        time_us=time_us,
        total_us=None if time_us is None else op.count * time_us,
        source=price.source,
        flags=list(price.flags),
        note=price.note or None,
        flops=op.kernel.flops,
        hbm_bytes=hbm_bytes(op.kernel),
        roofline_us=priced.roofline.time_ms * 1000 if priced.roofline else None,
        roofline_bound=priced.roofline.bound if priced.roofline else None,
    )


def kernel_text(kernel: Kernel) -> str:
    """A kernel and its shape, readable: `Gemm m=8 n=6144 k=4096 format=fp8_static`."""
    shown = ((field.name, getattr(kernel, field.name), field.default) for field in fields(kernel))
    return " ".join([type(kernel).__name__, *(f"{name}={value}" for name, value, default in shown if value != default)])
