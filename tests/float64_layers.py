"""Decoder layers in float64 from their formulas, written without looking at how the backend runs them.

A prefill is one pass over all tokens whatever its chunks, attention a softmax over all scores of a token, experts a
loop over tokens. Only weights, inputs and what the cache held beforehand are taken from the arm.
"""

from __future__ import annotations

import numpy as np

ROPE_BASE, EPSILON = 10_000.0, 1e-5


def as64(tensor):
    return tensor.detach().float().cpu().numpy().astype(np.float64)


def reference(case, stack):
    """The stream after the last layer, [sequences, new tokens, hidden]."""
    work, variant = case.workload, case.variant
    tokens = [as64(step.x).reshape(work.batch, -1, variant.hidden) for step in stack.steps]
    lengths = [part.shape[1] for part in tokens]
    x = np.concatenate(tokens, axis=1)
    first = work.kvsl if work.phase == "decode" else 0
    for layer in stack.layers:
        if layer.kind.attention != "none":
            x = x + attention(variant, layer, rms_norm(x, layer.norms[0]), first)
        normed = rms_norm(x, layer.norms[1])
        x = x + (experts(case, stack, layer, normed, lengths) if layer.kind.sparse else ffn(variant, layer, normed))
    return x


def rms_norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * as64(weight)


def times(layer, name, x):
    return x @ as64(layer.linears[name].value).T


def rotate(heads, positions):
    """Pair i of a head turns by position · base^(-2i/d); its members are half a head apart."""
    d = heads.shape[-1]
    angles = positions[:, None] * ROPE_BASE ** (-2.0 * np.arange(d // 2) / d)
    a, b = heads[..., : d // 2], heads[..., d // 2 :]
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def attention(variant, layer, x, first):
    qh, kh, d = variant.q_heads, variant.kv_heads, variant.head_dim
    window = variant.window if layer.kind.attention == "sliding" else 10**9
    name = "layer.attn_sliding" if layer.kind.attention == "sliding" else "layer.attn"
    batch, new, _ = x.shape
    qkv = times(layer, f"{name}.qkv_proj", x).reshape(batch, new, qh + 2 * kh, d)
    positions = first + np.arange(new)
    q, k, v = rotate(qkv[:, :, :qh], positions), rotate(qkv[:, :, qh : qh + kh], positions), qkv[:, :, qh + kh :]
    cached = layer.cache.keys.shape[2] - new if first else 0
    before = [as64(part[:, :, :cached]) for part in (layer.cache.keys, layer.cache.values)]
    keys, values = (
        np.concatenate([old, fresh.transpose(0, 2, 1, 3)], 2) for old, fresh in zip(before, (k, v), strict=True)
    )
    where = np.concatenate([np.arange(first - cached, first), positions])
    out = np.zeros((batch, new, qh, d))
    for sequence, token, head in np.ndindex(batch, new, qh):
        seen = (where <= positions[token]) & (where > positions[token] - window)
        group = head // (qh // kh)
        scores = keys[sequence, group, seen] @ q[sequence, token, head] / np.sqrt(d)
        weights = np.exp(scores - scores.max())
        out[sequence, token, head] = weights / weights.sum() @ values[sequence, group, seen]
    return times(layer, f"{name}.o_proj", out.reshape(batch, new, qh * d))


def silu(x):
    return x / (1 + np.exp(-x))


def ffn(variant, layer, x, name="layer.ffn"):
    if not variant.gated_ffn:
        return times(layer, f"{name}.down", silu(times(layer, f"{name}.up", x)))
    gate, up = np.split(times(layer, f"{name}.gate_up", x), 2, -1)
    return times(layer, f"{name}.down", silu(gate) * up)


def experts(case, stack, layer, x, lengths):
    """Every token by itself. Balanced routing deals the choices of a pass out to experts 0, 1, 2 … in turn."""
    facts, out, start = case.variant.experts, np.zeros_like(x), 0
    weights = [tuple(map(as64, layer.experts.value(expert))) for expert in range(facts.count)]
    logits = times(layer, "layer.moe.router", x)
    for step, length in zip(stack.steps, lengths, strict=True):
        for sequence, token in np.ndindex(x.shape[0], length):
            row, place = sequence * length + token, start + token
            if case.workload.routing == "balanced":
                chosen = [(row * facts.top_k + choice) % facts.count for choice in range(facts.top_k)]
            else:
                chosen = step.to.chosen[row].tolist()
            shares = np.exp(logits[sequence, place, chosen] - logits[sequence, place, chosen].max())
            for share, expert in zip(shares / shares.sum(), chosen, strict=True):
                gate, up = np.split(x[sequence, place] @ weights[expert][0].T, 2)
                out[sequence, place] += share * ((silu(gate) * up) @ weights[expert][1].T)
        start += length
    if facts.shared_inter:
        out += ffn(case.variant, layer, x, "layer.moe.shared")
    return out


def computed(case, stack, ends):
    """What the backend gave, in the reference's shape."""
    parts = [as64(x) + (0 if delta is None else as64(delta)) for x, delta in ends]
    return np.concatenate([part.reshape(case.workload.batch, -1, part.shape[-1]) for part in parts], 1)


def distance(found, wanted):
    """Norm of the difference over the norm of what was to come out."""
    return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
