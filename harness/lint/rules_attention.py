"""Rules on heads: how they divide, which head sizes have kernels, and which group sizes decode fast."""

from __future__ import annotations

import math
from collections.abc import Iterator

from harness.cost.kv_cache import kv_bytes_per_token, unique_kv_bytes_per_token
from harness.lint.facts import GroupFactor, in_force
from harness.lint.finding import Problem, either, join
from harness.lint.registry import rule
from harness.lint.shapes import clean_splits, nearest_multiples, working_tp
from harness.lint.subject import Subject, attention_ways
from harness.spec.parallelism import Parallelism
from harness.spec.workload import Decode


@rule("q-heads-per-kv-head")
def q_heads_per_kv_head(s: Subject) -> Iterator[Problem]:
    """QH % KH."""
    v = s.variant
    if s.has_kv_heads and v.q_heads % v.kv_heads:
        fits = [n for n in range(1, v.q_heads + 1) if s.with_heads(kv_heads=n).group_size]
        near = [n for n in fits if n < v.kv_heads][-1:] + [n for n in fits if n > v.kv_heads][:1]
        works = either(f"kv_heads {join(near)}" if near else "", _q_heads_that_fit(s))
        why = "the group size G is not a whole number"
        yield Problem("q_heads", v.q_heads, f"a multiple of kv_heads {v.kv_heads}", why, works)


def _q_heads_that_fit(s: Subject) -> str:
    """The nearest counts of query heads that KV heads and ranks divide."""
    step = math.lcm(s.variant.kv_heads, attention_ways(s.split) * s.split.cp)
    return f"q_heads {join(nearest_multiples(s.variant.q_heads, step))}"


@rule("q-heads-split")
def q_heads_split(s: Subject) -> Iterator[Problem]:
    """QH % (tp·cp)."""
    ranks, by = attention_ways(s.split) * s.split.cp, "tp·cp" if s.split.cp > 1 else "tp"
    if s.variant.q_heads % ranks:
        works = either(working_tp(s.variant, s.split, s.facts), _q_heads_that_fit(s))
        why = "ranks hold whole query heads"
        yield Problem("q_heads", s.variant.q_heads, f"a multiple of {by} {ranks}", why, works)


@rule("kv-heads-split")
def kv_heads_split(s: Subject) -> Iterator[Problem]:
    """KH % tp, or tp % KH."""
    tp, heads = attention_ways(s.split), s.variant.kv_heads
    if s.has_kv_heads and heads % tp and tp % heads:
        works = working_tp(s.variant, s.split, s.facts)
        why = f"neither divides the other, so ranks neither share out nor duplicate {heads} KV heads evenly"
        yield Problem("parallelism.tp", tp, f"a divisor or a multiple of kv_heads {heads}", why, works)


@rule("kv-heads-duplicated")
def kv_heads_duplicated(s: Subject) -> Iterator[Problem]:
    """Tp > KH without Helix, which has a rule of its own."""
    tp, heads = attention_ways(s.split), s.variant.kv_heads
    if not s.has_kv_heads or s.split.cp > 1 or tp <= heads or tp % heads:
        return
    held = tp * kv_bytes_per_token(s.variant, Parallelism(tp=tp))
    unique = unique_kv_bytes_per_token(s.variant)
    why = (
        f"each KV head is held by {tp // heads} ranks and KV bytes per GPU stop shrinking at tp {heads}; "
        f"the {tp} ranks hold {held:,.0f} bytes a token for {unique:,.0f} unique, {held - unique:,.0f} wasted"
    )
    works = working_tp(s.variant, s.split, s.facts, largest=heads)
    yield Problem("parallelism.tp", tp, f"at most kv_heads {heads}", why, works)


