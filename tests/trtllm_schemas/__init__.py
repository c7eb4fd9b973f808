"""Strict schemas of `TorchLlmArgs`, each transcribed from what TensorRT-LLM publishes about one version.

They are written apart from harness/data/llm_args.yaml and know nothing of it. An unknown key is an error at every
level, and so is a value that the version does not take. A schema may be narrower than its source, never wider: a
setting that was not read, or whose class was not transcribed, is refused.
"""

from __future__ import annotations

from pydantic import BaseModel

from trtllm_schemas import v1_2_1, v1_3_0rc8, v1_3_0rc24, v1_4
from trtllm_schemas.base import LoadBalancer

__all__ = ["SCHEMAS", "LoadBalancer"]

#: Version → its schema.
SCHEMAS: dict[str, type[BaseModel]] = {
    "1.2.1": v1_2_1.TorchLlmArgs,
    "1.3.0rc8": v1_3_0rc8.TorchLlmArgs,
    "1.3.0rc24": v1_3_0rc24.TorchLlmArgs,
    "1.4": v1_4.TorchLlmArgs,
}
