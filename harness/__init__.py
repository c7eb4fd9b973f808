"""Compare synthetic transformer variants from measured TensorRT-LLM kernels, the roofline, or real runs.

`harness.load("reports/demo")` gives the records of a run as a pandas DataFrame; everything else is done by the command
`trtllm-harness`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from harness.version import __version__

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["__version__", "load"]


def load(run: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the records of a run folder, one row per attempt.

    Raises UnreadableInput where the folder holds no run. Columns: see `harness.results.record`.
    """
    from harness.results.store import load as load_run

    return load_run(run)
