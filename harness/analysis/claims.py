"""Judge the claims of a study: supports, contradicts or cannot tell, from its rows and the thresholds written in it.

What decides is in three steps, the same for every kind (see `harness.analysis.kinds` for what a kind computes):

1. The rows a claim needs are those of its study at `where` and `judge_at`, one system at a time; rows that the study
   itself leaves out (`skipped`) are not needed. The verdict is `cannot tell`, and says which rows and why, where a
   value that the claim names is not in the sweep, where a needed row has no number (refused, unsupported, rejected …),
   where one is confounded as the claim declares, or where one beats its roofline by more than the scatter allowed.
   Rows that the roofline answered decide nothing: it is arithmetic, and no evidence about kernels.
2. Rows that differ only in the axis form a group. Each group gives readings; where `median_over` names coordinates, the
   median over them is taken of each reading, never of times.
3. One group that contradicts contradicts the claim; it is supported when every group supports it.

Rows that ran are compared inside their processes, and the interval over replicates decides in place of the scatter
allowed (`harness.analysis.measured_judging`, `measured_kinds`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.analysis.frame import measured, placed
from harness.analysis.judging import Judged, Row
from harness.analysis.measured_judging import Evidence, MeasuredJudged
from harness.analysis.replicates import RAN
from harness.analysis.verdicts import Figure, Verdict
from harness.spec.claims import Quantity
from harness.spec.study import Study

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Figure", "Verdict", "judge"]


def judge(study: Study, records: pd.DataFrame, ops: pd.DataFrame, samples: pd.DataFrame | None = None) -> list[Verdict]:
    """Return one verdict per claim and system, in the order of the study and of the records.

    `samples` are the raw samples of a run: with them, rows that one process timed in turn are compared round by round.
    """
    table, names = placed(study, records)
    rows: list[Row] = table.to_dict("records")
    systems = list(dict.fromkeys(row["system"] for row in rows))
    repeated = {row["system"] for row in rows if row["provenance"] in RAN}
    evidence = Evidence.of(records if repeated else records.iloc[:0], samples)
    values: dict[Quantity, list[Row]] = {}
    verdicts = []
    for claim in study.claims:
        if claim.quantity not in values:
            values[claim.quantity] = measured(table, records, ops, claim.quantity).to_dict("records")
        priced, ran = Judged(study, claim, names), MeasuredJudged(study, claim, names, evidence)
        verdicts += [
            (ran if system in repeated else priced).on(system, rows, values[claim.quantity]) for system in systems
        ]
    return verdicts