@rule("mla-latent-replicated")
def mla_latent_replicated(s: Subject) -> Iterator[Problem]:
    """MLA under tp."""
    tp = attention_ways(s.split)
    if "mla" in s.variant.attention and tp > 1:
        pattern = tuple(kind if kind == "mla" else "none" for kind in s.variant.attention)
        latent = kv_bytes_per_token(s.variant.model_copy(update={"attention": pattern}))
        why = f"tp does not split the one latent of MLA: each of the {tp} ranks holds all {latent:,.0f} bytes a token"
        yield Problem(
            "parallelism.tp", tp, "1 to hold the latent once", why, "attention_dp, which shares out sequences"
        )


def _refused(s: Subject) -> list[tuple[str, str]]:
    """Why TensorRT-LLM stops at this head size: (limit, why) per fact."""
    size = s.variant.head_dim
    accepted = [one for one in in_force(s.facts.accepted_head_sizes, s.version) if one.covers(s.gpu.sm)]
    failing = [one for one in in_force(s.facts.failing_head_sizes, s.version) if one.covers(s.gpu.sm)]
    return [
        *((f"one of {join(one.sizes)} on {s.on}", one.why) for one in accepted if size not in one.sizes),
        *((f"other than {join(one.sizes)} on {s.on}", one.why) for one in failing if size in one.sizes),
    ]


def _off_multiple(s: Subject) -> bool:
    multiple = s.facts.head_size_multiple
    return bool(multiple and s.variant.head_dim % multiple.multiple)


def _fused_sizes(s: Subject) -> list[int] | None:
    """Head sizes with a fused kernel for this KV format and GPU; None where nothing is known."""
    v = s.variant
    lists = [
        one
        for one in in_force(s.facts.fused_head_sizes, s.version)
        if one.covers(s.gpu.sm) and v.kv_format in one.kv and v.attn_format in one.attention
    ]
    return sorted({size for one in lists for size in one.sizes}) if lists else None


def _usable_head_size(s: Subject) -> str:
    """The nearest head size with a kernel, preferably by padding."""
    size, sizes = s.variant.head_dim, _fused_sizes(s) or []
    larger, smaller = [n for n in sizes if n > size], [n for n in sizes if n < size]
    if larger:
        return f"pad to head_dim {min(larger)}"
    return f"head_dim {max(smaller)}" if smaller else ""


@rule("head-size-multiple")
def head_size_multiple(s: Subject) -> Iterator[Problem]:
    """Hsz % 8."""
    multiple = s.facts.head_size_multiple
    if multiple and s.has_kv_heads and _off_multiple(s):
        known = _fused_sizes(s)
        also = "" if known is None else f"; it is in no list of fused kernels either ({join(known) or 'none'})"
        works = _usable_head_size(s) or f"head_dim {join(nearest_multiples(s.variant.head_dim, multiple.multiple))}"
        yield Problem(
            "head_dim", s.variant.head_dim, f"a multiple of {multiple.multiple}", f"{multiple.why}{also}", works
        )


@rule("head-size-unsupported")
def head_size_unsupported(s: Subject) -> Iterator[Problem]:
    """Head sizes at which TensorRT-LLM stops."""
    if s.has_kv_heads and not _off_multiple(s):
        for limit, why in _refused(s):
            yield Problem(
                "head_dim", s.variant.head_dim, limit, f"{why} (TensorRT-LLM {s.version})", _usable_head_size(s)
            )


@rule("head-size-unfused")
def head_size_unfused(s: Subject) -> Iterator[Problem]:
    """Head sizes without a known fused kernel."""
    v, known = s.variant, _fused_sizes(s)
    if not s.has_kv_heads or known is None or v.head_dim in known or _off_multiple(s) or _refused(s):
        return
    if s.facts.computes("kv", v.kv_format, s.gpu.sm, s.version):
        what = f"{v.kv_format} KV and {v.attn_format} attention"
        why = f"no fused attention kernel is known with {what} there; a slow unfused path could be measured in silence"
        limit = (
            f"one of {join(known)} with {v.kv_format} KV on {s.on}"
            if known
            else f"none with {v.kv_format} KV on {s.on}"
        )
        yield Problem("head_dim", v.head_dim, limit, why, _usable_head_size(s))


