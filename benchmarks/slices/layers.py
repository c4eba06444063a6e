"""Products that travel: collective matmuls, experts, and layers with XLA's collectives around a kernel."""

from __future__ import annotations

from benchmarks.slices.program import Program

_DOT = "jnp.dot({}, preferred_element_type=jnp.float32)"
GATHERED = Program(
    name="all-gather and matmul in one",
    body="""
def kernel(x, w, o, rows, sent, arrived, copied):
    here(x, rows.at[0], copied)
    meet(me() + 1, me() - 1)
    for step in range(N):
        last = step == N - 1
        copy = None if last else send(rows.at[step], rows.at[step + 1], sent.at[step], arrived.at[step], me() + 1)
        if copy:
            copy.start()
        where = pl.multiple_of(jax.lax.rem(me() - step + N, N) * ROWS, ROWS)
        o[pl.ds(where, ROWS), :] = jnp.dot(rows[step], w[...], preferred_element_type=jnp.float32)
        if copy:
            copy.wait()


def local(x, w):
    scratch = [pltpu.VMEM((N, ROWS, WIDTH), jnp.float32), DMA((N - 1,)), DMA((N - 1,)), DMA]
    return call(kernel, ALL, scratch, specs=(ANY, VMEM), out=VMEM, width=128)(x, w)
""",
    reference=_DOT.format("x, w"),
    out='P(None, "chip")',
    weights="(WIDTH, N * 128)",
    split='None, "chip"',
    flops="2 * ALL * WIDTH * N * 128",
    wrong={
        "rows are multiplied before they are there": (
            ("        if copy:\n            copy.wait()\n", "        if copy:\n            copy.wait_send()\n"),
        ),
        "to the wrong rows of the result": (
            ("rem(me() - step + N, N) * ROWS, ROWS)", "rem(me() + step + N, N) * ROWS, ROWS)"),
        ),
    },
)
SCATTERED = Program(
    name="matmul and reduce-scatter in one",
    body="""
def kernel(x, w, o, total, got, sent, arrived):
    each = ROWS // N
    meet(me() + 1, me() - 1)

    def product(chip):
        first = pl.multiple_of(jax.lax.rem(chip + N, N) * each, each)
        return jnp.dot(x[pl.ds(first, each), :], w[...], preferred_element_type=jnp.float32)

    total[...] = product(me() - 1)
    for step in range(N - 1):
        copy = send(total, got.at[step], sent, arrived.at[step], me() + 1)
        copy.start()
        following = product(me() - 2 - step)
        copy.wait()
        total[...] = following + got[step]
    o[...] = total[...]


def local(x, w):
    each = pltpu.VMEM((ROWS // N, WIDTH), jnp.float32)
    slots = pltpu.VMEM((N - 1, ROWS // N, WIDTH), jnp.float32)
    return call(kernel, ROWS // N, [each, slots, DMA, DMA((N - 1,))], specs=(VMEM, VMEM), out=VMEM)(x, w)
""",
    reference="jnp.einsum('crk,ckn->rn', parts, w.reshape(N, WIDTH, WIDTH))",
    weights="(N * WIDTH, WIDTH)",
    split='"chip"',
    flops="2 * ROWS * N * WIDTH * WIDTH",
    wrong={
        "one sum behind": (("following + got[step]", "following + got[max(0, step - 1)]"),),
        "the product of the chip before": (("product(me() - 2 - step)", "product(me() - 1 - step)"),),
    },
)
EXPERTS = Program(
    name="tokens to experts and back",
    body="""
def kernel(x, w, o, tokens, made, there, back, arrived, returned, copied):
    each = ROWS // N
    everybody()
    place = lambda chip: pl.ds(pl.multiple_of(jax.lax.rem(chip + N, N) * each, each), each)
    out = [
        send(x.at[place(me() + step)], tokens.at[place(me())], there, arrived.at[step], me() + step)
        for step in range(1, N)
    ]
    home = [
        send(made.at[place(me() - step)], o.at[place(me())], back, returned.at[step], me() - step)
        for step in range(1, N)
    ]
    for copy in out:
        copy.start()
    here(x.at[place(me())], tokens.at[place(me())], copied)
    for step in range(N):
        if step:
            out[step - 1].wait_recv()
        rows = place(me() - step)
        made[rows, :] = jnp.dot(tokens[rows, :], w[...], preferred_element_type=jnp.float32)
        if step:
            home[step - 1].start()
        else:
            here(made.at[rows], o.at[rows], copied)
    for copy in out:
        copy.wait_send()
    for copy in home:
        copy.wait()


def local(x, w):
    whole = pltpu.VMEM((ROWS, WIDTH), jnp.float32)
    scratch = [whole, whole, DMA, DMA, DMA((N,)), DMA((N,)), DMA]
    return call(kernel, ROWS, scratch, specs=(ANY, VMEM))(x, w)
""",
    reference=(
        "jnp.einsum('cerk,ekn->cern', parts.reshape(N, N, ROWS // N, WIDTH), w.reshape(N, WIDTH, WIDTH))"
        ".reshape(ALL, WIDTH)"
    ),
    weights="(N * WIDTH, WIDTH)",
    split='"chip"',
    flops="2 * ALL * WIDTH * WIDTH",
    wrong={
        "tokens are multiplied before they are there": (
            ("            out[step - 1].wait_recv()\n", "            pass\n"),
            ("        copy.wait_send()\n    for copy in home", "        copy.wait()\n    for copy in home"),
        ),
        "results to another's rows": (
            (
                "made.at[place(me() - step)], o.at[place(me())], back",
                "made.at[place(me() - step)], o.at[place(me() - step)], back",
            ),
        ),
    },
)
_MATMUL = """
def kernel(x, w, o):
    o[...] = jnp.dot(x[...], w[...], preferred_element_type=jnp.float32)


def matmul(x, w):
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((x.shape[0], w.shape[1]), jnp.float32),
        grid=(x.shape[0] // 64,),
        in_specs=[pl.BlockSpec((64, x.shape[1]), lambda i: (i, 0)), pl.BlockSpec(w.shape, lambda i: (0, 0))],
        out_specs=pl.BlockSpec((64, w.shape[1]), lambda i: (i, 0)),
    )(x, w)


def local(x, w):
    return {layer}
"""


