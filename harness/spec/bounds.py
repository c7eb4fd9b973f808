"""How large a size may be, and the types of fields that hold one.

Nobody asks for the largest of these; a slip of the finger goes far beyond. Up to them every product that the harness
forms stays a finite float, every column of a record fits 64 bits, and nothing that runs over heads, layers or chunks
takes long. A number is written as a number: `'8'`, `8.0` and `true` are no sizes, so no two values mean the same case.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

#: Any size or count that has no limit of its own.
MAX_SIZE = 2**40
MAX_EXPONENT = 40

#: Heads, values of a head, experts and their copies.
MAX_HEADS = 2**16

#: Ways of splitting a model over GPUs.
MAX_WAYS = 4_096
MAX_LAYERS = 10_000

#: Chunks of one prefill; each has ops of its own in the journal.
MAX_CHUNKS = 1_024

#: Points of one axis.
MAX_POINTS = 100_000

MAX_NAME = 200

Size = Annotated[int, Field(strict=True, gt=0, le=MAX_SIZE)]
SizeOrZero = Annotated[int, Field(strict=True, ge=0, le=MAX_SIZE)]
Heads = Annotated[int, Field(strict=True, gt=0, le=MAX_HEADS)]
Ways = Annotated[int, Field(strict=True, gt=0, le=MAX_WAYS)]
Layers = Annotated[int, Field(strict=True, gt=0, le=MAX_LAYERS)]
Flag = Annotated[bool, Field(strict=True)]


def checked_name(text: str) -> str:
    """Return a name; raise ValueError where it would not stand on one line of a table, or not in a file's name."""
    if not text.strip():
        raise ValueError("a name has to be there; leave the field out or fill it")
    if len(text) > MAX_NAME:
        raise ValueError(f"{len(text)} characters are too many for a name; {MAX_NAME} are the limit")
    if not all(character.isprintable() for character in text):
        raise ValueError("a name has no line breaks and no control characters")
    return text


Name = Annotated[str, AfterValidator(checked_name)]
