"""The rules of asv and otava on histories from standard input; runs where they are installed, without the harness.

Reads a JSON list of histories, each a list of values of which less is better; writes, for each tool that is there,
whether it alarms on each, and how long all of them took.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Sequence

#: A change point is an alarm while it lies in the last nights, and is at least this large.
RECENT, LEAST = 3, 0.02


def asv_rule() -> Callable[[Sequence[float]], bool]:
    """asv's steps and regressions, as `asv publish` finds them, at 2 % in place of its 5 %."""
    from asv.step_detect import detect_regressions, detect_steps

    def alarms(values: Sequence[float]) -> bool:
        _, _, positions = detect_regressions(detect_steps(list(values)), threshold=LEAST)
        return bool(positions)

    return alarms


def otava_rule() -> Callable[[Sequence[float]], bool]:
    """otava's change points at its defaults (window 50, p 0.001), of at least 2 %."""
    from otava.series import AnalysisOptions, Metric, Series

    options = AnalysisOptions()
    options.min_magnitude = LEAST

    def alarms(values: Sequence[float]) -> bool:
        series = Series("t", None, list(range(len(values))), {"ms": Metric(-1, 1.0, "ms")}, {"ms": list(values)}, {})
        found = series.analyze(options).change_points["ms"]
        return any(one.index >= len(values) - RECENT and one.mean_after() > one.mean_before() for one in found)

    return alarms


def main() -> int:
    logging.disable(logging.CRITICAL)
    histories = json.load(sys.stdin)
    found = {}
    for name, make in {"asv steps, 2 %": asv_rule, "otava, 2 %": otava_rule}.items():
        try:
            rule = make()
        except ImportError:
            continue
        started = time.perf_counter()
        found[name] = {"alarms": [rule(values) for values in histories], "s": time.perf_counter() - started}
    json.dump(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
