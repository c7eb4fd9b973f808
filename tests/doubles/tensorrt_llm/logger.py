"""`tensorrt_llm.logger.logger`."""

from __future__ import annotations

from tensorrt_llm._double.logger import log


class Logger:
    """Writes to stdout what `TLLM_LOG_LEVEL` lets through."""

    def info(self, text: str) -> None:
        log(text, "info")

    def warning(self, text: str) -> None:
        log(text, "warning")

    def error(self, text: str) -> None:
        log(text, "error")


logger = Logger()
