"""All-gather and matmul in one, on the eight chips of a 2x4 slice: bfloat16[2048, 1024] x bfloat16[1024, 16384].

x has an eighth of its rows on each chip, w an eighth of its columns. The result, bfloat16[2048, 16384], has whole
columns: each chip multiplies all rows of x by its own columns of w.

Rows of x go around the ring in both directions. While a chip multiplies the rows that come from either side, it sends
them on, into one of three slots for each direction. A chip tells the sender when a slot is free again. Of the rows of
the opposite chip half come either way. The MXUs bound it, with 43.6 us; each link takes 36.7 us. Neighbours have a link
of their own, which neighbours in the order of the mesh do not always have. x and w come to VMEM while the first rows
travel. Mutation to try next: smaller first messages, as only one product is computed before they arrive.
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
HALFWAY, HALF = CHIPS // 2, ROWS // 2
DEPTH = 3
RING = (0, 1, 3, 6, 4, 5, 7, 2)  # each has a link to the next, where jax.make_mesh puts them on a slice of 2x4


def _on_ring(me, steps):
    """The chip so many steps to the right of this one on the ring."""
    return sum(jnp.where(me == chip, RING[(place + steps) % CHIPS], 0) for place, chip in enumerate(RING))


def _meet(neighbours):
    """Wait until the neighbours have started the kernel, too."""
    barrier = pltpu.get_barrier_semaphore()
    for neighbour in neighbours:
        pl.semaphore_signal(barrier, 1, device_id=(neighbour,), device_id_type=pl.DeviceIdType.MESH)
    pl.semaphore_wait(barrier, len(neighbours))


def _multiply(x_hbm, w_hbm, o_hbm, x_ref, w_ref, slots, product, fetched, sent, arrived, written, free):
    """All rows by one chip's columns: its own rows first, then those of the chips on both sides, the nearest first."""
    me = jax.lax.axis_index("chip")
    neighbours = _on_ring(me, 1), _on_ring(me, -1)
    ways = range(2)  # to the right, to the left

    def held(way, step):
        """The rows that this chip passes on in ``step`` in this direction; it multiplies them then, too."""
        return slots.at[way, (step - 1) % DEPTH] if step else x_hbm

    def send(way, step):
        """The copy that passes the rows of ``step`` on, to be multiplied by the neighbour in the next."""
        rows = pl.ds(0, ROWS) if step < HALFWAY - 1 else pl.ds(way * HALF, HALF)
        return pltpu.make_async_remote_copy(
            held(way, step).at[rows],
            slots.at[way, step % DEPTH, rows],
            sent.at[way],
            arrived.at[way, step % DEPTH],
            device_id=(neighbours[way],),
            device_id_type=pl.DeviceIdType.MESH,
        )

    def multiply(rows, chip, start):
        """The product of some rows, to where the rows of ``chip`` are in the result, from their row ``start`` on."""
        count = rows.shape[0]
        target = product.at[pl.ds(0, count)]
        target[...] = jnp.dot(rows[...], w_ref[...], preferred_element_type=jnp.float32).astype(product.dtype)
        write = pltpu.make_async_copy(target, o_hbm.at[pl.ds(chip * ROWS + start, count)], written)
        write.start()
        write.wait()

    own = [
        pltpu.make_async_copy(source, target, fetched.at[which])
        for which, (source, target) in enumerate(((x_hbm, x_ref), (w_hbm, w_ref)))
    ]
    for copy in own:
        copy.start()
    _meet(neighbours)
    for step in range(HALFWAY + 1):
        if DEPTH <= step < HALFWAY:
            for way in ways:
                pl.semaphore_wait(free.at[way], 1)
        copies = [send(way, step) for way in ways] if step < HALFWAY else []
        for copy in copies:
            copy.start()
        if step == 0:
            for copy in own:
                copy.wait()
            multiply(x_ref, me, 0)
        elif step < HALFWAY:
            multiply(held(0, step), _on_ring(me, -step), 0)
            multiply(held(1, step), _on_ring(me, step), 0)
        else:
            for way in ways:
                multiply(held(way, step).at[pl.ds(way * HALF, HALF)], _on_ring(me, step), way * HALF)
        for copy in copies:
            copy.wait()
        if 1 <= step <= HALFWAY - DEPTH:
            for way in ways:
                sender = neighbours[1 - way]
                pl.semaphore_signal(free.at[way], 1, device_id=(sender,), device_id_type=pl.DeviceIdType.MESH)


def _shard(x, w):
    """One chip: x bfloat16[ROWS, K], w bfloat16[K, COLUMNS] -> bfloat16[M, COLUMNS]."""
    in_hbm = pl.BlockSpec(memory_space=pltpu.HBM)
    return pl.pallas_call(
        _multiply,
        out_shape=jax.ShapeDtypeStruct((M, COLUMNS), x.dtype),
        in_specs=[in_hbm, in_hbm],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((ROWS, K), x.dtype),
            pltpu.VMEM((K, COLUMNS), w.dtype),
            pltpu.VMEM((2, DEPTH, ROWS, K), x.dtype),
            pltpu.VMEM((ROWS, COLUMNS), x.dtype),
            pltpu.SemaphoreType.DMA((2,)),
            pltpu.SemaphoreType.DMA((2,)),
            pltpu.SemaphoreType.DMA((2, DEPTH)),
            pltpu.SemaphoreType.DMA,
            pltpu.SemaphoreType.REGULAR((2,)),
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
            {"name": "slots", "size_bytes": 2 * DEPTH * x_bytes, "double_buffered": False},
            {"name": "product", "size_bytes": product_bytes, "double_buffered": False},
        ],
        "inputs": [
            {"name": "x", "size_bytes": x_bytes, "re_reads": 3},
            {"name": "w", "size_bytes": w_bytes, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": CHIPS * product_bytes, "re_reads": 1}],
        "vreg_estimate_bytes": ROWS * COLUMNS * 4,
    }
