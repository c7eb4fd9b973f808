"""Seeded random weights that keep activations in range, the same on every machine.

A projection is normal with variance 1 / (inputs), so that it keeps the size of what it is given (LeCun et al.,
Efficient BackProp, 1998, 4.6); the last one of a block is smaller by sqrt(2 · layers), so that hidden states, to which
all blocks add, do not grow with depth (Radford et al., Language Models are Unsupervised Multitask Learners, 2019, 2.3).
The embedding has variance 1, or 1 / hidden where it is lm_head too, norms are 1, biases of routers 0.

Normal values are cut at 3 standard deviations, and the first value of every matrix is that bound: the largest value of
matrices that are read as one (Q, K and V; gate and up) is so the same one, and with it the scales made from it, also in
formats where Model Optimizer does not unify them.

Values come in pieces, each from a generator of its own (NumPy's PCG64, seeded by seed, name and piece), so that a
tensor never has to be in memory as a whole and any number of threads makes the same values.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from harness.engines.weights_layout import Config, Tensor

#: Values of one piece; 1 MB while they are made.
PIECE_VALUES = 1 << 18
_THREADS = 8

BOUND_SIGMAS = 3.0

#: The above in words, for the provenance of weights.
INITIALISATION = "normal, variance 1/inputs, residual outputs 1/(inputs · 2 · layers), cut at 3 standard deviations"


def standard_deviation(tensor: Tensor, config: Config) -> float:
    """Standard deviation of a tensor's values before they are cut; 0 for norms and biases, which are constant."""
    if tensor.role in {"norm", "bias"}:
        return 0.0
    if tensor.role == "embedding":
        return 1.0 / math.sqrt(tensor.shape[-1]) if config["tie_word_embeddings"] else 1.0
    residual = 2 * config["num_hidden_layers"] if tensor.role == "output" else 1
    return 1.0 / math.sqrt(tensor.shape[-1] * residual)


def random_tensor(tensor: Tensor, config: Config, seed: int) -> Any:
    """Return the values of a tensor as a torch tensor in bf16."""
    import torch

    values = torch.empty(tensor.values, dtype=torch.bfloat16)
    _fill(tensor, config, seed, 0, values)
    return values.view(tensor.shape)


def random_pieces(tensor: Tensor, config: Config, seed: int) -> Iterator[Any]:
    """Yield the values of a tensor as flat torch tensors in bf16, some pieces at a time."""
    import torch

    step = _THREADS * PIECE_VALUES
    for start in range(0, tensor.values, step):
        values = torch.empty(min(step, tensor.values - start), dtype=torch.bfloat16)
        _fill(tensor, config, seed, start, values)
        yield values


def _fill(tensor: Tensor, config: Config, seed: int, start: int, values: Any) -> None:
    """Fill `values` with those of the tensor from `start` on, which is the start of a piece."""
    sigma = standard_deviation(tensor, config)
    if not sigma:
        values.fill_(1.0 if tensor.role == "norm" else 0.0)
        return
    words = [seed, int.from_bytes(hashlib.sha256(tensor.name.encode()).digest()[:16], "little")]

    def fill_piece(at: int) -> None:
        piece = values[at : at + PIECE_VALUES]
        piece.copy_(_normal([*words, (start + at) // PIECE_VALUES], len(piece), sigma))

    starts = range(0, len(values), PIECE_VALUES)
    if len(starts) == 1:
        fill_piece(0)
    else:
        with ThreadPoolExecutor(min(_THREADS, len(starts))) as threads:
            list(threads.map(fill_piece, starts))
    if start == 0:
        values[0] = BOUND_SIGMAS * sigma


def _normal(words: list[int], count: int, sigma: float) -> Any:
    """Cut normal values in float32."""
    import numpy as np
    import torch

    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))
    values = generator.standard_normal(count, dtype=np.float32)
    np.clip(values, -BOUND_SIGMAS, BOUND_SIGMAS, out=values)
    values *= np.float32(sigma)
    return torch.from_numpy(values)
