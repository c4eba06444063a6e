"""What is around the kernels of a program, from a compile in which the kernels do nothing: see ``scheduled.py``.

The bundles of a unit follow from its instructions. So those of the other compile count where every unit around the
kernels has the same text after the last pass in both.
"""

from __future__ import annotations

from pathlib import Path

from ratchet.tpu.dump.names import named
from ratchet.tpu.dump.scheduled import LAST_PASS, LISTING_PASS, OUTLINE_PASS
from ratchet.tpu.dump.utilisation import SUFFIX

_LABELS = (LAST_PASS, LISTING_PASS, OUTLINE_PASS, SUFFIX)


def add_around(schedule: Path, hollow: Path) -> bool:
    """Move the dumps of what is around the kernels from ``hollow`` to ``schedule``; whether it is the same in both.

    ``schedule`` has the texts of the kernels, and those of the last pass for all else. Nothing is moved if they differ.
    """
    ours, theirs = _dumps(schedule), _dumps(hollow)
    around = {name for name, labels in ours.items() if LAST_PASS in labels}
    kernels = ours.keys() - around
    if theirs.keys() - kernels != around or not around:
        return False
    if any(LISTING_PASS not in ours[name] for name in kernels):
        return False
    for name in around:
        if not {LAST_PASS, LISTING_PASS, OUTLINE_PASS} <= theirs[name].keys():
            return False
        if theirs[name][LAST_PASS].read_bytes() != ours[name][LAST_PASS].read_bytes():
            return False
    for name in around:
        ours[name][LAST_PASS].unlink()
        for label, dump in theirs[name].items():
            if label != LAST_PASS:
                dump.rename(schedule / dump.name)
    return True


def _dumps(folder: Path) -> dict[str, dict[str, Path]]:
    """Dumps by the name of their unit, then by their pass."""
    found: dict[str, dict[str, Path]] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        dump = named(path)
        if dump and dump.label in _LABELS:
            found.setdefault(dump.name, {})[dump.label] = path
    return found
