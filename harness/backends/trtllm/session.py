"""One LLM instance of TensorRT-LLM: opened from settings, given prompts, asked for what its iterations were.

Names, as documented for the LLM API (nvidia.github.io/TensorRT-LLM, 1.2.1 to 1.4.0rc4, read 2026-11-30): `LLM`,
`LLM.generate`, `LLM.get_stats`, `LLM.shutdown`, `SamplingParams`.

Which figure of time a release has is seen in what it reports of a first short request: device times in its records
(1.3.0rc16 and later), else in the lines of `print_iter_log`, else the scheduler is told not to overlap iterations, and
the time from loop to loop is that of an iteration. With several ranks lines come before records that tell of one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from harness.backends.base import CannotAnswer
from harness.backends.trtllm.iteration_log import parse_iteration_log
from harness.backends.trtllm.iteration_stats import parse_stats
from harness.backends.trtllm.iterations import Iteration
from harness.backends.trtllm.log_tap import LogTap
from harness.backends.trtllm.prompts import Prompts
from harness.backends.trtllm.rows import by_rank, problem_of, time_of_rows
from harness.backends.trtllm.settings_folder import EngineSettings
from harness.errors import UnreadableInput

#: How long to wait for the record of an iteration that has ended. Whoever asks waits as long after the last of them.
STATS_WAIT_S = 0.1
#: Tokens of the first request of all, whose records tell which figures of time this release has.
_PROBE_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and how many tokens it is to yield."""

    prompt: Sequence[int]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Burst:
    """What became of requests that were given at once."""

    rows: tuple[Iteration, ...]
    """Iterations with their times."""
    records: tuple[Iteration, ...]
    """Iterations as `get_stats` tells them, which know of drafts and of what was found in the cache."""
    wrong_lengths: str = ""
    """Which sequences did not yield what they were to, or nothing."""

    @property
    def problem(self) -> str:
        """Why nothing of this is what was asked, or nothing."""
        if self.wrong_lengths:
            return f"output lengths: {self.wrong_lengths}"
        if not self.records:
            return "lost statistics: the executor reported no iteration"
        found = problem_of(by_rank(self.records))
        return f"kv reuse: {found}" if "reused" in found else found


class Llm(Protocol):
    """What is used of `tensorrt_llm.LLM`."""

    def generate(self, inputs: Any, sampling_params: Any = None, use_tqdm: bool = True) -> Any: ...

    def get_stats(self, timeout: float | None = 2) -> Any: ...

    def shutdown(self) -> None: ...


