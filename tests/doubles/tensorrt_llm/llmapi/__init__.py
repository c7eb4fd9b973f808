"""The LLM API: arguments of the version, `LLM`, `SamplingParams`."""

from __future__ import annotations

from tensorrt_llm._double.schemas import configs
from tensorrt_llm.llmapi.llm import LLM, RequestOutput
from tensorrt_llm.sampling_params import SamplingParams

globals().update(configs())

__all__ = ["LLM", "RequestOutput", "SamplingParams", *configs()]  # noqa: PLE0604
