"""Of which unit a dump is, and after which pass: what its file's name says. Pure."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import NamedTuple

_DUMP = re.compile(r"(?P<unit>\d+-(?P<name>.+))-\d+-(?P<label>.+)\.txt", re.DOTALL)
_ANALYSIS = "-schedule-analysis_"
"""In the name of what the compiler says of a pass, beside what the pass made."""


class Dump(NamedTuple):
    """What a name says: ``17-TLP-03-post-ra.txt``."""

    unit: str
    """Number and name of the unit, by which its dumps belong together: ``17-TLP``."""
    name: str
    label: str
    """Of the pass."""


def named(dump: PurePath) -> Dump | None:
    """What the name of a file says; None where it is that of no dump of a pass."""
    match = _DUMP.fullmatch(dump.name)
    return Dump(**match.groupdict()) if match and _ANALYSIS not in dump.name else None
