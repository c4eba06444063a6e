"""Series of seals: judges that were shown to give equal verdicts, so that their rows may be compared.

``series.json`` has one entry for each proof: ``python -m tools.series`` judged the same programs by two judges, and
every document was equal to the digit. A seal without an entry begins a series of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ratchet.process import paths

FILE = Path(__file__).with_name("series.json")


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Two judges that gave the same documents."""

    seal: str
    equals: str
    """The seal of the judge before."""
    programs: int
    """How many were judged by both."""
    documents: str
    """SHA-256 of the documents that both gave."""
    date: str


def proofs(file: Path = FILE) -> Mapping[str, Proof]:
    """The proofs by seal.

    Raises:
      ValueError: a chain of proofs has no beginning.
    """
    by_seal = {entry["seal"]: Proof(**entry) for entry in json.loads(paths.read(file))}
    for seal in by_seal:
        _first(seal, by_seal)
    return by_seal


def series_of(seal: str) -> str:
    """The first seal of the series that ``seal`` is in."""
    return _first(seal, PROOFS)


def _first(seal: str, by_seal: Mapping[str, Proof]) -> str:
    seen = {seal}
    while seal in by_seal:
        seal = by_seal[seal].equals
        if seal in seen:
            raise ValueError(f"{FILE.name}: seal {seal} is proved by itself")
        seen.add(seal)
    return seal


PROOFS = proofs()
