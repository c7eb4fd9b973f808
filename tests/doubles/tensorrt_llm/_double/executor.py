"""The executor: iterations until every request is answered, what is recorded of them, and the time they take."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass
from typing import Any

from harness.cost.kv_cache import kv_bytes_per_token
from harness.cost.weights import rank_weights
from harness.spec.parallelism import Parallelism
from tensorrt_llm._double import failures, gpu
from tensorrt_llm._double.clock import EAGER, SETTLING, Clock, Truth, first_ms
from tensorrt_llm._double.drafts import Drafts
from tensorrt_llm._double.era import Era
from tensorrt_llm._double.graphs import padded, sizes
from tensorrt_llm._double.logger import Time, line, log, shows
from tensorrt_llm._double.model import Model
from tensorrt_llm._double.ranks import Ranks
from tensorrt_llm._double.records import GIB, Done, iteration_line, record
from tensorrt_llm._double.scheduler import Batch, Request, Reuse, Scheduler

HOST_MS = 0.35


@dataclass(frozen=True)
class Timing:
    """Device times of one iteration: that of the clock, and of each rank."""

    clock_ms: float
    ranks_ms: tuple[float, ...]
    settling: bool
    first: bool


class Executor:
    """Holds what one `LLM` has: schedulers, cache, ring of statistics, clock."""

    def __init__(self, args: Any, model: Model, split: Parallelism, era: Era, ranks: Ranks) -> None:
        self.args, self.model, self.split, self.era, self.ranks = args, model, split, era, ranks
        self.truth = Truth()
        self.opened = self.truth.processes()
        variant = model.variant(args.kv_cache_config.dtype)
        self.clock = Clock(variant, split, self.opened)
        self.drafts = Drafts(args.speculative_config, era)
        self.graphs = sizes(args.cuda_graph_config)
        total = gpu().memory_bytes
        self.total_gib = total / GIB
        self.blocks = self._blocks(total, rank_weights(variant, split).total_bytes, kv_bytes_per_token(variant, split))
        size = args.kv_cache_config.tokens_per_block
        self.max_seq_len = min(args.max_seq_len or model.config["max_position_embeddings"], self.blocks * size)
        self.cache = Reuse(size)
        self.schedulers = [
            Scheduler(
                args.max_batch_size or 2048, args.max_num_tokens or 8192, self.blocks, size,
                chunked=args.enable_chunked_prefill, reuse=self._reuse,
            )
            for _ in range(split.dp)
        ]  # fmt: skip
        length = args.max_stats_len
        self.ring: deque[dict[str, Any]] = deque()
        self.ring_length = None if length < 0 else length
        self.iteration = self.generates = self.sequence = self.dropped = 0
        self.device_ms: list[list[float]] = [[] for _ in range(split.world_size)]
        self.generating: tuple[int, ...] = ()
        self.settled = 0
        self.truth.tell(
            [{"event": "open", "process": os.getpid(), "version": era.version, "ranks": list(self.clock.ranks)}]
        )  # fmt: skip

    def _blocks(self, total: float, weights: float, per_token: float) -> int:
        """Blocks of the cache: the least of `max_tokens` and a share of the memory that is left."""
        left = total * 0.97 - weights
        if left <= 0:
            raise failures.torch_out_of_memory(self.total_gib)
        cache = self.args.kv_cache_config
        share = 0.9 if cache.free_gpu_memory_fraction is None else cache.free_gpu_memory_fraction
        tokens = left * share / per_token
        if cache.max_tokens is not None:
            tokens = min(tokens, cache.max_tokens)
        if tokens < cache.tokens_per_block:
            raise failures.out_of_memory("KV cache", self.total_gib, left / GIB)
        return int(tokens // cache.tokens_per_block)

    def _reuse(self, request: Request) -> int:
        size = self.args.kv_cache_config.tokens_per_block
        if failures.asked("reuse", self.model.config):
            return len(request.prompt) // 2 // size * size
        return self.cache.found(request.prompt) if self.args.kv_cache_config.enable_block_reuse else 0

    def run(self, requests: list[Request]) -> None:
        """Work until every request is answered."""
        self.generates += 1
        waiting, step = sorted(requests, key=lambda one: one.arrives), 0
        while waiting or not all(scheduler.idle for scheduler in self.schedulers):
            while waiting and waiting[0].arrives <= step:
                request = waiting.pop(0)
                request.times_ms["arrival"] = Time.now_ms
                min(self.schedulers, key=lambda one: len(one.queue) + len(one.active)).put(request)
            self._iterate(step)
            step += 1
        if self.era.empty_iterations and not self.args.disable_overlap_scheduler:
            self.iteration += 1
            self._tell([Batch() for _ in self.schedulers], None, step, 0, (0, 0), 0)
        self.ranks.wait()

    def _iterate(self, step: int) -> None:
        self.iteration += 1
        failures.at_iteration(self.iteration, self.model.config, self.total_gib, self.split.world_size)
        query = 1 + self.drafts.length
        batches = [scheduler.next(query) for scheduler in self.schedulers]
        if not any(batch.size for batch in batches):
            return
        for batch in batches:
            batch.dummies = 0 if batch.size else 1
        fill = padded(self.graphs, max(len(batch.generations) for batch in batches), batches)
        timing = self._time(batches, fill, query)
        Time.pass_ms(max(timing.ranks_ms) + (HOST_MS if self.args.disable_overlap_scheduler else 0))
        drafted, accepted, completed = self._advance(batches)
        self._tell(batches, timing, step, fill, (drafted, accepted), completed)

    def _time(self, batches: list[Batch], fill: int, query: int) -> Timing:
        """The slowest rank's batch sets the time of all; each has its own noise."""
        largest = max(batches, key=lambda batch: (batch.context_tokens, len(batch.generations)))
        time_ms = 0.0
        if largest.contexts:
            number = len(largest.contexts)
            last = any(tokens == request.left for request, tokens in largest.contexts)
            time_ms += self.clock.prefill_ms(number, largest.context_tokens, largest.context_past // number, last=last)
        running = max(len(batch.generations) for batch in batches)
        if running:
            cached = sum(batch.cached for batch in batches) // sum(len(batch.generations) for batch in batches)
            step_ms = self.clock.decode_ms(fill, cached, query - 1)
            time_ms += 0.6 * step_ms if largest.contexts else step_ms
            if not largest.contexts and (self.graphs is None or fill not in self.graphs):
                time_ms *= EAGER
        numbers = tuple(request.number for batch in batches for request in batch.generations)
        self.settled = self.settled + 1 if numbers == self.generating else 0
        self.generating = numbers
        settling = bool(running) and not largest.contexts and self.settled < len(SETTLING)
        factor = SETTLING[self.settled] if settling else 1.0
        first = self.iteration == 1
        extra = first_ms() if first else 0.0
        ranks = tuple(time_ms * factor * skew * self.clock.draw() + extra for skew in self.clock.ranks)
        return Timing(time_ms, ranks, settling, first)

    def _advance(self, batches: list[Batch]) -> tuple[int, int, int]:
        drafted = accepted = completed = 0
        for scheduler, batch in zip(self.schedulers, batches, strict=True):
            for request, tokens in batch.contexts:
                if request.first_iteration is None:
                    request.first_iteration = self.iteration
                    request.times_ms["scheduled"] = Time.now_ms
                request.computed += tokens
                if not request.left:
                    request.yielded, request.first_token_iteration = 1, self.iteration
                    request.times_ms["first"] = Time.now_ms
                    if self.args.kv_cache_config.enable_block_reuse:
                        self.cache.keep(request.prompt)
            for request in batch.generations:
                proposed, taken = self.drafts.step(self.clock)
                drafted, accepted = drafted + proposed, accepted + taken
                request.drafted, request.accepted = request.drafted + proposed, request.accepted + taken
                request.yielded = min(request.yielded + 1 + taken, request.max_tokens, request.stops_at)
            for request in [one for one in scheduler.active if not one.left and one.done]:
                request.last_iteration = self.iteration
                request.times_ms["last"] = Time.now_ms
                scheduler.end(request)
                completed += 1
        return drafted, accepted, completed

    def _tell(
        self, batches: list[Batch], timing: Timing | None, step: int, fill: int, drafts: tuple[int, int], completed: int
    ) -> None:
        rows: list[dict[str, Any]] = []
        for rank in range(self.split.world_size):
            batch = batches[rank % len(batches)] if self.split.attention_dp else batches[0]
            done = self._done(rank, batch, timing, fill, drafts, completed)
            self._log(done, step)
            if timing is None:
                continue
            if rank == 0 or (self.era.rank_records and self.split.attention_dp):
                self._record(done, step)
            rows.append(self._row(done, timing))
        self.truth.tell(rows)

    def _done(
        self, rank: int, batch: Batch, timing: Timing | None, fill: int, drafts: tuple[int, int], completed: int
    ) -> Done:
        history, overlap = self.device_ms[rank], not self.args.disable_overlap_scheduler
        device_ms = timing.ranks_ms[rank] if timing else 0.0
        before_ms = history[-1] if history else 0.0
        lag = self.era.stats_lag
        if timing:
            history.append(device_ms)
        behind = history[-1 - lag] if timing and len(history) > lag else None
        if not timing and history and lag:
            behind = history[-lag] if len(history) >= lag else None
        scheduler = self.schedulers[rank % len(self.schedulers)]
        spans = before_ms if overlap and self.era.latency_spans == 2 else 0.0
        reused = sum(request.reused for request, _ in batch.contexts if request.first_iteration == self.iteration)
        size = self.args.kv_cache_config.tokens_per_block
        prompts = sum(len(one.prompt) for one, _ in batch.contexts if one.first_iteration == self.iteration)
        missed = prompts // size - reused // size if self.args.kv_cache_config.enable_block_reuse else 0
        return Done(
            number=self.iteration,
            rank=rank,
            batch=batch,
            padded=fill if batch.generations else 0,
            query=1 + self.drafts.length,
            device_ms=device_ms,
            host_ms=(device_ms + 0.02 if overlap else device_ms + HOST_MS) if timing else 0.0,
            latency_ms=spans + device_ms + (0.05 if overlap else HOST_MS),
            lagging_ms=behind,
            drafted=drafts[0],
            accepted=drafts[1],
            completed=completed,
            blocks=(self.blocks, scheduler.used_blocks, size),
            reused=(reused // size, missed),
            overlap=overlap,
            attention_dp=self.split.attention_dp,
            max_active=scheduler.max_batch,
            memory_bytes=int(gpu().memory_bytes * 0.9),
        )

    def _log(self, done: Done, step: int) -> None:
        if not self.args.print_iter_log or not shows("info") or self._lost("log", step):
            return
        wanted = os.environ.get("TLLM_PROFILE_LOG_RANKS", "0")
        if wanted == "all" or str(done.rank) in wanted.split(","):
            tag = f"[_torch][RANK {done.rank}] " if self.era.host_step_time else ""
            self.ranks.say(done.rank, line(iteration_line(done, self.era), tag=tag))

    def _lost(self, what: str, step: int) -> bool:
        asked = failures.asked("lost-stats", self.model.config)
        return bool(asked) and asked.argument in {"", what} and (step == 1 or 5 <= step < 10)

    def _record(self, done: Done, step: int) -> None:
        if not self.args.enable_iter_perf_stats:
            return
        requests = None
        if self.args.enable_iter_req_stats:
            requests = [
                {"id": one.number, "stage": "GENERATION_IN_PROGRESS", "numGeneratedTokens": one.yielded}
                for one in done.batch.generations
            ]
        found = record(done, self.era, self.sequence, self.dropped, requests)
        self.sequence += 1
        if self._lost("records", step):
            self.dropped += 1
            return
        if self.ring_length is not None and len(self.ring) >= self.ring_length:
            self.dropped += 1
            if self.era.ring_keeps == "oldest" or not self.ring:
                return
            self.ring.popleft()
        self.ring.append(found)

    def _row(self, done: Done, timing: Timing) -> dict[str, Any]:
        batch = done.batch
        return {
            "event": "iteration",
            "process": os.getpid(),
            "generate": self.generates,
            "iteration": done.number,
            "rank": done.rank,
            "contexts": len(batch.contexts),
            "context_tokens": batch.context_tokens,
            "generations": len(batch.generations),
            "padded": done.padded,
            "query": done.query,
            "accepted": done.accepted,
            "kv_mean": batch.cached / len(batch.generations) if batch.generations else None,
            "clock_ms": timing.clock_ms,
            "device_ms": done.device_ms,
            "loop_ms": done.host_ms,
            "settling": timing.settling,
            "first": timing.first,
        }

    def drain(self) -> list[dict[str, Any]]:
        """Every record that is in the ring, oldest first."""
        found = list(self.ring)
        self.ring.clear()
        return found

    def announce(self) -> None:
        tokens = self.blocks * self.args.kv_cache_config.tokens_per_block
        log(f"[MemUsageChange] Allocated paged KV cache for max tokens: {tokens} ({self.blocks} blocks)")
