"""Experts of an MoE layer, one on each of the eight chips of a 2x4 slice: 512 tokens of 512 from every chip.

x bfloat16[8, 8, 64, 512] has the tokens by the chip that they are on, by the expert that they were routed to, and by
their place in that expert's capacity of 64. An expert is (silu(x gate) * (x up)) down, with gate and up bfloat16[512,
2048] and down bfloat16[2048, 512]. The result, like x, is where the tokens were.

Chips meet and send all tokens straight to the chips of their experts, those for the other half of the slice before most
others. The expert comes to VMEM in blocks of hidden values; each is applied to a chip's own tokens and a neighbour's
when it is there. Then come those of each other chip, the longest way first, whose results are sent straight back when
they are ready. The MXUs take 16.3 us. Between the halves of the slice there are two links, each of which takes 10.5 us
for the tokens and as much for the results: what passes them must not wait for what does not. Mutation to try next:
orders that differ by chip, as those in the middle of the slice have shorter ways.
"""

import itertools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec as P

KERNEL_NAME = "moe_all_to_all"
PROBLEM_DESCRIPTION = "64 tokens of 512 from each of 8 chips to each of 8 SwiGLU experts with 2048 hidden, and back"

CHIPS, CAPACITY, WIDTH, HIDDEN = 8, 64, 512, 2048
BH = 512
BLOCKS = HIDDEN // BH
SENT = (1, 6, 7, 4, 5, 2, 3)  # in turn 1 to a neighbour; from 4 on to the other half of the slice
APPLIED = (7, 6, 5, 4, 3, 2)  # after its own and those of turn 1


def _number(place):
    """The number of the chip at a place of the mesh, or the place of a number: jax.make_mesh turns the second half."""
    return jnp.where(place < 4, place, 11 - place)


def _meet(others):
    """Wait until the others have started the kernel, too."""
    barrier = pltpu.get_barrier_semaphore()
    for other in others:
        pl.semaphore_signal(barrier, 1, device_id=(other,), device_id_type=pl.DeviceIdType.MESH)
    pl.semaphore_wait(barrier, len(others))


def _product(a, b):
    return jnp.dot(a, b, preferred_element_type=jnp.float32)


def _experts(
    x_hbm,
    gate_hbm,
    up_hbm,
    down_hbm,
    o_any,
    gate_ref,
    up_ref,
    down_ref,
    tokens,
    results,
    total_ref,
    fetched,
    copied,
    sent,
    arrived,
):
    """One chip's expert. In each turn pairs of chips swap tokens, and later results; turn 0 is its own."""
    me = jax.lax.axis_index("chip")
    partner = {turn: _number(_number(me) ^ turn) for turn in SENT}

    def send(source, target, chip, phase, turn):
        return pltpu.make_async_remote_copy(
            source, target, sent.at[phase, turn], arrived.at[phase, turn],
            device_id=(chip,), device_id_type=pl.DeviceIdType.MESH,
        )  # fmt: skip

    def apply(x, block):
        """What a block of the expert's hidden values makes of some tokens."""
        columns = pl.ds(block * BH, BH)
        gate, up = _product(x, gate_ref[:, columns]), _product(x, up_ref[:, columns])
        return _product((gate * jax.nn.sigmoid(gate) * up).astype(x.dtype), down_ref[columns, :])

    def fetch(block):
        """The copies of what a block of hidden values needs."""
        columns = pl.ds(block * BH, BH)
        pairs = (
            (gate_hbm.at[:, columns], gate_ref.at[:, columns]),
            (up_hbm.at[:, columns], up_ref.at[:, columns]),
            (down_hbm.at[columns], down_ref.at[columns]),
        )
        return [pltpu.make_async_copy(*pair, fetched.at[block, which]) for which, pair in enumerate(pairs)]

    own = pltpu.make_async_copy(x_hbm.at[me], tokens.at[0], copied)
    weights = [fetch(block) for block in range(BLOCKS)]
    for copy in (own, *weights[0], *weights[1]):
        copy.start()
    _meet([partner[turn] for turn in SENT])
    there = {turn: send(x_hbm.at[partner[turn]], tokens.at[turn], partner[turn], 0, turn) for turn in SENT}
    back = {turn: send(results.at[turn], o_any.at[me], partner[turn], 1, turn) for turn in SENT}
    for copy in (*there.values(), *itertools.chain(*weights[2:])):
        copy.start()
    own.wait()
    for block in range(BLOCKS):
        for copy in weights[block]:
            copy.wait()
        if block == 0:
            there[1].wait_recv()
        part = apply(tokens[:2].reshape(2 * CAPACITY, WIDTH), block)
        total_ref[...] = total_ref[...] + part if block else part
    results[:2] = total_ref[...].astype(results.dtype).reshape(2, CAPACITY, WIDTH)
    own = pltpu.make_async_copy(results.at[0], o_any.at[me], copied)
    own.start()
    back[1].start()
    for turn in APPLIED:
        there[turn].wait_recv()
        results[turn] = sum(apply(tokens[turn], block) for block in range(BLOCKS)).astype(results.dtype)
        back[turn].start()
    own.wait()
    for turn in SENT:
        there[turn].wait_send()
        back[turn].wait()


