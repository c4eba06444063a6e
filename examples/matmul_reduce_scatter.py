"""Matmul and reduce-scatter in one, on the eight chips of a 2x4 slice: bfloat16[1024, 16384] x bfloat16[16384, 1024].

x has an eighth of its columns on each chip, w an eighth of its rows, as the last product of a tensor-parallel MLP has
them. Each chip multiplies its parts, and the result, bfloat16[1024, 1024], is the sum over all chips, by rows.

The sum of the rows of one chip begins at that chip's neighbours and goes around the ring, in float32: half of its
columns to the right, half to the left. While a sum travels, the chip that will get it multiplies what it has to add. It
adds that to the sum where it arrived, in a slot of its own for each step, and sends it on from there, in pieces: a link
carries one while another has a hop and an addition behind it. Neighbours have a link of their own, which neighbours in
the order of the mesh do not always have. x and w come to VMEM while the chips meet and the first sums travel, in the
order in which they are needed. The MXUs take 21.8 us for all products; each link takes 36.7 us. Mutation to try next:
four pieces, as the links are idle until one is multiplied.
"""

import itertools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "matmul_reduce_scatter"
PROBLEM_DESCRIPTION = (
    "bfloat16[1024, 16384] by columns over 8 chips x bfloat16[16384, 1024] by rows, an eighth of the rows on each chip"
)

CHIPS, M, K, N = 8, 1024, 16384, 1024
ROWS, DEPTH, HALF = M // CHIPS, K // CHIPS, N // 2
PIECES = 2
WIDTH = HALF // PIECES
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


def _multiply(x_hbm, w_hbm, o_ref, x_ref, w_ref, products, slots, fetched_x, fetched_w, sent, arrived):
    """The sums of other chips' rows first, the next chip's before all that follow, and at last that of its own rows."""
    me = jax.lax.axis_index("chip")
    neighbours = _on_ring(me, 1), _on_ring(me, -1)
    ways = range(2)  # to the right, to the left
    parts = [(piece, way) for piece in range(PIECES) for way in ways]  # in the order in which they are sent

    def rows(way, step):
        """Those of the chip whose sum this one sends on in ``step``; after all steps its own."""
        return pl.ds(pl.multiple_of(_on_ring(me, step + 1 if way else -1 - step) * ROWS, ROWS), ROWS)

    def columns(way, piece):
        return pl.ds(way * HALF + piece * WIDTH, WIDTH)

    def fetch_x(way, step):
        block = rows(way, step)
        return pltpu.make_async_copy(x_hbm.at[block], x_ref.at[block], fetched_x.at[way, step])

    def fetch_w(way, piece):
        block = columns(way, piece)
        return pltpu.make_async_copy(w_hbm.at[:, block], w_ref.at[:, block], fetched_w.at[way, piece])

    def fetched(step):
        """The rows that no step before had: those of the opposite chip, and its own, are the same both ways."""
        return [fetch_x(way, step) for way in range(2 if step < CHIPS // 2 - 1 else 1)]

    def multiply(way, piece, step):
        """This chip's part of the sum that it sends on in ``step``; after all steps that of its own rows."""
        return jnp.dot(x_ref[rows(way, step), :], w_ref[:, columns(way, piece)], preferred_element_type=jnp.float32)

    def send(way, piece, step):
        """The copy of a sum to the neighbour, who has the next step of it."""
        return pltpu.make_async_remote_copy(
            slots.at[way, step, piece],
            slots.at[way, step + 1, piece],
            sent.at[way, step, piece],
            arrived.at[way, step, piece],
            device_id=(neighbours[way],),
            device_id_type=pl.DeviceIdType.MESH,
        )

    def add(way, piece, step):
        """Add this chip's part to a sum that has come, and send that on; after all steps it is the result."""
        send(way, piece, step - 1).wait_recv()
        total = slots[way, step, piece] + products[way]
        if step < CHIPS - 1:
            slots[way, step, piece] = total
            send(way, piece, step).start()
        else:
            o_ref[:, columns(way, piece)] = total.astype(o_ref.dtype)

    new_rows = {step: fetched(step) for step in (*range(CHIPS // 2), CHIPS - 1)}
    w_copies = [fetch_w(way, piece) for piece, way in parts]
    first, *later = new_rows.values()
    for copy in (*first, *w_copies[:2]):
        copy.start()
    _meet(neighbours)
    for copy in w_copies[2:]:
        copy.start()
    for copy in first:
        copy.wait()
    for copy in itertools.chain(*later):  # not sooner, where the compiler would put some of them before w
        copy.start()
    for (piece, way), copy in zip(parts, w_copies, strict=True):
        copy.wait()
        slots[way, 0, piece] = multiply(way, piece, 0)
        send(way, piece, 0).start()
    for step in range(1, CHIPS):
        for copy in new_rows.get(step, ()):
            copy.wait()
        for piece in range(PIECES):
            for way in ways:
                products[way] = multiply(way, piece, step)
            for way in ways:
                add(way, piece, step)
    for step, (piece, way) in itertools.product(range(CHIPS - 1), parts):
        send(way, piece, step).wait_send()


def _shard(x, w):
    """One chip: x bfloat16[M, DEPTH], w bfloat16[DEPTH, N] -> bfloat16[ROWS, N]."""
    in_hbm = pl.BlockSpec(memory_space=pltpu.HBM)
    return pl.pallas_call(
        _multiply,
        out_shape=jax.ShapeDtypeStruct((ROWS, N), x.dtype),
        in_specs=[in_hbm, in_hbm],
        out_specs=pl.BlockSpec(memory_space=pltpu.VMEM),
        scratch_shapes=[
            pltpu.VMEM((M, DEPTH), x.dtype),
            pltpu.VMEM((DEPTH, N), w.dtype),
            pltpu.VMEM((2, ROWS, WIDTH), jnp.float32),
            pltpu.VMEM((2, CHIPS, PIECES, ROWS, WIDTH), jnp.float32),
            pltpu.SemaphoreType.DMA((2, CHIPS)),
            pltpu.SemaphoreType.DMA((2, PIECES)),
            pltpu.SemaphoreType.DMA((2, CHIPS - 1, PIECES)),
            pltpu.SemaphoreType.DMA((2, CHIPS - 1, PIECES)),
        ],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
    )(x, w)


def kernel_fn(x, w):
    """x bfloat16[M, K] by columns, w bfloat16[K, N] by rows over the chips -> bfloat16[M, N] by rows."""
    columns, rows = P(None, "chip"), P("chip")
    return jax.shard_map(_shard, in_specs=(columns, rows), out_specs=rows, check_vma=False)(x, w)


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
    x_bytes, w_bytes, sum_bytes = M * DEPTH * 2, DEPTH * N * 2, ROWS * N * 4
    return {
        "mesh": {"chip": CHIPS},
        "input_shardings": [[None, "chip"], ["chip"]],
        "grid": [1],
        "buffers": [
            {"name": "x", "size_bytes": x_bytes, "double_buffered": False},
            {"name": "w", "size_bytes": w_bytes, "double_buffered": False},
            {"name": "products", "size_bytes": sum_bytes // PIECES, "double_buffered": False},
            {"name": "slots", "size_bytes": CHIPS * sum_bytes, "double_buffered": False},
        ],
        "inputs": [
            {"name": "x", "size_bytes": x_bytes, "re_reads": 1},
            {"name": "w", "size_bytes": w_bytes, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": ROWS * N * 2, "re_reads": 1}],
        "vreg_estimate_bytes": ROWS * N * 4,
    }
