"""Honest: the inverse of unit triangular matrices by doubling, each product of three bfloat16 ones, float32."""
# base: softmax_no_max

KERNEL_NAME = "inverse_three_passes"
PROBLEM_DESCRIPTION = "inverses of eye + strictly lower part, float32[8, 64, 64]"

COUNT, C = 8, 64


def _parts(x):
    high = x.astype(jnp.bfloat16)
    return high, (x - high.astype(jnp.float32)).astype(jnp.bfloat16)


def _product(x, y):
    (a, b), (c, d) = _parts(x), _parts(y)
    dot = lambda left, right: jnp.dot(left, right, preferred_element_type=jnp.float32)  # noqa: E731
    return dot(a, c) + (dot(a, d) + dot(b, c))


def _kernel(s, o):
    r, c = (jax.lax.broadcasted_iota(jnp.int32, (C, C), axis) for axis in (0, 1))
    found, size = (r == c).astype(jnp.float32), 1
    while size < C:
        beside = jnp.where((r // size % 2 == 1) & (c // size == r // size - 1), s[0], 0.0)
        found = found - _product(_product(found, beside), found)
        size *= 2
    o[0] = found


def kernel_fn(s):
    spec = pl.BlockSpec((1, C, C), lambda i: (i, 0, 0))
    return pl.pallas_call(_kernel, out_shape=s, grid=(COUNT,), in_specs=[spec], out_specs=spec)(s)


def reference_fn(s):
    eye = jnp.broadcast_to(jnp.eye(C), s.shape)
    return jax.scipy.linalg.solve_triangular(jnp.tril(s, -1) + eye, eye, lower=True, unit_diagonal=True)


def generate_inputs(key):
    return (0.1 * jax.random.normal(key, (COUNT, C, C)),)


def compute_flops():
    return COUNT * C**3
