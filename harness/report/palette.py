"""Colours that survive colour blindness, print and both colour schemes; every line has a marker of its own as well.

Categories follow Okabe and Ito ("Color Universal Design", 2008), darkened on light and lightened on dark ground until
each keeps a contrast of about 3:1 (WCAG 2.1, 1.4.11). Ordered values follow viridis (matplotlib 2.0, CC0), trimmed
likewise.
"""

from __future__ import annotations

from dataclasses import dataclass

_CATEGORIES_LIGHT = ("#0072b2", "#d55e00", "#00805f", "#b3568a", "#9a6b00", "#2f8fc7", "#5b6472", "#1f2430")
_CATEGORIES_DARK = ("#56a9e0", "#f0884a", "#2fc49a", "#e39ac4", "#e8b23a", "#93d3f7", "#a3abb8", "#f1f3f6")
_ORDERED_LIGHT = ("#440154", "#46327e", "#365c8d", "#277f8e", "#1a9a80", "#3c9f43", "#819c10")
_ORDERED_DARK = ("#9a8ae0", "#6f96dd", "#3fa9c9", "#2fbfa6", "#5fcf74", "#a6d93f", "#f3df2c")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star", "pentagon", "hexagon")


@dataclass(frozen=True, slots=True)
class Ink:
    """How one line is drawn: a colour for each scheme and a marker."""

    light: str
    dark: str
    symbol: str


def inks(count: int, *, ordered: bool) -> list[Ink]:
    """Return `count` distinguishable inks; `ordered` values get a scale from dark to bright, others get hues.

    Hues repeat after eight, with another marker.
    """
    symbols = [SYMBOLS[index % len(SYMBOLS)] for index in range(count)]
    if ordered and count > 1:
        # Few values stay away from the yellow end, which is the hardest to read.
        longest = min(1.0, 0.45 + 0.15 * count)
        positions = [longest * index / (count - 1) for index in range(count)]
        colours = [(_along(_ORDERED_LIGHT, at), _along(_ORDERED_DARK, at)) for at in positions]
    else:
        hues = list(zip(_CATEGORIES_LIGHT, _CATEGORIES_DARK, strict=True))
        colours = [hues[index % len(hues)] for index in range(count)]
    return [Ink(light, dark, symbol) for (light, dark), symbol in zip(colours, symbols, strict=True)]


def _along(scale: tuple[str, ...], at: float) -> str:
    """The colour at `at` (0 to 1) of a scale, joined linearly in RGB."""
    place = at * (len(scale) - 1)
    index = min(int(place), len(scale) - 2)
    low, high = (tuple(int(text[i : i + 2], 16) for i in (1, 3, 5)) for text in scale[index : index + 2])
    part = place - index
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(low, high, strict=True))
