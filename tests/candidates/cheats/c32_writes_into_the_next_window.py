"""Cheat 32: adds its carry to the next block in HBM by a copy of its own; the pipeline has read that block by then."""
# rejected as: MEMORY_HAZARD
# kind: in-place race
# caught by: windows read ahead
# left out of: tests
# said: window_race
# problem: its own
# base: c32_reads_its_output_back

from jax.experimental.pallas import tpu as pltpu

N = 32


def _carry(x_ref, o_ref, next_ref, arrived):
    i = pl.program_id(0)

    @pl.when(i < N - 1)
    def _pass_on():
        following = o_ref.at[pl.ds((i + 1) * 8, 8)]
        pltpu.async_copy(following, next_ref, arrived).wait()
        next_ref[...] += x_ref[...]
        pltpu.async_copy(next_ref, following, arrived).wait()


def kernel_fn(x):
    return pl.pallas_call(
        _carry,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(N,),
        in_specs=[pl.BlockSpec((8, HEAD_DIM), lambda i: (i, 0))],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[pltpu.VMEM((8, HEAD_DIM), jnp.float32), pltpu.SemaphoreType.DMA],
        input_output_aliases={0: 0},
    )(x)
