"""How long requests wait for their first token: a burst and then a closed loop, in front of an in-flight batch.

`concurrency` requests arrive at once; whenever one is done the next arrives. A step takes waiting requests in order of
arrival while their prompts and the decoding sequences stay within `max_tokens` and while the KV cache can hold them to
their ends (TensorRT-LLM's default, GUARANTEED_NO_EVICT); prompts are not cut. With `wait_steps` a step that would take
fewer tokens than `wait_ratio` of `max_tokens` leaves them waiting, up to so many steps in a row, as long as something
decodes (`_waiting_requests` of TensorRT-LLM `_torch/pyexecutor/py_executor.py`). No time passes but on the GPU: host,
network, tokeniser and client take none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, Protocol


class Times(Protocol):
    """What the parts of a pass take, in ms."""

    def body_ms(self, tokens: float) -> float: ...
    def prompt_attention_ms(self, isl: float) -> float: ...
    def decode_attention_ms(self, batch: int, kvsl: float) -> float: ...
    def head_ms(self, sequences: float) -> float: ...


class Request(NamedTuple):
    """Tokens in and out."""

    isl: int
    osl: int


@dataclass(frozen=True)
class Server:
    """What the server allows. `capacity` counts the tokens that the KV cache holds."""

    max_tokens: int
    capacity: int
    wait_steps: int = 0
    wait_ratio: float = 0.0


class Served(NamedTuple):
    """What one request saw."""

    ttft_ms: float
    tpot_ms: float


@dataclass
class _Running:
    request: Request
    arrived_ms: float
    first_ms: float
    left: int


@dataclass
class _State:
    """The server's queue and batch at one time."""

    times: Times
    server: Server
    now_ms: float = 0.0
    waiting: deque[tuple[float, Request]] = field(default_factory=deque)
    running: list[_Running] = field(default_factory=list)
    cached: int = 0
    """Tokens in the cache."""
    reserved: int = 0
    """Tokens that the running requests will have there at their ends."""
    waited: int = 0

    def admissible(self) -> int:
        """How many waiting requests the next step could take."""
        tokens, reserved, count = len(self.running), self.reserved, 0
        for _, request in self.waiting:
            tokens, reserved = tokens + request.isl, reserved + request.isl + request.osl
            if tokens > self.server.max_tokens or reserved > self.server.capacity:
                break
            count += 1
        return count

    def steps_to_wait(self, admissible: int) -> int:
        """Steps for which admissible requests are left waiting; 0 to take them now."""
        tokens = len(self.running) + sum(self.waiting[at][1].isl for at in range(admissible))
        if not self.running or tokens >= self.server.wait_ratio * self.server.max_tokens:
            return 0
        return self.server.wait_steps - self.waited

    def prefill(self, count: int) -> None:
        """One step with the first `count` waiting requests in it."""
        taken = [self.waiting.popleft() for _ in range(count)]
        self.waited = 0
        decoding = len(self.running)
        self.now_ms += (
            self.times.body_ms(decoding + sum(request.isl for _, request in taken))
            + sum(self.times.prompt_attention_ms(request.isl) for _, request in taken)
            + self._decode_ms(0)
            + self.times.head_ms(decoding + count)
        )
        self._advance(1)
        for arrived_ms, request in taken:
            self.running.append(_Running(request, arrived_ms, self.now_ms, request.osl - 1))
            self.cached += request.isl
            self.reserved += request.isl + request.osl

    def decode(self, steps: int) -> None:
        """Some steps without a prompt; the cache grows by a token per sequence and step."""
        batch = len(self.running)
        one_ms = self.times.body_ms(batch) + self.times.head_ms(batch) + self._decode_ms((steps - 1) / 2)
        self.now_ms += steps * one_ms
        self._advance(steps)

    def finish(self) -> list[Served]:
        """Take out what is done."""
        done = [one for one in self.running if one.left <= 0]
        if done:
            self.running = [one for one in self.running if one.left > 0]
            self.cached -= sum(one.request.isl + one.request.osl - 1 for one in done)
            self.reserved -= sum(one.request.isl + one.request.osl for one in done)
        return [
            Served(one.first_ms - one.arrived_ms, (self.now_ms - one.first_ms) / max(1, one.request.osl - 1))
            for one in done
        ]

    def _decode_ms(self, later: float) -> float:
        batch = len(self.running)
        return self.times.decode_attention_ms(batch, self.cached / batch + 1 + later) if batch else 0.0

    def _advance(self, steps: int) -> None:
        for one in self.running:
            one.left -= steps
        self.cached += steps * len(self.running)


def simulate(times: Times, server: Server, requests: Sequence[Request], concurrency: int) -> list[Served]:
    """Serve all requests; what each saw, in the order in which they were done.

    Raises ValueError for a request that the server could never take.
    """
    largest = max(requests, key=sum)
    if sum(largest) > server.capacity or max(request.isl for request in requests) > server.max_tokens:
        raise ValueError(f"a request of {largest.isl} + {largest.osl} tokens never fits")
    state, coming = _State(times, server), iter(requests)
    served: list[Served] = []
    state.waiting.extend((0.0, request) for request in islice(coming, concurrency))
    while len(served) < len(requests):
        count = state.admissible()
        wait = state.steps_to_wait(count) if count else 0
        if count and not wait:
            state.prefill(count)
        else:
            steps = min(one.left for one in state.running)
            steps = min(steps, wait) if count else steps
            state.decode(steps)
            state.waited += steps if count else 0
        done = state.finish()
        served += done
        state.waiting.extend((state.now_ms, request) for request in islice(coming, len(done)))
    return served
