"""Not on the list: says that an operand is in HBM, and XLA has put it into VMEM."""
# rejected as: COPIES_DIFFER
# said: XLA put it in VMEM
# kind: copies that differ
# caught by: same copies
# base: copied_result
# problem: its own


def kernel_fn(x, m):
    vmem = pl.BlockSpec(memory_space=pltpu.VMEM)
    return pl.pallas_call(
        _kernel,
        in_specs=[vmem, pl.BlockSpec(memory_space=pltpu.HBM)],
        out_specs=vmem,
        out_shape=jax.ShapeDtypeStruct((64, 256), jnp.float32),
        scratch_shapes=[pltpu.VMEM((64, 256), jnp.float32), pltpu.SemaphoreType.DMA],
    )(x, 2.0 * m)
