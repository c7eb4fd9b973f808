"""Cases at level `model`: one LLM instance answers prompts, and its iterations are the samples.

An arm gives the executor all sequences of a batch at once and keeps the iterations that did the work of the case and
nothing else (`iterations`). That they did is checked in every call: output lengths, statistics without gaps, nothing
found in the KV cache, draft tokens as asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from harness.backends.base import ArmFacts, CannotAnswer, OpTime, Taken
from harness.backends.trtllm.fit import check_sizes, chunked_pass, sequences_of
from harness.backends.trtllm.iterations import Selected
from harness.backends.trtllm.rows import by_rank
from harness.backends.trtllm.session import Burst, LlmSession
from harness.spec.axes import Scalar
from harness.spec.case import Case
from harness.spec.workload import Decode

#: Calls in a row without one clean iteration, after which an arm gives up. A batch forms late by chance.
TRIES = 10


class LlmArm:
    """One case on an instance that it shares with others. What phases have in common; `open_arm` makes them."""

    def __init__(self, session: LlmSession, case: Case) -> None:
        self._session = session
        self._case = case
        self._sequences = sequences_of(case)
        self._take = 1
        self._details: dict[str, Scalar] = {}
        self._dropped: Counter[str] = Counter()
        self._ranks_seen = 0

    @property
    def facts(self) -> ArmFacts:
        """Where times come from, what was left out and why, and what the iterations were seen to do."""
        details: dict[str, Scalar] = {
            "step_time_source": self._session.time_place,
            "overlap_scheduler": self._session.settings.overlaps,
            "settings": self._session.settings.name,
            "instances_started": self._session.started,
            "batch_per_rank": self._sequences,
            "ranks": self._case.parallelism.world_size,
            "ranks_reported": self._ranks_seen,
            **self._details,
        }
        if self._case.variant.experts:
            details["expert_balance"] = _EXPERT_BALANCE
        if self._dropped:
            details["iterations_left_out"] = ", ".join(f"{why} {n}" for why, n in sorted(self._dropped.items()))
        return ArmFacts(layers_run=self._case.variant.layers, take=self._take, details=details)

    def take(self, count: int) -> Taken:
        """Call the instance until there are `count` clean iterations, or it becomes clear that there are none."""
        times: list[float] = []
        tries = 0
        while len(times) < count:
            fresh, problem = self._call(count - len(times))
            times += fresh
            tries = 0 if fresh else tries + 1
            if problem or tries == TRIES:
                return Taken(tuple(times), problem or self._none_was_clean())
        return Taken(tuple(times))

    def op_times(self) -> list[OpTime]:
        """None: an iteration of the executor is one piece."""
        return []

    def close(self) -> None:
        """Nothing is held: the instance serves the next arm."""

    def _call(self, most: int) -> tuple[tuple[float, ...], str]:
        """One call, for up to `most` iterations: their times, and what is wrong with the whole of it."""
        raise NotImplementedError

    def _none_was_clean(self) -> str:
        raise NotImplementedError

    def _note(self, burst: Burst, selected: Selected) -> None:
        self._dropped += Counter(selected.dropped)
        self._ranks_seen = max(self._ranks_seen, len(by_rank(burst.rows)))

    def _seen(self) -> str:
        return ", ".join(f"{n} {why}" for why, n in self._dropped.most_common()) or "no iteration"


def open_arm(session: LlmSession, case: Case) -> LlmArm:
    """Return the arm of a case, warmed up by calls of its own.

    Raises CannotAnswer where the settings are not for its workload, and `invalid` where its batch never forms.
    """
    from harness.backends.trtllm.llm_decode import DecodeArm
    from harness.backends.trtllm.llm_prefill import PrefillArm

    check_sizes(case, session.settings)
    if isinstance(case.workload, Decode):
        return DecodeArm(session, case)
    return PrefillArm(session, case, chunked_pass(session.settings))


def cannot(problem: str) -> CannotAnswer:
    """The answer of a case that ran and did not do what was asked."""
    return CannotAnswer(problem, "invalid")


def check_drafts(burst: Burst, batch: int, draft_len: int, accepted: float) -> tuple[str, Mapping[str, Scalar]]:
    """What is wrong with the draft tokens of the whole batch's iterations, or nothing; and what was seen."""
    rows = [row for row in burst.records if row.contexts == 0 and row.generations == batch]
    told = [row for row in rows if row.drafted_tokens is not None and row.accepted_tokens is not None]
    if not told:
        return "", {"drafted_per_step": "not reported by this release"}
    drafted = sum(row.drafted_tokens or 0 for row in told) / (batch * len(told))
    taken = sum(row.accepted_tokens or 0 for row in told) / (batch * len(told))
    seen: dict[str, Scalar] = {"drafted_per_step": round(drafted, 4), "accepted_per_step": round(taken, 4)}
    if abs(drafted - draft_len) > DRAFTED_TOLERANCE * draft_len:
        return f"draft tokens: {drafted:.3g} drafted per sequence and step, {draft_len} asked", seen
    if abs(taken - accepted) > ACCEPTED_TOLERANCE * max(1.0, accepted):
        return f"draft tokens: {taken:.3g} accepted per sequence and step, {accepted:g} asked", seen
    return "", seen


_EXPERT_BALANCE = "asked for by ENABLE_PERFECT_ROUTER, which some models obey; no statistics tell what came of it"

#: Of the drafted tokens of a call: the last step of a sequence may have fewer.
DRAFTED_TOLERANCE = 0.01
#: Of the accepted ones, which releases draw where they are no whole number.
ACCEPTED_TOLERANCE = 0.1
