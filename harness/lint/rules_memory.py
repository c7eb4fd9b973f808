"""The rule on memory: weights, activations and the KV cache of the fullest GPU, weighed as a plan weighs them.

It speaks where a model is to be deployed and the GPU's memory is known; a study of ops or layers asks about kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from harness.cost.memory import GIB, memory_rules
from harness.cost.remedies import Misfit, misfit
from harness.hardware import System
from harness.lint.finding import Problem
from harness.lint.registry import rule
from harness.lint.subject import Subject
from harness.spec.case import Case
from harness.spec.workload import Decode, Prefill, Serve

#: A token in the cache, so that all that is weighed is what every workload needs.
_NEXT_TO_NOTHING = Decode(phase="decode", batch=1, kvsl=1)


@rule("memory-fit")
def memory_fit(s: Subject) -> Iterator[Problem]:
    """A workload with its KV cache; without one, weights that leave no room for any."""
    found = _weighed(s, s.workload or _NEXT_TO_NOTHING)
    if found:
        limit = f"the {found.verdict.visible_bytes / GIB:.1f} GiB of {s.gpu.key}"
        works = found.remedies.text
        if s.workload:
            yield Problem("workload", s.workload.label, limit, found.why, works)
        else:
            size = f"{found.verdict.weight_bytes / GIB:.1f} GiB on a GPU"
            yield Problem("weights", size, limit, found.why, works, severity="warning")


def _weighed(s: Subject, workload: Prefill | Decode | Serve) -> Misfit | None:
    """What does not fit; None where all does, and where a split is impossible, which other rules tell."""
    if not s.deployed or not isinstance(s.gpu, System):
        return None
    rules = memory_rules()
    if s.settings.tokens_per_block:
        rules = replace(rules, tokens_per_block=s.settings.tokens_per_block)
    case = Case(variant=s.variant, workload=workload, parallelism=s.split, system=s.gpu.key)
    try:
        return misfit(case, s.gpu, rules)
    except ValueError:
        return None