def _largest_group(s: Subject) -> int | None:
    limits = [one.largest for one in in_force(s.facts.largest_group_size, s.version) if one.covers(s.gpu.sm)]
    return min(limits) if limits else None


def _group_size(s: Subject) -> int | None:
    """G of a rank where decode is asked about and the heads divide."""
    return s.group_size if s.has_kv_heads and s.decodes else None


@rule("group-size-cliff")
def group_size_cliff(s: Subject) -> Iterator[Problem]:
    """G of a rank beyond the grouped decode kernels."""
    group, largest = _group_size(s), _largest_group(s)
    if group is None or largest is None or group <= largest:
        return
    heads = [
        n for n in range(s.variant.kv_heads + 1, s.variant.q_heads + 1) if _fits(s.with_heads(kv_heads=n), largest)
    ]
    splits = clean_splits(s.variant, s.split, s.facts)
    ways = [tp for tp, split in splits.items() if tp > s.split.tp and _fits(s.with_split(split), largest)]
    works = either(f"kv_heads {heads[0]}" if heads else "", f"tp {ways[0]}" if ways else "")
    why = f"decode leaves its grouped kernel beyond {largest} query heads per KV head; {_factor_text(s)}"
    yield Problem("group_size", group, f"at most {largest} on each rank in decode", why, works)


def _fits(s: Subject, largest: int) -> bool:
    return s.group_size is not None and s.group_size <= largest


def _factor_text(s: Subject) -> str:
    """The measured factor on this GPU, else on one of the same SM."""
    factors = s.facts.group_size_factors
    own = [one for one in factors if one.system == s.gpu.key] or [one for one in factors if one.sm == s.gpu.sm]
    if not own:
        return "how much slower was not measured on this GPU"
    one: GroupFactor = own[0]
    slow, fast = one.group_sizes
    return (
        f"published rows on {one.system} with G {slow} take {one.factor_min:g} to {one.factor_max:g} times as long as "
        f"with G {fast}, median {one.factor_median:g}"
    )


@rule("group-size-unlisted")
def group_size_unlisted(s: Subject) -> Iterator[Problem]:
    """G that the fast decode kernels were not seen with."""
    group, largest = _group_size(s), _largest_group(s)
    lists = [one for one in in_force(s.facts.fast_group_sizes, s.version) if one.covers(s.gpu.sm)]
    fast = sorted({size for one in lists for size in one.sizes})
    if not fast or group is None or group in fast or (largest is not None and group > largest):
        return
    v = s.variant
    kv_heads = [n for n in range(1, v.q_heads + 1) if s.with_heads(kv_heads=n).group_size in fast]
    q_heads = [v.kv_heads * n for n in fast if s.with_heads(q_heads=v.kv_heads * n).group_size in fast]
    near = [
        f"{field} {min(fits, key=lambda n: abs(n - now))}" if fits else ""
        for field, now, fits in (("q_heads", v.q_heads, q_heads), ("kv_heads", v.kv_heads, kv_heads))
    ]
    why = "it is not in the list of fast decode group sizes, so numbers may come from a fallback kernel"
    yield Problem("group_size", group, f"one of {join(fast)}", why, either(*near))


@rule("draft-rows-unmeasured")
def draft_rows_unmeasured(s: Subject) -> Iterator[Problem]:
    """(1 + D)·G beyond the grouped decode kernels."""
    group, largest = _group_size(s), _largest_group(s)
    if not isinstance(s.workload, Decode) or group is None or largest is None or group > largest:
        return
    draft = s.workload.draft_len
    if draft and (1 + draft) * group > largest:
        fits = largest // group - 1
        why = f"(1 + D) · G = {(1 + draft) * group} rows of attention lie beyond the {largest} that were measured"
        works = f"draft_len {fits} or less" if fits > 0 else "draft_len 0"
        yield Problem("workload.draft_len", draft, f"at most {max(fits, 0)} with G {group}", why, works)
