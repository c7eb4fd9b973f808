"""Routing that was collected before; the double replays none."""

from __future__ import annotations

from typing import Any

from tensorrt_llm._double.era import era

if not era().calibrator:
    raise ModuleNotFoundError("No module named 'tensorrt_llm.tools.layer_wise_benchmarks.calibrator'")


class Calibrator:
    """Does nothing in mode NONE, and has no other."""

    def init(self, mode: str, *_: Any, **__: Any) -> None:
        if mode != "NONE":
            raise NotImplementedError(f"the double has no calibration mode {mode}")

    def maybe_wrap_model(self, model: Any) -> Any:
        return model

    def start(self) -> None: ...

    def pre_step(self, number: int) -> None: ...

    def post_step(self, number: int) -> None: ...

    def stop(self) -> None: ...


_ONE = Calibrator()


def get_calibrator() -> Calibrator:
    return _ONE
