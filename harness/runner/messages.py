"""What a worker is given, and what it says: a job file, and JSON Lines on a pipe of its own.

Half a line, as a killed worker leaves it, and lines that are none of these messages cost themselves and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from harness.backends.base import BackendFacts, Setting
from harness.backends.measurement import Measurement
from harness.backends.signature import Failure
from harness.runner.policy import SamplingPolicy
from harness.spec.case import Case
from harness.spec.study import Level

#: Longest line that is kept in memory while its end has not come.
LINE_BYTES = 64 << 20
#: Characters of a line that was not understood that are kept to be shown.
_SHOWN = 200

Unanswerable = Literal["unsupported", "oom", "invalid"]


@dataclass(frozen=True, slots=True)
class JobArm:
    """One arm of a job; `number` is that of the step in the plan."""

    number: int
    case: Case
    level: Level


@dataclass(frozen=True, slots=True)
class Job:
    """What one worker process does: one replicate of one group of arms."""

    backend: str
    """Name of a backend, or `package.module:Class`."""
    setting: Setting
    replicate: int
    policy: SamplingPolicy
    arms: tuple[JobArm, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the worker, added to those of this process."""
    mpi_ranks: int = 1
    """Above 1 mpirun starts as many processes, of which the first does the job."""

    def to_json(self) -> str:
        """The job file."""
        arms = [
            {"number": arm.number, "case": arm.case.model_dump(mode="json"), "level": arm.level} for arm in self.arms
        ]
        setting, policy = asdict(self.setting), asdict(self.policy)
        facts = {
            "backend": self.backend,
            "replicate": self.replicate,
            "environment": dict(self.environment),
            "mpi_ranks": self.mpi_ranks,
        }
        data = {**facts, "setting": setting, "policy": policy, "arms": arms}
        return json.dumps(data, indent=1, default=str)

    @classmethod
    def from_json(cls, text: str) -> Job:
        """What `to_json` made; raises ValueError, TypeError or KeyError for anything else."""
        data = json.loads(text)
        setting = data["setting"]
        for name in ("engine", "scratch"):
            setting[name] = Path(setting[name]) if setting[name] is not None else None
        arms = tuple(JobArm(one["number"], Case.model_validate(one["case"]), one["level"]) for one in data["arms"])
        parts = {"setting": Setting(**setting), "policy": SamplingPolicy(**data["policy"]), "arms": arms}
        return cls(**{**data, **parts})


@dataclass(frozen=True, slots=True)
class Opened:
    """The backend is open."""

    kind: ClassVar[str] = "opened"
    facts: BackendFacts


@dataclass(frozen=True, slots=True)
class Preparing:
    """An arm is being made ready."""

    kind: ClassVar[str] = "preparing"
    number: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """An arm is ready to be timed."""

    kind: ClassVar[str] = "prepared"
    number: int


@dataclass(frozen=True, slots=True)
class Progress:
    """A sign of life while sampling."""

    kind: ClassVar[str] = "progress"
    number: int
    samples: int
    round: int


@dataclass(frozen=True, slots=True)
class Unanswered:
    """An arm that cannot be answered; the others go on."""

    kind: ClassVar[str] = "unanswered"
    number: int
    status: Unanswerable
    reason: str


@dataclass(frozen=True, slots=True)
class Measured:
    """An arm that was timed."""

    kind: ClassVar[str] = "measured"
    number: int
    measurement: Measurement


@dataclass(frozen=True, slots=True)
class Failed:
    """An exception ends the worker; its traceback is in the log."""

    kind: ClassVar[str] = "failed"
    status: Failure
    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """Every arm of the job has its answer."""

    kind: ClassVar[str] = "done"


Message = Opened | Preparing | Prepared | Progress | Unanswered | Measured | Failed | Done

_MESSAGES: dict[str, type[Message]] = {message.kind: message for message in get_args(Message)}


def encode(message: Message) -> bytes:
    """Return a message as one line."""
    data = asdict(message)
    return json.dumps({"kind": message.kind, **data}, allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Return the message of one line; raises ValueError where it is none."""
    try:
        data = json.loads(line)
        made = _MESSAGES[data.pop("kind")]
        known = {one.name: _READ[one.name](data[one.name]) for one in fields(made)}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a message: {error!r}") from error
    return made(**known)


def _facts(data: dict[str, Any]) -> BackendFacts:
    return BackendFacts(**{**data, "gpu_uuids": tuple(data["gpu_uuids"])})


def _word(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no text")
    return text


#: Field → how its value is read.
_READ: dict[str, Callable[[Any], Any]] = {
    "facts": _facts,
    "measurement": Measurement.from_data,
    "number": int,
    "reason": _word,
    "round": int,
    "samples": int,
    "status": _word,
}


class MessageReader:
    """Turns the bytes of the pipe, cut anywhere, into messages."""

    def __init__(self) -> None:
        self.not_understood = 0
        """Lines that were no message."""
        self.example = ""
        """The beginning of the first of them."""
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> list[Message]:
        """Take the next bytes and return the messages that they complete."""
        *ends, rest = data.split(b"\n")
        found = []
        for end in ends:
            line = b"".join([*self._parts, end])
            self._parts, self._held = [], 0
            message = self._decode(line)
            if message is not None:
                found.append(message)
        self._held += len(rest)
        if rest and self._held <= LINE_BYTES:
            self._parts.append(rest)
        return found

    def end(self) -> None:
        """There is no more; what is left is half a line."""
        if self._held:
            self._note(b"".join(self._parts))
            self._parts, self._held = [], 0

    def _decode(self, line: bytes) -> Message | None:
        try:
            return decode(line)
        except ValueError:
            self._note(line)
            return None

    def _note(self, line: bytes) -> None:
        self.not_understood += 1
        self.example = self.example or line[:_SHOWN].decode(errors="replace")
