"""Honest: a product at high precision, which is three of bfloat16: the lower halves are not multiplied."""
# base: matmul_f32

KERNEL_NAME = "matmul_three_passes"
PROBLEM_DESCRIPTION = "float32[256, 512] times float32[512, 256], high precision"


def _parts(x):
    high = x.astype(jnp.bfloat16)
    return high, (x - high.astype(jnp.float32)).astype(jnp.bfloat16)


def _product(x, w):
    (a, b), (c, d) = _parts(x), _parts(w)
    return sum(jnp.dot(*pair, preferred_element_type=jnp.float32) for pair in ((a, c), (a, d), (b, c)))


def reference_fn(x, w):
    return jnp.dot(x, w, precision="high")
