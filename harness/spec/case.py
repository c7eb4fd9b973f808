"""A case: one question, variant x parallelism x workload x system."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from harness.spec.base import Spec
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant
from harness.spec.workload import Prefill, Workload


class Case(Spec):
    """One question that a pricer or a backend can answer."""

    variant: Variant
    parallelism: Parallelism = Parallelism()
    workload: Workload
    system: str

    @property
    def case_id(self) -> str:
        """Hash of what is asked: no names, no versions, no order of keys.

        Fields at their default do not enter, so a field added later leaves every older identity as it was. Neither do
        four that repeat what the others say: `moe_tp` = tp·cp/ep, the one stage of `pp_partition`, a `chunk` that holds
        the whole prompt, and a layer kind written more than once where it is the only one.
        """
        shape, split, work = self.variant, self.parallelism, self.workload
        if len(set(shape.attention)) == 1:
            shape = shape.model_copy(update={"attention": shape.attention[:1]})
        said = {"moe_tp"} if split.moe_tp == split.tp * split.cp // split.ep else set()
        if split.pp_partition == (shape.layers,):
            said.add("pp_partition")
        whole = {"chunk"} if isinstance(work, Prefill) and work.chunk and work.chunk >= work.isl else set()
        return _digest(
            {
                "variant": shape.model_dump(mode="json", exclude={"name"}, exclude_defaults=True),
                "parallelism": split.model_dump(mode="json", exclude=said, exclude_defaults=True),
                "workload": work.model_dump(mode="json", exclude=whole, exclude_defaults=True),
                "system": self.system,
            }
        )


def _digest(data: dict[str, Any]) -> str:
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
