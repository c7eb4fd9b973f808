"""The faulty backend, until somebody mends it: option `mended` names a file; once it is there, nothing goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from doubles.faulty_backend import FaultyBackend


class MendedBackend(FaultyBackend):
    def fault(self, *place: Any) -> None:
        if not Path(str(self.options["mended"])).exists():
            super().fault(*place)
