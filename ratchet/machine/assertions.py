"""What the assertions mean that the compiler plants in a kernel (``shalt.err`` with a text), as far as met."""

from __future__ import annotations

from ratchet.values.status import Status

_MEANINGS = (
    ("BoundsCheck", Status.OUT_OF_BOUNDS, "an index leads outside an array or a window"),
    (
        "has a nonzero value upon exit",
        Status.MEMORY_HAZARD,
        "a copy was started and never awaited, or a semaphore signalled and never waited for",
    ),
)


def meaning(text: str) -> tuple[Status, str]:
    """The status of a failed assertion, and what it says of the kernel, by the compiler's text.

    A text that was never met is SCHEDULE_UNKNOWN: the program would stop, and nobody here knows why.
    """
    for part, status, words in _MEANINGS:
        if part in text:
            return status, words
    return Status.SCHEDULE_UNKNOWN, "an assertion that was never met here: see what of the kernel it speaks of"
