"""Honest: attention of sixteen heads without a mask."""
# base: sliding_window

KERNEL_NAME = "attention_heads"
PROBLEM_DESCRIPTION = "attention, 16 heads of bfloat16[256, 128]"

H = 16


def _kernel(q, k, v, o):
    s = _scores(jax.lax.dot_general(q[0], k[0], (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32))
    c = jax.lax.broadcasted_iota(jnp.int32, (B, N), 1)
    s = jnp.where(c >= 0, s, -1e30)
    e = jnp.exp(s - jnp.max(s, axis=1, keepdims=True))
    total = jnp.dot(e.astype(jnp.bfloat16), v[0], preferred_element_type=jnp.float32)
    o[0] = (total / jnp.sum(e, axis=1, keepdims=True)).astype(o.dtype)


def reference_fn(q, k, v):
    s = _scores(jnp.einsum("hqd,hkd->hqk", q, k, preferred_element_type=jnp.float32))
    c = jnp.arange(N)[None]
    p = jax.nn.softmax(jnp.where(c >= 0, s, -jnp.inf), axis=-1)
    return jnp.einsum("hqk,hkd->hqd", p.astype(v.dtype), v, preferred_element_type=jnp.float32).astype(jnp.bfloat16)
