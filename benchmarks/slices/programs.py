"""All programs of the benchmark."""

from __future__ import annotations

from benchmarks.slices.exchanges import EXCHANGES
from benchmarks.slices.layers import LAYERS
from benchmarks.slices.program import File
from benchmarks.slices.sums import SUMS
from benchmarks.slices.ways import WAYS

FILES = tuple(File(name=path, path=path) for path in ("decode_kernel.py", "examples/paged_decode.py"))
PROGRAMS = (*EXCHANGES, *SUMS, *WAYS, *LAYERS, *FILES)
