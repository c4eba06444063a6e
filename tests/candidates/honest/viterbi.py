"""Honest: best scores of paths through a chain of states, with the state before each, a step of the chain at a time."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

KERNEL_NAME = "viterbi"
PROBLEM_DESCRIPTION = "scores and states before, of float32[64, 128] emissions and float32[128, 128] transitions"

T, S = 64, 128


def _kernel(emitted, moves, scores, before, state):
    t = pl.program_id(0)

    @pl.when(t == 0)
    def _():
        state[...] = jnp.zeros_like(state)

    sums = moves[...] + state[...]
    best = jnp.max(sums, axis=1, keepdims=True)
    lane = jax.lax.broadcasted_iota(jnp.int32, (S, S), 1)
    first = jnp.min(jnp.where(sums == best, lane, S), axis=1, keepdims=True)
    row = best.reshape(1, S) + emitted[0]
    state[...] = row
    scores[0] = row
    before[0] = first.reshape(1, S)


def kernel_fn(emitted, moves):
    row = pl.BlockSpec((1, 1, S), lambda t: (t, 0, 0))
    return pl.pallas_call(
        _kernel,
        out_shape=(jax.ShapeDtypeStruct((T, 1, S), jnp.float32), jax.ShapeDtypeStruct((T, 1, S), jnp.int32)),
        grid=(T,),
        in_specs=[row, pl.BlockSpec((S, S), lambda t: (0, 0))],
        out_specs=(row, row),
        scratch_shapes=[pltpu.VMEM((1, S), jnp.float32)],
    )(emitted, moves)


def reference_fn(emitted, moves):
    def step(state, row):
        sums = moves + state[None, :]
        new = jnp.max(sums, axis=1) + row[0]
        return new, (new[None], jnp.argmax(sums, axis=1).astype(jnp.int32)[None])

    return jax.lax.scan(step, jnp.zeros(S, jnp.float32), emitted)[1]


def generate_inputs(key):
    a, b = jax.random.split(key)
    return jax.random.normal(a, (T, 1, S), jnp.float32), jax.random.normal(b, (S, S), jnp.float32)


def compute_flops():
    return 2 * T * S * S
