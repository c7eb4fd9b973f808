"""What the schemas of all versions share."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(gt=0)]
Natural = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]

#: A setting that the source types by a class which is not transcribed; anything but null is refused.
Untranscribed = None


class Strict(BaseModel):
    """`StrictBaseModel` of TensorRT-LLM: an unknown key is an error. Nor is anything coerced, for YAML has types."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())


def one_of(*names: str, ignore_case: bool = False) -> AfterValidator:
    """A text that the source checks in a validator instead of by its type."""

    def check(value: str) -> str:
        if (value.upper() if ignore_case else value) not in names:
            raise ValueError(f"{value!r} is none of {', '.join(names)}")
        return value

    return AfterValidator(check)


class LoadBalancer(Strict):
    """`MoeLoadBalancerConfig`, with what `setup` and `get_layer_initial_global_assignments` ask for later.

    The same in all four versions.
    """

    num_slots: Positive
    initial_global_assignments: dict[int, list[Natural]] | None = None
    layer_updates_per_iter: Natural = 0

    def check(self, ep: int, layers: set[int]) -> None:
        """Raise ValueError as TensorRT-LLM does when the model is built."""
        if self.num_slots % ep:
            raise ValueError(f"num_slots {self.num_slots} must be divisible by ep_size {ep}")
        for layer in layers if self.initial_global_assignments is not None else ():
            slots = self.initial_global_assignments[layer]
            if len(slots) != self.num_slots:
                raise ValueError(f"layer {layer} has {len(slots)} assignments, not num_slots {self.num_slots}")