class LlmSession:
    """The instance and its settings, which are changed where this release needs it; opened at once."""

    def __init__(self, settings: EngineSettings, prompts: Prompts, ranks: int = 1) -> None:
        """Raises CannotAnswer where the release tells no time of an iteration."""
        self.settings = settings
        self.prompts = prompts
        self.started = 0
        """How often an instance was started."""
        self.time_source = ""
        self._ranks = ranks
        self._llm: Llm | None = None
        self._tap: LogTap | None = None
        self._by_log = False
        # Records are often those of one rank; lines can be had of all, and with all the slowest is known.
        for log, overlaps in [*[(False, settings.overlaps)] * (ranks == 1), (True, settings.overlaps), (True, False)]:
            self.close()
            self._start(log=log, overlaps=overlaps)
            if self.time_source:
                return
        self.close()
        raise CannotAnswer("this release tells no time of an iteration, whether they overlap or not", "invalid")

    @property
    def time_place(self) -> str:
        """Where times come from, for the record."""
        return f"{self.time_source} ({'print_iter_log' if self._by_log else 'get_stats'})"

    def run(self, requests: Sequence[Request]) -> Burst:
        """Give all requests at once, wait for the last, and return the iterations that they took.

        Raises CannotAnswer, with the record or line, where iterations are told in a form that nobody has seen.
        """
        lines, records, wrong = self._run(requests)
        return Burst(tuple(lines if self._by_log else records), tuple(records), wrong)

    def close(self) -> None:
        """Shut the instance down; once is enough."""
        llm, self._llm = self._llm, None
        if llm:
            llm.shutdown()
        tap, self._tap = self._tap, None
        if tap:
            tap.close()

    def _start(self, *, log: bool, overlaps: bool) -> None:
        """Open, and see which figure of time a short request shows; it also takes what very first iterations cost."""
        from tensorrt_llm import LLM

        if overlaps != self.settings.overlaps:
            self.settings = self.settings.with_fields(disable_overlap_scheduler=not overlaps)
        if log:
            self.settings = self.settings.with_fields(print_iter_log=True)
            _log_iterations()
            self._tap = LogTap()
        self.started += 1
        self._llm = LLM(model=str(self.settings.engine.path), **self.settings.fields)
        longest = int(self.settings.fields.get("max_seq_len") or 2 * _PROBE_TOKENS)
        prompt = max(1, min(_PROBE_TOKENS, longest // 2))
        asked = max(1, min(_PROBE_TOKENS, longest - prompt - 1))
        # One for each rank that has sequences of its own.
        drawn = self.prompts.draw(self._ranks, prompt)
        lines, records, _ = self._run([Request(one, asked) for one in drawn])
        told, logged = source_of(records), source_of(lines)
        self._by_log = bool(logged) and (not told or len(by_rank(lines)) > len(by_rank(records)))
        self.time_source = logged if self._by_log else told

    def _run(self, requests: Sequence[Request]) -> tuple[list[Iteration], list[Iteration], str]:
        from tensorrt_llm import SamplingParams

        assert self._llm, "the session is closed"
        self._collect(0.0)
        asked = [
            SamplingParams(max_tokens=one.output_tokens, end_id=-1, pad_id=-1, ignore_eos=True, detokenize=False)
            for one in requests
        ]
        outputs = self._llm.generate([list(one.prompt) for one in requests], sampling_params=asked, use_tqdm=False)
        return *self._collect(STATS_WAIT_S), _wrong_lengths(requests, outputs)

    def _collect(self, wait_s: float) -> tuple[list[Iteration], list[Iteration]]:
        """All iterations that were not told yet: as lines, where they are read along, and as records tell them."""
        assert self._llm
        told: list[Mapping[str, Any]] = []
        while fresh := list(self._llm.get_stats(timeout=max(wait_s, 0.001))):
            told += fresh
        lines, overlap = self._tap.take(wait_s) if self._tap else [], self.settings.overlaps
        try:
            records = parse_stats(told, "get_stats", overlap=overlap)
            return parse_iteration_log(lines, "print_iter_log", overlap=overlap), records
        except UnreadableInput as error:
            raise CannotAnswer(str(error), "invalid") from error


def source_of(rows: Iterable[Iteration]) -> str:
    """The best figure of time that all ranks have; empty where there is none."""
    return time_of_rows(by_rank(rows))[0]


def _log_iterations() -> None:
    """Have every rank print its lines: later processes read variables, the logger of this one was made before."""
    os.environ["TLLM_LOG_LEVEL"] = "INFO"
    os.environ["TLLM_PROFILE_LOG_RANKS"] = "all"
    from tensorrt_llm import logger as module

    set_level = getattr(getattr(module, "logger", module), "set_level", None)
    if set_level:
        set_level("info")


def _wrong_lengths(requests: Sequence[Request], outputs: Sequence[Any]) -> str:
    if len(outputs) != len(requests):
        return f"{len(outputs)} of {len(requests)} requests were answered"
    lengths = [len(output.outputs[0].token_ids) for output in outputs]
    wrong = [(got, one.output_tokens) for got, one in zip(lengths, requests, strict=True) if got != one.output_tokens]
    if not wrong:
        return ""
    got, asked = wrong[0]
    return f"{len(wrong)} of {len(requests)} sequences ended early or late, the first one after {got} of {asked} tokens"
