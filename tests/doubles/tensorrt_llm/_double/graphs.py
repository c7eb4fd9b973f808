"""CUDA graphs: which batches have one, and how a batch is filled up to the next."""

from __future__ import annotations

from typing import Any

from tensorrt_llm._double.scheduler import Batch


class Graphs(tuple[int, ...]):  # noqa: SLOT001  # an attribute beside the sizes
    """Batch sizes with a graph, ascending; `fills` where a smaller batch takes the next one."""

    fills: bool = False


def sizes(config: Any) -> Graphs | None:
    """The sizes that a `cuda_graph_config` makes; None where graphs are off."""
    if config is None:
        return None
    if config.batch_sizes:
        found = sorted(config.batch_sizes)
    else:
        top = config.max_batch_size or 128
        if config.enable_padding:
            usual = [1, 2, 4, *range(8, 129, 8), *range(192, top + 1, 64)]
        else:
            usual = [*range(1, 32), 32, 64, 128, *(2**power for power in range(8, 20))]
        found = sorted({size for size in usual if size <= top} | {top})
    graphs = Graphs(found)
    graphs.fills = config.enable_padding
    return graphs


def padded(graphs: Graphs | None, running: int, batches: list[Batch]) -> int:
    """Generations with dummies: up to the next graph where the batch only decodes and padding is on."""
    if graphs is None or not graphs.fills or any(batch.contexts for batch in batches):
        return running
    return next((size for size in graphs if size >= running), running) if running else 0
