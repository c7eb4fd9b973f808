"""Columns as codes and their texts, so that a million rows cost what their few distinct values cost."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.analysis.inputs.results import Workload

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd
    import pyarrow as pa

    Codes = npt.NDArray[np.int64]

_WHOLE = re.compile(r"[-+]?\d{1,30}(?:\.0*)?")
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")


def cell_text(value: Any) -> str:
    """A value of a question as one text: `8`, `8.0` and the number 8 are the same. Blank where it is null."""
    if value is None or value != value:  # noqa: PLR0124  # NaN is not itself
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    text = plain_text(value)
    if text.lower() in {"true", "false"}:
        return text.lower()
    if _WHOLE.fullmatch(text):
        return str(int(text.partition(".")[0]))
    if not _NUMBER.fullmatch(text):
        return text
    number = float(text)
    if not math.isfinite(number):
        return text
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)


def plain_text(value: Any) -> str:
    """A value as it is, on one line; blank where it is null. A commit `1e5` is no number."""
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    return "" if value is None or value != value else " ".join(str(value).split())  # noqa: PLR0124  # NaN is not itself


def _nested_text(value: Any) -> str | None:
    """A list as its texts joined by `;`, as flags are; anything else as JSON."""
    if value is None or (isinstance(value, list) and all(isinstance(one, str) for one in value)):
        return ";".join(value or ()) or None
    return json.dumps(value, sort_keys=True, default=str)


def codes_of(column: pa.ChunkedArray, text_of: Callable[[Any], str] = cell_text) -> tuple[Codes, list[str]]:
    """Code of every row, and the text of every code; equal texts have one code, and the blank text is a code too."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_nested(column.type):  # Arrow has no dictionaries of lists and structures
        column = pa.chunked_array([pa.array([_nested_text(value) for value in column.to_pylist()], pa.string())])
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    encoded = encoded.unify_dictionaries().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # of no rows
        return np.zeros(0, dtype=np.int64), []
    texts = ["", *map(text_of, encoded.dictionary.to_pylist())]
    place = {text: code for code, text in enumerate(dict.fromkeys(texts))}
    again = np.array([place[text] for text in texts], dtype=np.int64)
    indices = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return again[indices + 1], list(place)


def as_texts(column: pa.ChunkedArray) -> pd.Categorical:
    """A column as texts, null where it is blank."""
    import numpy as np
    import pandas as pd

    codes, texts = codes_of(column, plain_text)
    if not texts:
        return pd.Categorical([], categories=[])
    kept = [code for code, text in enumerate(texts) if text]
    again = np.full(len(texts), -1, dtype=np.int64)
    again[kept] = np.arange(len(kept))
    return pd.Categorical.from_codes(again[codes], categories=[texts[code] for code in kept])


def workloads_of(
    columns: Mapping[str, tuple[Codes, list[str]]],
    rows: int,
    shown: Callable[[Mapping[str, str], int], Sequence[tuple[str, str]]],
) -> tuple[Codes, tuple[Workload, ...]]:
    """Code of each row's workload, and the workloads in order of appearance.

    Rows are of one workload where all columns are the same; `shown` gets a workload's values and its first row.
    """
    import numpy as np

    together = np.zeros(rows, dtype=np.int64)
    names = sorted(columns)
    for codes, texts in columns.values():
        _, together = np.unique(together * (len(texts) + 1) + codes, return_inverse=True)
    _, first, inverse = np.unique(together, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    firsts = first[order]
    cells = [[columns[name][1][code] for code in columns[name][0][firsts].tolist()] for name in names]
    found = []
    for place, row in enumerate(firsts.tolist()):
        key = tuple((name, column[place]) for name, column in zip(names, cells, strict=True) if column[place])
        found.append(Workload(key, tuple(shown(dict(key), row))))
    return rank[inverse], tuple(found)
