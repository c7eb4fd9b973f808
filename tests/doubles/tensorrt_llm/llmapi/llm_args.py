"""Arguments of the version, by the names that the schemas have."""

from __future__ import annotations

from tensorrt_llm._double.schemas import configs

globals().update(configs())

__all__ = [*configs()]  # noqa: PLE0604
