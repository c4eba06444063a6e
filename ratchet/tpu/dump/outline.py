"""The outline of a compiled program: where its allocations are and how many bundles its listing has. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ratchet.values.place import Window
from ratchet.values.status import Refusal, Status

PARAMETERS = "param 0 ptr location"
"""The role of the word that points to the first parameter; those of the others are below it."""
ROLES = (
    "rng seed",
    "chip ID",
    "core index",
    "partition id location",
    "replica id location",
    "launch barrier id",
    "program id location",
    "run id low location",
    "run id highl location",
    "cached producer",
    "iova base",
    "producer host sync flag number",
    "program descriptor state",
    "spec success addr",
    "reloc base",
    "output ptr",
    "device assignment ptr",
    PARAMETERS,
)
"""What the runtime keeps at fixed addresses, by the end of an allocation's tag."""

PASSED_ON = "passed on"
"""The role of words that a program only copies into the descriptors of its SparseCores."""
_BLOCK_TAGS = ("tc reservation", "tc block word", "tc stack size ptr", "tc reserved smem")
"""Ends of tags of words of the runtime that a program with SparseCores copies, whatever else they are."""
_IN_BLOCK = {0xFFF80: "rng seed", 0xFFF90: "output ptr", 0xFFFE8: "run id low location"}
"""Roles of those that the program uses itself, by address: where v6e has them under their own tags."""

NULL = "null"
"""The role of the null pointer, which shares its address with another role."""
SPARSE_CORE_DONE = "SparseCore done"
"""Begin of the role of a sync flag that says that a SparseCore's program is over; its number follows."""
CONSTANT = "constant"
"""The role of a piece of HBM that holds a constant which the compiler made."""

CONSTANT_TAGS = ("deduplicated constant", "constant literal")
MOST_BYTES = 1 << 45
"""No memory of a TPU is larger: an allocation that says so was misread."""

_ALLOCATION = re.compile(
    r"(?m)^ *(#allocation\w+) \[shape = '[^']*', space=(\w+), size = (0x[0-9a-f]{1,16}|\d{1,18})"
    r"(?:, offset = (0x[0-9a-f]{1,16}|\d{1,18}))?((?:, \w+(?: = \w+)?)*)(?:, tag = '(.*)')?\]$"
)
_ANY_ALLOCATION = re.compile(r"\n *#allocation\w+ \[")
"""Begins with a character, which is sought ten times as fast as the begin of a line: an outline has tens of megabytes,
and some allocations near its begin."""
_RANGE = re.compile(r"(?m)^ *\$region0:[^$]*?// region range: \[0, (\d{1,18})\)")
_WINDOW = re.compile(r"(input|output) window allocation for operator (?:input|output) (\d{1,18})\b")
_SPARSE_CORE = re.compile(r"- SC (\d+) program completion sync flag")
_PREPARED = re.compile(r"^output of prepare_start_([^@]*)@")
_STARTED = re.compile(r"^output of ([^@]*?)-start([^@]*)(?:@|$)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Allocation:
    """A ``#allocation`` of the outline."""

    name: str
    space: str
    """``smem``, ``vmem``, ``hbm``, ``sflag`` or ``cmem``."""
    size_bytes: int
    offset_bytes: int | None
    fixed: bool
    """True if ``offset_bytes`` is an absolute address, shared with other programs."""
    tag: str
    """What the compiler made it for; for messages only."""
    role: str = ""
    """One of :data:`ROLES`, or one of the constants beside them (a number behind the last); ``""`` for none."""
    window: Window | None = None
    """Which window of a kernel it holds, if any."""
    awaited_op: str = ""
    """Of a sync flag: the HLO instruction (``copy-done.3``) that waits for it at the top level."""
    prepared_op: str = ""
    """Of a sync flag: the HLO instruction whose descriptors for the SparseCores it counts. Several may share one."""


def parse_outline(outline: str, *, file: str, compiler: str) -> tuple[dict[str, Allocation], int]:
    """Allocations by name, and the number of bundles of the listing.

    Args:
        outline: text of ``*-post-bundle-packing-post-ra.txt``.
        file: name of the listing, for messages.
        compiler: version of the compiler that wrote it, for messages.

    Raises:
        Refusal: SCHEDULE_UNKNOWN if the text is cut off or has an allocation that cannot be.
    """

    def refuse(what: str) -> Refusal:
        return Refusal(Status.SCHEDULE_UNKNOWN, f"{file} ({compiler}): {what}")

    allocations = {}
    text = f"\n{outline}"
    declared = [match.start() + 1 for match in _ANY_ALLOCATION.finditer(text)]
    read_to = 0  # a shape may hold line breaks, and what looks like another allocation
    for start in declared:
        match = _ALLOCATION.match(text, start) if start >= read_to else None
        if match is None:
            continue
        read_to = match.end()
        name, space, size, offset, flags, tag = match.groups("")
        allocation = _read(name, space, int(size, 0), int(offset, 0) if offset else None, flags, tag)
        if max(allocation.size_bytes, allocation.offset_bytes or 0) > MOST_BYTES:
            raise refuse(f"{name} is said to have {size} bytes at offset {offset or 0}, more than any memory holds.")
        allocations[name] = allocation
    if len(allocations) != len(declared):
        raise refuse(
            f"{len(declared)} allocations are declared but {len(allocations)} could be read. "
            "The outline is cut off: compile again. If it stays, the dump format changed."
        )
    match = _RANGE.search(outline)
    if match is None:
        raise refuse("the outline beside it has no range for region 0: it is cut off. Compile again.")
    return allocations, int(match.group(1))


def _read(name: str, space: str, size: int, offset: int | None, flags: str, tag: str) -> Allocation:
    window, started, prepared = _WINDOW.search(tag), _STARTED.search(tag), _PREPARED.search(tag)
    fixed, role = "fixed_abs" in flags, ""
    if space == "smem" and fixed:
        role = NULL if " null" in tag else next((role for role in ROLES if tag.endswith(role)), "")
        if tag.endswith(_BLOCK_TAGS):
            role = _IN_BLOCK.get(offset or 0, PASSED_ON)
    elif space == "sflag" and fixed and (over := _SPARSE_CORE.search(tag)):
        role = f"{SPARSE_CORE_DONE} {over[1]}"
    elif space == "hbm" and tag in CONSTANT_TAGS:
        role = CONSTANT
    return Allocation(
        name=name,
        space=space,
        size_bytes=size,
        offset_bytes=offset,
        fixed=fixed,
        tag=tag,
        role=role,
        window=Window(kind=window[1], number=int(window[2])) if window else None,
        awaited_op=f"{started[1]}-done{started[2]}" if started and not prepared else "",
        prepared_op=prepared[1] if prepared else "",
    )