def _layer(name: str, layer: str, reference: str, *, split: str, weights: str, out: str = 'P("chip")') -> Program:
    body, flops = _MATMUL.format(layer=layer), "2 * ALL * WIDTH * WIDTH"
    return Program(name=name, body=body, reference=reference, out=out, weights=weights, split=split, flops=flops)


TENSOR_PARALLEL = _layer(
    "a tensor-parallel product, summed by XLA",
    'jax.lax.psum_scatter(matmul(jax.lax.all_gather(x, "chip", tiled=True)[:, :128], w), "chip", tiled=True)',
    "jnp.einsum('rk,ckn->rn', x[:, :128], w.reshape(N, 128, WIDTH))",
    split='"chip"',
    weights="(N * 128, WIDTH)",
)
FULLY_SHARDED = _layer(
    "weights gathered by XLA before a product",
    'matmul(x, jax.lax.all_gather(w, "chip", tiled=True))',
    _DOT.format("x, w"),
    split='"chip"',
    weights="(WIDTH, WIDTH)",
)
PIPELINE = _layer(
    "two stages on neighbouring chips",
    'matmul(jax.lax.ppermute(matmul(x, w), "chip", RING), w)',
    "jnp.einsum('crk,ckn->crn', jnp.roll(jnp.einsum('crk,ckn->crn', parts, w.reshape(N, WIDTH, WIDTH)), 1, 0), "
    "w.reshape(N, WIDTH, WIDTH)).reshape(ALL, WIDTH)",
    split='"chip"',
    weights="(N * WIDTH, WIDTH)",
)
LAYERS = (GATHERED, SCATTERED, EXPERTS, FULLY_SHARDED, PIPELINE, TENSOR_PARALLEL)
