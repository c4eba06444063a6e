"""What can be executed, written from the table of operations itself: ``python -m ratchet.tpu.mosaic.coverage``."""

from __future__ import annotations

from ratchet.tpu.mosaic.arrays import ELEMENT_TYPES
from ratchet.tpu.mosaic.findings import Kind
from ratchet.tpu.mosaic.ops import RULE_MODULES
from ratchet.tpu.mosaic.rules import RULES

_REFUSED = (
    "Rounding by drawn bits (`tpu.stochastic_convert`), SparseCore kernels, slices of dynamic size but in a DMA,",
    "transfers to another core of the same chip, sorting and scans, assertions, and remote transfers in a loop",
    "inside a conditional. The count of a semaphore (`tpu.sem_read`): it depends on when copies and signals arrive,",
    "and here they arrive at once.",
)


def markdown() -> str:
    """Tables of operations and findings."""
    lines = [
        "| operation | attributes understood | executed by |",
        "|---|---|---|",
    ]
    for name in sorted(RULES):
        rule = RULES[name]
        attributes = ", ".join(f"`{a}`" for a in sorted(rule.attributes))
        lines.append(f"| `{name}` | {attributes} | `{rule.run.__module__.rsplit('.', 1)[-1]}` |")
    lines += ["", "Element types: " + ", ".join(f"`{name}`" for name in ELEMENT_TYPES) + ".", ""]
    lines += ["Known and refused:", *_REFUSED, "", "| finding | status | meaning |", "|---|---|---|"]
    lines += [f"| `{kind.label}` | `{kind.status.name}` | {kind.meaning} |" for kind in Kind]
    lines += ["", f"{len(RULES)} operations in {len(RULE_MODULES)} modules.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(), end="")
