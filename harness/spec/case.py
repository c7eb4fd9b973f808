"""A case: one question, variant x parallelism x workload x system."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from harness.spec.base import Spec
from harness.spec.parallelism import Parallelism
from harness.spec.variant import Variant
from harness.spec.workload import Workload


class Case(Spec):
    """One question that a pricer or a backend can answer."""

    variant: Variant
    parallelism: Parallelism = Parallelism()
    workload: Workload
    system: str

    @property
    def case_id(self) -> str:
        """Hash of what is asked: no names, no versions, no order of keys.

        Fields at their default do not enter, so a field added later leaves every older identity as it was.
        """
        split = self.parallelism
        derived = {"moe_tp"} if split.moe_tp == split.tp * split.cp // split.ep else set()
        return _digest(
            {
                "variant": self.variant.model_dump(mode="json", exclude={"name"}, exclude_defaults=True),
                "parallelism": split.model_dump(mode="json", exclude=derived, exclude_defaults=True),
                "workload": self.workload.model_dump(mode="json", exclude_defaults=True),
                "system": self.system,
            }
        )


def _digest(data: dict[str, Any]) -> str:
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
