"""Make the record of a case: its shape, its price, what follows from them."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from harness.cost.kv_cache import kv_bytes_per_sequence, stage_sizes
from harness.cost.memory import fits
from harness.cost.ops import Kernel, hbm_bytes
from harness.cost.pipeline import decode_period, imbalance
from harness.hardware import load_system
from harness.pricing.compose import CasePrice, PricedOp
from harness.results.record import PROVENANCE_OF, OpRow, Provenance, Record, Status
from harness.results.store import Attempt
from harness.spec.case import Case
from harness.spec.expand import PlannedCase
from harness.spec.workload import Decode, Prefill, Serve
from harness.version import __version__


@dataclass(frozen=True, slots=True)
class Answerer:
    """Who answers the cases of one system."""

    name: str
    """`tables`, `roofline`, or a backend."""
    versions: str
    """Readable versions of what answers."""
    measures: Provenance | None = None
    """What the numbers of a backend are; a pricer's name says it."""

    @property
    def provenance(self) -> Provenance:
        """What the numbers are."""
        return self.measures or PROVENANCE_OF[self.name]


def priced_attempt(
    planned: PlannedCase, price: CasePrice, answerer: Answerer, attempt_id: str, started_at: str
) -> Attempt:
    """The attempt of a priced case."""
    figures = case_figures(planned.case, planned.level, price)
    record = make_record(planned, answerer, attempt_id, started_at, price.status, price.reason, price.flags, figures)
    return Attempt(record, tuple(_op_row(attempt_id, i, op) for i, op in enumerate(price.ops)))


def unpriced_attempt(
    planned: PlannedCase, status: Status, reason: str, answerer: Answerer, attempt_id: str, started_at: str
) -> Attempt:
    """The attempt of a case that was never asked: skipped by its study, or rejected by lint or for memory."""
    return Attempt(make_record(planned, answerer, attempt_id, started_at, status, reason, [], {}))


def what_is_asked(planned: PlannedCase) -> dict[str, Any]:
    """The columns that say what was asked, and where in its study it lies."""
    return {
        "case_id": planned.case.case_id,
        "study": planned.study,
        "series": planned.series,
        "coordinates": json.dumps(planned.coordinates),
        "level": planned.level,
        "level_ops": ",".join(planned.ops) or None,
        "case": json.dumps(planned.case.model_dump(mode="json", exclude_defaults=True)),
    }


def make_record(
    planned: PlannedCase,
    answerer: Answerer,
    attempt_id: str,
    started_at: str,
    status: Status,
    reason: str | None,
    flags: list[str],
    figures: dict[str, Any],
) -> Record:
    """The record of a planned case: what was asked, who answered, and `figures`, its other columns by name."""
    case = planned.case
    return Record(
        attempt_id=attempt_id,
        run_id=attempt_id.partition(".")[0],
        **what_is_asked(planned),
        phase=case.workload.phase,
        started_at=started_at,
        status=status,
        reason=reason,
        flags=flags,
        answered_by=answerer.name,
        provenance=answerer.provenance,
        answered_with=answerer.versions,
        harness_version=__version__,
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
        **{name: getattr(split, name) for name in ("tp", "pp", "cp", "ep", "attention_dp", "slots")},
        "moe_tp": split.expert_tp if experts else None,
        "pp_partition": _partition(case) if split.pp > 1 else None,
        "batch": work.batch,
        **{name: getattr(work, name, None) for name in ("isl", "chunk", "kvsl", "draft_len", "accepted")},
        "routing": work.routing,
    }


