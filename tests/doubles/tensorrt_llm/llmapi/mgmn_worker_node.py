"""`python -m tensorrt_llm.llmapi.mgmn_worker_node`: what trtllm-llmapi-launch runs on ranks other than 0."""

from __future__ import annotations

from tensorrt_llm._double.rank_worker import address, connect, serve
from tensorrt_llm._utils import mpi_rank

if __name__ == "__main__":
    serve(*connect(address(), mpi_rank()))
