"""The compiler's files as text: of limited size, and in the one encoding it writes."""

from __future__ import annotations

from pathlib import Path

from ratchet.values.status import Refusal, Status

MOST_BYTES = 1 << 30


def text_of(path: Path, status: Status = Status.SCHEDULE_UNKNOWN) -> str:
    """The text of a dump.

    Raises:
        Refusal: ``status`` for a file that is no UTF-8, or larger than any dump.
    """
    if path.stat().st_size > MOST_BYTES:
        raise Refusal(status, f"{path.name} is larger than {MOST_BYTES >> 20} MiB, wanted a dump of the compiler's")
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise Refusal(status, f"{path.name} is not UTF-8 at byte {error.start}: compile again") from None
