"""All-gather and matmul in one, on the eight chips of a 2x4 slice: bfloat16[2048, 1024] x bfloat16[1024, 16384].

x has an eighth of its rows on each chip, w an eighth of its columns. The result, bfloat16[2048, 16384], has whole
columns: each chip multiplies all rows of x by its own columns of w.

Rows of x go around the ring. While a chip multiplies the rows that it holds, it sends them on to the chip on its right,
into one of two slots, and gets the next from its left. A chip tells its left neighbour when a slot is free again. A
block of rows takes 10.5 us over one link and the MXUs 5.5 us: the links bound it. Mutation to try next: rows around the
ring in both directions.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "collective_matmul"
PROBLEM_DESCRIPTION = (
    "bfloat16[2048, 1024] by rows over 8 chips x bfloat16[1024, 16384] by columns, all rows on each chip"
)

CHIPS, M, K, N = 8, 2048, 1024, 16384
ROWS, COLUMNS = M // CHIPS, N // CHIPS


def _multiply(x_ref, w_ref, o_hbm, slots, product, sent, arrived, written, free):
    """All rows by one chip's columns: its own rows first, then those of the chips on its left, the nearest first."""
    me = jax.lax.axis_index("chip")
    right, left = jax.lax.rem(me + 1, CHIPS), jax.lax.rem(me + CHIPS - 1, CHIPS)

    def held(step):
        """The rows that this chip multiplies in ``step``."""
        return slots.at[(step - 1) % 2] if step else x_ref

    def send(step):
        """The copy that passes the rows of ``step`` on, to be multiplied by the right neighbour in the next."""
        return pltpu.make_async_remote_copy(
            held(step), slots.at[step % 2], sent.at[step % 2], arrived.at[step % 2],
            device_id=(right,), device_id_type=pl.DeviceIdType.MESH,
        )  # fmt: skip

    def write(step):
        """The copy of the product of ``step`` to where its rows are in the result."""
        chip = jax.lax.rem(me - step + CHIPS, CHIPS)
        return pltpu.make_async_copy(product, o_hbm.at[pl.ds(chip * ROWS, ROWS)], written)

    barrier = pltpu.get_barrier_semaphore()
    for neighbour in (left, right):
        pl.semaphore_signal(barrier, 1, device_id=(neighbour,), device_id_type=pl.DeviceIdType.MESH)
    pl.semaphore_wait(barrier, 2)
    for step in range(CHIPS):
        if 2 <= step < CHIPS - 1:
            pl.semaphore_wait(free, 1)
        if step < CHIPS - 1:
            send(step).start()
        product[...] = jnp.dot(held(step)[...], w_ref[...], preferred_element_type=jnp.float32).astype(product.dtype)
        write(step).start()
        write(step).wait()
        if step < CHIPS - 1:
            send(step).wait()
        if 1 <= step < CHIPS - 2:
            pl.semaphore_signal(free, 1, device_id=(left,), device_id_type=pl.DeviceIdType.MESH)


def _shard(x, w):
    """One chip: x bfloat16[ROWS, K], w bfloat16[K, COLUMNS] -> bfloat16[M, COLUMNS]."""
    in_vmem = pl.BlockSpec(memory_space=pltpu.VMEM)
    return pl.pallas_call(
        _multiply,
        out_shape=jax.ShapeDtypeStruct((M, COLUMNS), x.dtype),
        in_specs=[in_vmem, in_vmem],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((2, ROWS, K), x.dtype),
            pltpu.VMEM((ROWS, COLUMNS), x.dtype),
            pltpu.SemaphoreType.DMA((2,)),
            pltpu.SemaphoreType.DMA((2,)),
            pltpu.SemaphoreType.DMA,
            pltpu.SemaphoreType.REGULAR,
        ],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
    )(x, w)


def kernel_fn(x, w):
    """x bfloat16[M, K] by rows, w bfloat16[K, N] by columns over the chips -> bfloat16[M, N] by columns."""
    columns = P(None, "chip")
    return jax.shard_map(_shard, in_specs=(P("chip"), columns), out_specs=columns, check_vma=False)(x, w)


def reference_fn(x, w):
    """The same in plain jax.numpy."""
    return jnp.dot(x, w, preferred_element_type=jnp.float32).astype(x.dtype)


def generate_inputs(key):
    """Standard normal x and w."""
    x, w = jax.random.split(key)
    return jax.random.normal(x, (M, K), jnp.bfloat16), jax.random.normal(w, (K, N), jnp.bfloat16)


def compute_flops():
    """Useful FLOPs."""
    return 2 * M * K * N


def get_tiling_meta():
    """The mesh and where the inputs are; then what the author believes of one chip."""
    x_bytes, w_bytes, product_bytes = ROWS * K * 2, K * COLUMNS * 2, ROWS * COLUMNS * 2
    return {
        "mesh": {"chip": CHIPS},
        "input_shardings": [["chip"], [None, "chip"]],
        "grid": [1],
        "buffers": [
            {"name": "x", "size_bytes": x_bytes, "double_buffered": False},
            {"name": "w", "size_bytes": w_bytes, "double_buffered": False},
            {"name": "slots", "size_bytes": 2 * x_bytes, "double_buffered": False},
            {"name": "product", "size_bytes": product_bytes, "double_buffered": False},
        ],
        "inputs": [
            {"name": "x", "size_bytes": x_bytes, "re_reads": 1},
            {"name": "w", "size_bytes": w_bytes, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": CHIPS * product_bytes, "re_reads": 1}],
        "vreg_estimate_bytes": ROWS * COLUMNS * 4,
    }
