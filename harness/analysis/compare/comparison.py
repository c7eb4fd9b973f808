"""What a comparison found, in the order in which people read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from harness.analysis.compare.naming import Names
from harness.analysis.compare.pairs import Pair, Unpaired
from harness.analysis.compare.policy import Policy
from harness.analysis.inputs import Results
from harness.errors import ExitCode, combine_exit_codes

#: Sections in order, with what each means.
SECTIONS: dict[str, str] = {
    "newly failing": "Had figures in base and has none in candidate. Counts as a problem.",
    "worse": "Latency rose or throughput fell by more than the policy allows. Counts as a problem.",
    "newly working": "Failed in base and has figures in candidate.",
    "better": "Latency fell or throughput rose by more than the policy asks.",
    "prediction changed": "A priced number, which has no noise, is another one: by the tables, the code or an option.",
    "failed in both": "Neither better nor worse.",
    "only in base": "Missing from candidate.",
    "only in candidate": "New in candidate.",
    "inconclusive": "Nobody can tell from these replicates.",
    "not computed": "One side has no figure to compare with.",
    "same": "No change that counts.",
}


@dataclass(frozen=True, slots=True)
class Section:
    """One section: figures, or workloads without."""

    name: str
    meaning: str
    pairs: tuple[Pair, ...] = ()
    unpaired: tuple[Unpaired, ...] = ()

    @property
    def workloads(self) -> int:
        return len({*(pair.workload for pair in self.pairs), *(one.workload for one in self.unpaired)})


@dataclass(frozen=True, slots=True)
class Count:
    """How large one side is."""

    rows: int
    workloads: int


@dataclass(frozen=True)
class Comparison:
    """Every figure and every workload of both sides, each in exactly one section."""

    base: Results
    candidate: Results
    policy: Policy
    pairs: tuple[Pair, ...]
    unpaired: tuple[Unpaired, ...]
    names: Names
    """How workloads are called."""
    counts: Mapping[str, Count]
    """`base` and `candidate`."""
    environment: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """What was found in place and differs; it is never used to pair."""
    notes: tuple[str, ...] = ()
    """What to know of the inputs, in words."""

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """Sections that are not empty, in the order of `SECTIONS`."""
        found = []
        for name, meaning in SECTIONS.items():
            pairs = tuple(pair for pair in self.pairs if pair.verdict == name)
            unpaired = tuple(one for one in self.unpaired if one.state == name)
            if pairs or unpaired:
                found.append(Section(name, meaning, pairs, unpaired))
        return tuple(found)

    def section(self, name: str) -> Section:
        """One section, empty where nothing is in it."""
        return next((one for one in self.sections if one.name == name), Section(name, SECTIONS[name]))

    @property
    def damage(self) -> tuple[str, ...]:
        """What of the inputs could not be read."""
        return tuple(dict.fromkeys((*self.base.damage, *self.candidate.damage)))

    @property
    def paired_workloads(self) -> int:
        """Workloads with a figure on both sides."""
        return len({pair.workload for pair in self.pairs if pair.base and pair.candidate})

    @property
    def computed(self) -> tuple[Pair, ...]:
        """Pairs of which a change could be computed."""
        return tuple(pair for pair in self.pairs if pair.verdict != "not computed")

    @property
    def is_empty(self) -> bool:
        """Whether nothing could be said: no figure compared, and no workload that began or ceased to work."""
        told = {"newly failing", "newly working"}
        return not self.computed and not any(one.state in told for one in self.unpaired)

    @property
    def exit_code(self) -> ExitCode:
        """1 for something worse or newly failing, 3 where nothing could be compared or an input was damaged."""
        codes = [ExitCode.OK]
        if self.section("worse").pairs or self.section("newly failing").unpaired:
            codes.append(ExitCode.WORSE)
        if self.is_empty or self.damage:
            codes.append(ExitCode.INCOMPLETE)
        return combine_exit_codes(codes)

    @property
    def policies(self) -> Sequence[str]:
        """Policies that pairs were judged by."""
        return tuple(dict.fromkeys(pair.policy for pair in self.computed))
