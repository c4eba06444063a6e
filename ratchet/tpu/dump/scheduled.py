"""A unit's instructions in order, and in which bundle each is -> the texts that are read of a unit. Pure.

To dump bundles libtpu packs a unit twice more, for texts that nobody here asks for: of a large kernel ten seconds. Its
text after the last pass costs next to nothing and has all but the bundles, which a profile has (``llo.py``). What comes
of the two says the same as the dumps: instruction by instruction, in the same bundles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ratchet.tpu.dump.llo import Schedule
from ratchet.tpu.dump.utilisation import SUFFIX

LAST_PASS = "post-delay-converter"
LISTING_PASS, OUTLINE_PASS = "packed-bundles-post-ra", "post-bundle-packing-post-ra"

_INSTRUCTION = re.compile(r" *(%[a-z]*(\d{1,18})(?:_[a-z]+\d{1,18})? = ([a-z_]*))")
_SLOTLESS = ("phi", "inlined_call_operand")
"""How the opcodes end that are none of the chip's: a listing has them behind the others of a bundle."""
_CAST = re.compile(r"%s\d{1,18}_(s\d{1,18}) = int_to_ptr\.\w+ [^%]*%s\d{1,18}_(s\d{1,18})\b")
"""Another type of the same number, which is an instruction of the chip's where it changes the register."""
_TARGET = re.compile(r" target = \$region(\d{1,18})$")
_ALLOCATION, _REGION = "#allocation", "$region"
_OTHERS = (_REGION, "loop:", "//", "_")
"""How lines begin that are neither an instruction nor an allocation."""


class NotScheduled(ValueError):
    """The text and the schedule are not of the same unit, or the text has a form that is not known."""


@dataclass(frozen=True, kw_only=True)
class Scheduled:
    """The three texts, as the compiler's own dumps say them; a utilisation dump of fewer columns."""

    listing: str
    outline: str
    utilisation: str

    @property
    def by_pass(self) -> dict[str, str]:
        """Texts by the pass that their file is named after."""
        return {LISTING_PASS: self.listing, OUTLINE_PASS: self.outline, SUFFIX: self.utilisation}


def scheduled(text: str, schedule: Schedule) -> Scheduled:
    """Puts the instructions of ``text``, a dump of :data:`LAST_PASS`, into their bundles.

    Raises:
        NotScheduled: unless the schedule has a bundle for each of them and no other.
    """
    bundles: list[list[str]] = [[] for _ in range(schedule.bundles)]
    behind: dict[int, list[str]] = {}
    outline, places = list[str](), dict(schedule.bundle)
    for number, opcode, statement in statements(text):
        if number is None:
            outline.append(statement)
            continue
        bundle = places.pop(number, None)
        if bundle is None:
            raise NotScheduled(f"instruction {number} is in no bundle, or there twice")
        if not opcode.startswith("v") or opcode.endswith(_SLOTLESS):  # vector code is neither a branch nor a cast
            to = behind.setdefault(bundle, []) if _is_slotless(opcode, statement) else bundles[bundle]
            to.append(_with_bundle(statement, schedule))
        else:
            bundles[bundle].append(statement)
    if places:
        raise NotScheduled(f"{len(schedule.bundle)} instructions are scheduled, {len(places)} of them not in the text")
    for bundle, last in behind.items():
        bundles[bundle] += last
    rows = [
        f"{n:#6x} : {{ {'  ;;  '.join(bundle)} }}" if bundle else f"{n:#6x} : {{}}" for n, bundle in enumerate(bundles)
    ]
    return Scheduled(
        listing="\n".join(["= control target key end", *rows, ""]),
        outline="\n".join([f"$region0: // region range: [0, {schedule.limit})", *outline, ""]),
        utilisation=_utilisation(schedule),
    )


def statements(text: str) -> Iterator[tuple[int | None, str, str]]:
    """Instructions with their numbers and opcodes, and allocations with None."""
    lines = iter(text.split("\n"))
    for line in lines:
        match = _INSTRUCTION.match(line)
        if match is None:
            plain = line.lstrip()
            if plain.startswith(_ALLOCATION):
                yield None, "", plain
            elif plain and not plain.startswith(_OTHERS):
                raise NotScheduled(f"a line of unknown form: {plain:.80}")
            continue
        whole = line[match.start(1) :]
        if "/*" in whole and whole.count("/*") != whole.count("*/"):
            pieces = [whole]
            while whole.count("/*") != whole.count("*/"):  # a comment holds line breaks
                try:
                    pieces.append(next(lines))
                except StopIteration:
                    raise NotScheduled("a comment never ends") from None
                whole = "\n".join(pieces)
        yield int(match[2]), match[3], whole


def _is_slotless(opcode: str, statement: str) -> bool:
    cast = _CAST.match(statement) if opcode == "int_to_ptr" else None
    return opcode.endswith(_SLOTLESS) or (cast is not None and cast[1] == cast[2])


def _with_bundle(statement: str, schedule: Schedule) -> str:
    """A branch names the region that it goes to: as a listing says it, with the region's first bundle."""
    if _REGION not in statement:
        return statement
    target = _TARGET.search(statement)
    if target is None:
        raise NotScheduled(f"a branch of unknown form: {statement:.80}")
    start = schedule.start.get(region := int(target[1]))
    if start is None:
        raise NotScheduled(f"a branch to region {region}, which is not there")
    return f"{statement[: target.start()]} target bundleno = {start} ({start:#x}), region = {region}"


def _utilisation(schedule: Schedule) -> str:
    columns = schedule.busy
    rows = zip(*(used for _, used in columns.values()), strict=True)
    head = [
        "== CAPACITY:",
        ", ".join(columns),
        " ".join(str(slots) for slots, _ in columns.values()),
        "== UTILIZATION:",
    ]
    return "\n".join([*head, *(" ".join(map(str, row)) for row in rows if any(row)), ""])
