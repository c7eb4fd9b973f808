"""Short names of studies: what a tab, a bottom line and a link call a section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.report.content import Report, Section
from harness.spec.variant import Variant


def section_labels(report: Report) -> dict[str, str]:
    """Anchor → label. One study alone goes by its name.

    Of several, each goes by its guidelines if no other has the same; else by these and what tells them apart: the kind
    of model (`M4 dense`, `M4 MoE`), the kind of numbers, or the name of the study.
    """
    if len(report.sections) == 1:
        (only,) = report.sections
        return {only.anchor: only.study.name}
    candidates = {section.anchor: _candidates(section) for section in report.sections}
    return {anchor: _first_of_its_own(anchor, candidates) for anchor in candidates}


def _first_of_its_own(anchor: str, candidates: Mapping[str, Sequence[str]]) -> str:
    others = [mine for other, mine in candidates.items() if other != anchor]
    alone = (
        label for at, label in enumerate(candidates[anchor]) if label and all(label != mine[at] for mine in others)
    )
    return next(alone, candidates[anchor][-1])


def _candidates(section: Section) -> tuple[str, ...]:
    """What a section may be called, shortest first; blank where it has no guideline."""
    short, name, kind = ", ".join(section.study.guidelines), section.study.name, section.provenance
    model = _model(section)
    with_model = f"{short} {model}" if short and model else ""
    return (
        short,
        with_model,
        f"{short} {kind}" if short else "",
        f"{with_model} {kind}" if with_model else "",
        name,
        (f"{name} {kind}"),
    )


def _model(section: Section) -> str:
    variant = section.study.variant
    if not isinstance(variant, Variant):
        return ""
    return "MoE" if variant.experts else "dense"
