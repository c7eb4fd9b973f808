"""What a report says, before it is said in HTML, Markdown or on a terminal.

One section for each run, study and provenance: rows of different provenance never share a plot, a table or a statistic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.analysis.beside import Comparison, beside
from harness.analysis.claims import Verdict, judge
from harness.analysis.cliffs import Cliff
from harness.analysis.edges import Edge, edges
from harness.analysis.effect_lines import EffectLine
from harness.analysis.falls import FallGroup, group_falls
from harness.analysis.frame import placed
from harness.analysis.intervals import Interval, replicates_text
from harness.analysis.over_replicates import (
    cliffs_of_cases,
    effect_lines_of_cases,
    effects_of_cases,
    falls_of_cases,
    observations_of_cases,
)
from harness.analysis.replicates import Cases, by_case, has_replicates
from harness.analysis.sources import Mix, source_mix, sources_text
from harness.errors import UsageError
from harness.hardware import CPU, known_systems, load_system
from harness.report.automatic import automatic_plots
from harness.report.effects import Effect, effects_of
from harness.report.glossary import PROVENANCES, ROOFLINE_ONLY, STATUSES, measured_by
from harness.report.plots import Chart, build_chart
from harness.report.shares import Shares, shares_of
from harness.spec.claims import Quantity
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
    cases: Cases
    """One row for each case, and the replicates behind it."""
    intervals: Mapping[str, Interval]
    """Attempt that stands for its case → the interval of its time; empty for priced rows."""

    @property
    def is_measured(self) -> bool:
        """Whether its cases ran."""
        return has_replicates(self.cases.records)


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
    comparison: Comparison
    """Measured cases beside the prices of the same cases, where the runs hold both."""

    @property
    def badges(self) -> dict[str, str]:
        """Provenance → what its numbers are, in the order of the sections."""
        versions: dict[str, list[str]] = {}
        for section in self.sections:
            versions.setdefault(section.provenance, []).extend(section.answered_with)
        if self.has_imported:
            versions.setdefault("imported", [])
        return {provenance: badge(provenance, found) for provenance, found in versions.items()}

    @property
    def machine(self) -> str:
        """What its cases run on: GPUs, or machines where one is the processor of the host."""
        return "machine" if CPU in self.systems else "GPU"

    @property
    def has_measured(self) -> bool:
        """Whether cases ran."""
        return any(section.is_measured for section in self.sections)

    @property
    def has_imported(self) -> bool:
        """Whether there are rows of foreign reports, which belong to no section."""
        return bool((self.records["provenance"] == "imported").any())

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
        named = [getattr(one.study.variant, "name", str(one.study.variant)) for one in self.sections]
        return list(dict.fromkeys(named or self.records["variant"]))

    def facts(self) -> list[tuple[str, str]]:
        """What was compared."""
        shapes = self.records["variant"].nunique()
        names = ", ".join(self.variants)
        on = dict.fromkeys(self.records["system"].dropna())
        phases = ", ".join(dict.fromkeys(self.records["phase"]))
        cases = []
        for provenance in self.badges:
            rows = self.records[self.records["provenance"] == provenance]
            cases.append((_of("Cases", provenance, self.badges), _cases_text(rows)))
            mix = source_mix(rows) if provenance != "modelled" else {}
            if mix or provenance == "composed":
                cases.append((_of("Sources, share of time", provenance, self.badges), sources_text(mix)))
        return [
            ("Variants", f"{names} ({shapes:,} shapes)" if shapes > len(self.variants) else names),
            ("GPUs" if self.machine == "GPU" else "Machines", ", ".join(self.systems[key] for key in on)),
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
    systems = system_names(records["system"].dropna())
    sections: list[Section] = []
    for run in filled:
        for study in run.studies:
            own = run.records[(run.records["study"] == study.name) & (run.records["provenance"] != "imported")]
            for provenance, rows in own.groupby("provenance", sort=False):
                anchor = f"study-{len(sections) + 1}"
                sections.append(_section(anchor, run, study, str(provenance), rows, systems))
    titles = dict.fromkeys(run.suite.title for run in filled)
    about = filled[0].suite.about if len(titles) == 1 else ""
    damage = tuple(text for run in runs for text in run.damage)
    measured = [(one.cases, one.intervals) for one in sections if one.provenance == "measured"]
    comparison = beside(measured, records, ops)
    return Report(" · ".join(titles), about, tuple(filled), tuple(sections), records, ops, systems, damage, comparison)


def _section(
    anchor: str, run: Run, study: Study, provenance: str, records: pd.DataFrame, systems: Mapping[str, str]
) -> Section:
    ops = run.ops[run.ops["attempt_id"].isin(records["attempt_id"])]
    cases = by_case(records, ops)
    found = cliffs_of_cases(study, cases)
    rows = placed(study, cases.records)[0]
    left = rows[rows["status"] != "ok"]
    intervals = cases.intervals(study, Quantity()) if has_replicates(records) else {}

    def drawn(plots: Sequence[Plot]) -> tuple[Chart, ...]:
        seen = {plot.y: observations_of_cases(study, cases, plot.y) for plot in plots}
        made = (build_chart(plot, seen[plot.y], left, study.level, provenance, systems, found) for plot in plots)
        return tuple(chart for chart in made if chart)

    table = effects_of_cases(study, cases)
    ok = records[records["status"] == "ok"]
    return Section(
        anchor=anchor,
        study=study,
        provenance=provenance,
        answered_with=tuple(dict.fromkeys(records["answered_with"])),
        run=run.path.name,
        counts=count_statuses(records),
        charts=drawn(study.plots) or drawn(automatic_plots(study, rows)),
        verdicts=tuple(judge(study, records, ops, run.samples)),
        effects=tuple(effects_of(study, table, records, systems)),
        effect_rows=table,
        effect_lines=tuple(effect_lines_of_cases(table)),
        shares=tuple(shares_of(study, cases.records, cases.ops, systems, intervals)),
        cliffs=tuple(found),
        edges=tuple(edges(found)),
        falls=tuple(group_falls(falls_of_cases(study, cases, found))),
        sources=source_mix(records),
        cases=cases,
        intervals=intervals,
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


def _cases_text(records: pd.DataFrame) -> str:
    """`1,529 ok, 96 unsupported`; of repeated ones `24 ok (8 cases, up to 3 replicates)`."""
    told, replicates = counts_text(count_statuses(records)), records["replicate"].dropna()
    if replicates.empty:
        return told
    cases = len(records[["run_id", "case_id", "series", "coordinates", "level"]].drop_duplicates())
    return f"{told} ({cases:,} cases, up to {replicates_text(int(replicates.nunique()))})"


def _carry(records: pd.DataFrame, flag: str) -> int:
    return sum(flag in flags for flags in records["flags"])


def system_names(keys: Any) -> dict[str, str]:
    """System key → readable: a GPU's name without the maker, `CPU`; a key not known any more is its own name."""
    names = {key: load_system(key).gpu_name.removeprefix("NVIDIA ") for key in known_systems()} | {CPU: "CPU"}
    return {key: names.get(key, key) for key in dict.fromkeys(keys)}
