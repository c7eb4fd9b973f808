"""Rules on formats: where each computes, what goes with what, and blocks that sharding must not cut."""

from __future__ import annotations

from collections.abc import Iterator

from harness.lint.facts import Part, in_force
from harness.lint.finding import Problem, either, join
from harness.lint.registry import rule
from harness.lint.shapes import Shard, block_of, cut_shards, nearest_multiples, shards, working_tp
from harness.lint.subject import Subject
from harness.spec.variant import WeightFormat

#: From the best substitute to the last.
_WEIGHT_FORMATS: tuple[WeightFormat, ...] = ("nvfp4", "fp8", "fp8_block", "bf16")


def weight_groups(s: Subject) -> dict[str, WeightFormat]:
    """The module groups that this variant has, with their formats."""
    weights, experts = s.variant.weights, s.variant.experts
    groups: dict[str, WeightFormat] = {"attention": weights.attention, "lm_head": weights.lm_head}
    if experts is None or experts.dense_layers:
        groups["ffn"] = weights.ffn
    if experts:
        groups["experts"] = weights.experts
    return groups


def _limit(s: Subject, part: Part, format: str) -> str:
    support = s.facts.support(part, format, s.version)
    return f"{join(dict.fromkeys(one.gpus for one in support))}; {s.gpu.key} is sm {s.gpu.sm}"


def _weights_on_gpu(s: Subject, format: WeightFormat) -> Iterator[Problem]:
    groups = [name for name, used in weight_groups(s).items() if used == format]
    if not groups or s.facts.computes("weights", format, s.gpu.sm, s.version):
        return
    others = [
        name for name in _WEIGHT_FORMATS if name != format and s.facts.computes("weights", name, s.gpu.sm, s.version)
    ]
    field = join(f"weights.{name}" for name in sorted(groups))
    yield Problem(
        field, format, _limit(s, "weights", format), _otherwise(s, format), f"weights {join(others)} on this GPU"
    )


def _otherwise(s: Subject, weights: str) -> str:
    """What such a run would be on this GPU with this version."""
    known = (one for one in in_force(s.facts.substitutes, s.version) if one.format == weights)
    substitutes = [one.runs for one in known if one.covers(s.gpu.sm)]
    told = [one.otherwise for one in s.facts.support("weights", weights, s.version) if one.otherwise]
    silent = f"this GPU does not compute in {weights}, and a weight-only run in silence is another question"
    why = [*substitutes, *told, silent]
    return f"{why[0]} (TensorRT-LLM {s.version})" if s.version else why[0]


@rule("nvfp4-gpu")
def nvfp4_gpu(s: Subject) -> Iterator[Problem]:
    """NVFP4 weights by SM."""
    yield from _weights_on_gpu(s, "nvfp4")


@rule("fp8-gpu")
def fp8_gpu(s: Subject) -> Iterator[Problem]:
    """FP8 weights by SM."""
    yield from _weights_on_gpu(s, "fp8")


@rule("fp8-block-gpu")
def fp8_block_gpu(s: Subject) -> Iterator[Problem]:
    """FP8 block weights by SM and version."""
    yield from _weights_on_gpu(s, "fp8_block")


@rule("fp32-gpu")
def fp32_gpu(s: Subject) -> Iterator[Problem]:
    """FP32 anywhere in a variant that a GPU is to run."""
    v = s.variant
    formats = {f"weights.{name}": stored for name, stored in weight_groups(s).items()}
    formats |= {"kv_format": v.kv_format, "attn_format": v.attn_format}
    fields = [name for name, stored in formats.items() if stored == "fp32"]
    for fact in s.facts.never_run("fp32", s.version) if fields else ():
        groups = dict.fromkeys(name.partition(".")[0] for name in fields)
        works = either(f"{join(f'{name} bf16' for name in groups)}", "system cpu with a backend")
        yield Problem(join(sorted(fields)), "fp32", "bf16 or narrower on a GPU", fact.why, works)


@rule("kv-format-gpu")
def kv_format_gpu(s: Subject) -> Iterator[Problem]:
    """KV formats by SM."""
    kv, facts = s.variant.kv_format, s.facts
    if not facts.computes("kv", kv, s.gpu.sm, s.version):
        why = facts.support("kv", kv, s.version)[0].otherwise
        works = [name for name in ("fp8", "bf16") if name != kv and facts.computes("kv", name, s.gpu.sm, s.version)]
        yield Problem("kv_format", kv, _limit(s, "kv", kv), why, f"kv_format {join(works)}")


@rule("attention-format-gpu")
def attention_format_gpu(s: Subject) -> Iterator[Problem]:
    """Attention arithmetic by SM."""
    attention = s.variant.attn_format
    if not s.facts.computes("attention", attention, s.gpu.sm, s.version):
        why = s.facts.support("attention", attention, s.version)[0].otherwise
        yield Problem("attn_format", attention, _limit(s, "attention", attention), why, "attn_format bf16")


