"""Claims: a guideline as a testable statement, with its threshold and the scatter allowed written in the study.

One model per kind; `kind` says which. `harness.analysis.claims` judges them and `docs/claims.md` says how.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from harness.spec.axes import Scalar, checked_place, is_scalar
from harness.spec.base import AlsoOne, Spec

Measure = Literal["time_us", "time_ms", "tflop_per_s", "gb_per_s", "tok_s_per_gpu"]

#: Measures of which more is better; of the others less is.
HIGHER_IS_BETTER: frozenset[Measure] = frozenset({"tflop_per_s", "gb_per_s", "tok_s_per_gpu"})


def _as_list(value: Any) -> Any:
    return (value,) if isinstance(value, str | int | float) else value


def _checked_label(value: Scalar) -> Scalar:
    if not is_scalar(value):
        raise ValueError("is no value of an axis")
    return value


Label = Annotated[Scalar, AfterValidator(_checked_label)]
Labels = Annotated[
    tuple[Label, ...], BeforeValidator(_as_list), AlsoOne("string", "number", "boolean"), Field(min_length=1)
]
Place = Annotated[dict[str, Any], AfterValidator(checked_place)]
SomePlace = Annotated[dict[str, Any], Field(min_length=1), AfterValidator(checked_place)]
Text = Annotated[str, Field(min_length=1)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Factor = Annotated[Number, Field(gt=0)]
Percent = Annotated[Number, Field(ge=0)]


class Quantity(Spec):
    """What a claim or a plot looks at: the whole phase, one op, or one category of ops.

    `time_us` is the time of one execution of an op, or of one layer of a category or phase; `time_ms` the time of all
    executions. `tflop_per_s` and `gb_per_s` divide the FLOPs and HBM bytes of `harness.cost.ops` by that time.
    """

    op: str = ""
    category: str = ""
    measure: Measure = "time_ms"

    @model_validator(mode="after")
    def _names_one_thing(self) -> Quantity:
        if self.op and self.category:
            raise ValueError(f"names both op {self.op!r} and category {self.category!r}; keep one")
        if self.measure == "tok_s_per_gpu" and (self.op or self.category):
            raise ValueError("tok_s_per_gpu is a measure of the whole phase; leave op and category out")
        return self

    @property
    def what(self) -> str:
        """Readable: what is measured, without its unit."""
        return self.op or (f"{self.category} ops" if self.category else "whole phase")


class Confounder(Spec):
    """Rows that differ in more than the axis shows; a claim decided by one of them can only be `cannot tell`."""

    when: SomePlace
    """What must all match: coordinates, series, system, phase, source, provenance or flags; a list matches any."""
    reason: Text


class ClaimBase(Spec):
    """What every kind of claim has."""

    id: Text
    guideline: Text
    """For example A1d."""
    statement: Text
    """What is claimed, one sentence."""
    quantity: Quantity = Quantity()
    axis: Text
    """The coordinate that moves: an axis of the study or a field of its workloads."""
    where: Place = {}
    """Coordinates of the rows looked at, and `series`, `phase`; a list matches any of its values."""
    judge_at: Place = {}
    """Coordinates of the rows that decide; the other rows of `where` are shown beside them. All decide if left out."""
    median_over: Annotated[tuple[str, ...], BeforeValidator(_as_list), AlsoOne("string")] = ()
    """Coordinates over which the median of the figures is taken before it is judged, for example batch."""
    scatter_pct: Percent
    """How far two equal cases may lie apart in the data: 5 for composed prefill, 10 for decode and GEMM."""
    shown_note: str = ""
    """What the rows that do not decide are."""
    confounders: tuple[Confounder, ...] = ()


class _Bounded(ClaimBase):
    at_least: Factor | None = None
    at_most: Factor | None = None

    @model_validator(mode="after")
    def _has_one_bound(self) -> _Bounded:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("give exactly one of at_least and at_most")
        return self


class FlatWithin(ClaimBase):
    """The quantity does not feel the axis: its spread, max/min - 1, stays within `at_most_pct`."""

    kind: Literal["flat_within"]
    at_most_pct: Percent


class Exponent(ClaimBase):
    """The quantity grows as a power of the axis: the local slope d log q / d log axis is `expect` ± `tolerance`."""

    kind: Literal["exponent"]
    expect: Number
    tolerance: Factor


class GainPerDoubling(_Bounded):
    """What doubling the axis buys: time(x) / time(2x), as a factor."""

    kind: Literal["gain_per_doubling"]


class Saturation(_Bounded):
    """From which axis value on every further doubling gains less than `gain_below_pct`.

    `at_most: 16` claims that nothing is gained past 16, `at_least: 16` that doublings below 16 still gain.
    """

    kind: Literal["saturation"]
    gain_below_pct: Percent = 10


class BestAt(ClaimBase):
    """One of `values` of the axis is best: least time, or most per second."""

    kind: Literal["best_at"]
    values: Labels


class Ratio(_Bounded):
    """The quantity at `value` of the axis over the quantity at `over`."""

    kind: Literal["ratio"]
    value: Label
    over: Label

    @model_validator(mode="after")
    def _compares_two(self) -> Ratio:
        if self.value == self.over:
            raise ValueError(f"compares {self.axis} {self.value} with itself")
        return self


Claim = Annotated[
    FlatWithin | Exponent | GainPerDoubling | Saturation | BestAt | Ratio,
    Field(discriminator="kind"),
]
