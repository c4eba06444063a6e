"""Honest: tridiagonal equations by elimination down and substitution up, a system in each lane, float32."""
# base: decayed_sums

KERNEL_NAME = "tridiagonal"
PROBLEM_DESCRIPTION = "512 systems of 64 equations, float32"

N, D, B = 64, 512, 128


def _kernel(a, b, c, d, o, upper, right):
    upper[0:1], right[0:1] = c[0:1] / b[0:1], d[0:1] / b[0:1]

    def down(i, _):
        now, before = pl.ds(i, 1), pl.ds(i - 1, 1)
        pivot = b[now] - a[now] * upper[before]
        upper[now] = c[now] / pivot
        right[now] = (d[now] - a[now] * right[before]) / pivot

    jax.lax.fori_loop(1, N, down, None)
    o[N - 1 :] = right[N - 1 :]

    def up(k, _):
        now = pl.ds(N - 2 - k, 1)
        o[now] = right[now] - upper[now] * o[pl.ds(N - 1 - k, 1)]

    jax.lax.fori_loop(0, N - 1, up, None)


def kernel_fn(a, b, c, d):
    spec = pl.BlockSpec((N, B), lambda i: (0, i))
    scratch = [pltpu.VMEM((N, B), jnp.float32)] * 2
    return pl.pallas_call(
        _kernel, out_shape=d, grid=(D // B,), in_specs=[spec] * 4, out_specs=spec, scratch_shapes=scratch
    )(a, b, c, d)


def reference_fn(a, b, c, d):
    def down(before, row):
        upper, right = before
        a, b, c, d = row
        pivot = b - a * upper
        now = c / pivot, (d - a * right) / pivot
        return now, now

    nothing = jnp.zeros((D,))
    rows = jax.lax.scan(down, (nothing, nothing), (a.at[0].set(0.0), b, c, d))[1]

    def up(x, row):
        x = row[1] - row[0] * x
        return x, x

    return jax.lax.scan(up, nothing, rows, reverse=True)[1]


def generate_inputs(key):
    a, b, c, d = jax.random.split(key, 4)
    sides = (0.3 * jax.random.normal(side, (N, D)) for side in (a, c))
    lower, upper = sides
    return lower, jax.random.uniform(b, (N, D), minval=2.0, maxval=3.0), upper, jax.random.normal(d, (N, D))


def compute_flops():
    return 8 * N * D
