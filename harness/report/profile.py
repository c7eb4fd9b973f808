"""Profiles as tables, plain lines and Markdown; cumulative time and elapsed time are never mixed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.profiles import Comparison, Profile
from harness.profiles.against import unknown_share_pct
from harness.profiles.kernels import FORMATS
from harness.profiles.timeline import Timeline
from harness.report.markdown import table_lines
from harness.report.tables import Column, Table, table, without_empty
from harness.results.metrics import significant

#: Rows of a table on a terminal; files have them all.
MOST_ROWS = 15
#: Longer kernel names are cut in the middle on a terminal.
MOST_CHARACTERS = 90

CUMULATIVE = "Cumulative: durations added, so that what ran at the same time counts twice. It is not elapsed time."
ELAPSED = "Elapsed = busy + gaps, and busy = cumulative - overlap, on each GPU by itself."
AGAINST = (
    "Cumulative time of the profile, one iteration of its slowest GPU, beside the composed ops: neither has gaps or "
    "overlap in it. A profiler slows down what it watches."
)
EMPTY = "nothing ran on a GPU in this capture; that of a run on the CPU alone looks like this"


def buckets_table(profile: Profile) -> Table:
    """Cumulative time by bucket; busy and alone where there is one timeline."""
    columns = [
        Column("Kernels"), Column("Count", numeric=True), Column("Cumulative", "µs", numeric=True),
        Column("Share", "%", numeric=True), Column("Busy", "µs", numeric=True), Column("Alone", "µs", numeric=True),
    ]  # fmt: skip
    only = profile.timelines[0] if len(profile.timelines) == 1 else None
    times = {one.bucket: one for one in only.buckets} if only else {}
    rows = [
        [
            row.title,
            f"{row.count:,}",
            us(row.cumulative_ns),
            f"{row.share_pct:.1f}",
            us(times[row.bucket].busy_ns) if times else "",
            us(times[row.bucket].alone_ns) if times else "",
        ]
        for row in profile.buckets
    ]
    return without_empty(table("Where cumulative time goes", columns, rows, CUMULATIVE))


def timeline_table(profile: Profile) -> Table:
    """Each GPU: elapsed, busy, gaps, overlap, communication."""
    columns = [Column("On"), *(Column(title, unit, numeric=True) for title, unit, _ in _TIMES)]
    rows = [[one.device, *(us(getattr(one, name)) for _, _, name in _TIMES)] for one in profile.timelines]
    return table("Elapsed time", columns, rows, ELAPSED)


_TIMES = (
    ("Elapsed", "µs", "elapsed_ns"), ("Busy", "µs", "busy_ns"), ("Gaps", "µs", "gaps_ns"),
    ("Cumulative", "µs", "cumulative_ns"), ("Overlap across streams", "µs", "overlap_across_streams_ns"),
    ("Overlap within streams", "µs", "overlap_within_streams_ns"), ("Communication", "µs", "communication_ns"),
    ("of it hidden by compute", "µs", "hidden_ns"), ("exposed", "µs", "exposed_ns"),
    ("beside unknown kernels", "µs", "beside_unknown_ns"),
)  # fmt: skip


def kernels_table(profile: Profile, *, unknown: bool = False) -> Table:
    """Kernels, the longest first; only those that no rule names, where asked."""
    columns = [
        Column("Kernel"), Column("Bucket"), Column("Count", numeric=True), Column("Cumulative", "µs", numeric=True),
        Column("Share", "%", numeric=True), Column("Least", "µs", numeric=True), Column("Most", "µs", numeric=True),
    ]  # fmt: skip
    shown = profile.unknown if unknown else profile.kernels
    rows = [
        [
            row.name,
            "" if unknown else row.bucket,
            f"{row.count:,}",
            us(row.cumulative_ns),
            f"{row.share_pct:.1f}",
            us(row.min_ns),
            us(row.max_ns),
        ]
        for row in shown
    ]
    title = "Unknown kernels" if unknown else "Kernels"
    about = "No rule of kernel_buckets.yaml names them; they are listed, not guessed." if unknown else CUMULATIVE
    return without_empty(table(title, columns, rows, about))


def ranges_table(profile: Profile) -> Table:
    """Cumulative time by the innermost NVTX range, or the totals of ranges that a CSV holds."""
    columns = [Column("Range"), Column("Count", numeric=True), Column("Cumulative", "µs", numeric=True), Column("Time")]
    rows = [[one.name, f"{one.count:,}", us(one.cumulative_ns), "GPU"] for one in profile.ranges]
    rows += [
        [one.name, f"{one.count:,}", us(one.total_ns), "GPU, projected" if one.gpu else "host"]
        for one in profile.range_totals
    ]
    return table("NVTX ranges", columns, rows, "By the innermost range around the launch, of CUDA graphs the capture.")


def gaps_table(profile: Profile) -> Table:
    """The longest gaps of each GPU, and what stands on both sides."""
    columns = [Column("On"), Column("Gap", "µs", numeric=True), Column("After"), Column("Before")]
    rows = [[one.device, us(gap.duration_ns), gap.after, gap.before] for one in profile.timelines for gap in one.gaps]
    return table("Longest gaps", columns, rows, "Nothing ran on the GPU.")


def against_table(found: Comparison) -> Table:
    """Measured against composed, bucket by bucket."""
    columns = [
        Column("Kernels"), Column("Measured", "µs", numeric=True), Column("Share", "%", numeric=True),
        Column(found.provenance.capitalize(), "µs", numeric=True),
        Column(f"{found.provenance.capitalize()} share", "%", numeric=True), Column("Error", "%", numeric=True),
    ]  # fmt: skip
    rows = [
        [
            one.title,
            _figure(one.measured_us),
            _pct(one.measured_share_pct),
            _figure(one.composed_us),
            _pct(one.composed_share_pct),
            "" if one.error_pct is None else f"{one.error_pct:+.1f}",
        ]
        for one in found.buckets
    ]
    return without_empty(table("Measured against composed", columns, rows, AGAINST))


def against_facts(found: Comparison) -> Iterator[str]:
    """What is compared, and what to know of it."""
    yield f"{found.case}: {found.phase} at level {found.level}, {found.provenance} with {found.answered_with}"
    if found.why_shares_only:
        yield f"shares only: {found.why_shares_only}"
    else:
        elapsed = "not known" if found.elapsed_us is None else f"{significant(found.elapsed_us)} µs"
        told = (
            "" if found.measured_us is None else f"; measured without a profiler: {significant(found.measured_us)} µs"
        )
        yield f"one iteration: elapsed {elapsed}; {found.provenance} {significant(found.composed_us)} µs{told}"
    share = unknown_share_pct(found)
    if share:
        yield f"{share:.1f} % of measured time is in unknown kernels: by so much other rows may be too small"
    if found.left_out:
        yield f"ops without a bucket, left out: {', '.join(found.left_out)}"


def facts(profile: Profile) -> Iterator[str]:
    """What the file is and what of it counts."""
    yield f"{profile.status}, {FORMATS[profile.format]}{f' ({profile.tool})' if profile.tool else ''}: {profile.how}"
    count = "not known" if profile.iterations is None else f"{profile.iterations:,}"
    yield f"iterations: {count} ({profile.iterations_by})"
    yield from (f"missing: {text}" for text in profile.missing)
    if profile.status == "empty":
        yield EMPTY
    yield from (f"note: {text}" for text in profile.notes)
    yield from (_timeline_text(one, profile.iterations) for one in profile.timelines)


def _timeline_text(one: Timeline, iterations: int | None) -> str:
    """`GPU 0: elapsed 412 µs, busy 93.1 %, 12 gaps, largest 8.1 µs; 41 µs of one iteration`."""
    parts = [f"elapsed {us(one.elapsed_ns)} µs", f"busy {_ratio(one.busy_ns, one.elapsed_ns)} of it"]
    parts += [f"{one.gap_count:,} gaps, the largest {us(one.gaps[0].duration_ns)} µs"] if one.gaps else ["no gap"]
    if one.communication_ns:
        parts.append(f"{_ratio(one.hidden_ns, one.communication_ns)} of communication hidden by compute")
    each = f"; {significant(one.elapsed_ns / iterations / 1000)} µs an iteration" if iterations else ""
    return f"{one.device}: {', '.join(parts)}{each}"


def profile_lines(profile: Profile, comparison: Comparison | None) -> Iterator[str]:
    """Plain lines for a terminal."""
    yield profile.file
    yield from (f"  {text}" for text in facts(profile))
    shown = [timeline_table(profile), buckets_table(profile), kernels_table(profile, unknown=True), gaps_table(profile)]
    for one in [*shown, ranges_table(profile), kernels_table(profile)]:
        yield from _plain(one)
    if comparison:
        yield from _plain(against_table(comparison), against_facts(comparison))


def _plain(whole: Table, more: Iterator[str] | Sequence[str] = ()) -> Iterator[str]:
    if not whole.rows:
        return
    yield ""
    yield f"{whole.title}. {whole.about}"
    yield from (f"  {text}" for text in more)
    cells = [[column.heading for column in whole.columns]]
    cells += [[_cut(cell.text) for cell in row] for row in whole.rows[:MOST_ROWS]]
    widths = [max(len(row[index]) for row in cells) for index in range(len(whole.columns))]
    for row in cells:
        aligned = [
            f"{text:>{width}}" if column.numeric else f"{text:<{width}}"
            for text, width, column in zip(row, widths, whole.columns, strict=True)
        ]
        yield f"  {'  '.join(aligned)}".rstrip()
    if len(whole.rows) > MOST_ROWS:
        yield f"  {len(whole.rows) - MOST_ROWS:,} more with --json or --out"


def render_profiles(profiles: Sequence[tuple[Profile, Comparison | None]]) -> str:
    """Markdown of all profiles."""
    lines = ["# Profiles", "", f"{CUMULATIVE} {ELAPSED}", ""]
    for profile, comparison in profiles:
        lines += [f"## {profile.file}", "", *(f"- {text}" for text in facts(profile)), ""]
        if comparison:
            lines += _section(against_table(comparison), list(against_facts(comparison)))
        for one in (
            timeline_table(profile), buckets_table(profile), kernels_table(profile, unknown=True), gaps_table(profile),
            ranges_table(profile), kernels_table(profile),
        ):  # fmt: skip
            lines += _section(one)
    return "\n".join(lines) + "\n"


def _section(whole: Table, texts: Sequence[str] = ()) -> list[str]:
    if not whole.rows:
        return []
    listed = [*(f"- {text}" for text in texts), ""] if texts else []
    return [f"### {whole.title}", "", whole.about, "", *listed, *table_lines(whole)]


def us(time_ns: int | None) -> str:
    """Nanoseconds as µs, exact: `12.345`; blank for none."""
    if time_ns is None:
        return ""
    whole, rest = divmod(time_ns, 1000)
    return f"{whole:,}" + (f".{rest:03d}".rstrip("0") if rest else "")


def _ratio(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"


def _figure(value: float | None) -> str:
    return "" if value is None else significant(value)


def _pct(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _cut(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    half = (MOST_CHARACTERS - 3) // 2
    return f"{text[:half]} … {text[-half:]}"
