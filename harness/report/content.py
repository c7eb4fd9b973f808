"""What a report says, before it is said in HTML, Markdown or on a terminal.

One section for each run, study and provenance: rows of different provenance never share a plot, a table or a statistic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.analysis.claims import Verdict, judge
from harness.analysis.cliffs import Cliff, cliffs
from harness.analysis.edges import Edge, edges
from harness.analysis.effect_lines import EffectLine, effect_lines
from harness.analysis.effects import effects
from harness.analysis.falls import FallGroup, falls, group_falls
from harness.analysis.frame import observations, placed
from harness.analysis.sources import Mix, source_mix, sources_text
from harness.errors import UsageError
from harness.hardware import known_systems, load_system
from harness.report.automatic import automatic_plots
from harness.report.effects import Effect, effects_of
from harness.report.glossary import PROVENANCES, ROOFLINE_ONLY, STATUSES, measured_by
from harness.report.plots import Chart, build_chart
from harness.report.shares import Shares, shares_of
from harness.spec.study import Plot, Study

if TYPE_CHECKING:
    import pandas as pd

    from harness.results.store import Run


@dataclass(frozen=True)
class Section:
    """One study of one run, answered in one way."""

    anchor: str
    study: Study
    provenance: str
    answered_with: tuple[str, ...]
    run: str
    counts: Mapping[str, int]
    """Status → rows."""
    charts: tuple[Chart, ...]
    verdicts: tuple[Verdict, ...]
    effects: tuple[Effect, ...]
    effect_rows: pd.DataFrame
    """What `harness.analysis.effects.effects` returns, which the tables of `effects` arrange."""
    effect_lines: tuple[EffectLine, ...]
    shares: tuple[Shares, ...]
    cliffs: tuple[Cliff, ...]
    edges: tuple[Edge, ...]
    """The cliffs, those of one edge together."""
    falls: tuple[FallGroup, ...]
    """Where more work takes less time."""
    sources: Mix
    """Phase → source → its share of the time."""
    flags: Mapping[str, int]
    """Flag → ok rows that carry it."""


@dataclass(frozen=True)
class Report:
    """Everything a report says."""

    title: str
    about: str
    runs: tuple[Run, ...]
    sections: tuple[Section, ...]
    records: pd.DataFrame
    ops: pd.DataFrame
    systems: Mapping[str, str]
    """GPU key → name."""
    damage: tuple[str, ...]

    @property
    def badges(self) -> dict[str, str]:
        """Provenance → what its numbers are, in the order of the sections."""
        versions: dict[str, list[str]] = {}
        for section in self.sections:
            versions.setdefault(section.provenance, []).extend(section.answered_with)
        return {provenance: badge(provenance, found) for provenance, found in versions.items()}

    @property
    def warnings(self) -> list[str]:
        """What nobody may overlook: rows that are no evidence, runs that could not be read whole."""
        return [*([ROOFLINE_ONLY] if "modelled" in self.badges else []), *self.damage]

    @property
    def counts(self) -> dict[str, int]:
        """Status → rows."""
        return count_statuses(self.records)

    @property
    def verdicts(self) -> list[tuple[Section, Verdict]]:
        return [(section, verdict) for section in self.sections for verdict in section.verdicts]

    @property
    def edges(self) -> list[tuple[Section, Edge]]:
        """Cliffs by their edges, the largest factor first."""
        found = [(section, edge) for section in self.sections for edge in section.edges]
        return sorted(found, key=lambda item: (not item[1].worst.same_work, -item[1].worst.size))

    @property
    def variants(self) -> list[str]:
        """Names of the base variants."""
        return list(dict.fromkeys(getattr(one.study.variant, "name", str(one.study.variant)) for one in self.sections))

    def facts(self) -> list[tuple[str, str]]:
        """What was compared."""
        shapes = self.records["variant"].nunique()
        names = ", ".join(self.variants)
        phases = ", ".join(dict.fromkeys(self.records["phase"]))
        cases = []
        for provenance in self.badges:
            counts = count_statuses(self.records[self.records["provenance"] == provenance])
            cases.append((_of("Cases", provenance, self.badges), counts_text(counts)))
            if provenance != "modelled":
                mix = source_mix(self.records[self.records["provenance"] == provenance])
                cases.append((_of("Sources, share of time", provenance, self.badges), sources_text(mix)))
        return [
            ("Variants", f"{names} ({shapes:,} shapes)" if shapes > len(self.variants) else names),
            ("GPUs", ", ".join(self.systems[key] for key in dict.fromkeys(self.records["system"]))),
            ("Phases", phases),
            *cases,
        ]


def badge(provenance: str, answered_with: Iterable[str]) -> str:
    """What kind of numbers these are, in a few words."""
    if provenance == "composed":
        return f"priced from published kernel measurements of {measured_by(answered_with)}; nothing ran here"
    return PROVENANCES.get(provenance, "")


def build_report(runs: Sequence[Run]) -> Report:
    """Analyse the runs and arrange what there is to say. Raises UsageError where they hold no rows."""
    import pandas as pd

    filled = [run for run in runs if len(run.records)]
    if not filled:
        raise UsageError(f"{', '.join(str(run.path) for run in runs) or 'no run'}: there are no rows to report")
    records = pd.concat([run.records for run in filled], ignore_index=True)
    ops = pd.concat([run.ops for run in filled], ignore_index=True)
    systems = system_names(records["system"])
    sections: list[Section] = []
    for run in filled:
        for study in run.studies:
            for provenance, rows in run.records[run.records["study"] == study.name].groupby("provenance", sort=False):
                anchor = f"study-{len(sections) + 1}"
                sections.append(_section(anchor, run, study, str(provenance), rows, systems))
    titles = dict.fromkeys(run.suite.title for run in filled)
    about = filled[0].suite.about if len(titles) == 1 else ""
    damage = tuple(text for run in runs for text in run.damage)
    return Report(" · ".join(titles), about, tuple(filled), tuple(sections), records, ops, systems, damage)


def _section(
    anchor: str, run: Run, study: Study, provenance: str, records: pd.DataFrame, systems: Mapping[str, str]
) -> Section:
    ops = run.ops[run.ops["attempt_id"].isin(records["attempt_id"])]
    found = cliffs(study, records, ops)
    rows = placed(study, records)[0]
    left = rows[rows["status"] != "ok"]

    def drawn(plots: Sequence[Plot]) -> tuple[Chart, ...]:
        seen = {plot.y: observations((records, ops), study, plot.y) for plot in plots}
        made = (build_chart(plot, seen[plot.y], left, study.level, provenance, systems, found) for plot in plots)
        return tuple(chart for chart in made if chart)

    table = effects(study, records, ops)
    ok = records[records["status"] == "ok"]
    return Section(
        anchor=anchor,
        study=study,
        provenance=provenance,
        answered_with=tuple(dict.fromkeys(records["answered_with"])),
        run=run.path.name,
        counts=count_statuses(records),
        charts=drawn(study.plots) or drawn(automatic_plots(study, rows)),
        verdicts=tuple(judge(study, records, ops)),
        effects=tuple(effects_of(study, table, records, systems)),
        effect_rows=table,
        effect_lines=tuple(effect_lines(table)),
        shares=tuple(shares_of(study, records, ops, systems)),
        cliffs=tuple(found),
        edges=tuple(edges(found)),
        falls=tuple(group_falls(falls(study, records, ops, found))),
        sources=source_mix(records),
        flags={flag: n for flag in sorted({f for flags in ok["flags"] for f in flags}) if (n := _carry(ok, flag))},
    )


def _of(title: str, provenance: str, provenances: Collection[str]) -> str:
    """A title that names the kind of numbers where there are several."""
    return f"{title}, {provenance}" if len(provenances) > 1 else title


def count_statuses(records: pd.DataFrame) -> dict[str, int]:
    """Status → rows, ok first, then as `glossary.STATUSES` orders them."""
    found = records["status"].value_counts()
    return {status: int(found[status]) for status in STATUSES if status in found.index}


def counts_text(counts: Mapping[str, int]) -> str:
    """`1,529 ok, 96 unsupported`."""
    return ", ".join(f"{count:,} {status}" for status, count in counts.items())


def _carry(records: pd.DataFrame, flag: str) -> int:
    return sum(flag in flags for flags in records["flags"])


def system_names(keys: Any) -> dict[str, str]:
    """GPU key → name without the maker; a key that is not known any more is its own name."""
    known = set(known_systems())
    return {
        key: load_system(key).gpu_name.removeprefix("NVIDIA ") if key in known else key for key in dict.fromkeys(keys)
    }
