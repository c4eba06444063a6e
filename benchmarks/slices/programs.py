"""All programs of the benchmark."""

from __future__ import annotations

from benchmarks.slices.exchanges import EXCHANGES
from benchmarks.slices.layers import LAYERS
from benchmarks.slices.program import File
from benchmarks.slices.sums import SUMS
from benchmarks.slices.ways import WAYS

FILES = (File(name="decode_kernel.py", path="decode_kernel.py"),)
PROGRAMS = (*EXCHANGES, *SUMS, *WAYS, *LAYERS, *FILES)
