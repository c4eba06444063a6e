"""The memory allocator of the judge's own children: jemalloc, where an installed package brings it.

The TPU compiler makes small objects by the million, and takes less time for a large kernel with it than with the
allocator of glibc. Nothing else follows from which one it is. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

LIBRARY = "ray/core/libjemalloc.so"
"""In a folder of packages: ray's, which the judge's environment has for searches on a cluster."""


def preload(packages: Iterable[str]) -> dict[str, str]:
    """Variables that have the loader take it in a process that is started with them; none where it is not installed."""
    found = [path for path in (Path(folder, LIBRARY) for folder in packages) if path.is_file()]
    # The loader splits its list at these, and takes what it finds in the pieces.
    usable = [str(path) for path in found if not set(" :").intersection(str(path))]
    return {"LD_PRELOAD": usable[0]} if usable else {}
