"""Kernels that cannot be: asked before anything is priced, so that no rule has to."""

from __future__ import annotations

import math

from harness.cost.ops import ExpertCombine, ExpertDispatch, Kernel, Moe

#: Sizes are those of 64-bit integers. The product of any that a kernel multiplies is then a finite float.
LARGEST = 2**63 - 1

#: No cached tokens, no window, V as wide as Q and K, no EPLB, nothing moved.
_MAY_BE_ZERO = frozenset({"past", "window", "value_dim", "slots", "bytes"})


def impossible(kernel: Kernel) -> str:
    """Why there can be no such kernel, or nothing: sizes below 1 or beyond 64 bits, more experts a token than exist."""
    for name in kernel.__dataclass_fields__:
        problem = _problem(name, getattr(kernel, name))
        if problem:
            return problem
    if isinstance(kernel, Moe | ExpertDispatch | ExpertCombine) and kernel.top_k > kernel.experts:
        return f"top_k {kernel.top_k} must be at most the {kernel.experts} experts there are"
    return ""


def _problem(name: str, size: object) -> str:
    if isinstance(size, float):
        return "" if 0 <= size < math.inf else f"{name} must be a finite number of at least 0, not {size:g}"
    if isinstance(size, bool) or not isinstance(size, int):
        return ""
    if size < 1 and not (size == 0 and name in _MAY_BE_ZERO):
        least = "0 or more" if name in _MAY_BE_ZERO else "positive"
        return f"{name} must be {least}, not {_short(size)}"
    return "" if size <= LARGEST else f"{name} must be at most {LARGEST}, which is 64 bits, not {_short(size)}"


def _short(size: int) -> str:
    """A size in few characters, however many digits it has."""
    if abs(size) <= LARGEST:
        return str(size)
    power = abs(size).bit_length() - 1
    return f"2**{power} or more" if size > 0 else f"-2**{power} or less"
