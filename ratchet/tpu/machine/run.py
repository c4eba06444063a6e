"""The schedule machine's one entry: a compiled program, for one chip or for a slice, run once."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from ratchet.tpu.machine.machine import CoresTalk, Machine
from ratchet.tpu.machine.memory import ScalarInputs
from ratchet.tpu.machine.programs import Programs
from ratchet.tpu.machine.record import Run
from ratchet.tpu.machine.slice import run_slice
from ratchet.tpu.machine.words import UndecidedBranch
from ratchet.values.omission import UndecidedBranches
from ratchet.values.status import Refusal, Status


def run(programs: Programs, scalar_inputs: Sequence[ScalarInputs] = ()) -> Run:
    """Runs a compiled program once.

    Branches whose condition vector code computes are all taken, then none; the slower run is returned.

    Args:
        programs: of :func:`ratchet.tpu.machine.programs.read`.
        scalar_inputs: real values of arrays that steer control flow (scalar prefetch, dynamic grid bounds), one set per
            mesh index or none at all: by number of the entry parameter, or, where XLA computes them first, by
            ``"name:i"``, operand ``i`` of HLO instruction ``name``. Shapes and dtypes as in the compiled program.

    Raises:
        Refusal: SCHEDULE_UNKNOWN for anything that the machine does not know, DEADLOCK for a wait that can never
            end, OUT_OF_BOUNDS and MEMORY_HAZARD where an assertion fails that the compiler planted, USAGE for a mesh
            that is neither one chip nor the slice, or other inputs than one set per chip.
    """
    devices, chip = programs.hlo.device_ids, programs.chip
    given = scalar_inputs or [{}] * len(devices)
    if len(given) != len(devices):
        raise Refusal(
            Status.USAGE, f"{len(given)} sets of inputs for a program on {len(devices)} chips: give one for each."
        )
    if len(devices) > 1 and sorted(devices) != list(range(chip.slice_of(len(devices)).chips)):
        raise Refusal(
            Status.USAGE,
            f"compiled for the devices {list(devices)}; a slice has devices 0 to {len(devices) - 1}: use all of them.",
        )
    once = partial(run_slice if len(devices) > 1 else _run_alone, programs, given)
    with without_collections():
        try:
            return once()
        except UndecidedBranch:
            ways = [once(take_undecided=way) for way in (True, False)]
    fast, slow = sorted(ways, key=lambda way: way.slowest.cycles)
    cycles = fast.slowest.cycles, slow.slowest.cycles
    return replace(slow, undecided=UndecidedBranches(fast_cycles=cycles[0], slow_cycles=cycles[1]))


def _run_alone(programs: Programs, scalar_inputs: Sequence[ScalarInputs], *, take_undecided: bool | None = None) -> Run:
    """On a chip with two cores that share a kernel, the run of the core that takes longer; together if they talk."""
    try:
        return _each_alone(programs, scalar_inputs, take_undecided=take_undecided)
    except CoresTalk:
        return run_slice(programs, scalar_inputs, take_undecided=take_undecided)
    except Refusal as refusal:  # perhaps what is waited for is the other core's to send, which is not asked yet
        if refusal.status is not Status.DEADLOCK or programs.chip.cores == 1:
            raise
        return run_slice(programs, scalar_inputs, take_undecided=take_undecided)


def _each_alone(programs: Programs, scalar_inputs: Sequence[ScalarInputs], *, take_undecided: bool | None) -> Run:
    machine = Machine(programs, scalar_inputs[0], take_undecided=take_undecided)
    record = machine.execute()
    if any(cores > 1 for cores in machine.cores_of.values()):
        other = Machine(programs, scalar_inputs[0], start_up={"core index": 1}, take_undecided=take_undecided).execute()
        record, other = sorted((record, other), key=lambda one: -one.cycles)
        record = replace(record, beside=(other,))
    return Run(chips=(record,))


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """No garbage collection inside: a listing is made of small tuples by the hundred thousand, none in a cycle."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