def _readable_kv(s: Subject, attention: str) -> list[str] | None:
    pairs = [one for one in in_force(s.facts.attention_kv, s.version) if one.attention == attention]
    return [kv for one in pairs for kv in one.kv] if pairs else None


@rule("fp8-attention-kv")
def fp8_attention_kv(s: Subject) -> Iterator[Problem]:
    """FP8 attention reads no bf16 cache."""
    v, readable = s.variant, _readable_kv(s, "fp8")
    if v.attn_format == "fp8" and readable is not None and v.kv_format not in readable:
        why = "FP8 attention kernels read keys and values from a cache that is quantised too"
        yield Problem("attn_format", "fp8", f"bf16 where kv_format is {v.kv_format}", why, f"kv_format {readable[0]}")


@rule("nvfp4-kv-attention")
def nvfp4_kv_attention(s: Subject) -> Iterator[Problem]:
    """An NVFP4 cache is read by FP8 attention."""
    v, readable = s.variant, _readable_kv(s, "bf16")
    if v.kv_format == "nvfp4" and v.attn_format == "bf16" and readable is not None and "nvfp4" not in readable:
        why = "kernels that read an NVFP4 cache compute attention in FP8, so bf16 is not what would run"
        yield Problem("attn_format", "bf16", "fp8 where kv_format is nvfp4", why, "attn_format fp8")


@rule("nvfp4-kv-weights")
def nvfp4_kv_weights(s: Subject) -> Iterator[Problem]:
    """An NVFP4 cache is documented with FP8 weights only."""
    pairs = [one for one in in_force(s.facts.kv_weights, s.version) if one.kv == s.variant.kv_format]
    weights = s.variant.weights.attention
    allowed = [weight for one in pairs for weight in one.weights]
    if allowed and weights not in allowed:
        why = f"{s.variant.kv_format} KV is documented with {join(allowed)} weights only"
        yield Problem("weights.attention", weights, join(allowed), why, f"weights {allowed[0]}, or kv_format fp8")


@rule("dimension-split")
def dimension_split(s: Subject) -> Iterator[Problem]:
    """Dimensions that ranks cannot share evenly; heads have rules of their own."""
    for shard in shards(s.variant, s.split):
        if not shard.whole:
            block = max(block_of(weights, s.facts) or 1 for weights in shard.formats)
            near = f"{shard.field} {join(nearest_multiples(shard.size, shard.ways * block))}"
            works = either(working_tp(s.variant, s.split, s.facts), near)
            why = (
                f"{shard.size} / {shard.by} {shard.ways} is no whole number, and every rank holds as much as the others"
            )
            yield Problem(shard.field, shard.size, f"a multiple of {shard.by} {shard.ways}", why, works)


def _cut_blocks(s: Subject, format: WeightFormat) -> Iterator[Problem]:
    block = block_of(format, s.facts) or 1
    why = s.facts.block_sizes[format].why if format in s.facts.block_sizes else ""
    for shard in cut_shards(s.variant, s.split, format, s.facts):
        rest = shard.size // shard.ways % block
        reason = (
            f"{format} on each rank: {block} {why}, and {shard.size // shard.ways} mod {block} = {rest} would cut them"
        )
        yield Problem(shard.field, shard.text, f"a multiple of {block}", reason, _uncut(s, shard, block))


def _uncut(s: Subject, shard: Shard, block: int) -> str:
    """A setting at which no block is cut: another split, else another size."""
    if shard.by == "moe_tp" and s.variant.experts:
        inter, ranks = s.variant.experts.inter, s.split.tp * s.split.cp
        fits = [n for n in range(1, shard.ways) if not ranks % n and not inter % (n * block)]
        if fits:
            return join(f"ep {ranks // n} (moe_tp {n})" for n in fits)
    elif shard.ways > 1 and (ways := working_tp(s.variant, s.split, s.facts)):
        return ways
    return f"{shard.field} {join(nearest_multiples(shard.size, shard.ways * block))}"


@rule("nvfp4-alignment")
def nvfp4_alignment(s: Subject) -> Iterator[Problem]:
    """Scale groups of NVFP4 after sharding."""
    yield from _cut_blocks(s, "nvfp4")


@rule("fp8-block-alignment")
def fp8_block_alignment(s: Subject) -> Iterator[Problem]:
    """Scale blocks of FP8 after sharding."""
    yield from _cut_blocks(s, "fp8_block")


@rule("fp8-alignment")
def fp8_alignment(s: Subject) -> Iterator[Problem]:
    """Sizes of FP8 GEMMs after sharding."""
    yield from _cut_blocks(s, "fp8")
