"""Prefill, modelled: causal attention of all layers over a whole prompt, per second and per dollar.

    python -m benchmarks.prefill [--quick] [--json FILE]

Columns: see ``benchmarks/lib/prefill.py``.
"""

from __future__ import annotations

from benchmarks.lib.command import command
from benchmarks.lib.models import MODELS
from benchmarks.lib.prefill import rows_of
from benchmarks.lib.table import show


def main() -> None:
    options = command(__doc__, quick="the first model only").parse_args()
    rows = [one for model in (MODELS[:1] if options.quick else MODELS) for one in rows_of(model)]
    show("prefill, attention of all layers, modelled", rows, json_file=options.json)


if __name__ == "__main__":
    main()
