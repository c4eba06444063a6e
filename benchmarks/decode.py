"""Decoding, modelled: one chip and four, ours and others' kernels, at the same shapes.

    python -m benchmarks.decode [--quick] [--json FILE]

Columns: see ``benchmarks/lib/decoding.py``.
"""

from __future__ import annotations

from benchmarks.lib.command import command
from benchmarks.lib.decoding import SHAPES, rows_of
from benchmarks.lib.paged_peers import peers_of
from benchmarks.lib.table import show
from ratchet.exam.judge.workers import Workers
from ratchet.tpu.chips import V5E

OURS = ("decode_kernel.py", "paged_decode")


def main() -> None:
    options = command(__doc__, quick="two shapes only").parse_args()
    shapes = [shape for shape in SHAPES if shape.quick or not options.quick]
    with Workers(V5E, keep=False) as workers:
        rows = [one for shape in shapes for one in (*rows_of(shape, workers), *peers_of(shape, workers))]
    show("decoding, modelled", rows, json_file=options.json)
    for shape in shapes:
        times = {(r["program"], r["chips"]): r["us"] for r in rows if r["shape"] == shape.name}
        four = min(us for (_, chips), us in times.items() if chips == 4)
        one = times["paged_decode", 1]
        peers = [us for (program, _), us in times.items() if program not in OURS]
        print(
            f"{shape.name}: four chips are {one / four:.2f} times as fast as one"
            + (f"; one chip is {min(peers) / one:.2f} times as fast as the best peer" if peers else "")
        )


if __name__ == "__main__":
    main()
