"""A study: one sweep over a base variant with the claims it tests; a suite: a list of studies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from harness.errors import UsageError
from harness.spec.axes import HOLDS, axis_values
from harness.spec.base import AlsoOne, Spec
from harness.spec.bounds import Name, checked_name
from harness.spec.claims import Claim, Place, Quantity, SomePlace
from harness.spec.variant import Variant

#: What a time is of: the ops that a study names, all decoder layers, these with embedding and lm_head, or requests that
#: a server answered. A pricer answers at the level asked, all but `serve`; levels are never compared with each other.
Level = Literal["op", "layer", "model", "serve"]


def _as_list(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _checked_axes(axes: dict[str, Any]) -> dict[str, Any]:
    problems = []
    for name, values in axes.items():
        try:
            checked_name(name)
            axis_values(name, values)
        except (UsageError, ValueError) as error:
            problems.append(str(error))
    if problems:
        raise ValueError("; ".join(problems))
    return axes


def _checked_workloads(workloads: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    for name, fields in workloads.items():
        labelled = [field for field, values in fields.items() if isinstance(values, dict)]
        if labelled:
            raise ValueError(f"{name}.{labelled[0]}: a workload has no labelled points; give a value or a list of them")
        _checked_axes({f"workloads.{name}.{field}": values for field, values in fields.items()})
    return workloads


def _checked_set(fields: dict[str, Any]) -> dict[str, Any]:
    if "name" in fields:
        raise ValueError("a variant is named by its file and its coordinates; leave name out")
    return fields


def _without_repeats(values: tuple[str, ...]) -> tuple[str, ...]:
    twice = _repeated(values)
    if twice:
        raise ValueError(f"names {', '.join(twice)} twice")
    return values


def _repeated(values: Iterable[str]) -> list[str]:
    return [value for value, count in Counter(values).items() if count > 1]


Axes = Annotated[dict[str, Any], AfterValidator(_checked_axes)]
Workloads = Annotated[dict[str, dict[str, Any]], AfterValidator(_checked_workloads)]
Settings = Annotated[dict[str, Any], AfterValidator(_checked_set)]
Distinct = Annotated[tuple[str, ...], AfterValidator(_without_repeats)]


class Exclusion(Spec):
    """Cases that are left out on purpose; they appear as `skipped` rows with the reason."""

    when: SomePlace
    """Coordinates that must all match; a list matches any of its values. `system`, `series` and `phase` are allowed."""
    reason: Annotated[str, Field(min_length=1)]


class Series(Spec):
    """A part of a study with its own shape, axes or workloads; what it leaves out comes from the study."""

    name: Name
    set: Settings = {}
    """Fields of the variant to change before the axes move, as dotted paths."""
    axes: Axes = {}
    hold: dict[str, str] = {}
    workloads: Workloads = {}
    baseline: Place = {}
    systems: Distinct = ()

    @model_validator(mode="after")
    def _holds_are_known(self) -> Series:
        _check_hold(self.hold)
        return self


class Plot(Spec):
    """One picture of a study: a quantity over an axis, a line per value of `lines`, a panel per value of `panels`."""

    title: str
    x: str
    y: Quantity = Quantity()
    lines: str = ""
    panels: str = ""
    where: Place = {}
    """Coordinates to keep, as in a claim."""
    x_scale: Literal["log2", "linear", "category"] = "log2"
    y_scale: Literal["log", "linear"] = "log"


class Study(Spec):
    """One sweep. Axes move the variant, lists in `workloads` move the workload, `systems` the GPU; all are crossed."""

    name: Name
    title: str
    guidelines: Annotated[tuple[str, ...], BeforeValidator(_as_list), AlsoOne("string")] = ()
    """Which guidelines are put to the test, for example A1d."""
    about: str = ""
    """What is asked, in a few sentences."""
    limits: tuple[str, ...] = ()
    """What the data cannot show, said in the report."""
    level: Level = "model"
    ops: Annotated[Distinct, BeforeValidator(_as_list), AlsoOne("string")] = ()
    """With level `op`: the ops that are asked for, for example layer.attn.attention. Nothing else is priced."""
    variant: str | Variant
    """A name in `model_configs/variants`, a path, or the variant itself."""
    set: Settings = {}
    """Fields of the variant to change before the axes move, as dotted paths."""
    axes: Axes = {}
    hold: dict[str, str] = {}
    """What stays fixed while G (`q_heads` or `kv_heads`) or Hsz (`heads` or `width`) moves."""
    workloads: Workloads = {}
    """Name → fields; a list sweeps. The phase is the name unless `phase` says otherwise."""
    parallelism: dict[str, Any] = {}
    systems: Distinct = ()
    series: tuple[Series, ...] = ()
    baseline: Place = {}
    """Axis → the value that effects are measured against; the first value where it is left out."""
    exclude: tuple[Exclusion, ...] = ()
    claims: tuple[Claim, ...] = ()
    plots: tuple[Plot, ...] = ()

    @model_validator(mode="after")
    def _is_whole(self) -> Study:
        _check_hold(self.hold)
        if (self.level == "op") != bool(self.ops):
            raise ValueError(
                "level op and ops go together: ops names what is priced, for example [layer.attn.attention]"
            )
        for what, names in (
            ("series", [series.name for series in self.series]),
            ("claim ids", [claim.id for claim in self.claims]),
        ):
            twice = _repeated(names)
            if twice:
                raise ValueError(f"{what} repeat: {', '.join(twice)}")
        return self

    @property
    def parts(self) -> tuple[Series, ...]:
        """The series, each complete with what it takes from the study; one unnamed series where there are none."""
        own = self.series or (Series.model_construct(name=""),)
        return tuple(
            part.model_copy(
                update={
                    "set": {**self.set, **part.set},
                    "axes": {**self.axes, **part.axes},
                    "hold": {**self.hold, **part.hold},
                    "workloads": part.workloads or self.workloads,
                    "baseline": {**self.baseline, **part.baseline},
                    "systems": part.systems or self.systems,
                }
            )
            for part in own
        )


class Suite(Spec):
    """Studies that run and are reported together."""

    name: Name
    title: str
    about: str = ""
    studies: Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_without_repeats)]
    systems: Distinct = ()
    """Replaces the systems of every study when given."""


def _check_hold(hold: dict[str, str]) -> None:
    for axis, what in hold.items():
        if axis not in HOLDS:
            raise ValueError(f"hold names axis {axis!r}; only {', '.join(HOLDS)} can hold something fixed")
        if what not in HOLDS[axis]:
            raise ValueError(f"hold: {axis}: {what!r} is not one of {', '.join(HOLDS[axis])}")
