"""A strict double of TensorRT-LLM: what its Python API takes, refuses, answers and prints, with a clock of its own.

Nothing of TensorRT-LLM is in here. What it does is written down in README.md beside this file. It knows nothing of the
code that it is used to test.
"""

from __future__ import annotations

from pathlib import Path

from tensorrt_llm._double.era import era as _era

__double__ = True
__version__ = _era().version

# What only some versions have lies in folders of its own, so that `importlib.util.find_spec` tells the truth.
if _era().engine_backend:
    __path__.append(str(Path(__file__).parent / "_eras" / "engine"))

from tensorrt_llm._double import logger as _logger
from tensorrt_llm.llmapi import LLM, KvCacheConfig, MoeConfig, TorchLlmArgs
from tensorrt_llm.sampling_params import SamplingParams

__all__ = ["LLM", "KvCacheConfig", "MoeConfig", "SamplingParams", "TorchLlmArgs", "__double__", "__version__"]

if _era().banner:
    _logger.write(f"[TensorRT-LLM] TensorRT LLM version: {__version__}")
