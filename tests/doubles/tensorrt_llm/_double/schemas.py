"""The settings that a version takes: the strict schemas of tests/trtllm_schemas."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel, ConfigDict, create_model

from tensorrt_llm._double.era import era


def _package() -> ModuleType:
    """`trtllm_schemas`, from where it lies if it is not on the path: the other modules of tests/ are none of ours."""
    if find_spec("trtllm_schemas"):
        return import_module("trtllm_schemas")
    folder = Path(__file__).resolve().parents[3] / "trtllm_schemas"
    spec = spec_from_file_location("trtllm_schemas", folder / "__init__.py", submodule_search_locations=[str(folder)])
    assert spec
    assert spec.loader
    package = module_from_spec(spec)
    sys.modules["trtllm_schemas"] = package
    spec.loader.exec_module(package)
    return package


def load_balancer() -> Any:
    """The schema of a load balancer's file, with its checks."""
    return _package().LoadBalancer


@lru_cache(maxsize=1)
def configs() -> dict[str, type[BaseModel]]:
    """Name → class, as `tensorrt_llm.llmapi` exports them."""
    whole = _package().SCHEMAS[era().schema]
    module = sys.modules[whole.__module__]
    found = {
        name: kind
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, BaseModel) and name.endswith(("Config", "Args"))
    }
    if "DecodeCudaGraphConfig" in found:
        found["CudaGraphConfig"] = found["DecodeCudaGraphConfig"]
    found["TorchLlmArgs"] = found["LlmArgs"] = _without(found["TorchLlmArgs"], era().missing_field)
    return found


def _without(kind: type[BaseModel], field: str) -> type[BaseModel]:
    """The class with one field less; validators of the whole are lost."""
    if not field:
        return kind
    if field not in kind.model_fields:
        raise ValueError(f"TRTLLM_DOUBLE_ALTER: TorchLlmArgs has no field {field}")
    kept: dict[str, Any] = {name: (one.annotation, one) for name, one in kind.model_fields.items() if name != field}
    config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())
    return create_model("TorchLlmArgs", __config__=config, **kept)
