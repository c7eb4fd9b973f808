"""Numbers and places as findings write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.results.metrics import METRICS, significant

#: Coordinates → the symbol that the guidelines use.
_SYMBOLS: dict[str, str] = {
    "batch": "b", "isl": "ISL", "kvsl": "KVSL", "ffn": "H'", "hidden": "H", "q_heads": "QH", "kv_heads": "KH",
    "head_dim": "Hsz", "draft_len": "D", "kv_format": "KV",
}  # fmt: skip


def symbol(name: str) -> str:
    """The symbol of a coordinate: `b` for batch."""
    return _SYMBOLS.get(name, name)


def place_text(place: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> str:
    """`b 8, KVSL 32768`; a series stands alone, phases and GPUs are said elsewhere."""
    pairs = place.items() if isinstance(place, Mapping) else place
    told = [(name, value) for name, value in pairs if name not in {"system", "phase"} and value != ""]
    return ", ".join(_pair_text(name, value) for name, value in told)


def _pair_text(name: str, value: Any) -> str:
    text = "/".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if name == "series" else f"{symbol(name)} {text}"


def number(value: float) -> str:
    """Three significant digits."""
    return significant(float(value), 3)


def amount(value: float, measure: str) -> str:
    """A number with the unit of its measure."""
    return f"{number(value)} {METRICS[measure].unit}"


def percent(share: float) -> str:
    """0.018 as `1.8 %`."""
    return f"{100 * share:.1f} %"


def listed(texts: Sequence[str], most: int = 6) -> str:
    """Texts joined by semicolons, the rest counted."""
    shown = "; ".join(texts[:most])
    return shown if len(texts) <= most else f"{shown}; and {len(texts) - most} more"


def mix_text(shares: Mapping[str, float]) -> str:
    """Shares of a whole, the largest first: `exact 89 %, estimated 7 %, modelled 4 %`."""
    ranked = sorted(shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {_whole_percent(share)}" for name, share in ranked if share > 0)


def _whole_percent(share: float) -> str:
    return "under 1 %" if share < 0.005 else f"{100 * share:.0f} %"
