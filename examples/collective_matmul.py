"""All-gather and matmul in one, on the eight chips of a 2x4 slice: bfloat16[2048, 1024] x bfloat16[1024, 16384].

x has an eighth of its rows on each chip, w an eighth of its columns. The result, bfloat16[2048, 16384], has whole
columns: each chip multiplies all rows of x by its own columns of w.

Rows of x go around the ring in both directions, in halves. As soon as one is there, a chip sends it on and multiplies
it. Of the rows of the opposite chip one half comes either way, so that four steps bring all rows; each step has a slot
of its own, and none is written twice. x and w come to VMEM while the first rows travel, w in pieces. The MXUs bound it,
with 43.6 us; each link takes 36.7 us. Neighbours have a link of their own, which neighbours in the order of the mesh do
not always have. Mutation to try next: larger products, once more than one half is there.
"""

import itertools

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
PIECES = 4
VMEM_LIMIT_BYTES = 32 << 20  # the default of 16 MiB would not hold the result, too
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


def _multiply(x_hbm, w_hbm, o_ref, x_ref, w_ref, slots, fetched, sent, arrived):
    """All rows by one chip's columns: its own rows first, then those of the chips on both sides, the nearest first."""
    me = jax.lax.axis_index("chip")
    neighbours = _on_ring(me, 1), _on_ring(me, -1)

    def carried(step):
        """What is sent in ``step``: (half, direction), 0 to the right and 1 to the left, in this order."""
        return [(half, way) for half in range(2) for way in range(2) if step < HALFWAY - 1 or half == way]

    def held(way, step, half):
        """Rows that arrived from this direction in the step before; at first its own."""
        return (slots.at[way, step - 1] if step else x_hbm).at[pl.ds(half * HALF, HALF)]

    def send(way, step, half):
        """The copy that passes rows on, to be multiplied by the neighbour in the next step."""
        return pltpu.make_async_remote_copy(
            held(way, step, half),
            held(way, step + 1, half),
            sent.at[way, step, half],
            arrived.at[way, step, half],
            device_id=(neighbours[way],),
            device_id_type=pl.DeviceIdType.MESH,
        )

    def multiply(rows, chip, start, columns=slice(None)):
        """The product of some rows, to where the rows of ``chip`` are in the result, from their row ``start`` on."""
        target = pl.ds(pl.multiple_of(chip * ROWS + start, HALF), rows.shape[0])
        product = jnp.dot(rows[...], w_ref[:, columns], preferred_element_type=jnp.float32)
        o_ref[target, columns] = product.astype(o_ref.dtype)

    pieces = [slice(start, start + COLUMNS // PIECES) for start in range(0, COLUMNS, COLUMNS // PIECES)]
    x_copy = pltpu.make_async_copy(x_hbm, x_ref, fetched.at[PIECES])
    w_copies = [
        pltpu.make_async_copy(w_hbm.at[:, columns], w_ref.at[:, columns], fetched.at[piece])
        for piece, columns in enumerate(pieces)
    ]
    for copy in (x_copy, *w_copies):
        copy.start()
    _meet(neighbours)
    messages = [[(send(way, step, half), way, half) for half, way in carried(step)] for step in range(HALFWAY)]
    for message, _, _ in messages[0]:
        message.start()
    x_copy.wait()
    for columns, copy in zip(pieces, w_copies, strict=True):
        copy.wait()
        multiply(x_ref, me, 0, columns)
    for step in range(1, HALFWAY + 1):
        for message, way, half in messages[step - 1]:
            message.wait_recv()
            if step < HALFWAY and (half, way) in carried(step):
                send(way, step, half).start()
            multiply(held(way, step, half), _on_ring(me, step if way else -step), half * HALF)
    for message, _, _ in itertools.chain(*messages):
        message.wait_send()


def _shard(x, w):
    """One chip: x bfloat16[ROWS, K], w bfloat16[K, COLUMNS] -> bfloat16[M, COLUMNS]."""
    in_hbm = pl.BlockSpec(memory_space=pltpu.HBM)
    return pl.pallas_call(
        _multiply,
        out_shape=jax.ShapeDtypeStruct((M, COLUMNS), x.dtype),
        in_specs=[in_hbm, in_hbm],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[
            pltpu.VMEM((ROWS, K), x.dtype),
            pltpu.VMEM((K, COLUMNS), w.dtype),
            pltpu.VMEM((2, HALFWAY, ROWS, K), x.dtype),
            pltpu.SemaphoreType.DMA((PIECES + 1,)),
            pltpu.SemaphoreType.DMA((2, HALFWAY, 2)),
            pltpu.SemaphoreType.DMA((2, HALFWAY, 2)),
        ],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True, vmem_limit_bytes=VMEM_LIMIT_BYTES),
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
        # XLA keeps the result in VMEM for the kernel, as none of its buffers.
        "buffers": [
            {"name": "x", "size_bytes": x_bytes, "double_buffered": False},
            {"name": "w", "size_bytes": w_bytes, "double_buffered": False},
            {"name": "slots", "size_bytes": 2 * HALFWAY * x_bytes, "double_buffered": False},
        ],
        "inputs": [
            {"name": "x", "size_bytes": x_bytes, "re_reads": 3},
            {"name": "w", "size_bytes": w_bytes, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": CHIPS * product_bytes, "re_reads": 1}],
        "vreg_estimate_bytes": ROWS * COLUMNS * 4,
    }