def case_figures(case: Case, level: str, price: CasePrice) -> dict[str, Any]:
    """Everything that is computed; what does not apply or has no answer stays null."""
    work = case.workload
    figures: dict[str, Any] = {
        "flops": sum(one.op.flops for one in price.ops) or None,
        "hbm_bytes": sum(one.op.hbm_bytes for one in price.ops) or None,
        "link_bytes": sum(one.op.count * one.op.kernel.link_bytes for one in price.ops) if price.ops else None,
        "roofline_ms": price.roofline_ms,
        "roofline_bound": price.bound,
        "kv_bytes_per_gpu": _kv_bytes_per_gpu(case),
    }
    if price.time_ms is None or isinstance(work, Serve):
        return figures
    shares = {source: round(share, 6) for source, share in price.source_shares().items()}
    figures |= {"worst_source": price.worst_source, "source_shares": json.dumps(shares) if shares else None}
    time_ms = price.time_ms
    figures["step_ms" if isinstance(work, Decode) else "prefill_compute_ms"] = time_ms
    if price.stage_ms:
        figures["pp_imbalance"] = imbalance(price.stage_ms)
    if level == "model":  # the time of a part says nothing about tokens a second
        figures |= _rates(case, work, price)
    return figures


def _rates(case: Case, work: Prefill | Decode, price: CasePrice) -> dict[str, Any]:
    """Tokens a second; a pipeline is kept busy by groups of `batch` sequences, as many as it has stages and room."""
    groups, period_ms = 1, price.time_ms or 0.0
    if price.stage_ms:
        groups = _groups(case)
        period_ms = decode_period(price.stage_ms, groups)
    rates = {"tok_s_per_gpu": groups * work.tokens / period_ms * 1000 / case.parallelism.world_size}
    if isinstance(work, Decode):
        rates["tpot_ms"] = period_ms / (1 + work.accepted)
        rates["tok_s_per_user"] = 1000 / rates["tpot_ms"]
    return {**rates, "pp_groups": groups if price.stage_ms else None}


def _groups(case: Case) -> int:
    """Groups of `batch` sequences in flight: pp, or as many as the memory of each GPU holds."""
    most = fits(case, load_system(case.system)).max_batch
    pp = case.parallelism.pp
    return pp if most is None else max(1, min(pp, most // case.workload.batch))


def _partition(case: Case) -> str:
    split = case.parallelism
    return "+".join(map(str, stage_sizes(case.variant.layers, split.pp, split.pp_partition)))


def _kv_bytes_per_gpu(case: Case) -> float:
    work, split = case.workload, case.parallelism
    context = work.kvsl if isinstance(work, Decode) else work.isl
    sequences = -(-work.batch // split.dp)
    return sequences * kv_bytes_per_sequence(case.variant, context, split)


def _op_row(attempt_id: str, position: int, priced: PricedOp) -> OpRow:
    price = priced.price
    time_us = None if price.time_ms is None else price.time_ms * 1000
    note, flags = price.note or None, list(price.flags)
    return make_op_row(attempt_id, position, priced, time_us=time_us, source=price.source, flags=flags, note=note)


def make_op_row(
    attempt_id: str,
    position: int,
    priced: PricedOp,
    *,
    time_us: float | None,
    source: str | None,
    flags: list[str],
    note: str | None,
) -> OpRow:
    """One op of an attempt, with the time of one execution and where that is from."""
    op, roofline = priced.op, priced.roofline
    return OpRow(
        attempt_id=attempt_id,
        position=position,
        op=op.name,
        category=op.category,
        kernel=kernel_text(op.kernel),
        count=op.count,
        time_us=time_us,
        total_us=None if time_us is None else op.count * time_us,
        source=source,
        flags=flags,
        note=note,
        flops=op.kernel.flops,
        hbm_bytes=hbm_bytes(op.kernel),
        link_bytes=op.kernel.link_bytes,
        roofline_us=roofline.time_ms * 1000 if roofline else None,
        roofline_bound=roofline.bound if roofline else None,
    )


def kernel_text(kernel: Kernel) -> str:
    """A kernel and its shape, readable: `Gemm m=8 n=6144 k=4096 format=fp8_static`."""
    shown = ((field.name, getattr(kernel, field.name), field.default) for field in fields(kernel))
    return " ".join([type(kernel).__name__, *(f"{name}={value}" for name, value, default in shown if value != default)])
