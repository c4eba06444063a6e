"""What an execution leaves besides values: findings, counts, its own copies, and digests of what was read.

Each is noted as the operations are walked, and written into the kernel's memory in few pieces (``flush``).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ratchet.tpu.mlir.module import Op
from ratchet.tpu.mosaic import copies, in_flight
from ratchet.tpu.mosaic.arrays import Array, Index, Number, known, vector_of
from ratchet.tpu.mosaic.copies import COPIES, first_element
from ratchet.tpu.mosaic.findings import KINDS, Finding, Kind
from ratchet.tpu.mosaic.in_flight import End
from ratchet.tpu.mosaic.memory import Box, Buffer, Ref
from ratchet.tpu.mosaic.report import COUNTS, DIGESTS, FLAGS, counters, digest, reads
from ratchet.tpu.mosaic.state import State


@dataclass(kw_only=True)
class Recorder(State):
    """State of one kernel, and what is noted of it while it is translated."""

    sites: list[Finding] = field(default_factory=list)
    """What may be found, each where it is checked; without the step."""
    outputs: int = 0
    """How many outputs the kernel has."""
    _pending: list[tuple[int, Number, Any]] = field(default_factory=list)
    """Kind, site and condition of what was reported and is not in ``FLAGS`` yet."""
    _counted: list[tuple[Number, Any]] = field(default_factory=list)
    """Counters that were passed and are not in ``COUNTS`` yet, each with the device's part in it."""
    sizes: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    """See ``copies.Traced``."""
    _copied: list[tuple[Number, ...]] = field(default_factory=list)
    """Copies that were started and are not in ``COPIES`` yet."""

    @functools.cached_property
    def readers(self) -> dict[Op | int, int]:
        """Numbers of the places whose reads are digested (see ``report.reads``)."""
        return {place: number for number, place in enumerate(reads(self.kernel, self.outputs))}

    def digest(self, place: Op | int, value: Array, *, step: Any = None, when: Any = True) -> None:
        """With ``Options.digests``, keep one of what ``place`` reads now, or in another ``step``, if ``when``."""
        if not self.options.digests or place not in self.readers:
            return
        step = lax.convert_element_type(self.step if step is None else step, np.int32)
        cell = jnp.minimum(step * len(self.readers) + self.readers[place], self.options.digests - 1)
        digests = self.memory[DIGESTS]
        new = digests[cell] * 31 + digest(value)
        self.memory[DIGESTS] = digests.at[cell].set(jnp.where(when, new, digests[cell]))

    def report(self, kind: Kind, op: Op | None, bad: Any, message: str) -> None:
        """Note a finding of this kind if ``bad`` and it is the first."""
        if isinstance(bad, (bool, np.bool_)) and not bad:
            return
        if self.active is not None:
            bad = jnp.asarray(bad) & self.active
        self._pending.append((KINDS.index(kind), self._site(kind, op, message), bad))

    def _site(self, kind: Kind, op: Op | None, message: str) -> Number:
        """The number of what may be reported."""

        def number(op: Op | None) -> int:
            name, location = (op.name, op.location) if op is not None else ("", "")
            site = Finding(kind=kind, operation=name, location=location, message=message)
            if site not in self._site_numbers:
                self._site_numbers[site] = len(self.sites)
                self.sites.append(site)
            return self._site_numbers[site]

        return number(None) if op is None else self.number_of(op, number)

    @functools.cached_property
    def _site_numbers(self) -> dict[Finding, int]:
        return {site: number for number, site in enumerate(self.sites)}

    @functools.cached_property
    def counters(self) -> dict[Op, int]:
        return counters(self.kernel)

    def count(self, op: Op, which: int = 0) -> None:
        """Count one execution of an operation, or of its body ``which``."""
        if op in self.counters:
            self._counted.append((self.number_of(op, lambda one: self.counters[one] + which), self.active))

    def log_copy(self, op: Op, source: Ref, target: Ref) -> None:
        """Log that a copy of the kernel's own begins."""
        if COPIES not in self.memory:
            return
        index = self.number_of(op, self._starts.__getitem__)
        boxes = source.whole_box(), target.whole_box()
        if all(known(size) for _, sizes in boxes for size in sizes):
            read, written = (tuple(map(int, sizes)) for _, sizes in boxes)
            for one in self.copies_of(op):
                self.sizes[self._starts[one]] = read, written
        ends = [
            first_element(starts, ref.buffer.shape) for ref, (starts, _) in zip((source, target), boxes, strict=True)
        ]
        self._copied.append((index, *ends, target.bytes))

    def reported(self) -> list[tuple[Kind, Finding, Any]]:
        """What was reported since the last time, with its condition, where nothing is traced."""
        pending = [(KINDS[kind], self.sites[int(site)], bad) for kind, site, bad in self._pending]
        self._pending.clear()
        return pending

    def flush(self) -> None:
        """Write what was reported and counted since the last time, all at once: each write costs XLA a kernel."""
        self._write_notes()
        if self._counted:
            self._flush_counts()
        if self._pending:
            self._flush_findings()

    def _flush_counts(self) -> None:
        counts = self.memory[COUNTS]
        certain = [number for number, active in self._counted if active is None and known(number)]
        others = [
            number if active is None else lax.select(active, jnp.asarray(number, jnp.int32), jnp.int32(-1))
            for number, active in self._counted
            if active is not None or not known(number)
        ]
        if certain:
            counts = counts + np.bincount(certain, minlength=counts.shape[0]).astype(np.int32)
        if others:  # of a scatter XLA's CPU backend makes a loop
            shape = (*counts.shape, len(others))
            mine = lax.eq(
                lax.broadcasted_iota(np.int32, shape, 0), lax.broadcast_in_dim(vector_of(others), shape, (1,))
            )
            counts = counts + lax.reduce_sum(lax.convert_element_type(mine, np.int32), (1,))
        self.memory[COUNTS] = counts
        self._counted.clear()

    def _write_notes(self) -> None:
        copies.log_copies(self.memory, self._copied)
        self._copied.clear()
        for sites in in_flight.apply(self.memory, self.notes, together=self.options.fast):
            for kind, site in zip((Kind.SOURCE_OVERWRITTEN, Kind.TARGET_OVERWRITTEN), sites, strict=True):
                self._pending.append((KINDS.index(kind), site, site >= 0))
        self.notes.clear()

    def _flush_findings(self) -> None:
        site_of: dict[int, Any] = {}
        for kind, number, bad in reversed(self._pending):
            none = site_of.get(kind, np.int32(-1))
            site_of[kind] = lax.select(jnp.asarray(bad), jnp.asarray(number, jnp.int32), jnp.asarray(none))
        self._pending.clear()
        flags = self.memory[FLAGS]
        shape = (len(KINDS), 2)
        sites = lax.broadcast_in_dim(vector_of([site_of.get(kind, -1) for kind in range(len(KINDS))]), shape, (0,))
        step = lax.broadcast_in_dim(lax.convert_element_type(self.step, np.int32), shape, ())
        new = lax.select(np.tile([True, False], (len(KINDS), 1)), step, sites)
        is_first = lax.bitwise_and(lax.eq(flags, np.int32(-1)), lax.ge(lax.reshape(sites, flags.shape), np.int32(0)))
        self.memory[FLAGS] = lax.select(is_first, lax.reshape(new, flags.shape), flags)

    def check_in_flight(self, op: Op | None, buffer: Buffer, box: Box, what: str, when: Array | None = None) -> None:
        """With ``on_wait``, report a write into what a copy in flight reads or writes."""
        if buffer not in self.followed:
            return
        sites = (
            self._site(Kind.SOURCE_OVERWRITTEN, op, f"{what} {buffer.name}, which a DMA may still read"),
            self._site(Kind.TARGET_OVERWRITTEN, op, f"{what} {buffer.name}, where a DMA is yet to arrive"),
        )
        taken = [condition for condition in (when, self.active) if condition is not None]
        end = End(buffer=self.number(buffer), box=box)
        self.notes.append(in_flight.write(sites, end, functools.reduce(operator.and_, taken) if taken else None))

    def check_bounds(
        self, op: Op, starts: Sequence[Index], sizes: Sequence[int], shape: Sequence[int], what: str
    ) -> None:
        """Report a slice that leaves ``shape``."""
        bad: Any = False
        for start, size, dim in zip(starts, sizes, shape, strict=True):
            if known(start):
                bad = True if not 0 <= int(start) <= dim - size else bad
            elif bad is not True:
                unsigned = lax.convert_element_type(start, np.uint32)  # of what is below zero, a large number
                outside = lax.gt(unsigned, np.uint32(dim - size)) if dim >= size else True
                bad = outside if bad is False else lax.bitwise_or(bad, outside)
        self.report(Kind.SLICE_OUT_OF_BOUNDS, op, bad, f"{what} of {tuple(sizes)} leaves a buffer of {tuple(shape)}")
