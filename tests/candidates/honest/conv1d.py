"""Honest: a causal convolution along the sequence, per channel, bfloat16 out."""
# base: column_softmax

KERNEL_NAME = "conv1d"
PROBLEM_DESCRIPTION = "depthwise causal convolution of bfloat16[128, 256], 4 taps"

N, D, TAPS, B = 128, 256, 4, 128


def _kernel(x, w, o):
    padded = jnp.concatenate([jnp.zeros((8, B), jnp.float32), x[...].astype(jnp.float32)], axis=0)
    total = jnp.zeros((N, B), jnp.float32)
    for tap in range(TAPS):
        start = 8 - (TAPS - 1) + tap
        total = total + padded[start : start + N] * w[tap : tap + 1].astype(jnp.float32)
    o[...] = total.astype(o.dtype)


def reference_fn(x, w):
    out = jax.lax.conv_general_dilated(
        x.T[None].astype(jnp.float32),
        w.T[:, None].astype(jnp.float32),
        (1,),
        [(TAPS - 1, 0)],
        feature_group_count=D,
        precision="highest",
    )
    return out[0].T.astype(jnp.bfloat16)


def generate_inputs(key):
    a, b = jax.random.split(key)
    return jax.random.normal(a, (N, D), jnp.bfloat16), 0.5 * jax.random.normal(b, (TAPS, D), jnp.bfloat16)


def compute_flops():
    return 2 * N * D * TAPS
