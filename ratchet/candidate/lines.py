"""Source lines that stay with their operations when a kernel is lowered."""

from __future__ import annotations


def keep_lines_apart() -> None:
    """Makes Pallas lower every operation of a kernel for itself, in this process.

    JAX 0.10 lowers equal operations (same primitive, shapes and parameters) once and reuses the result, whose source
    line is that of the first: two stores of the same shape would both be blamed on one line. The program is the same
    either way, to the bundle; a JAX without that cache is left as it is.
    """
    from jax._src.pallas.mosaic import lowering

    uncached = getattr(lowering, "_uncacheable_primitives", None)
    if isinstance(uncached, set):
        for rules in lowering.lowering_rules.values():
            uncached.update(rules)
