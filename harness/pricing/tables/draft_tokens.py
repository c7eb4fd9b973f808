"""Decode attention with several query tokens per sequence: 1 + D of them where D draft tokens are verified at once.

No table has rows of it. Queries of one sequence that share a KV head are rows of one tile, whoever they belong to: D
draft tokens act like a group size of (1 + D)·G, and the cache is read once (guideline A5). So the price is that of one
query token at that group size, source `formula`:

- of the same KV heads, or, as such slices are few, of others at as many sequences x KV heads: what counts is how many
  caches of one head are read. Rows of equal G and equal batch x KH agree so: over a factor of 2 to 8 in KH by 0.4 to
  2.5 % (median) and 1.3 to 12 % (90th percentile) on H100, H200, B200 and GB300, head size 128, KVSL ≥ 1024;
- where no slice has exactly that group size, of the next larger one.

Beyond 32 rows nothing was measured. Then as many tokens as fill 32 rows are taken to go through the cache together, and
each such pass to read it again; the price carries `unmeasured`. So it does where no slice helps: then D tokens are
taken to cost nothing beside reading the cache once. (MLA has rows up to 128 heads on one latent: a pass fills those.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from harness.cost.ops import DecodeAttention
from harness.pricing.base import SOURCES, KernelPrice
from harness.pricing.tables.slices import AttentionTable, SliceKey

#: Query rows per KV head, (1 + D)·G, up to which draft tokens are said to be free (guideline A5).
MEASURED_ROWS = 32

Pricer = Callable[[DecodeAttention], KernelPrice]


def price_drafts(kernel: DecodeAttention, price: Pricer, table: AttentionTable, largest_group: int) -> KernelPrice:
    """Price several query tokens from prices of one; `largest_group` is the most query rows that go together."""
    if kernel.q_heads % kernel.kv_heads:
        note = f"{kernel.q_heads} query heads do not divide by {kernel.kv_heads} KV heads"
        return KernelPrice.refuse("unsupported", note)
    group = kernel.q_heads // kernel.kv_heads
    together = max(1, largest_group // group)
    whole, rest = divmod(kernel.query_len, together)
    passes = {tokens: count for tokens, count in ((together, whole), (rest, 1)) if tokens and count}
    parts = {tokens: _one_pass(kernel, tokens * group, largest_group, price, table) for tokens in passes}
    if any(part is None for part in parts.values()):
        return _memory_bound(kernel, price)
    priced = [(count, part) for tokens, count in passes.items() if (part := parts[tokens])]
    refused = next((part for _, part in priced if part.refusal), None)
    if refused:
        return refused
    beyond = kernel.query_len * group > MEASURED_ROWS
    flags = dict.fromkeys(flag for _, part in priced for flag in part.flags)
    notes = [f"{count} x {part.note}" if sum(passes.values()) > 1 else part.note for count, part in priced]
    if beyond:
        flags["unmeasured"] = None
        notes.insert(0, f"{kernel.query_len * group} query rows per KV head, more than {MEASURED_ROWS}: not measured")
    return KernelPrice(
        sum(count * (part.time_ms or 0.0) for count, part in priced),
        max(("formula", *(part.source or "formula" for _, part in priced)), key=SOURCES.index),
        tuple(flags),
        "; ".join(notes),
    )


def _one_pass(
    kernel: DecodeAttention, rows: int, most: int, price: Pricer, table: AttentionTable
) -> KernelPrice | None:
    """The price of `rows` query rows per KV head in one go; None where no slice has as many."""
    first: KernelPrice | None = None
    for stand_in in _stand_ins(kernel, rows, most, table):
        answer = price(stand_in)
        told = f"as {stand_in.q_heads}:{stand_in.kv_heads} heads at batch {stand_in.batch}"
        if answer.refusal is None:
            return replace(answer, note="; ".join(part for part in (told, answer.note) if part))
        first = first or replace(answer, note=f"{told}: {answer.note}")
    return first


def _stand_ins(kernel: DecodeAttention, rows: int, most: int, table: AttentionTable) -> Iterator[DecodeAttention]:
    """One query token at `rows` to `most` query heads per KV head, the nearest first."""
    window = kernel.window if kernel.window < kernel.kvsl else 0
    key = SliceKey(kernel.q_heads, kernel.kv_heads, kernel.head_dim, window, "bf16", kernel.kv_format)
    caches = kernel.batch * kernel.kv_heads
    able = [
        one
        for one in table.alike(key)
        if not one.q_heads % one.kv_heads
        and rows <= one.q_heads // one.kv_heads <= max(rows, most)
        and not caches % one.kv_heads
    ]
    for one in sorted(able, key=lambda one: _distance(one, rows, kernel.kv_heads)):
        alone = replace(kernel, window=window, query_len=1)
        yield replace(alone, batch=caches // one.kv_heads, q_heads=one.q_heads, kv_heads=one.kv_heads)


def _distance(key: SliceKey, rows: int, kv_heads: int) -> tuple[float, float, int]:
    return key.q_heads / key.kv_heads - rows, round(abs(math.log(key.kv_heads / kv_heads)), 9), key.kv_heads


def _memory_bound(kernel: DecodeAttention, price: Pricer) -> KernelPrice:
    """The cache is read once, whatever the tokens; nothing else of them is known."""
    alone = price(replace(kernel, query_len=1))
    if alone.time_ms is None:
        return alone
    source = max("formula", alone.source or "formula", key=SOURCES.index)
    told = f"no rows of {kernel.query_len} query tokens, nor of heads that stand for them: the cache is read once"
    note = "; ".join(part for part in (told, alone.note) if part)
    return KernelPrice(alone.time_ms, source, (*alone.flags, "unmeasured"), note)
