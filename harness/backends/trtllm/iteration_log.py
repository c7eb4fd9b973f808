"""The line that TensorRT-LLM prints for each iteration with `print_iter_log`, in every form it has had.

Forms (NVIDIA/TensorRT-LLM, tensorrt_llm/_torch/pyexecutor/py_executor.py): from April 2025 `elapsed_time = 0.007s`
(PR 3914); to 1.3.0rc15 `host_step_time` and `prev_device_step_time` in ms before `num_scheduled_requests: n`; from PR
14206 (May 2026) `num_scheduled_requests = n` first and `kv_cache_util`; from PR 14734 `cached_kv_tokens` in `states`;
from PR 16323 (July 2026) more counts at the end. So each field is looked for by itself. The line is written when its
loop has ended, under the number of the next one; of a loop that ran nothing it says `num_scheduled_requests` 0 and
repeats the `states` of the batch before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from harness.backends.trtllm.iterations import Iteration
from harness.errors import UnreadableInput

#: What marks the line, whatever launchers and loggers put before it.
_MARK = re.compile(r"(?<!\w)iter\s*[=:].*(num_scheduled_requests|host_step_time|elapsed_time|states)\s*[=:]")
_FIELD = r"(?<!\w){name}\s*[=:]\s*(?P<value>[^,{{]+?)\s*(?=,|$)"
_STATES = re.compile(r"(?<!\w)states\s*[=:]\s*(?P<value>\{[^}]*\})")
#: A count among the states. Some builds write `tensor(256)`.
_STATE = r"['\"]{name}['\"]\s*:\s*(?P<value>[^,}}]+?)\s*[,}}]"
_WHOLE = re.compile(r"(?:tensor\()?(?P<number>\d+)(?:,[^)]*)?\)?")
_MS = re.compile(r"(?P<number>[0-9.eE+-]+)\s*(?P<unit>ms|s)")
_NONE = {"N/A", "N/Ams", "None"}


def is_iteration_line(line: str) -> bool:
    """Whether a line of a log reports an iteration."""
    return _MARK.search(line) is not None


def parse_iteration_log(lines: Iterable[str], where: str, *, overlap: bool | None = None) -> list[Iteration]:
    """Return the iterations that a log reports; other lines are passed over.

    `overlap` is what the settings say of the scheduler. Raises UnreadableInput with the line where one reports an
    iteration and a figure of it cannot be read: a form that nobody has seen is never taken for zero.
    """
    return [
        _iteration(line, f"{where}:{number}", overlap)
        for number, line in enumerate(lines, 1)
        if is_iteration_line(line)
    ]


def _iteration(line: str, where: str, overlap: bool | None) -> Iteration:
    states = _STATES.search(line)
    if states is None:
        raise _changed(line, where, "states = {'num_ctx_requests': …}")
    scheduled = _count(line, "num_scheduled_requests", where)
    contexts = _state(states["value"], "num_ctx_requests", line, where)
    if contexts is None:
        raise _changed(line, where, "num_ctx_requests in states")
    if scheduled and contexts > scheduled:
        raise _changed(line, where, f"contexts among the {scheduled} requests that were scheduled")
    return Iteration(
        number=_count(line, "iter", where),
        rank=_count(line, "global_rank", where),
        # Nothing was scheduled: the states are those of the batch before.
        contexts=contexts if scheduled else 0,
        # `num_generation_tokens` has the padding of CUDA graphs in it; requests that are no contexts generate.
        generations=scheduled - contexts if scheduled else 0,
        context_tokens=_state(states["value"], "num_ctx_tokens", line, where) if scheduled else 0,
        cached_kv_tokens=_state(states["value"], "cached_kv_tokens", line, where) if scheduled else None,
        previous_device_ms=_time_ms(line, "prev_device_step_time", where),
        latency_ms=_time_ms(line, "host_step_time", where) or _time_ms(line, "elapsed_time", where),
        overlap=overlap,
    )


def _state(states: str, name: str, line: str, where: str) -> int | None:
    found = re.search(_STATE.format(name=name), states)
    if found is None:
        return None
    number = _WHOLE.fullmatch(found["value"])
    if number is None:
        raise _changed(line, where, f"{name} in states as a whole number")
    return int(number["number"])


def _value(line: str, name: str) -> str | None:
    found = re.search(_FIELD.format(name=name), line)
    return found["value"] if found else None


def _count(line: str, name: str, where: str) -> int:
    value = _value(line, name)
    if value is None or not value.isdecimal():
        raise _changed(line, where, f"{name} = a whole number")
    return int(value)


def _time_ms(line: str, name: str, where: str) -> float | None:
    value = _value(line, name)
    if value is None or value in _NONE:
        return None
    found = _MS.fullmatch(value)
    try:
        time = float(found["number"]) if found else -1.0
    except ValueError:
        time = -1.0
    if not found or not 0 <= time < float("inf"):
        raise _changed(line, where, f"{name} with its unit, ms or s")
    return time * (1000 if found["unit"] == "s" else 1) or None


def _changed(line: str, where: str, missing: str) -> UnreadableInput:
    return UnreadableInput(
        f"{where}: an iteration line of a form that is not known, without {missing}: {line.strip()!r}"
    )
