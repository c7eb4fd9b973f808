"""Reading fields of a foreign JSON object: every problem is noted, none keeps another from being found."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.errors import UsageError


@dataclass
class Problems:
    """What is wrong with a model folder, each with the field of the variant that it leaves open."""

    noted: list[tuple[str, str]] = field(default_factory=list)

    def note(self, variant_field: str, message: str) -> None:
        """Note one problem; `variant_field` is a dotted path such as `weights.experts`, empty where none settles it."""
        self.noted.append((variant_field, message))

    def raise_unless(self, settled: Collection[str]) -> None:
        """Raise UsageError with every problem but those of fields that are `settled` in another way."""
        left = [text for name, text in self.noted if not any(f"{name}.".startswith(f"{one}.") for one in settled)]
        if left:
            raise UsageError(*dict.fromkeys(left))


@dataclass(frozen=True)
class Fields:
    """One JSON object of a file. `fill` says what an absent field means; a field that is null stays None."""

    data: Mapping[str, Any]
    where: str
    problems: Problems
    fill: Mapping[str, Any] = field(default_factory=dict)

    def get(self, *names: str) -> Any:
        """Return the value under any of its spellings, None where absent; note spellings that disagree."""
        given = {name: self.data[name] for name in names if name in self.data}
        values = [value for value in given.values() if value is not None]
        if any(value != values[0] for value in values):
            both = ", ".join(f"{name} is {value}" for name, value in given.items())
            self.problems.note("", f"{self.where}: {both}; they are spellings of one thing")
        if values:
            return values[0]
        return None if given else next((self.fill[name] for name in names if name in self.fill), None)

    def size(self, variant_field: str, *names: str, least: int = 1) -> int | None:
        """Return a whole number that has to be there; note where it is missing or none."""
        return self.number(variant_field, self.get(*names), names[0], least, self.missing(names))

    def number(self, variant_field: str, value: Any, name: str, least: int = 1, missing: str = "") -> int | None:
        """Return `value` if it is a whole number of at least `least`; None is noted only where `missing` is given."""
        message = missing
        if value is None and not missing:
            return None
        if isinstance(value, list):
            message = f"{name} is a list: layers differ in it, and a variant has one number for all of them"
        elif value is not None:
            if isinstance(value, int) and not isinstance(value, bool) and value >= least:
                return value
            message = f"{name} is {value!r}; it has to be a whole number of at least {least}"
        self.problems.note(variant_field, f"{self.where}: {message}")
        return None

    def names(self, variant_field: str, name: str) -> list[Any]:
        """Return a list, empty where it is absent; note where it is none."""
        value = self.get(name)
        if value is None or isinstance(value, list):
            return value or []
        self.problems.note(variant_field, f"{self.where}: {name} is {value!r}; it has to be a list")
        return []

    def missing(self, names: Iterable[str]) -> str:
        """The message for a field that is there under none of its spellings."""
        first, *others = names
        state = "null" if any(name in self.data for name in (first, *others)) else "missing"
        return f"{first} is {state}" + (f" (nor is there {' or '.join(others)})" if others else "")
