"""Source lines that stay with their operations when a kernel is lowered."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def lines_apart() -> Iterator[None]:
    """While the block runs, Pallas lowers every operation of a kernel for itself.

    JAX 0.10 lowers equal operations (same primitive, shapes and parameters) once and reuses the result, whose source
    line is that of the first: two stores of the same shape would both be blamed on one line. The program is the same
    either way, to the bundle; a JAX without that cache is left as it is. Afterwards JAX is as it was.
    """
    from jax._src.pallas.mosaic import lowering

    uncached = getattr(lowering, "_uncacheable_primitives", None)
    if not isinstance(uncached, set):
        yield
        return
    before = set(uncached)
    for rules in lowering.lowering_rules.values():
        uncached.update(rules)
    try:
        yield
    finally:
        uncached.intersection_update(before)
