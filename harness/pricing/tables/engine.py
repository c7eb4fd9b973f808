"""The query engine of aiconfigurator-core, fenced in.

It answers GEMM shapes and MoE token counts that have no row of their own, and says what it makes of exchanges beyond
the rows. What the fence keeps in: its log lines and warnings, its exceptions (their texts hold absolute paths), rows of
other releases or backends (`shared_layer=False`), and a trap: of operations that share a name it returns the sum. It
opens no socket: a database is found by folder, and models, which it would look for on the Hugging Face hub, are not
used.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from harness.cost.ops import Gemm, Moe
from harness.errors import EnvironmentUnfit
from harness.pricing.tables.availability import PACKAGE, systems_root
from harness.pricing.tables.store import FORMATS

_K = TypeVar("_K", Gemm, Moe)

#: Our formats in the engine's words. It makes `fp8_static` GEMMs of `fp8` rows less the time of finding dynamic scales,
#: and with `low_precision_input` less that of the cast too, never faster than the GEMM's roofline.
_THEIRS = {ours: theirs for theirs, ours in FORMATS.items()}
_GEMM_MODES = {**_THEIRS, "fp8_static": "fp8_static"}


class EngineError(NamedTuple):
    """Why the engine has no answer, in words that hold no path."""

    reason: str


class Engine:
    """The engine over one system's tables of one TensorRT-LLM release; loaded on first use."""

    def __init__(self, system_key: str, release: str) -> None:
        self.system_key = system_key
        self.release = release

    def gemm_times_ms(self, kernels: Sequence[Gemm]) -> list[float | EngineError]:
        """Time of each GEMM, in order; one engine call per distinct m."""
        return self._grouped(kernels, lambda kernel: kernel.m, self._gemm)

    def moe_times_ms(self, kernels: Sequence[Moe]) -> list[float | EngineError]:
        """Time of each expert FFN, in order; one engine call per distinct token count."""
        return self._grouped(kernels, lambda kernel: kernel.tokens, self._moe)

    def all_reduce_time_ms(self, elements: int, gpus: int) -> float | EngineError:
        """Time of TensorRT-LLM's all-reduce of bf16 elements."""
        _, operations = self._vocabulary
        return self._one(lambda: operations.CustomAllReduce("0", 1, elements, gpus))

    def nccl_time_ms(self, operation: str, dtype: str, elements: int, gpus: int) -> float | EngineError:
        """Time of one of NCCL's collectives over elements of `half` or `int8`."""
        modes, operations = self._vocabulary
        return self._one(lambda: operations.NCCL("0", 1, operation, elements, gpus, modes.CommQuantMode[dtype]))

    def _one(self, operation: Callable[[], Any]) -> float | EngineError:
        """The time of one operation over one token."""
        answers: dict[int, float | EngineError] = {}
        self._evaluate(1, [(0, None)], lambda _, __: operation(), answers)
        return answers[0]

    def _gemm(self, kernel: Gemm, name: str) -> Any:
        modes, operations = self._vocabulary
        mode, cast = modes.GEMMQuantMode[_GEMM_MODES[kernel.format]], kernel.input_cast_fused
        return operations.GEMM(name, 1, kernel.n, kernel.k, mode, low_precision_input=cast)

    def _moe(self, kernel: Moe, name: str) -> Any:
        modes, operations = self._vocabulary
        mode = modes.MoEQuantMode[moe_format(kernel.format)]
        shape = (kernel.hidden, kernel.inter, kernel.top_k, kernel.experts, kernel.tp, kernel.ep)
        return operations.MoE(name, 1, *shape, mode, kernel.routing, 1)

    def _grouped(
        self, kernels: Sequence[_K], tokens_of: Callable[[_K], int], operation: Callable[[_K, str], Any]
    ) -> list[float | EngineError]:
        groups: dict[int, list[int]] = {}
        for index, kernel in enumerate(kernels):
            groups.setdefault(tokens_of(kernel), []).append(index)
        answers: dict[int, float | EngineError] = {}
        for tokens, indices in groups.items():
            self._evaluate(tokens, [(index, kernels[index]) for index in indices], operation, answers)
        return [answers[index] for index in range(len(kernels))]

    def _evaluate(
        self,
        tokens: int,
        asked: Sequence[tuple[int, Any]],
        operation: Callable[[Any, str], Any],
        answers: dict[int, float | EngineError],
    ) -> None:
        """Ask for many at once; where that fails, halve, so that each failure is found and the rest answered."""
        handle, build_ops_json = self._opened
        try:
            # The position is the name: unique, so that nothing is summed.
            spec = build_ops_json([operation(kernel, str(index)) for index, kernel in asked])
            replies = handle.evaluate_ops_json(spec, is_context=True, batch_size=1, s=tokens, x=tokens)
        except BaseException as error:
            if not _is_the_engines(error):
                raise
            if len(asked) == 1:
                answers[asked[0][0]] = EngineError(f"the engine of {PACKAGE} has no answer ({type(error).__name__})")
                return
            middle = len(asked) // 2
            self._evaluate(tokens, asked[:middle], operation, answers)
            self._evaluate(tokens, asked[middle:], operation, answers)
            return
        answers.update((int(name), float(time_ms)) for name, time_ms, *_ in replies)

    @cached_property
    def _vocabulary(self) -> tuple[Any, Any]:
        from aiconfigurator_core.sdk import common, operations

        return common, operations

    @cached_property
    def _opened(self) -> tuple[Any, Any]:
        """The engine's handle and its serialiser; raises EnvironmentUnfit where it does not open its own tables."""
        _silence()
        problem = ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                opened = self._open()
        except Exception as error:  # noqa: BLE001  # whatever the package raises
            opened, problem = None, f" ({type(error).__name__})"
        if opened is None:
            raise EnvironmentUnfit(
                f"the engine of {PACKAGE} does not open the {self.release} tables of {self.system_key}{problem}; "
                "install the package again"
            )
        return opened

    def _open(self) -> tuple[Any, Any] | None:
        from aiconfigurator_core.sdk import perf_database
        from aiconfigurator_core.sdk.engine import EngineHandle, build_ops_json

        root = str(systems_root())
        database = perf_database.get_database_view(
            self.system_key,
            "trtllm",
            self.release,
            systems_paths=[root],
            database_mode="SILICON",
            shared_layer=False,
            strict_provenance=False,
        )
        if database is None:
            return None
        return EngineHandle.for_database(database, systems_path=root), build_ops_json


def moe_format(format: str) -> str:
    """The tables' name of an expert format; `fp8` and `fp8_static` are one there, with a scale per tensor."""
    return _THEIRS.get("fp8" if format == "fp8_static" else format, format)


def _silence() -> None:
    """Keep the package's log lines from every handler, this program's own included."""
    logger = logging.getLogger("aiconfigurator_core")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logger.propagate = False


def _is_the_engines(error: BaseException) -> bool:
    """An exception of the engine; a Rust panic arrives as a BaseException called PanicException."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
