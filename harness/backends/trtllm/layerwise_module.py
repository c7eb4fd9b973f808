"""The layer-wise runner in this process, on one GPU: `tensorrt_llm.tools.layer_wise_benchmarks`, driven as its run.py.

Its interface has changed with nearly every release. So each call is given what the release names among its parameters;
one that is needed and not known here is an answer, and nothing is guessed. Read: runner.py at 9152836, run.py at
f4faed1 and 042f3c0.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from harness.backends.base import CannotAnswer
from harness.backends.trtllm.features import LAYER_WISE, Features
from harness.backends.trtllm.layerwise_problem import Part, Problem
from harness.backends.trtllm.settings_folder import EngineSettings

#: What it says of layers that compute nothing useful (runner.py at 020cbd8).
_OUTPUT = re.compile("Has nan|Has inf|Too many zeros")
#: Iterations before timed ones, after another arm had its turn.
_AGAIN = 2


class LayerModule:
    """Runners of single layers, one for each part and kind of work, and the timing of their problems."""

    def __init__(self, settings: EngineSettings, features: Features, moe_backend: str) -> None:
        self._settings = settings
        self._moe_backend = moe_backend
        self._cuda = _cuda(features)
        self._tools = importlib.import_module(LAYER_WISE)
        self._runner_module = _optional(f"{LAYER_WISE}.runner") or self._tools
        self._runners: dict[tuple[Part, str], Any] = {}
        self.tuned = False
        """Whether the autotuner was told to choose kernels."""

    def prepare(self, problem: Problem) -> Callable[[int], list[float]]:
        """Make layers, cache and graph ready; return what times iterations, in ms.

        Raises CannotAnswer with the words of the runner for what it refuses.
        """
        try:
            return self._prepare(problem)
        except (NotImplementedError, AttributeError, KeyError, ValueError) as error:
            what, status = ("its own output", "invalid") if _OUTPUT.search(str(error)) else ("this case", "unsupported")
            reason = f"the layer-wise runner refuses {what}: {type(error).__name__}: {error}"
            raise CannotAnswer(reason, status) from error  # type: ignore[arg-type]

    def _prepare(self, problem: Problem) -> Callable[[int], list[float]]:
        runner = self._runner(problem)
        cache = self._cache(problem, runner)
        with self._routed(runner, problem.part):
            run = self._pack(runner, problem, cache)
            self._tune(run)
            self._fill(runner, problem, cache)
            # Newer releases look for NaN, infinity and zeros in what comes out.
            _call(run, check=True)
            run()
            self._cuda.synchronize()
            replay = self._captured(run) if problem.run_type == "GEN" else run

        def times_ms(count: int) -> list[float]:
            # The routing is in the graph; without one it has to be replaced again.
            with contextlib.nullcontext() if replay is not run else self._routed(runner, problem.part):
                return self._timed(replay, count)

        return times_ms

    def _runner(self, problem: Problem) -> Any:
        key = (problem.part, problem.run_type)
        if key not in self._runners:
            cls = self._class()
            mapping = _call(cls.create_mapping, enable_attention_dp=self._attention_dp)
            fields = self._settings.fields
            self._runners[key] = _call(
                cls,
                str(self._settings.engine.path),
                mapping,
                load_format=str(fields.get("load_format", "dummy")).upper(),
                moe_backend=self._moe_backend,
                layer_indices=list(problem.part.layers),
                scaled_from=None,
                max_seq_len=int(fields["max_seq_len"]),
                max_num_tokens=max(int(fields["max_num_tokens"]), int(fields["max_seq_len"])),
                moe_max_num_tokens=self._settings.part("moe_config").get("max_num_tokens"),
                kv_cache_dtype=self._kv_dtype,
                mamba_ssm_cache_dtype="auto",
                use_low_precision_moe_combine=False,
                use_cuda_graph=problem.run_type == "GEN",
            )
        return self._runners[key]

    def _class(self) -> Any:
        found = getattr(self._runner_module, "Runner", None) or getattr(self._tools, "Runner", None)
        if found is not None:
            return found
        return self._tools.get_runner_cls(str(self._settings.engine.path))

    @property
    def _attention_dp(self) -> bool:
        return bool(self._settings.fields.get("enable_attention_dp"))

    @property
    def _kv_dtype(self) -> str:
        return str(self._settings.part("kv_cache_config").get("dtype", "auto"))

    def _cache(self, problem: Problem, runner: Any) -> Any:
        cls = type(runner)
        return _call(
            cls.create_kv_cache_manager,
            str(self._settings.engine.path),
            _call(cls.create_mapping, enable_attention_dp=self._attention_dp),
            tokens_per_block=int(self._settings.part("kv_cache_config").get("tokens_per_block", 32)),
            max_batch_size=problem.batch,
            max_seq_len=problem.query + problem.kv,
            kv_cache_dtype=self._kv_dtype,
            mamba_ssm_cache_dtype="auto",
            layer_indices=list(problem.part.layers),
        )

    def _pack(self, runner: Any, problem: Problem, cache: Any, **changes: Any) -> Callable[..., Any]:
        given = {
            "batch_size": problem.batch,
            "request_id_begin": 0,
            "seq_len_q": problem.query,
            "seq_len_kv_cache": problem.kv,
            "kv_cache_manager": cache,
            "attn_workspace": self._cuda.workspace(),
        }
        run_type = changes.pop("run_type", problem.run_type)
        pack: Callable[..., Any] = _call(runner.create_run_pack, run_type, **{**given, **changes})
        return pack

    def _fill(self, runner: Any, problem: Problem, cache: Any) -> None:
        """Have the cache of decode hold what a prefill writes, one sequence after the other."""
        if problem.run_type == "GEN" and "request_id_begin" in inspect.signature(runner.create_run_pack).parameters:
            for request in range(problem.batch):
                fill = {"run_type": "CTX", "batch_size": 1, "request_id_begin": request}
                self._pack(runner, problem, cache, **fill, seq_len_q=problem.kv, seq_len_kv_cache=0)()

    def _routed(self, runner: Any, part: Part) -> Any:
        """A context in which tokens go to experts as asked."""
        method = self._runner_module.BalanceMethod[part.balance_method]
        if hasattr(runner, "replace_routing_method_ctx"):
            return runner.replace_routing_method_ctx(balance_method=method, balance_ratio=part.balance_ratio)
        if part.balance_method != "NotModified":
            runner.replace_routing_method(balance_method=method, balance_ratio=part.balance_ratio)
        return contextlib.nullcontext()

    def _tune(self, run: Callable[..., Any]) -> None:
        tuner = _optional("tensorrt_llm._torch.autotuner")
        if tuner is None or self._settings.fields.get("enable_autotuner") is False:
            run()
            return
        path = os.environ.get("TLLM_AUTOTUNER_CACHE_PATH")
        with _call(tuner.autotune, cache_path=path):
            run()
        self.tuned = True

    def _captured(self, run: Callable[..., Any]) -> Callable[[], Any]:
        streams = _optional("tensorrt_llm._torch.modules.multi_stream_utils")
        graph = self._cuda.api.CUDAGraph()
        with streams.with_multi_stream(True) if streams else contextlib.nullcontext(), self._cuda.api.graph(graph):
            run()
        replay: Callable[[], Any] = graph.replay
        return replay

    def _timed(self, run: Callable[[], Any], count: int) -> list[float]:
        events = [self._cuda.api.Event(enable_timing=True) for _ in range(_AGAIN + count + 1)]
        for event in events[:-1]:
            event.record()
            run()
        events[-1].record()
        self._cuda.synchronize()
        return [float(start.elapsed_time(end)) for start, end in pairwise(events)][_AGAIN:]


class _Cuda:
    """Events and graphs of `torch.cuda`, or of what stands for it in a test double."""

    def __init__(self, api: Any, workspace: Callable[[], Any]) -> None:
        self.api = api
        self.workspace = workspace

    def synchronize(self) -> None:
        self.api.synchronize()


def _cuda(features: Features) -> _Cuda:
    if features.is_double:
        return _Cuda(importlib.import_module("tensorrt_llm._double.cuda"), lambda: None)
    torch = importlib.import_module("torch")
    return _Cuda(torch.cuda, lambda: torch.empty((0,), device="cuda", dtype=torch.int8))


def _optional(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def _call(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Call with those of `named` that the function has. Raises CannotAnswer where it needs what is not among them."""
    parameters = inspect.signature(function).parameters
    taken = {name: value for name, value in named.items() if name in parameters}
    missing = list(_needed(parameters, len(given), taken))
    if missing:
        raise CannotAnswer(
            f"the layer-wise runner of this release needs {', '.join(missing)}, which nothing here knows"
        )
    return function(*given, **taken)


def _needed(parameters: Any, positional: int, taken: dict[str, Any]) -> Iterator[str]:
    for index, one in enumerate(parameters.values()):
        by_place = index < positional and one.kind is not one.KEYWORD_ONLY
        varies = one.kind in {one.VAR_POSITIONAL, one.VAR_KEYWORD}
        if not by_place and not varies and one.default is one.empty and one.name not in taken:
            yield one.name
