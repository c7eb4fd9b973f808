"""Which requests an iteration works on: one scheduler for each rank that has sequences of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

#: A context is cut in multiples of this, but for its end.
CHUNK_UNIT = 64


@dataclass
class Request:
    """One request on its way."""

    number: int
    prompt: list[int]
    max_tokens: int
    stops_at: int
    """How many tokens it yields before it ends by an end token; more than max_tokens where it does not."""
    arrives: int = 0
    """Iterations after the first at which the executor sees it."""
    computed: int = 0
    reused: int = 0
    yielded: int = 0
    blocks: int = 0
    first_iteration: int | None = None
    first_token_iteration: int | None = None
    last_iteration: int | None = None
    times_ms: dict[str, float] = field(default_factory=dict)
    drafted: int = 0
    accepted: int = 0

    @property
    def cached(self) -> int:
        """Tokens in the KV cache before the next decode step: all but the one that was sampled last."""
        return len(self.prompt) + max(0, self.yielded - 1)

    @property
    def left(self) -> int:
        return len(self.prompt) - self.computed

    @property
    def done(self) -> bool:
        return self.yielded >= min(self.max_tokens, self.stops_at)

    @property
    def stopped(self) -> bool:
        return self.stops_at < self.max_tokens


@dataclass
class Batch:
    """What one iteration does on one rank."""

    contexts: list[tuple[Request, int]] = field(default_factory=list)
    """Requests with the tokens of their prompts that are computed."""
    generations: list[Request] = field(default_factory=list)
    queued: int = 0
    active: int = 0
    fetched: int = 0
    dummies: int = 0
    context_past: int = 0
    """Tokens of the contexts that are cached before the iteration."""
    cached: int = 0
    """Tokens of the generations that are cached before the iteration."""

    @property
    def context_tokens(self) -> int:
        return sum(tokens for _, tokens in self.contexts)

    @property
    def size(self) -> int:
        return len(self.contexts) + len(self.generations)


class Scheduler:
    """GUARANTEED_NO_EVICT, first come first served, generation before context."""

    def __init__(
        self, max_batch: int, max_tokens: int, blocks: int, tokens_per_block: int, *, chunked: bool,
        reuse: Callable[[Request], int],
    ) -> None:  # fmt: skip
        self.max_batch, self.max_tokens, self.reuse = max_batch, max_tokens, reuse
        self.blocks, self.tokens_per_block, self.chunked = blocks, tokens_per_block, chunked
        self.queue: list[Request] = []
        self.active: list[Request] = []
        self.held: dict[int, int] = {}

    def put(self, request: Request) -> None:
        self.queue.append(request)

    @property
    def idle(self) -> bool:
        return not self.queue and not self.active

    @property
    def used_blocks(self) -> int:
        return sum(self.held.values())

    def next(self, query: int) -> Batch:
        """The batch of the next iteration; each generation computes `query` tokens."""
        fetched = self._admit()
        batch = Batch(queued=len(self.queue), active=len(self.active), fetched=fetched)
        room = self.max_tokens
        for request in self.active:
            if not request.left and room >= query:
                batch.generations.append(request)
                room -= query
        for request in self.active:
            if not request.left:
                continue
            tokens = request.left
            if tokens > room:
                if not self.chunked:
                    break
                tokens = room // CHUNK_UNIT * CHUNK_UNIT
            if tokens <= 0:
                break
            batch.contexts.append((request, tokens))
            room -= tokens
        batch.context_past = sum(request.computed for request, _ in batch.contexts)
        batch.cached = sum(request.cached for request in batch.generations)
        return batch

    def end(self, request: Request) -> None:
        self.active.remove(request)
        del self.held[request.number]

    def _admit(self) -> int:
        fetched = 0
        while self.queue and len(self.active) < self.max_batch:
            request = self.queue[0]
            need = -(-(len(request.prompt) + request.max_tokens) // self.tokens_per_block)
            if self.used_blocks + need > self.blocks:
                break
            self.queue.pop(0)
            self.active.append(request)
            request.blocks = self.held[request.number] = need
            request.computed = request.reused = self.reuse(request)
            fetched += 1
        return fetched


class Reuse:
    """Blocks of prompts that were computed before, by all the tokens up to their end."""

    def __init__(self, tokens_per_block: int) -> None:
        self.size = tokens_per_block
        self.known: set[int] = set()

    def found(self, prompt: list[int]) -> int:
        """Tokens of a prompt that are in the cache; at least one is always computed."""
        tokens = 0
        for end, key in self._keys(prompt):
            if key not in self.known or end >= len(prompt):
                break
            tokens = end
        return tokens

    def keep(self, prompt: list[int]) -> None:
        self.known.update(key for _, key in self._keys(prompt))

    def _keys(self, prompt: list[int]) -> list[tuple[int, int]]:
        keys, key = [], 0
        for start in range(0, len(prompt) - self.size + 1, self.size):
            key = hash((key, tuple(prompt[start : start + self.size])))
            keys.append((start + self.size, key))
        return keys
