"""Tools that ship in the package; which, is a matter of the version."""

from __future__ import annotations

from pathlib import Path

from tensorrt_llm._double.era import era

if era().layer_wise:
    __path__.append(str(Path(__file__).parents[1] / "_eras" / "layer_wise"))
