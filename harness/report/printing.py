"""Lines on a terminal: rich on a TTY, plain text elsewhere. What an input says cannot steer the terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

#: Characters that a terminal obeys instead of showing them: C0 without tab and line feed, DEL, C1, and those that turn
#: the direction of text (Unicode 15, Bidi_Control).
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def print_lines(lines: Iterable[tuple[str, str]]) -> None:
    """Print lines, each with its rich style; elsewhere than on a TTY without."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.text import Text

        console = Console(highlight=False)
        for line, style in lines:
            console.print(Text(harmless(line), style=style))
        return
    for line, _ in lines:
        sys.stdout.write(harmless(line) + "\n")


def harmless(text: str) -> str:
    """The text with characters that a terminal obeys as Python writes them: `\\x1b`."""
    return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)
