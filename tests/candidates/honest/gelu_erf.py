"""Honest: exact gelu by 1 + erf, whose tail is the rounding of that sum, float32."""
# base: silu_f32

KERNEL_NAME = "gelu_erf"
PROBLEM_DESCRIPTION = "exact gelu by erf of float32[256, 512]"

N, D, B = 256, 512, 64
EACH = 10


def _kernel(x, o):
    v = x[...].astype(jnp.float32)
    o[...] = (0.5 * v * (1 + jax.lax.erf(v * 0.7071067811865476))).astype(o.dtype)


def reference_fn(x):
    return jax.nn.gelu(x.astype(jnp.float32), approximate=False).astype(x.dtype)
