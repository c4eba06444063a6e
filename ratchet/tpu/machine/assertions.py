"""What the assertions mean that the compiler plants in a kernel, as far as is known."""

from __future__ import annotations

from ratchet.values.status import Status

_MEANINGS = {
    "bounds": (Status.OUT_OF_BOUNDS, "an index leads outside an array or a window"),
    "semaphore": (
        Status.MEMORY_HAZARD,
        "a copy was started and never awaited, or a semaphore signalled and never waited for",
    ),
}


def meaning(kind: str) -> tuple[Status, str]:
    """The status of a failed assertion, and what it says of the kernel, by its kind (:attr:`Notes.assertion`).

    One of unknown kind is SCHEDULE_UNKNOWN: the program would stop, and nobody here knows why.
    """
    unknown = Status.SCHEDULE_UNKNOWN, "an assertion that is not known here: see what of the kernel it speaks of"
    return _MEANINGS.get(kind, unknown)
