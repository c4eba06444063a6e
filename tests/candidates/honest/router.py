"""Honest: the four likeliest of sixteen experts for each token, with weights that add up to one."""
# base: silu_f32

KERNEL_NAME = "router"
PROBLEM_DESCRIPTION = "top 4 of a softmax over bfloat16[256, 128] times bfloat16[128, 16]"

N, D, E, TOP, B = 256, 128, 16, 4, 64
EACH = 32


def _kernel(x, w, weights, experts):
    scores = jnp.dot(x[...], w[...], preferred_element_type=jnp.float32)
    lane = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    kept, places = [], []
    for _ in range(TOP):
        top = jnp.max(scores, axis=1, keepdims=True)
        place = jnp.min(jnp.where(scores == top, lane, E), axis=1, keepdims=True)
        kept.append(top)
        places.append(place)
        scores = jnp.where(lane == place, -jnp.inf, scores)
    e = [jnp.exp(one - kept[0]) for one in kept]
    for k in range(TOP):
        weights[:, k : k + 1] = e[k] / sum(e)
        experts[:, k : k + 1] = places[k]


def reference_fn(x, w):
    p, places = jax.lax.top_k(jax.nn.softmax(jnp.dot(x, w, preferred_element_type=jnp.float32), axis=-1), TOP)
    return p / jnp.sum(p, axis=-1, keepdims=True), places


def generate_inputs(key):
    a, b = jax.random.split(key)
    return jax.random.normal(a, (N, D), jnp.bfloat16), 0.125 * jax.random.normal(b, (D, E), jnp.bfloat16)
