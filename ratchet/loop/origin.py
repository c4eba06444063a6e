"""Which rows were made with this machine's key: of each row a MAC is kept in git, beside the row's line."""

from __future__ import annotations

from collections.abc import Mapping

from ratchet.process.key import Key
from ratchet.values.row import Origin

_PURPOSE = "row"


def sign(key: Key | None, line: str) -> str:
    """The MAC of a row's line, ``""`` where there is no key. The line holds the hash of the one before it."""
    return key.mac(_PURPOSE, line.encode()) if key else ""


def origin(key: Key, line: str, mac: str | None) -> Origin:
    """Where the row with this line comes from; ``mac`` is None where git has none for it."""
    if not mac:
        return Origin.UNSIGNED
    if key.made(mac, _PURPOSE, line.encode()):
        return Origin.HERE
    return Origin.FORGED if mac.startswith(key.name) else Origin.ELSEWHERE


def origins(key: Key, lines: Mapping[str, str], macs: Mapping[str, str]) -> dict[str, Origin]:
    """Origins by id, of rows whose lines and MACs are given by id."""
    return {name: origin(key, line, macs.get(name)) for name, line in lines.items()}
