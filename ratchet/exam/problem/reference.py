"""What the outputs of an instance are compared with: exact values and losses of all its rows, or of some of them.

They are kept in files, which whoever lends the folder answers for (``reference_store.py``).
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ratchet.exam.problem import array_file, fitting, instances, parity, rows
from ratchet.exam.problem.deviations import is_float
from ratchet.exam.problem.inputs import Inputs, Instance
from ratchet.exam.problem.problem import Problem
from ratchet.exam.problem.programs import Arrays, as_bytes, from_bytes
from ratchet.values.status import Refusal, Status


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Of each output of an instance, or of some of its rows."""

    exact: Arrays
    losses: Arrays
    counts: Arrays
    """As ``parity.counted`` says them."""
    numbers: np.ndarray[Any, Any] | None = None
    """Numbers of those rows; None: all."""
    native: Arrays = field(default_factory=list)
    """Of all rows, in the problem's own dtypes, where the others are of some."""

    def exact_of(self, problem: Problem, numbers: np.ndarray[Any, Any] | None) -> Arrays:
        """The exact values of these rows, which are among those that are known; None: of all."""
        if self.numbers is not None and numbers is not None:
            numbers = np.searchsorted(self.numbers, numbers)
        return rows.of(problem, self.exact, numbers)

    def known(self, problem: Problem) -> list[rows.Known]:
        """What is known of each output where that is some of its rows."""
        assert self.numbers is not None
        four = zip(rows.axes(problem), self.exact, self.losses, self.native, strict=True)
        return [
            rows.Known(rows=self.numbers, axis=axis, exact=exact, loss=loss, native=native)
            for axis, exact, loss, native in four
        ]


class References:
    """Those of several requests, which are made once."""

    def __init__(self, inputs: Inputs) -> None:
        self._programs, self._inputs = inputs.programs, inputs
        self.has_made = False
        """Whether one was made here, not read."""

    def of(self, instance: Instance) -> Reference:
        """That of one instance, from its file if it is there.

        Raises:
          Refusal: as ``made``; ``CANNOT_VERIFY`` for what XLA does not execute on a CPU.
        """
        known, outputs = None if instance.whole else _known_rows(instance), instance.problem.outputs
        stored = array_file.read(instance.file)
        if len(stored) == (3 if known is None else 4) * len(outputs):
            exact, losses, counts, plain = (stored[n * len(outputs) : (n + 1) * len(outputs)] for n in range(4))
            native = from_bytes(plain, outputs) if plain else []
            return Reference(exact=exact, losses=losses, counts=counts, numbers=known, native=native)
        self.has_made = True
        try:
            made = self.made(instance, known)
        except jax.errors.JaxRuntimeError as error:
            what = f"reference_fn cannot be executed on this machine's CPU: {str(error).splitlines()[0]:.300}"
            raise Refusal(Status.CANNOT_VERIFY, f"{what}; wanted the same in other operations") from None
        made = made if known is not None else replace(made, native=[])
        array_file.write(instance.file, [*made.exact, *made.losses, *made.counts, *as_bytes(made.native)])
        return made

    def more(self, instance: Instance, numbers: np.ndarray[Any, Any], native: Arrays) -> Reference:
        """That of other rows of an instance than are known of it.

        They are kept, each row once: what stands out in one answer does so in the next.
        """
        parts = [array_file.read(file) for file in array_file.more_of(instance.cache, instance.kind)]
        parts = [part for part in parts if len(part) == 1 + 2 * len(instance.problem.outputs)]
        missing = functools.reduce(np.setdiff1d, (part[0] for part in parts), numbers)
        if missing.size:
            made = self.made(instance, missing, native)
            parts.append([missing, *made.exact, *made.losses])
            array_file.write(array_file.more_path(instance.cache, instance.kind, missing.tobytes()), parts[-1])
        held = np.concatenate([part[0] for part in parts])
        order = np.argsort(held)
        first = order[np.searchsorted(held, numbers, sorter=order)]
        several = zip(*(part[1:] for part in parts), strict=True)
        axes = rows.axes(instance.problem)
        joined = [np.concatenate(some, axis) for axis, some in zip(axes * 2, several, strict=True)]
        found = [rows.taken(array, first, axis) for axis, array in zip(axes * 2, joined, strict=True)]
        exact, losses = found[: len(axes)], found[len(axes) :]
        return Reference(exact=exact, losses=losses, counts=[np.zeros(0, np.uint32)] * len(axes), numbers=numbers)

    def made(
        self, instance: Instance, numbers: np.ndarray[Any, Any] | None = None, native: Arrays | None = None
    ) -> Reference:
        """That of an instance, or of these of its rows, with all outputs in the problem's dtypes.

        The exact ones rounded once and the native ones have to pass. ``native`` are those, where they are known.

        Raises:
          Refusal: ``INFRASTRUCTURE`` if the native reference is off by more than the judge can explain, on inputs of
            the problem's own. On others nothing is asked where it is, nor where it has no value: a matrix whose rows
            are scaled has no Cholesky factor, say.
        """
        problem, kind = instance.problem, instance.kind
        self._programs.begin(problem)
        arrays = self._inputs.of(instance)
        both = self._programs.exact(problem, arrays, numbers)
        dtypes = [jnp.dtype(spec.dtype) for spec in problem.outputs]
        of_exact, of_losses = both[: len(dtypes)], both[len(dtypes) :]
        # A rounding to float32 is an 8192th of one to float16, and a loss is no more exact: half the memory and disk.
        exact = [_single(a) if is_float(d) and d.itemsize <= 2 else a for a, d in zip(of_exact, dtypes, strict=True)]
        losses = [_single(s) if is_float(d) else s for s, d in zip(of_losses, dtypes, strict=True)]
        if not instances.is_own(kind):
            losses = [np.where(np.isnan(a), np.inf, s) for a, s in zip(exact, losses, strict=True)]
        native = native or self._programs.native(problem, arrays)
        alike = kind == instances.SIGNED
        fitted, counts = [], []
        for index, three in enumerate(zip(rows.of(problem, native, numbers), exact, losses, strict=True)):
            loss, times, count = fitting.fitted(*three, alike=alike)
            if times > fitting.WIDEST and instances.is_own(kind):
                raise Refusal(
                    Status.INFRASTRUCTURE,
                    f"{kind} inputs: output {index} of the reference in its own dtypes is {times:.3g} times as far off "
                    "its float64 value as the judge can explain, which is no fault of the kernel's; wanted a "
                    "reference that is stable in its dtypes (subtract a maximum, sum in float32)",
                )
            if times > fitting.WIDEST:
                loss = fitting.stable(*three, alike=alike)
                count = parity.counted(exact[index], loss, dtypes[index], alike=alike)
            fitted.append(loss)
            counts.append(count)
        return Reference(exact=exact, losses=fitted, counts=counts, numbers=numbers, native=native)


def _known_rows(instance: Instance) -> np.ndarray[Any, Any] | None:
    """The rows that are known in float64 in any case; None: all.

    Those of a probe are known of the random inputs, too: what they move by is asked (``parity.insensitive``).
    """
    if not rows.are_sampled(instance.problem):
        return None
    base = "random" if instances.is_probe(instance.kind) else instance.kind
    seed = hashlib.sha256(instance.secret + base.encode() + b"rows").digest()
    share = rows.OWN_SHARE if instances.is_own(instance.kind) else rows.SHARE
    return rows.sampled(rows.length(instance.problem), np.random.default_rng(list(seed)), share)


def _single(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """In float32; infinite beyond its range, as an output of 16 bits is there."""
    with np.errstate(over="ignore"):
        return array.astype(np.float32)
