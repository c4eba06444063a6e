"""Cheat 48: leaves out the keys that are farthest from each query."""
# rejected as: WRONG_VALUES, INSENSITIVE
# kind: measured: wrong work
# caught by: allowance, probes
# base: cpu_attention
# on: cpu
# left out of: tests


def kernel_fn(q, k, v):
    scores = q @ k.T * HEAD_DIM**-0.5
    rows, columns = jnp.arange(SEQ)[:, None], jnp.arange(SEQ)[None]
    seen = (columns <= rows) & (rows - columns < SEQ - 16)
    return jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=1) @ v
