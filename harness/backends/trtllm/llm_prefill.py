"""Prefill: whole passes over the prompts of a batch, which yield one token each.

Every figure of time but that of newer releases holds the wait for requests in a first iteration. Where a batch fills an
instance, so that no prompt of the next one can join it, several batches are given at once and the first is left out.
Elsewhere other prompts go ahead that fill exactly one iteration: the pilot, whose wait is not that of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.backends.trtllm.fit import tokens_per_pass
from harness.backends.trtllm.iterations import Iteration, Selected, prefill_steps
from harness.backends.trtllm.llm_api import LlmArm, cannot
from harness.backends.trtllm.rows import FORWARD, by_rank
from harness.backends.trtllm.session import LlmSession, Request
from harness.spec.case import Case
from harness.spec.workload import Prefill

#: Passes that one call is for where batches follow upon each other.
TOGETHER = 4


class PrefillArm(LlmArm):
    """Passes over the prompts of one batch."""

    def __init__(self, session: LlmSession, case: Case, pass_tokens: int | None) -> None:
        """`pass_tokens` is what an iteration takes of a rank's prompts where these are cut into chunks."""
        super().__init__(session, case)
        assert isinstance(case.workload, Prefill)
        self._isl = case.workload.isl
        self._pass_tokens = pass_tokens
        self._fills = self._fills_iterations()
        self._pilot = [] if self._fills or session.time_source == FORWARD else self._pilot_lengths()
        self._take = TOGETHER if self._fills else 1
        self._details["prefill_given"] = self._how()
        _, problem = self._call(1)
        if problem:
            raise cannot(problem)

    def _fills_iterations(self) -> bool:
        """Whether a batch leaves no room in its iterations for a prompt of the next."""
        if self._pass_tokens is not None:
            return self._sequences * self._isl % self._pass_tokens == 0
        return self._room_for() == self._sequences

    def _room_for(self) -> int:
        """Prompts that one iteration takes whole."""
        settings = self._session.settings
        return min(int(settings.fields["max_batch_size"]), tokens_per_pass(settings) // self._isl)

    def _pilot_lengths(self) -> list[int]:
        """Prompts of one rank that fill exactly one iteration."""
        if self._pass_tokens is None:
            return [self._isl] * self._room_for()
        whole, rest = divmod(self._pass_tokens, self._isl)
        return [self._isl] * whole + ([rest] if rest else [])

    def _how(self) -> str:
        if self._fills:
            return "batches that fill their iterations, one after the other"
        return "one batch behind prompts that fill one iteration" if self._pilot else "one batch at a time"

    def _requests(self, batches: int) -> list[Request]:
        prompts, dp = self._session.prompts, self._case.parallelism.dp
        requests = [Request(prompt, 1) for length in self._pilot for prompt in prompts.draw(dp, length)]
        last = [1] * (batches - 1) + [2 if self._pilot else 1]
        for output_tokens in last:
            requests += [Request(one, output_tokens) for one in prompts.draw(self._case.workload.batch, self._isl)]
        return requests

    def _call(self, most: int) -> tuple[tuple[float, ...], str]:
        # The first one may hold the wait, and the time of the last one may be in a row that never comes.
        batches = min(most, self._take) + 2 if self._fills else 1
        burst = self._session.run(self._requests(batches))
        if burst.problem:
            return (), burst.problem
        selected = self._select(burst.rows)
        self._note(burst, selected)
        return selected.times_ms[:most], selected.problem

    def _select(self, rows: Sequence[Iteration]) -> Selected:
        kept = [row for own in by_rank(rows).values() for row in self._behind_pilot(own)] if self._pilot else rows
        if not kept:
            return Selected((), "", {"pilot of another size": 1})
        return prefill_steps(
            kept, self._sequences, self._isl, max_num_tokens=self._pass_tokens, first_waits=not self._pilot
        )

    def _behind_pilot(self, own: Sequence[Iteration]) -> Sequence[Iteration]:
        """Rows after those in which the pilot was worked on; none where it shared its last one."""
        prompts = len(self._pilot)
        for index, row in enumerate(own):
            if row.contexts:
                whole = row.contexts == prompts and row.context_tokens in {None, sum(self._pilot)}
                return own[index + 1 :] if whole else []
        return []

    def _none_was_clean(self) -> str:
        work = self._case.workload
        return f"the {work.batch} prompts were never worked on together and alone: there were {self._seen()}"
