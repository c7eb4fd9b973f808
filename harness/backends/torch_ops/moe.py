"""The experts of one layer: router, routed experts under an imposed load, and a shared expert beside them."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import silu

from harness.backends.torch_ops.linear import Linear, make_linear
from harness.backends.torch_ops.routing import Load
from harness.cost.kernels import Moe

BATCHED, ONE_BY_ONE = "one batched GEMM", "a GEMM per expert"


class Assignment:
    """Which expert computes which token, for one load: rows grouped by expert, and where a token's results are.

    `padded` gives every expert that is touched as many rows as the fullest has, so that all run as one batch; under a
    balanced load that is one row more at most.
    """

    def __init__(self, load: Load, tokens: int, top_k: int, padded: bool, device: torch.device) -> None:
        chosen = _choose(load, tokens, top_k).to(device)
        flat = chosen.reshape(-1)
        order = torch.argsort(flat, stable=True)
        row, rows = torch.arange(tokens * top_k, device=device), tokens * top_k
        if padded:
            counts, width = torch.tensor(load.counts, device=device), max(load.counts)
            starts = torch.cumsum(counts, 0) - counts
            row, rows = flat[order] * width + row - starts[flat[order]], load.touched * width
        self.chosen = chosen
        """[tokens, top_k]."""
        self.counts = load.counts
        self.touched = load.touched
        self.token_of_row = torch.zeros(rows, dtype=torch.long, device=device)
        self.token_of_row[row] = order // top_k
        self.row_of_choice = torch.empty_like(flat)
        self.row_of_choice[order] = row


def _choose(load: Load, tokens: int, top_k: int) -> torch.Tensor:
    """Experts of each token, [tokens, top_k], none twice.

    An expert's tokens lie together in a list that is read in `top_k` columns; as no expert has more tokens than there
    are, it is in no row twice (aiconfigurator does the same). Balanced loads are dealt out round by round.
    """
    if load.balanced:
        return (torch.arange(tokens * top_k) % len(load.counts)).view(tokens, top_k)
    counts = torch.tensor(load.counts)
    order = torch.argsort(counts, descending=True, stable=True)
    return torch.repeat_interleave(order, counts[order]).view(top_k, tokens).T.contiguous()


def batches(kernel: Moe, load: Load) -> bool:
    """Whether the experts can run as one batched GEMM: PyTorch has none with a scale per FP8 expert."""
    return load.balanced and kernel.format != "fp8_static"


class RoutedExperts:
    """Gated experts: one batched GEMM, or one expert after the other."""

    def __init__(self, kernel: Moe, batched: bool, dtype: torch.dtype, generator: torch.Generator) -> None:
        wide, hidden, count, inter = 2 * kernel.inter, kernel.hidden, kernel.experts, kernel.inter
        self.way = BATCHED if batched else ONE_BY_ONE
        self._inter, self._top_k = inter, kernel.top_k
        self._stacked: tuple[Any, Any] | None = None
        self._single: list[tuple[Linear, Linear]] = []
        if batched:
            self._stacked = (
                _stack(count, wide, hidden, dtype, generator),
                _stack(count, hidden, inter, dtype, generator),
            )
        else:
            self._single = [
                (
                    make_linear(wide, hidden, kernel.format, dtype, generator),
                    make_linear(hidden, inter, kernel.format, dtype, generator),
                )
                for _ in range(count)
            ]

    def value(self, expert: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Both weights of one expert as they count, (2 inter, hidden) and (hidden, inter)."""
        if self._stacked:
            return self._stacked[0][expert].float(), self._stacked[1][expert].float()
        first, second = self._single[expert]
        return first.value, second.value

    def __call__(self, x: torch.Tensor, logits: torch.Tensor, to: Assignment) -> torch.Tensor:
        """Sum of each token's experts, weighted by the softmax over their logits."""
        shares = torch.softmax(logits.gather(1, to.chosen).float(), -1).to(x.dtype)
        results = self._batched(x, to) if self._stacked else self._in_turn(x, to)
        mine = results[to.row_of_choice].view(x.shape[0], self._top_k, -1)
        return torch.bmm(shares[:, None], mine)[:, 0]

    def _batched(self, x: torch.Tensor, to: Assignment) -> torch.Tensor:
        assert self._stacked
        first, second = (weight[: to.touched].transpose(1, 2) for weight in self._stacked)
        rows = x[to.token_of_row].view(to.touched, -1, x.shape[1])
        return torch.bmm(gated(torch.bmm(rows, first), self._inter), second).view(-1, x.shape[1])

    def _in_turn(self, x: torch.Tensor, to: Assignment) -> torch.Tensor:
        busy = [pair for pair, count in zip(self._single, to.counts, strict=True) if count]
        rows = torch.split(x[to.token_of_row], [count for count in to.counts if count])
        return torch.cat(
            [down(gated(first(mine), self._inter)) for (first, down), mine in zip(busy, rows, strict=True)]
        )


def gated(wide: torch.Tensor, inter: int) -> torch.Tensor:
    """SwiGLU: silu of the first half times the second."""
    return silu(wide[..., :inter]) * wide[..., inter:]


def _stack(count: int, n: int, k: int, dtype: torch.dtype, generator: torch.Generator) -> Any:
    size = (count, n, k)
    return torch.randn(size, dtype=dtype, device=generator.device, generator=generator).mul_(k**-0.5)
