"""Attention over a KV cache: rotary embedding, the write of new keys and values, and the attention kernel.

All three are one op, as in TensorRT-LLM's fused kernel. What a query may look at decides how it is run:

    one new token              the group's query heads become rows of their KV head; no mask is needed
    whole prompt               PyTorch's causal kernel, with grouped heads
    everything else            chunks, windows, draft tokens: on a GPU flash attention, which aligns the causal mask at
                               the end and has windows; on a processor explicit masks, over rows as above where there
                               are few new tokens, else over blocks of queries and the keys that these see
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

#: Base of the rotary angles (Llama 2; Su et al., arXiv 2104.09864). Any does the same work.
ROPE_BASE = 10_000.0

#: Queries that share an explicit mask on a processor.
_MASKED_QUERIES = 256

#: New tokens of a sequence up to which a processor folds the group into rows: draft tokens, not chunks.
_FOLDED_TOKENS = 32

FOLDED, CAUSAL, BOTTOM_RIGHT, MASKED = "folded rows", "causal", "flash, aligned at the end", "masked blocks"


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Attention of one layer, as one rank has it."""

    sequences: int
    q_heads: int
    kv_heads: int
    head_dim: int
    window: int = 0
    """Tokens that a query sees, itself included; 0 is all."""

    @property
    def group(self) -> int:
        return self.q_heads // self.kv_heads


@dataclass(frozen=True, slots=True)
class Span:
    """The new tokens of a pass: where they stand in the sequence and in the cache."""

    position: int
    """Of the first new token."""
    slot: int
    """Where its key goes; what a window hides is not in the cache in decode."""
    new: int
    """New tokens per sequence."""


class KvCache:
    """Keys and values of one layer, [sequences, KV heads, tokens, head size], full of data."""

    def __init__(self, shape: AttentionShape, tokens: int, dtype: torch.dtype, generator: torch.Generator) -> None:
        size = (shape.sequences, shape.kv_heads, tokens, shape.head_dim)
        self.keys, self.values = (
            torch.randn(size, dtype=dtype, device=generator.device, generator=generator) for _ in range(2)
        )


class Rotary:
    """Rotary embedding at the positions of one pass: pairs are the two halves of a head."""

    def __init__(self, positions: range, head_dim: int, dtype: torch.dtype, device: torch.device) -> None:
        half = head_dim // 2
        rates = ROPE_BASE ** (-torch.arange(half, dtype=torch.float64, device=device) / half)
        start, end = positions.start, positions.stop
        angles = torch.arange(start, end, dtype=torch.float64, device=device)[:, None] * rates
        sine = angles.sin()
        self._half = half
        self._cosine = torch.cat([angles.cos()] * 2, -1).to(dtype)[None, :, None]
        self._sine = torch.cat([-sine, sine], -1).to(dtype)[None, :, None]

    def __call__(self, heads: torch.Tensor) -> torch.Tensor:
        """Turn [sequences, tokens, heads, head size]."""
        return torch.addcmul(heads * self._cosine, torch.roll(heads, self._half, -1), self._sine)


class Attention:
    """Attention of one kind of layer in one pass; layers of that kind share it."""

    def __init__(self, shape: AttentionShape, span: Span, dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.span = shape, span
        self._rotary = Rotary(range(span.position, span.position + span.new), shape.head_dim, dtype, device)
        self._end = span.slot + span.new
        self._hides = bool(shape.window) and self._end > shape.window
        self.way = self._choose(device)
        masked = self.way == MASKED or (self.way == FOLDED and (span.new > 1 or self._hides))
        self._blocks = self._masks(dtype, device) if masked else []

    def __call__(self, qkv: torch.Tensor, cache: KvCache) -> torch.Tensor:
        """[tokens, (QH + 2 KH) head size] → [tokens, QH head size]; tokens of a sequence follow each other."""
        shape, span = self.shape, self.span
        turned = shape.q_heads + shape.kv_heads
        split = qkv.view(shape.sequences, span.new, turned + shape.kv_heads, shape.head_dim)
        rotated = self._rotary(split[:, :, :turned])
        cache.keys[:, :, span.slot : self._end] = rotated[:, :, shape.q_heads :].transpose(1, 2)
        cache.values[:, :, span.slot : self._end] = split[:, :, turned:].transpose(1, 2)
        queries = rotated[:, :, : shape.q_heads]
        keys, values = cache.keys[:, :, : self._end], cache.values[:, :, : self._end]
        return self._attend(queries, keys, values).reshape(shape.sequences * span.new, -1)

    def _choose(self, device: torch.device) -> str:
        span = self.span
        if span.new == 1 and not self._hides:
            return FOLDED
        if not span.slot and not self._hides:
            return CAUSAL
        if device.type == "cuda":
            return BOTTOM_RIGHT
        return FOLDED if span.new <= _FOLDED_TOKENS else MASKED

    def _attend(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Queries [sequences, new, QH, head size] → the same."""
        shape = self.shape
        if self.way == FOLDED:
            return self._folded(queries.transpose(1, 2), keys, values).transpose(1, 2)
        if self.way == BOTTOM_RIGHT:
            return self._flash(queries, keys.transpose(1, 2), values.transpose(1, 2))
        heads, grouped = queries.transpose(1, 2), shape.group > 1
        if self.way == CAUSAL:
            whole = scaled_dot_product_attention(heads, keys, values, is_causal=True, enable_gqa=grouped)
            return whole.transpose(1, 2)
        parts = [
            scaled_dot_product_attention(
                heads[:, :, rows], keys[:, :, seen], values[:, :, seen], attn_mask=mask, enable_gqa=grouped
            )
            for rows, seen, mask in self._blocks
        ]
        return torch.cat(parts, 2).transpose(1, 2)

    def _folded(self, heads: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Query heads of a group, and their tokens, as rows of one KV head: the cache is read once for all."""
        rows = heads.reshape(keys.shape[0], keys.shape[1], -1, keys.shape[3])
        if not self._blocks:
            return scaled_dot_product_attention(rows, keys, values).view(heads.shape)
        [(_, seen, mask)] = self._blocks
        attended = scaled_dot_product_attention(
            rows, keys[:, :, seen], values[:, :, seen], attn_mask=mask.repeat(self.shape.group, 1)
        )
        return attended.view(heads.shape)

    def _flash(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Flash attention as PyTorch carries it: causal from the end, grouped heads, a window (2.4 and later)."""
        window = self.shape.window
        attended = torch.ops.aten._flash_attention_forward(  # noqa: SLF001 - no public call has a window
            queries,
            keys,
            values,
            None,
            None,
            self.span.new,
            self._end,
            0.0,
            True,
            False,
            scale=1.0 / math.sqrt(self.shape.head_dim),
            window_size_left=window - 1 if window else None,
            window_size_right=0 if window else None,
        )
        return attended[0]

    def _masks(self, dtype: torch.dtype, device: torch.device) -> list[tuple[slice, slice, torch.Tensor]]:
        """Blocks of queries, the keys that any of them sees, and what to add to their scores."""
        blocks = []
        for first in range(0, self.span.new, _MASKED_QUERIES):
            last = min(first + _MASKED_QUERIES, self.span.new)
            own = torch.arange(self.span.slot + first, self.span.slot + last, device=device)[:, None]
            low = max(0, self.span.slot + first - self.shape.window + 1) if self.shape.window else 0
            others = torch.arange(low, self.span.slot + last, device=device)
            hidden = others > own
            if self.shape.window:
                hidden |= others <= own - self.shape.window
            mask = torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, -math.inf)
            blocks.append((slice(first, last), slice(low, self.span.slot + last), mask))
        return blocks
