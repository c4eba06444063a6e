"""All programs of the benchmark."""

from __future__ import annotations

from benchmarks.cores.sparse_rows import ROWS
from benchmarks.cores.sparse_scalars import SCALARS
from benchmarks.cores.sparse_scans import SCANS
from benchmarks.cores.sparse_shared import SHARES
from benchmarks.cores.sparse_vectors import VECTORS
from benchmarks.cores.tensor_grids import GRIDS
from benchmarks.cores.tensor_meshes import MESHES
from benchmarks.cores.tensor_signals import SIGNALS

PROGRAMS = (*ROWS, *VECTORS, *SCANS, *SHARES, *SCALARS, *MESHES, *SIGNALS, *GRIDS)
