"""All programs of the benchmark."""

from __future__ import annotations

from benchmarks.slices.exchanges import EXCHANGES
from benchmarks.slices.layers import LAYERS
from benchmarks.slices.sums import SUMS
from benchmarks.slices.ways import WAYS

PROGRAMS = (*EXCHANGES, *SUMS, *WAYS, *LAYERS)
