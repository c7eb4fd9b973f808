"""Served models: this project's prices beside the package's whole-model engine, on what was measured end to end.

python benchmarks/end_to_end.py [--without CORRECTION ...] [--each] [--json]

The package ships mean TTFT and TPOT of served models. Its aggregated TensorRT-LLM rows are priced here from
`cost.decompose` and the tables pricer with the corrections of `end_to_end_serving.CORRECTIONS`, and by the engine with
formula F. Exits 1 when an aim is missed. `benchmarks/README.md` says what that shows.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any

from end_to_end_engine import WholeModelEngine
from end_to_end_prices import Prices
from end_to_end_results import AIMS, KINDS, Aim, GroupResult, judge, price_rows
from end_to_end_rows import load_rows
from end_to_end_serving import CORRECTIONS

from harness.errors import HarnessError
from harness.pricing.tables.assumptions import load_assumptions
from harness.pricing.tables.availability import PACKAGE, require_tables, version

#: Leaving out one correction → what the groups with an aim then show.
Each = Mapping[str, Sequence[GroupResult]]


def print_tables(results: Sequence[GroupResult], each: Each, aims: Sequence[Aim]) -> None:
    """Print what was found."""
    print("\nError in % of the measured, mean of the absolute / median of the signed, on rows that both price")
    print(f"{'':<46} {'TPOT':^23}   {'TTFT':^23}")
    columns = f"{'this project':>12} {'engine':>10}   {'this project':>12} {'engine':>10}"
    print(f"{'model':<15} {'GPU':<9} {'fmt':<4} {'rows':>4} {'n':>4} {'beyond':>6} {columns}")
    for kind in KINDS:
        print(f"  {kind}")
        for result in results:
            if result.kind == kind:
                print(_line(result))
    print("\nNot priced")
    for text, rows in _reasons(results).most_common():
        print(f"{rows:>4} rows: {text}")
    if each:
        _print_each(results, each)
    print("\nAims")
    for aim in aims:
        print(f"{'met' if aim.met else 'MISSED':<6}  {_name(aim.group)}  {aim.text}")


def _line(result: GroupResult) -> str:
    beyond = sum(one.extrapolated for one in result.compared)
    head = f"{_name(result.group)} {result.rows:>4} {len(result.compared):>4}"
    if not result.compared:
        return head
    return (
        f"{head} {beyond:>6} {result.tpot!s:>12} {result.engine_tpot!s:>10}"
        f"   {result.ttft!s:>12} {result.engine_ttft!s:>10}"
    )


def _name(group: tuple[str, str, str]) -> str:
    model, system, precision = group
    return f"{model:<15} {system:<9} {precision:<4}"


def _reasons(results: Sequence[GroupResult]) -> Counter[str]:
    """Why rows have no price, by model: the shapes that the reasons name differ from row to row."""
    found: Counter[str] = Counter()
    for result in results:
        for reason, rows in result.reasons.items():
            found[f"{result.group[0]}: {reason}"] += rows
    return found


def _print_each(results: Sequence[GroupResult], each: Each) -> None:
    print("\nWithout one correction: TPOT, TTFT")
    groups = [result for result in results if result.group in AIMS]
    print(f"{'':<12}" + "".join(f"  {_name(result.group).strip():>30}" for result in groups))
    for name, rows in {"all": results, **each}.items():
        found = {result.group: result for result in rows}
        cells = (f"{found[result.group].tpot!s:>14}, {found[result.group].ttft!s:>14}" for result in groups)
        print(f"{name:<12}" + "".join(f"  {cell}" for cell in cells))


def as_json(setting: Mapping[str, Any], results: Sequence[GroupResult], each: Each, aims: Sequence[Aim]) -> str:
    """The same as one JSON object, with every priced row."""
    groups = []
    for result in results:
        errors = {name: asdict(getattr(result, name)) for name in ("tpot", "ttft", "engine_tpot", "engine_ttft")}
        rows = [
            {
                "id": one.row.row_id,
                "measured": {"tpot_ms": one.row.tpot_ms, "ttft_ms": one.row.ttft_ms},
                "ours": {"tpot_ms": one.tpot_ms, "ttft_ms": one.ttft_ms, "extrapolated": one.extrapolated},
                "engine": one.engine._asdict() if one.engine else None,
            }
            for one in result.priced
        ]
        head = {"group": result.group, "kind": result.kind, "rows": result.rows, "n": len(result.compared)}
        groups.append({**head, **(errors if result.compared else {}), "not_priced": result.reasons, "priced": rows})
    without = {
        name: [
            {"group": result.group, "tpot": asdict(result.tpot), "ttft": asdict(result.ttft)}
            for result in found
            if result.group in AIMS
        ]
        for name, found in each.items()
    }
    verdicts = [asdict(aim) for aim in aims]
    return json.dumps({**setting, "groups": groups, "without_one": without, "aims": verdicts}, indent=2)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog="Corrections: " + "; ".join(f"{name}: {what}" for name, what in CORRECTIONS.items()),
    )
    parser.add_argument("--without", nargs="+", default=[], choices=CORRECTIONS, help="corrections to leave out")
    parser.add_argument("--each", action="store_true", help="also leave out each correction alone")
    parser.add_argument("--json", action="store_true", help="print one JSON object and no table")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and return 1 where an aim is missed."""
    options = parse(arguments)
    require_tables()
    rows, prices = load_rows(), Prices()
    with closing(WholeModelEngine()) as engine:
        results = price_rows(rows, options.without, prices, engine)
        aimed = [row for row in rows if row.group in AIMS]
        names = [name for name in CORRECTIONS if options.each and name not in options.without]
        each = {name: price_rows(aimed, [*options.without, name], prices, engine) for name in names}
    aims = judge(results)
    releases = sorted({load_assumptions(row.system).release for row in rows})
    setting = {"package": f"{PACKAGE} {version()}", "trtllm": releases, "without": options.without, "rows": len(rows)}
    if options.json:
        print(as_json(setting, results, each, aims))
    else:
        print(f"{setting['package']}, rows of TensorRT-LLM {', '.join(releases)}; {len(rows)} served rows")
        print(f"without {', '.join(options.without)}" if options.without else "all corrections")
        print_tables(results, each, aims)
    return 0 if all(aim.met for aim in aims) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HarnessError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
