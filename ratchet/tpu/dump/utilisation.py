"""The compiler's own count of busy units and spills per bundle, from a dump of the pass :data:`SUFFIX`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from ratchet.values.status import Refusal, Status

_COUNT = re.compile(r"[0-9]{1,18}")
_COUNTS = re.compile(r"[0-9 \t\n]*")
_TOO_LONG = re.compile(r"[0-9]{19}")
SUFFIX = "final_hlo-static-per-bundle-utilization"
"""Name of the pass, and end of the file's name."""


def parse_utilisation(text: str, *, file: str) -> Mapping[str, np.ndarray]:
    """Counts per bundle (empty ones left out) by column: ``MXU``, ``VALU``, ``FILL``, ``SPILL``…; int64.

    Raises:
        Refusal: INFRASTRUCTURE for a text of another form.
    """
    head, marker, body = text.partition("== UTILIZATION:")
    header = next((line for line in head.splitlines() if "VLOAD:FILL" in line), None)
    if header is None or not marker:
        raise Refusal(Status.INFRASTRUCTURE, f"{file} has no VLOAD:FILL column; is this an unknown compiler?")
    columns = [column.strip().rpartition(":")[2] for column in header.split(",")]
    rows = sum(not line.isspace() for line in body.splitlines() if line)
    is_counts = _COUNTS.fullmatch(body) and not _TOO_LONG.search(body)
    flat = np.fromstring(body, np.int64, sep=" ") if is_counts and rows else np.zeros(0, np.int64)
    if not is_counts or flat.size != rows * len(columns):
        raise Refusal(Status.INFRASTRUCTURE, f"{file} has rows that do not fit its VLOAD:FILL header; is it cut off?")
    counts = flat.reshape(-1, len(columns))
    return {column: counts[:, number] for number, column in enumerate(columns)}


def capacities(text: str, *, file: str) -> Mapping[str, int]:
    """Slots per bundle of the chip by column, as the compiler heads the dump: ``VSTORE`` is 1 on v5e and 2 on v6e.

    Raises:
        Refusal: INFRASTRUCTURE for a text of another form.
    """
    lines = text.partition("== UTILIZATION:")[0].splitlines()
    at = next((number for number, line in enumerate(lines) if "VLOAD:FILL" in line), len(lines))
    columns = [column.strip().rpartition(":")[2] for column in lines[at].split(",")] if at < len(lines) else []
    counts = lines[at + 1].split() if at + 1 < len(lines) else []
    if not columns or len(counts) != len(columns) or not all(map(_COUNT.fullmatch, counts)):
        raise Refusal(Status.INFRASTRUCTURE, f"{file} has no line of capacities; is this an unknown compiler?")
    return {column: max(1, int(count)) for column, count in zip(columns, counts, strict=True)}


def spills(text: str, *, file: str) -> tuple[int, int]:
    """Static counts of spill stores and loads. Raises like :func:`parse_utilisation`."""
    counts = parse_utilisation(text, file=file)
    if "SPILL" not in counts or "FILL" not in counts:
        raise Refusal(Status.INFRASTRUCTURE, f"{file} does not count spills; is this an unknown compiler?")
    return int(counts["SPILL"].sum()), int(counts["FILL"].sum())
