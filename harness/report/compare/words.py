"""What a comparison says, in sentences and cells that every output shares."""

from __future__ import annotations

from collections.abc import Iterator

from harness.analysis.compare import Comparison, Pair, Section, Unpaired, Values
from harness.analysis.compare.judging import percent_text
from harness.analysis.compare.policy import BEYOND_PCT, EXACT_PCT, INSIDE_PCT
from harness.report.tables import Cell, Column, Table, table
from harness.results.metrics import significant

_TONES = {"worse": "slower-2", "better": "faster-2", "prediction changed": "slower-1", "newly failing": "slower-2"}

_POLICIES = {
    "interval": f"worse or better where the 99 % interval over replicates lies wholly beyond {BEYOND_PCT:g} %, same "
    f"where it lies inside {INSIDE_PCT:g} %",
    "exact": f"priced numbers have no noise; beyond {EXACT_PCT:g} % it is another prediction",
}


def title(comparison: Comparison) -> str:
    """`base.csv against candidate.csv`; whole paths where the names are the same."""
    base, candidate = comparison.base, comparison.candidate
    if base.name == candidate.name:
        return f"{candidate.path} against {base.path}"
    return f"{candidate.name} against {base.name}"


def headline(comparison: Comparison) -> str:
    """The one sentence that matters."""
    if comparison.is_empty:
        if not comparison.pairs and not any(one.state == "failed in both" for one in comparison.unpaired):
            return "Nothing could be compared: no row of one side asks what a row of the other asks."
        return "Nothing could be compared: no figure is on both sides."
    worse, failing = comparison.section("worse"), comparison.section("newly failing")
    if worse.pairs or failing.unpaired:
        told = [
            f"{counted(worse.workloads, 'workload')} worse" if worse.pairs else "",
            f"{len(failing.unpaired)} newly failing" if failing.unpaired else "",
        ]
        return ", ".join(filter(None, told))
    unsure = comparison.section("inconclusive")
    rest = f"; {counted(len(unsure.pairs), 'figure')} inconclusive" if unsure.pairs else ""
    return f"Nothing is worse or newly failing{rest}"


def counted(number: int, word: str) -> str:
    """`1 workload`, `2 workloads`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def counts_text(comparison: Comparison) -> str:
    """How much was compared."""
    sides = [
        f"{word} {counted(count.workloads, 'workload')} from {counted(count.rows, 'row')}"
        for word, count in comparison.counts.items()
    ]
    computed = len(comparison.computed)
    undefined = len(comparison.pairs) - computed
    pairs = f"{counted(comparison.paired_workloads, 'pair')} with figures ({counted(computed, 'figure')} compared"
    return "; ".join([*sides, f"{pairs}{f', {undefined} not computed' if undefined else ''})"])


def sections_text(comparison: Comparison) -> str:
    """`2 worse, 1 newly failing, …`: workloads in each section; one with several figures may be in several."""
    return ", ".join(f"{section.workloads} {section.name}" for section in comparison.sections)


def facts(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """What a reader has to know before the tables."""
    yield "Compared", counts_text(comparison)
    yield "Workloads", sections_text(comparison) or "none"
    for policy in comparison.policies:
        meaning = _POLICIES.get(policy)
        said = meaning or ("the change of the median; without replicates on both sides nothing is known of noise")
        yield f"Policy {policy}", said
    yield from _paired_by(comparison)
    if comparison.names.common:
        yield "In all rows", comparison.names.common_text
    if comparison.environment:
        told = [
            f"{name} {before or 'not said'} → {after or 'not said'}"
            for name, (before, after) in comparison.environment.items()
        ]
        yield "Found in place, not used to pair", "; ".join(told)
    converted = [
        f"{figure.column} as {name}"
        for results in (comparison.base, comparison.candidate)
        for name, figure in results.figures.items()
        if figure.column != name
    ]
    if converted:
        yield "Converted", ", ".join(dict.fromkeys(converted))


def _paired_by(comparison: Comparison) -> Iterator[tuple[str, str]]:
    columns = dict.fromkeys((*comparison.base.identity_columns, *comparison.candidate.identity_columns))
    if columns:
        yield "Paired by", ", ".join(columns)
    elif comparison.base.workloads:
        yield "Paired by", ", ".join(name for name, _ in comparison.base.workloads[0].key)


def warnings(comparison: Comparison) -> list[str]:
    """What nobody may overlook."""
    return [*comparison.damage, *comparison.notes]


def section_table(section: Section, comparison: Comparison, most: int | None = None) -> Table:
    """The lines of a section; `most` of them."""
    if section.pairs:
        return _pairs_table(section, comparison, most)
    columns = [Column("Workload"), Column("Base"), Column("Candidate"), Column("Why")]
    tone = _TONES.get(section.name, "")
    rows: list[list[str | Cell]] = [
        [comparison.names.of(one.workload), one.base_status, Cell(one.candidate_status, tone), one.reason]
        for one in section.unpaired[:most]
    ]
    return table(section.name, _without_empty(columns, rows), _cells(columns, rows))


def _pairs_table(section: Section, comparison: Comparison, most: int | None) -> Table:
    columns = [
        Column("Workload"), Column("Figure"), Column("Base", numeric=True), Column("Candidate", numeric=True),
        Column("Change", numeric=True), Column("99 % interval"), Column("Why"),
    ]  # fmt: skip
    tone = _TONES.get(section.name, "")
    rows: list[list[str | Cell]] = [
        [
            comparison.names.of(pair.workload),
            figure_text(pair),
            side_text(pair.base),
            side_text(pair.candidate),
            Cell(change_text(pair), tone),
            interval_text(pair),
            why(pair),
        ]
        for pair in section.pairs[:most]
    ]
    return table(section.name, _without_empty(columns, rows), _cells(columns, rows))


def _used(columns: list[Column], rows: list[list[str | Cell]]) -> list[int]:
    def text(cell: str | Cell) -> str:
        return cell if isinstance(cell, str) else cell.text

    return [index for index in range(len(columns)) if index == 0 or any(text(row[index]) for row in rows)]


def _without_empty(columns: list[Column], rows: list[list[str | Cell]]) -> list[Column]:
    return [columns[index] for index in _used(columns, rows)]


def _cells(columns: list[Column], rows: list[list[str | Cell]]) -> list[list[str | Cell]]:
    used = _used(columns, rows)
    return [[row[index] for index in used] for row in rows]


def figure_text(pair: Pair) -> str:
    """The figure's name, which holds its unit, and its unit where the name does not."""
    return pair.figure.name


