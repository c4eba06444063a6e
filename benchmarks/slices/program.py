"""A kernel file for so many chips as one asks for, and edits that make it wrong.

A program is the body of a kernel over a mesh, between a head and a tail that all have in common.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.lib.sources import ROOT, edited, replaced

_HEAD = '''"""{name} over {chips} chips."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "{key}"
PROBLEM_DESCRIPTION = "{name} over {chips} chips"
N, ROWS, WIDTH = {chips}, 64, 256
ALL = N * ROWS
DMA = pltpu.SemaphoreType.DMA
ANY = pl.BlockSpec(memory_space=pl.ANY)
VMEM = pl.BlockSpec(memory_space=pltpu.VMEM)


RING = [(chip, (chip + 1) % N) for chip in range(N)]


def to(chip):
    return dict(device_id=(jax.lax.rem(chip + N, N),), device_id_type=pl.DeviceIdType.MESH)


def me():
    return jax.lax.axis_index("chip")


def part(ref, chip, rows=ROWS):
    return ref.at[pl.ds(jax.lax.rem(chip + N, N) * rows, rows)]


def meet(*chips):
    """Wait until these chips are here, too; each signals this one."""
    barrier = pltpu.get_barrier_semaphore()
    for chip in chips:
        pl.semaphore_signal(barrier, 1, **to(chip))
    pl.semaphore_wait(barrier, len(chips))


def everybody():
    meet(*(me() + step for step in range(1, N)))


def send(source, target, sent, arrived, chip):
    return pltpu.make_async_remote_copy(source, target, sent, arrived, **to(chip))


def here(source, target, semaphore):
    copy = pltpu.make_async_copy(source, target, semaphore)
    copy.start()
    copy.wait()


def call(kernel, rows, scratch, specs=(ANY,), out=ANY, skip=False, number=0, width=WIDTH):
    how = pltpu.CompilerParams(collective_id=number, has_side_effects=True, skip_device_barrier=skip)
    shape = jax.ShapeDtypeStruct((rows, width), jnp.float32)
    return pl.pallas_call(
        kernel, out_shape=shape, in_specs=list(specs), out_specs=out, scratch_shapes=scratch, compiler_params=how
    )
'''
_TAIL = """

def kernel_fn(x{more}):
    return jax.shard_map(local, in_specs=({specs}), out_specs={out}, check_vma=False)(x{more})


def reference_fn(x{more}):
    parts = x.reshape(N, ROWS, WIDTH)
    return {reference}


def generate_inputs(key):
    return (jax.random.normal(key, (ALL, WIDTH), jnp.float32){made})


def compute_flops():
    return {flops}


def get_tiling_meta():
    return {{"mesh": {{{mesh}}}, "input_shardings": [{shardings}]}}
"""


@dataclass(frozen=True, kw_only=True)
class Program:
    """One kernel."""

    name: str
    body: str
    reference: str
    out: str = 'P("chip")'
    weights: str = ""
    """Shape of a second array, of small normal numbers; none for ""."""
    rows: str = '"chip"'
    """How the rows of the first one are split."""
    split: str = ""
    """How the second one is, as the arguments of a PartitionSpec."""
    mesh: str = '"chip": N'
    flops: str = "0"
    wrong: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """What is wrong, and the edits of the body that make it so."""

    def source(self, chips: int, wrong: str = "") -> str:
        """The kernel file, right or in one of the ``wrong`` ways."""
        body = replaced(self.body, self.wrong[wrong] if wrong else ())
        head = _HEAD.format(name=self.name, key=self.name.replace(" ", "_").replace(",", ""), chips=chips)
        second = bool(self.weights)
        tail = _TAIL.format(
            more=", w" * second,
            specs=f"P({self.rows}), P({self.split})" if second else f"P({self.rows}),",
            out=self.out,
            reference=self.reference,
            made=f", jax.random.normal(key, {self.weights}, jnp.float32) / 16" * second,
            flops=self.flops,
            mesh=self.mesh,
            shardings=f"[{self.rows}], [{self.split}]" if second else f"[{self.rows}]",
        )
        return f"{head}\n{body}\n{tail}"


@dataclass(frozen=True, kw_only=True)
class File:
    """A kernel file of the repository with another number of chips."""

    name: str
    path: str
    wrong: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    def source(self, chips: int, wrong: str = "") -> str:
        """The kernel file."""
        return edited((ROOT / self.path).read_text(), CHIPS=chips)
