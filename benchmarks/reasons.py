"""What the time of kernels of different kinds goes to, and how much of it has no cause.

    python -m benchmarks.reasons [--kernel FILE]… [--json FILE]

Each is explained by the public command line. The shares are of the latency: bundles that issue, empty ones by what they
wait for, waits for DMAs (of them, for first blocks and last results), links, and what is beside the kernels. ``other``
are the empty bundles of which it is not known what they wait for.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from typing import Any

from benchmarks.lib.command import command, say
from benchmarks.lib.sources import ROOT
from benchmarks.lib.table import show
from ratchet.values.blame import OTHER
from ratchet.values.reason import Use

KERNELS = {
    "examples/adam.py": "in place",
    "examples/embedding.py": "gather",
    "decode_kernel.py": "decode, four chips",
    "examples/layernorm_backward.py": "backward",
    "examples/cumulative_sum.py": "scan",
    "examples/ring_attention.py": "eight chips",
    "examples/int8_matmul.py": "int8 products",
    "examples/softmax.py": "reductions",
    "examples/moe_swiglu.py": "experts",
    "examples/naive_attention.py": "attention",
    "examples/block_sparse_matmul.py": "sparse products",
    "examples/rope.py": "shuffles",
}
_CAUSES = 3


def row(kernel: str, kind: str) -> dict[str, Any]:
    """What the time of one kernel goes to."""
    done = subprocess.run(["./ratchet.sh", "explain", kernel, "--json"], cwd=ROOT, capture_output=True, check=False)
    (explained,) = json.loads(done.stdout)["explanations"]
    uses: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for one in explained["reasons"]:
        uses[one["use"]] += one["cycles"]
        if one["use"] == Use.EMPTY.value:
            causes[one["unit"]] += one["cycles"]
    cycles = explained["cycles"]
    assert uses.total() == cycles
    named = [f"{unit} {spent / cycles:.1%}" for unit, spent in causes.most_common(_CAUSES)]
    return {
        "kernel": kernel,
        "kind": kind,
        "ms": explained["latency_ms"],
        **{use.value: f"{uses[use.value] / cycles:.1%}" for use in Use},
        "most are empty for": ", ".join(named),
        "other": f"{causes[OTHER] / cycles:.2%}",
        "of the empty": f"{causes[OTHER] / max(1, uses[Use.EMPTY.value]):.1%}",
    }


def main() -> None:
    """Explain each kernel."""
    parser = command(__doc__)
    parser.add_argument("--kernel", dest="kernels", action="append", metavar="FILE", help="this one, not the twelve")
    options = parser.parse_args()
    rows = []
    for kernel in options.kernels or KERNELS:
        say(kernel)
        rows.append(row(kernel, KERNELS.get(kernel, "")))
    show("What the time goes to", rows, json_file=options.json)


if __name__ == "__main__":
    main()