def side_text(side: Values | None) -> str:
    """`13.50 (median of 3, 13.00 to 19.00)`."""
    if side is None:
        return ""
    if side.count == 1:
        return significant(side.median)
    return (
        f"{significant(side.median)} (median of {side.count}, {significant(min(side.values))} to "
        f"{significant(max(side.values))})"
    )


def change_text(pair: Pair) -> str:
    """`+8.0 %`, or that there is none."""
    return percent_text(pair.change) if pair.change is not None else "not computed"


def interval_text(pair: Pair) -> str:
    """`+2.1 % to +4.0 %`."""
    if pair.low is None or pair.high is None:
        return ""
    return f"{percent_text(pair.low)} to {percent_text(pair.high)}"


def why(pair: Pair) -> str:
    """Reason, second opinion, blame, and what to know of the replicates."""
    told = [pair.reason, pair.clock if pair.clock != pair.reason else "", blame_text(pair)]
    for word, side in (("base", pair.base), ("candidate", pair.candidate)):
        if side and side.note and side.note not in pair.reason:
            told.append(f"{word}: {side.note}")
    return "; ".join(filter(None, told))


def blame_text(pair: Pair) -> str:
    """`layer.attn.attention 1.20 → 1.45 ms, 92 % of what the ops moved`."""
    if not pair.blame:
        return ""
    told = [
        f"{shift.op} {significant(shift.base_us / 1000, 3)} → {significant(shift.candidate_us / 1000, 3)} ms "
        f"({100 * shift.share:.0f} %)"
        for shift in pair.blame
    ]
    return f"of what the ops moved: {', '.join(told)}"


def unpaired_text(one: Unpaired) -> str:
    """`ok → oom: CUDA out of memory`."""
    sides = f"{one.base_status or 'absent'} → {one.candidate_status or 'absent'}"
    return f"{sides}{f': {one.reason}' if one.reason else ''}"


def section_title(section: Section) -> str:
    """`worse: 3 figures of 2 workloads`."""
    if section.unpaired:
        return f"{section.name}: {counted(len(section.unpaired), 'workload')}"
    return f"{section.name}: {counted(len(section.pairs), 'figure')} of {counted(section.workloads, 'workload')}"
