"""A kernel file for more than one core of a chip, and edits that make it wrong.

A program is a kernel with the arrays it takes and what it should give, between a head and a tail that all have in
common.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.lib.sources import replaced

SPARSE = ("v5p", "v6e", "tpu7x")
"""Chips with SparseCores."""
TWO_CORES = ("v5p",)
"""Chips whose programs run on two TensorCores."""

_HEAD = '''"""{name}."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas import tpu_sc as plsc

KERNEL_NAME = "{key}"
PROBLEM_DESCRIPTION = "{name}"
VMEM, SHARED, SMEM = pltpu.VMEM, pltpu.VMEM_SHARED, pltpu.SMEM
DMA, REGULAR = pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.REGULAR
F32, I32, BF16 = jnp.float32, jnp.int32, jnp.bfloat16
ANY = pl.BlockSpec(memory_space=pl.ANY)


def array(shape, dtype=F32):
    return jax.ShapeDtypeStruct(shape, dtype)


def normal(keys, *shape):
    return jax.random.normal(next(keys), shape, F32)


def below(most, keys, *shape):
    return jax.random.randint(next(keys), shape, 0, most, I32)


def orders(keys, *shape):
    """Numbers from 0 on, each once in a row, in a random order."""
    return jnp.argsort(normal(keys, *shape), axis=-1).astype(I32)


def on(mesh, kernel, out, *scratch, **how):
    return pl.kernel(kernel, out_type=out, mesh=mesh, scratch_types=scratch, **how)
'''
_SPARSE = '''

def subcores(**how):
    return plsc.VectorSubcoreMesh(core_axis_name="core", subcore_axis_name="subcore", **how)


def number():
    """That of this subcore among the subcores of all SparseCores."""
    return lax.axis_index("core") * lax.axis_size("subcore") + lax.axis_index("subcore")


def lanes():
    return plsc.get_sparse_core_info().num_lanes


def vectors(size, start=0):
    """A loop over the vectors of so many elements, of four bytes each."""

    def loop(body):
        pl.loop(start // lanes(), size // lanes())(lambda step: body(pl.ds(step * lanes(), lanes())))

    return loop


def sparse(mesh, kernel, out, *scratch):
    return on(mesh, kernel, out, *scratch, compiler_params=pltpu.CompilerParams(needs_layout_passes=False))
'''
_TENSOR = """

def cores():
    return pltpu.create_tensorcore_mesh("core")


def me():
    return lax.axis_index("core")


def copied(source, target, semaphore):
    copy = pltpu.make_async_copy(source, target, semaphore)
    copy.start()
    copy.wait()
"""
_TAIL = """

def reference_fn({names}):
    return {reference}


def generate_inputs(key):
    keys = iter(jax.random.split(key, {count}))
    return ({made},)


def compute_flops():
    return {flops}


def get_tiling_meta():
    return {{}}
"""


@dataclass(frozen=True, kw_only=True)
class Program:
    """One kernel."""

    name: str
    body: str
    """Its constants, and ``kernel_fn`` of its arrays."""
    arrays: Mapping[str, str]
    """How each of them is made, of ``keys``."""
    reference: str
    """The outputs in plain ``jax.numpy``, of the arrays."""
    flops: str = "0"
    chips: tuple[str, ...] = SPARSE
    """Those that it is for."""
    wrong: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """What is wrong, and the edits of the body that make it so."""

    def source(self, wrong: str = "") -> str:
        """The kernel file, right or in one of the ``wrong`` ways."""
        body = replaced(self.body, self.wrong[wrong] if wrong else ())
        key = "".join(one if one.isalnum() else "_" for one in self.name)
        tail = _TAIL.format(
            names=", ".join(self.arrays),
            reference=self.reference,
            count=len(self.arrays),
            made=", ".join(self.arrays.values()),
            flops=self.flops,
        )
        helpers = _TENSOR if self.chips == TWO_CORES else _SPARSE
        return f"{_HEAD.format(name=self.name, key=key)}{helpers}\n{body}\n{tail}"
