"""Decoding and chunked prefill of ``pallas_flash`` beside the kernels of others, modelled on one chip.

    python -m benchmarks.serving [--only SHAPE ...] [--sources DIR] [--json FILE]

Columns: see ``benchmarks/lib/decoding.py``; the others, and the clones of them: see ``benchmarks/lib/paged_peers.py``.
"""

from __future__ import annotations

import math
from pathlib import Path

from benchmarks.lib.command import command, say
from benchmarks.lib.decoding import SERVING, flash, row
from benchmarks.lib.paged_peers import SOURCES, peers_of
from benchmarks.lib.table import show
from ratchet.exam.judge.workers import Workers
from ratchet.tpu.chips import V5E


def main() -> None:
    parser = command(__doc__)
    names = [shape.name for shape in SERVING]
    parser.add_argument("--only", nargs="*", choices=names, default=names, metavar="SHAPE")
    parser.add_argument("--sources", type=Path, metavar="DIR", default=SOURCES, help="the clones")
    options = parser.parse_args()
    rows, ratios = [], []
    with Workers(V5E, keep=False) as workers:
        for shape in (one for one in SERVING if one.name in options.only):
            own = row(shape, "pallas_flash", flash(shape, workers))
            peers = list(peers_of(shape, workers, sources=options.sources))
            rows += [own, *peers]
            if peers:
                first = min(peers, key=lambda peer: peer["us"])
                ratios.append(first["us"] / own["us"])
                say(f"{shape.name}: {own['us']:.1f} us, {ratios[-1]:.3f} times as fast as {first['program']}")
    show("serving from pages, modelled", rows, json_file=options.json)
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{len(ratios)} shapes: {min(ratios):.3f} to {max(ratios):.3f}, geometric mean {mean:.3f}")


if __name__ == "__main__":
    main()
