"""Honest: causal attention inside documents, 4 heads."""
# base: sliding_window

KERNEL_NAME = "document_mask"
PROBLEM_DESCRIPTION = "causal attention inside documents, 4 heads of bfloat16[256, 128]"


def _seen(r, c, rows, columns):
    return (c <= r) & (rows[...] == columns[...])


def kernel_fn(q, k, v, ids):
    specs = [pl.BlockSpec((B, 1), lambda h, i: (i, 0)), pl.BlockSpec((1, N), lambda h, i: (0, 0))]
    return _call(q, k, v, ids.reshape(N, 1), ids.reshape(1, N), specs=specs)


def reference_fn(q, k, v, ids):
    return _reference(q, k, v, ids[:, None], ids[None])


_random = generate_inputs


def generate_inputs(key):
    return (*_random(key), jnp.repeat(jnp.arange(4, dtype=jnp.int32), N // 4))
