"""The largest sequence that one TPU v5e holds, forward and backward, at 16 heads x 128: ours beside plain XLA.

    python -m benchmarks.longest [--json FILE]

Causal, bfloat16; the program takes q, k, v and the output's cotangent and gives the output and three gradients. The
largest multiple of 1024 that the compiler accepts, by bisection, and what its memory report says of it. It is assumed
that what fits once fits below, too; beyond that, a length that no chunk divides is padded, which copies
operands.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from benchmarks.lib.attention.cases import attention_programs
from benchmarks.lib.cache import ProgramCache
from benchmarks.lib.command import command, say
from benchmarks.lib.table import show
from ratchet.tpu.chips import V5E

STEP = 1024
MOST = 1 << 20
_BLOCKS = {"block_q": 512, "block_kv": 512, "rows": 512, "strip": 512}
"""Small ones compile quickly, and HBM does not depend on them."""
CONFIGS: dict[str, dict[str, Any]] = {"ours": {"forward": {"block_q": 512}, "backward": _BLOCKS}, "xla": {}}


def figures_of(programs: ProgramCache, impl: str, seq: int) -> dict[str, Any]:
    """What the compiler says of one length."""
    shape = {"batch": 1, "heads": 16, "kv_heads": 16, "seq": seq, "dim": 128, "causal": True}
    recipe = {"impl": impl, "shape": shape, "grad": True, "config": CONFIGS[impl], "memory_only": True}
    return programs.made([recipe], lambda line: say(f"{seq}: {line}"))[0]


def longest(programs: ProgramCache, impl: str) -> int:
    """The largest multiple of STEP that compiles, below MOST."""

    def fails(length: int) -> bool:
        return "peak_bytes" not in figures_of(programs, impl, length)

    fits, high = 0, STEP
    while high <= MOST and not fails(high):
        fits, high = high, 2 * high
    return fits + STEP * bisect_left(range(fits + STEP, high, STEP), True, key=fails)


def main() -> None:
    options = command(__doc__).parse_args()
    programs, rows = attention_programs(), []
    for impl in CONFIGS:
        seq = longest(programs, impl)
        memory = figures_of(programs, impl, seq)
        over = figures_of(programs, impl, seq + STEP)["error"]
        rows.append(
            {
                "impl": impl,
                "longest": seq,
                "peak GiB": round(memory["peak_bytes"] / 2**30, 2),
                "of which temporary": round(memory["temp_bytes"] / 2**30, 2),
                "one step more": over.partition("Ran out of memory on ")[2] or over[:90],
            }
        )
    title = f"longest sequence forward and backward on {V5E.name}, 16 heads x 128, bfloat16, by the compiler's report"
    show(title, rows, json_file=options.json)


if __name__ == "__main__":
    main()
