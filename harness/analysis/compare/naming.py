"""How workloads are called: by what tells them apart; what all have in common is said once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.analysis.inputs import Workload


@dataclass(frozen=True)
class Names:
    """Names of workloads."""

    common: tuple[tuple[str, str], ...]
    """What all have in common."""
    columns: tuple[str, ...]
    """What tells them apart, in order."""
    _of: Mapping[Workload, str]

    def of(self, workload: Workload) -> str:
        """`decode, group_size 4, weight_dtype nvfp4`."""
        return self._of[workload]

    def order(self, workload: Workload) -> tuple[tuple[bool, float, str], ...]:
        """Where it stands among others: by its columns, numbers by size. Rows in another order change nothing."""
        values = {**dict(workload.shown), **dict(workload.key)}
        return tuple(_rank(values.get(name, "")) for name in (*self.columns, *sorted(values)))

    @property
    def common_text(self) -> str:
        """What all have in common, in words."""
        return ", ".join(f"{name} {value}" for name, value in self.common)


#: Values that need no name before them.
_BARE = frozenset({"phase", "study", "series", "variant", "system", "answered_by", "provenance", "device"})


def names_of(workloads: Iterable[Workload]) -> Names:
    """Names of workloads; where two would be called alike, what they were paired by is added."""
    kept = list(dict.fromkeys(workloads))
    shown = [dict(workload.shown) for workload in kept]
    names = list(dict.fromkeys(name for one in shown for name in one))
    varying = [name for name in names if len({one.get(name, "") for one in shown}) > 1] or names[:1]
    common = tuple((name, shown[0][name]) for name in names if name not in varying and name in shown[0])
    called = {workload: _text(one, varying) for workload, one in zip(kept, shown, strict=True)}
    seen: dict[str, int] = {}
    for text in called.values():
        seen[text] = seen.get(text, 0) + 1
    keys = _telling_keys(kept)
    called = {
        workload: text if seen[text] == 1 else _text({**dict(workload.shown), **dict(workload.key)}, [*varying, *keys])
        for workload, text in called.items()
    }
    return Names(common, tuple(varying), called)


def _rank(text: str) -> tuple[bool, float, str]:
    try:
        return False, float(text), ""
    except ValueError:
        return True, 0.0, text


def _telling_keys(workloads: Sequence[Workload]) -> list[str]:
    keys = [dict(workload.key) for workload in workloads]
    names = list(dict.fromkeys(name for one in keys for name in one))
    return [name for name in names if len({one.get(name, "") for one in keys}) > 1]


def _text(values: Mapping[str, str], names: Sequence[str]) -> str:
    told = [
        values[name] if name in _BARE else f"{name} {values[name]}" for name in dict.fromkeys(names) if name in values
    ]
    return ", ".join(told) or "the whole"


def difference(one: Workload, other: Workload) -> list[str]:
    """Names in which two workloads differ."""
    before, after = dict(one.key), dict(other.key)
    return [name for name in dict.fromkeys((*before, *after)) if before.get(name) != after.get(name)]


def difference_text(one: Workload, other: Workload, names: Sequence[str]) -> str:
    """`tp 4 → 8, kvp 2 → 1`."""
    before, after = dict(one.key), dict(other.key)
    return ", ".join(f"{name} {before.get(name, 'not said')} → {after.get(name, 'not said')}" for name in names)
