"""What can be executed, compared with the dialects themselves: ``python -m tools.operations``.

An operation is known if it has a rule, belongs to one that has, or is refused by name with a reason and a way out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from benchmarks.lib import dialects
from benchmarks.lib.dialects import CHIPS
from ratchet.tpu.mosaic.arrays import ELEMENT_TYPES
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.ops import RULE_MODULES
from ratchet.tpu.mosaic.rules import RULES, TERMINATORS, WAYS_OUT

_REFUSED = ("Slices of dynamic size but in a DMA, and remote transfers in a loop inside a conditional.",)
_PARTS = TERMINATORS | {"func.func"}
"""Executed with the operation that they are a part of."""


def executed(name: str) -> bool:
    """Whether an operation is executed, alone or as a part of another."""
    return name in RULES or name in _PARTS


def counts(lowers: Mapping[str, Sequence[str]], chips: Collection[str] = CHIPS) -> tuple[int, int, int]:
    """Of the operations that the compiler takes for some of the chips: all, executed, and refused with a way out."""
    there = [name for name, places in lowers.items() if any(place.partition(".")[0] in chips for place in places)]
    refused = [name for name in there if name in WAYS_OUT and not executed(name)]
    return len(there), sum(map(executed, there)), len(refused)


def asked(lowers: Mapping[str, Sequence[str]]) -> list[str]:
    """The chips of which a version's compiler was asked."""
    return [chip for chip in CHIPS if counts(lowers, (chip,))[0]]


def unknown(lowers: Mapping[str, Sequence[str]]) -> list[str]:
    """The operations that the compiler takes for some chip and that nobody here knows."""
    return sorted(name for name, places in lowers.items() if places and not executed(name) and name not in WAYS_OUT)


def _summary() -> Iterable[str]:
    """How much is known, by version of JAX and chip."""
    yield "| JAX | compiled for | operations | executed | refused with a way out | known |"
    yield "|---|---|---|---|---|---|"
    for version in dialects.versions():
        lowers = dialects.lowers(version)
        each = [[chip] for chip in asked(lowers)]
        for chips in each if len(each) == 1 else [*each, asked(lowers)]:
            there, done, refused = counts(lowers, chips)
            named = ", ".join(chips)
            yield f"| {version} | {named} | {there} | {done} | {refused} | {(done + refused) / there:.1%} |"
    for version in dialects.versions():
        lowers = dialects.lowers(version)
        yield ""
        missing = ", ".join(chip for chip in CHIPS if chip not in asked(lowers))
        yield f"JAX {version} has {len(lowers)} operations in these dialects. Not asked: {missing or 'nothing'}."
        yield f"Compiled and unknown: {_listed(unknown(lowers))}"


def _listed(names: Iterable[str]) -> str:
    return (", ".join(f"`{name}`" for name in names) or "none") + "."


def _places(name: str) -> str:
    """Where the newest version compiles an operation; ``.sc`` is a SparseCore."""
    found = [dialects.lowers(version).get(name, ()) for version in reversed(dialects.versions())]
    return ", ".join(next((places for places in found if places), ()))


def markdown() -> str:
    """Tables of operations and findings."""
    asked = {name for version in dialects.versions() for name in dialects.lowers(version)}
    written = dialects.written()
    lines = [*_summary(), "", "| operation | compiled for | Pallas writes it | attributes understood | executed by |"]
    lines.append("|---|---|---|---|---|")
    for name in sorted(set(RULES) | _PARTS):
        rule = RULES.get(name)
        attributes = ", ".join(f"`{a}`" for a in sorted(rule.attributes)) if rule else ""
        module = f"`{rule.run.__module__.rsplit('.', 1)[-1]}`" if rule else "what it is a part of"
        lines.append(f"| `{name}` | {_places(name)} | {'yes' if name in written else ''} | {attributes} | {module} |")
    lines += ["", "| refused | compiled for | why, and what to do |", "|---|---|---|"]
    lines += [f"| `{name}` | {_places(name)} | {why} |" for name, why in sorted(WAYS_OUT.items())]
    nowhere = sorted(name for name in asked - set(RULES) - _PARTS - set(WAYS_OUT) if not _places(name))
    lines += ["", "The compiler takes these for no chip, as far as was tried: " + _listed(nowhere), ""]
    lines += ["Element types: " + ", ".join(f"`{name}`" for name in ELEMENT_TYPES) + ".", ""]
    lines += ["Known and refused:", *_REFUSED, "", "| finding | status | meaning |", "|---|---|---|"]
    lines += [f"| `{kind.label}` | `{kind.status.name}` | {kind.meaning} |" for kind in Kind]
    lines += ["", f"{len(RULES)} operations in {len(RULE_MODULES)} modules.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(), end="")
