"""Bits that the core draws: the same for the same seeds, others for others and for each draw."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tests.tpu.mosaic.kernels import loaded

BLOCK, STEPS = (8, 128), 3


def drawn(body, *inputs):
    """What a kernel of three steps leaves of the bits that it draws."""
    call = pl.pallas_call(
        body,
        grid=(STEPS,),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM)],
        out_specs=pl.BlockSpec(BLOCK, lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((STEPS * BLOCK[0], BLOCK[1]), jnp.int32),
    )
    (out,) = loaded(call, *inputs).run([np.asarray(one) for one in inputs]).outputs
    return np.asarray(out).reshape(STEPS, -1)


def of_each_step(seed, o):
    pltpu.prng_seed(seed[0], pl.program_id(0))
    o[...] = pltpu.bitcast(pltpu.prng_random_bits(o.shape), jnp.int32)


def of_the_first_step(seed, o):
    @pl.when(pl.program_id(0) == 0)
    def _():
        pltpu.prng_seed(seed[0])

    def draw(turn, total):
        return total ^ pltpu.bitcast(pltpu.prng_random_bits(o.shape), jnp.int32)

    o[...] = jax.lax.fori_loop(0, 2, draw, jnp.zeros(o.shape, jnp.int32))


def test_bits_follow_from_the_seeds():
    one, again, other = (drawn(of_each_step, np.array([seed], np.int32)) for seed in (7, 7, 8))
    assert (one == again).all()
    assert len(np.unique(np.concatenate([one, other]))) == 2 * STEPS * 1024
    assert abs(np.unpackbits(one.view(np.uint8)).mean() - 0.5) < 0.01


def test_each_draw_is_another_in_loops_and_in_later_steps():
    bits = drawn(of_the_first_step, np.array([7], np.int32))
    assert len(np.unique(bits)) == STEPS * 1024


def test_a_program_says_that_it_draws():
    call = pl.pallas_call(
        of_each_step,
        grid=(1,),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM)],
        out_shape=jax.ShapeDtypeStruct(BLOCK, jnp.int32),
    )
    assert loaded(call, np.zeros(1, np.int32)).program.draws
    made = loaded(
        pl.pallas_call(lambda x, o: o.__setitem__(..., x[...]), out_shape=jax.ShapeDtypeStruct(BLOCK, jnp.float32)),
        np.zeros(BLOCK, np.float32),
    )
    assert not made.program.draws
