"""What a model is asked to do. Phases are separate workloads and never share a mean (guideline A6)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from harness.spec.base import Spec
from harness.spec.bounds import MAX_CHUNKS, Size, SizeOrZero

Routing = Literal["balanced", "power_law_1.01", "power_law_1.2"]


class Prefill(Spec):
    """The context phase: `batch` prompts of `isl` tokens, in one pass or in chunks of `chunk` tokens."""

    phase: Literal["prefill"]
    batch: Size
    """Prompts over all ranks."""
    isl: Size
    chunk: Size | None = None
    routing: Routing = "balanced"

    @model_validator(mode="after")
    def _chunks_can_be_counted(self) -> Prefill:
        chunks = -(-self.isl // (self.chunk or self.isl))
        if chunks > MAX_CHUNKS:
            raise ValueError(
                f"chunk {self.chunk} cuts isl {self.isl} into {chunks:,} chunks, more than {MAX_CHUNKS:,}; "
                f"a chunk of {-(-self.isl // MAX_CHUNKS)} or more works"
            )
        return self

    @property
    def tokens(self) -> int:
        """Tokens the phase works through."""
        return self.batch * self.isl

    @property
    def label(self) -> str:
        return f"prefill b {self.batch} ISL {self.isl}" + (f" chunk {self.chunk}" if self.chunk else "")


class Decode(Spec):
    """One generation step: `batch` sequences with `kvsl` tokens in the KV cache each."""

    phase: Literal["decode"]
    batch: Size
    """Sequences over all ranks."""
    kvsl: Size
    draft_len: SizeOrZero = 0
    """Draft tokens verified per step (D)."""
    accepted: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] = 0.0
    """Draft tokens accepted per step, imposed."""
    routing: Routing = "balanced"

    @model_validator(mode="after")
    def _accepted_fits(self) -> Decode:
        if self.accepted > self.draft_len:
            raise ValueError(f"accepted {self.accepted} is more than draft_len {self.draft_len}")
        return self

    @property
    def tokens(self) -> float:
        """Tokens that one step yields."""
        return self.batch * (1 + self.accepted)

    @property
    def label(self) -> str:
        return f"decode b {self.batch} KVSL {self.kvsl}" + (f" draft {self.draft_len}" if self.draft_len else "")


class Serve(Spec):
    """A served mix: requests of `isl` in and `osl` out, `concurrency` at a time."""

    phase: Literal["serve"]
    isl: Size
    osl: Size
    concurrency: Size
    routing: Routing = "balanced"

    @property
    def batch(self) -> int:
        return self.concurrency

    @property
    def label(self) -> str:
        return f"serve {self.isl}/{self.osl} concurrency {self.concurrency}"


Workload = Annotated[Prefill | Decode | Serve, Field(discriminator="phase")]