def _shard(x, gate, up, down):
    """One chip: x bfloat16[1, CHIPS, CAPACITY, WIDTH], its expert bfloat16[1, ., .] -> like x."""
    in_hbm = pl.BlockSpec(memory_space=pltpu.HBM)
    by_chip = pltpu.VMEM((CHIPS, CAPACITY, WIDTH), x.dtype)
    out = pl.pallas_call(
        _experts,
        out_shape=jax.ShapeDtypeStruct(x.shape[1:], x.dtype),
        in_specs=[in_hbm] * 4,
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((WIDTH, HIDDEN), gate.dtype),
            pltpu.VMEM((WIDTH, HIDDEN), up.dtype),
            pltpu.VMEM((HIDDEN, WIDTH), down.dtype),
            by_chip,
            by_chip,
            pltpu.VMEM((2 * CAPACITY, WIDTH), jnp.float32),
            pltpu.SemaphoreType.DMA((BLOCKS, 3)),
            pltpu.SemaphoreType.DMA,
            pltpu.SemaphoreType.DMA((2, CHIPS)),
            pltpu.SemaphoreType.DMA((2, CHIPS)),
        ],
        compiler_params=pltpu.CompilerParams(collective_id=0, has_side_effects=True),
    )(x[0], gate[0], up[0], down[0])
    return out[None]


def kernel_fn(x, gate, up, down):
    """x bfloat16[CHIPS, CHIPS, CAPACITY, WIDTH] by chips, experts bfloat16[CHIPS, ., .] over them -> like x."""
    return jax.shard_map(_shard, in_specs=P("chip"), out_specs=P("chip"), check_vma=False)(x, gate, up, down)


def reference_fn(x, gate, up, down):
    """The same in plain jax.numpy; hidden values are rounded to bfloat16."""
    tokens = jnp.swapaxes(x, 0, 1).reshape(CHIPS, CHIPS * CAPACITY, WIDTH)  # by expert
    gated = jnp.einsum("etd,edh->eth", tokens, gate, preferred_element_type=jnp.float32)
    raised = jnp.einsum("etd,edh->eth", tokens, up, preferred_element_type=jnp.float32)
    hidden = (gated * jax.nn.sigmoid(gated) * raised).astype(x.dtype)
    results = jnp.einsum("eth,ehd->etd", hidden, down, preferred_element_type=jnp.float32).astype(x.dtype)
    return jnp.swapaxes(results.reshape(CHIPS, CHIPS, CAPACITY, WIDTH), 0, 1)


def generate_inputs(key):
    """Normal tokens, and weights scaled to keep values near 1."""
    x, gate, up, down = jax.random.split(key, 4)

    def weights(key, rows, columns):
        return (jax.random.normal(key, (CHIPS, rows, columns), jnp.float32) * rows**-0.5).astype(jnp.bfloat16)

    return (
        jax.random.normal(x, (CHIPS, CHIPS, CAPACITY, WIDTH), jnp.bfloat16),
        weights(gate, WIDTH, HIDDEN),
        weights(up, WIDTH, HIDDEN),
        weights(down, HIDDEN, WIDTH),
    )


def compute_flops():
    """Useful FLOPs: three products for each token."""
    return 3 * 2 * CHIPS * CHIPS * CAPACITY * WIDTH * HIDDEN


def get_tiling_meta():
    """The mesh and where the inputs are; then what the author believes of one chip."""
    tokens, weights = CHIPS * CAPACITY * WIDTH * 2, WIDTH * HIDDEN * 2
    return {
        "mesh": {"chip": CHIPS},
        "input_shardings": [["chip"], ["chip"], ["chip"], ["chip"]],
        "grid": [1],
        "buffers": [
            {"name": "gate", "size_bytes": weights, "double_buffered": False},
            {"name": "up", "size_bytes": weights, "double_buffered": False},
            {"name": "down", "size_bytes": weights, "double_buffered": False},
            {"name": "tokens", "size_bytes": tokens, "double_buffered": False},
            {"name": "results", "size_bytes": tokens, "double_buffered": False},
            {"name": "total", "size_bytes": 2 * CAPACITY * WIDTH * 4, "double_buffered": False},
        ],
        "inputs": [
            {"name": "x", "size_bytes": tokens, "re_reads": 1},
            {"name": "weights", "size_bytes": 3 * weights, "re_reads": 1},
        ],
        "outputs": [{"name": "o", "size_bytes": tokens, "re_reads": 1}],
        "vreg_estimate_bytes": 3 * 2 * CAPACITY * BH * 4,
    }
