"""Rules on experts: how they divide over ranks and slots, and which MoE backend computes what where."""

from __future__ import annotations

from collections.abc import Iterator

from harness.lint.facts import MoeBackend, in_force
from harness.lint.finding import Problem, join
from harness.lint.registry import rule
from harness.lint.shapes import nearest_multiples
from harness.lint.subject import Subject


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if not number % n]


@rule("experts-without-moe")
def experts_without_moe(s: Subject) -> Iterator[Problem]:
    """Expert parallelism of a dense variant."""
    if s.variant.experts is None and (s.split.ep > 1 or s.split.slots):
        field, value = ("parallelism.ep", s.split.ep) if s.split.ep > 1 else ("parallelism.slots", s.split.slots or 0)
        yield Problem(
            field, value, "left out for a dense variant", "there are no experts, so it changes nothing", "ep 1"
        )


@rule("moe-ranks")
def moe_ranks(s: Subject) -> Iterator[Problem]:
    """Ep · moe_tp = tp · cp."""
    split = s.split
    ranks, moe_tp = split.tp * split.cp, split.expert_tp
    if split.ep * moe_tp != ranks:
        why = f"experts live inside the ranks of a stage, and ep {split.ep} · moe_tp {moe_tp} = {split.ep * moe_tp}"
        pairs = join(f"ep {n} · moe_tp {ranks // n}" for n in _divisors(ranks))
        yield Problem("parallelism.ep", split.ep, f"such that ep · moe_tp = tp · cp = {ranks}", why, pairs)


@rule("experts-split")
def experts_split(s: Subject) -> Iterator[Problem]:
    """Experts % ep, where no slots are given."""
    experts, ep = s.variant.experts, s.split.ep
    if experts and s.split.slots is None and experts.count % ep:
        slots = -(-experts.count // ep) * ep
        ways = [n for n in _divisors(s.split.tp * s.split.cp) if not experts.count % n]
        why = f"{experts.count} experts over {ep} ranks leave {experts.count % ep} that no rank shares evenly"
        works = f"slots {slots} (EPLB), or ep {join(ways)}"
        yield Problem("experts.count", experts.count, f"a multiple of ep {ep}", why, works)


@rule("slots-split")
def slots_split(s: Subject) -> Iterator[Problem]:
    """Slots % ep."""
    slots, ep = s.split.slots, s.split.ep
    if s.variant.experts and slots and slots % ep:
        fits = [n for n in nearest_multiples(slots, ep) if n >= s.variant.experts.count]
        why = "every rank has the same number of expert slots"
        yield Problem("parallelism.slots", slots, f"a multiple of ep {ep}", why, f"slots {join(fits)}")


@rule("slots-too-few")
def slots_too_few(s: Subject) -> Iterator[Problem]:
    """Slots >= experts."""
    slots, experts = s.split.slots, s.variant.experts
    if experts and slots and slots < experts.count:
        enough = -(-experts.count // s.split.ep) * s.split.ep
        why = "each expert needs a slot of its own before any is held twice"
        yield Problem("parallelism.slots", slots, f"at least the {experts.count} experts", why, f"slots {enough}")


def _backend(s: Subject) -> tuple[str, MoeBackend | None] | None:
    """Name and facts of the backend that would run; None where there is no MoE layer, or nothing is known."""
    facts = s.facts
    if s.variant.experts is None or not facts.moe_backends:
        return None
    default = [one.backend for one in in_force(facts.moe_defaults, s.version)]
    name = (s.settings.moe_backend or (default[0] if default else "")).upper()
    return (name, facts.moe_backends.get(name)) if name else None


def _capable(s: Subject) -> list[str]:
    """Backends of this version that compute the experts' format on this GPU, best known first."""
    return [
        name
        for name, backend in s.facts.moe_backends.items()
        if backend.holds(s.version) and _computes(s, backend) and (backend.eplb or not s.split.slots)
    ]


def _computes(s: Subject, backend: MoeBackend) -> bool:
    kernels = [one for one in in_force(backend.kernels, s.version) if one.format == s.variant.weights.experts]
    return any(one.covers(s.gpu.sm) for one in kernels)


@rule("moe-backend-version")
def moe_backend_version(s: Subject) -> Iterator[Problem]:
    """Backends that a version does not have."""
    chosen = _backend(s)
    if chosen is None:
        return
    name, backend = chosen
    if backend is None or not backend.holds(s.version):
        known = [other for other, one in s.facts.moe_backends.items() if one.holds(s.version)]
        why = backend.absent if backend else "there is no such backend"
        limit = f"one of {join(known)} with TensorRT-LLM {s.version}"
        yield Problem("moe_backend", name, limit, why, f"moe_backend {join(_capable(s)[:3])}")


@rule("moe-backend-kernel")
def moe_backend_kernel(s: Subject) -> Iterator[Problem]:
    """Backend x format x SM."""
    chosen, experts = _backend(s), s.variant.weights.experts
    elsewhere = not s.facts.computes("weights", experts, s.gpu.sm, s.version) or s.facts.never_run(experts, s.version)
    if chosen is None or elsewhere:  # the rule on that format tells
        return
    name, backend = chosen
    if backend and backend.holds(s.version) and not _computes(s, backend):
        kernels = [one for one in in_force(backend.kernels, s.version) if one.format == experts]
        limit = f"one that computes {experts} experts on {s.on}"
        where = f"only on {join(one.gpus for one in kernels)}" if kernels else "nowhere"
        why = f"with TensorRT-LLM {s.version} it does so {where}; another backend would run with no more than a warning"
        capable = _capable(s)
        works = f"moe_backend {join(capable[:3])}" if capable else "weights.experts in another format"
        yield Problem("moe_backend", name, limit, why, works)


@rule("moe-backend-eplb")
def moe_backend_eplb(s: Subject) -> Iterator[Problem]:
    """Backends without expert load balancing."""
    chosen = _backend(s)
    if chosen and s.split.slots and chosen[1] and chosen[1].holds(s.version) and not chosen[1].eplb:
        why = "it has no expert load balancing, so more slots than experts mean nothing to it"
        works = f"moe_backend {join(_capable(s)[:3])}, or no slots"
        yield Problem("moe_backend", chosen[0], f"one with EPLB, as slots is {s.split.slots}", why, works)
