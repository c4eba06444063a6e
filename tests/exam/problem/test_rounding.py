"""What honest arithmetic may lose: the analysis against evaluations in the reference's own dtypes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ratchet.exam.problem.promote import with_losses

RNG = np.random.default_rng(0)
X = RNG.normal(size=(128, 256)).astype(np.float32)
B = X.astype(jnp.bfloat16)
ORDER = RNG.permutation(256)
W = RNG.normal(size=(256, 64)).astype(np.float32)


def analysed(function, *arrays):
    avals = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
    with jax.enable_x64(True):
        found = [np.asarray(x) for x in jax.jit(with_losses(function, *avals))(*arrays)]
    half = len(found) // 2
    return found[:half], found[half:]


def native(function, *arrays):
    return [np.asarray(x).astype(np.float64) for x in jax.tree.leaves(jax.jit(function)(*arrays))]


def norm(x):
    c = x - jnp.mean(x, axis=1, keepdims=True)
    return c * jax.lax.rsqrt(jnp.mean(c * c, axis=1, keepdims=True) + 1e-6)


def chunked(x):
    return sum(x[:, k : k + 16] for k in range(0, 256, 16)).sum(1)


def sequential(x):
    return jax.lax.scan(lambda total, column: (total + column, None), jnp.zeros(128, x.dtype), x.T)[0]


def recurrence(x):
    return jax.lax.scan(lambda h, row: (0.9 * h + row, 0.9 * h + row), x[0], x)[1]


FUNCTIONS = {
    "softmax": (lambda x: jax.nn.softmax(x, axis=1), X),
    "norm": (norm, X),
    "cumsum": (lambda x: jnp.cumsum(x, axis=1), X),
    "product": (lambda x, w: jnp.dot(x, w, precision="highest"), X, W),
    "logsumexp": (lambda x: jax.nn.logsumexp(x, axis=1), X),
    "gelu": (jax.nn.gelu, X),
    "recurrence": (recurrence, X),
    "gradient": (jax.grad(lambda x: jnp.sum(norm(x) ** 3)), X),
    "sequential sum": (sequential, X),
    "fourier": (lambda x: jnp.abs(jnp.fft.rfft(x, axis=1)), X),
    "segments": (lambda x, ids: jax.ops.segment_sum(x, ids, 8), X, RNG.integers(0, 8, 128).astype(np.int32)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_loss_is_what_float32_loses(name):
    """No more than a few losses anywhere, and the loss is no more than ten or so times what is lost."""
    function, *arrays = FUNCTIONS[name]
    (exact,), (loss,) = analysed(function, *arrays)
    (got,) = native(function, *arrays)
    lost = np.abs(got - exact)
    assert (lost <= 6 * loss + 1e-38).all()
    assert np.sqrt(np.mean(loss**2)) < 30 * np.sqrt(np.mean(lost**2))


def test_no_order_of_a_sum_loses_more():
    (exact,), (loss,) = analysed(lambda x: jnp.sum(x, axis=1), X)
    for order in (chunked, sequential, lambda x: sequential(x[:, ::-1]), lambda x: sequential(x[:, ORDER])):
        assert (np.abs(native(order, X)[0] - exact) <= 6 * loss).all()


@pytest.mark.parametrize(
    ("function", "formula"),
    [
        (jnp.expm1, lambda x: jnp.exp(x) - 1.0),
        (jnp.sinh, lambda x: 0.5 * (jnp.exp(x) - jnp.exp(-x))),
        (jnp.arcsinh, lambda x: jnp.sign(x) * jnp.log(jnp.abs(x) + jnp.sqrt(x * x + 1.0))),
        (jnp.arctanh, lambda x: 0.5 * jnp.log((1.0 + x) / (1.0 - x))),
    ],
)
def test_what_pallas_has_no_operation_for_may_lose_roundings_of_one(function, formula):
    x = np.tanh(X * 10.0 ** np.linspace(-6, 0, 256, dtype=np.float32))
    (exact,), (loss,) = analysed(function, x)
    assert (np.abs(native(formula, x)[0] - exact) <= 6 * loss).all()
    near = np.abs(x) < 0.5
    assert (loss[near] < 4e-7).all()


def test_equal_operands_lose_the_same_in_one_pass_of_a_product():
    ones = np.full((4, 4096), 1.003, np.float32)
    (exact,), (loss,) = analysed(lambda x, y: jnp.dot(x, y.T), ones, ones)
    assert (np.abs(exact - 4096.0) <= 2 * loss).all(), "bfloat16 makes each of them 1"


def test_what_cancels_has_the_loss_of_its_terms():
    _, (loss,) = analysed(lambda x: (x + 1000.0) - (x + 1000.0).mean(), X)
    assert (loss > 1000 * 2.0**-26).all()
    assert (loss < 1000 * 2.0**-17).all()


def test_a_rounding_of_the_reference_counts_and_that_of_the_output_does_not():
    _, (inside,) = analysed(lambda x: (x * x).astype(jnp.bfloat16).astype(jnp.float32) * 3.0, X)
    _, (outside,) = analysed(lambda x: (x * x).astype(jnp.bfloat16), X)
    assert np.median(inside / (3 * X**2)) > 2.0**-10
    assert np.median(outside / X**2) < 2.0**-20
    _, (looped,) = analysed(lambda x: jax.lax.map(lambda row: (row * row).astype(jnp.bfloat16), x), X)
    assert np.median(looped / X**2) < 2.0**-20


def test_rows_of_any_size_have_a_loss_of_their_own_size():
    size = 10.0 ** np.arange(0, -128, -1)
    rows = np.repeat(size[:30, None] ** 1.0, 256, axis=1).astype(np.float32) * X[:30]
    _, (loss,) = analysed(lambda x, w: jnp.dot(x, w, precision="highest"), rows, W)
    ratio = np.median(loss, axis=1) / size[:30]
    assert ratio.max() < 2 * ratio.min()


def test_an_integer_may_be_off_where_a_rounding_decides_and_nowhere_else():
    x = np.array([[0.2, np.nextafter(np.float32(0.5), np.float32(0)), 1.4999999, 3.0, 127.6]], np.float32)
    (exact,), (loss,) = analysed(lambda x: jnp.clip(jnp.round(x * 1.0), -127, 127).astype(jnp.int8), x)
    assert exact.tolist() == [[0, 0, 1, 3, 127]]
    assert loss.tolist() == [[0, 1, 1, 0, 0]]


def test_a_count_in_floats_is_off_where_what_is_counted_is():
    x = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], np.float32)
    (exact,), (loss,) = analysed(lambda x: jnp.sum((x * 1.1 > 0.55).astype(x.dtype), axis=1).astype(jnp.int32), x)
    assert exact.tolist() == [0, 1]
    assert loss.tolist() == [0, 1]


def test_infinity_and_masks_lose_nothing():
    mask = np.tri(128, 256, dtype=bool)
    (exact,), (loss,) = analysed(lambda x, m: jax.nn.softmax(jnp.where(m, x, -jnp.inf), axis=1), X, mask)
    assert np.isfinite(loss).all()
    assert (loss[~mask] < 1e-37).all()
    assert exact[0, 0] == 1


# --- the losses of every rule, to five digits: a change here is a change of what is allowed, and needs a reason ---

F = np.array([[-1.5, -0.3, 0.0, 0.7], [1.0, 2.25, 3.0, -4.0], [0.5, 6.0, -7.0, 1e-3]], np.float32)
G = np.array([[0.9, 1.7, -2.0, 0.4], [3.0, -0.6, 1.2, 5.0], [2.0, 0.8, -1.1, 4.0]], np.float32)
F, G = (np.nextafter(array, np.float32(9)) for array in (F, G))
N = np.array([[3, 1, 2, 0], [7, 5, 4, 6], [2, 2, 8, 1]], np.int32)
P = np.nextafter(np.array([0.5, 1.5, 2.5], np.float32), np.float32(9))
"""Places: what is computed of them is near to a step."""

RULES = {
    "the input": (lambda f, g, n, p: f, 7.823408e-07, 2.086163e-07),
    "one rounding": (lambda f, g, n, p: (f * g) * 1.0, 2.905105e-06, 1.332800e-06),
    "difference": (lambda f, g, n, p: (f * g) - g, 3.035300e-06, 1.281846e-06),
    "product": (lambda f, g, n, p: (f + g) * (f - g), 1.091117e-05, 3.250194e-06),
    "quotient": (lambda f, g, n, p: (f + 1.0) / (g + 1.0), 2.835782e-05, 2.684525e-05),
    "negative": (lambda f, g, n, p: -(f * g) + f, 2.794008e-06, 1.143415e-06),
    "square": (lambda f, g, n, p: jnp.square(f + g) + 1.0, 1.300102e-05, 4.611226e-06),
    "cube": (lambda f, g, n, p: (f + g) ** 3 + 1.0, 1.408541e-04, 6.882551e-05),
    "inverse square": (lambda f, g, n, p: jax.lax.integer_pow(g, -2) + 1.0, 1.377037e-06, 4.701547e-07),
    "exp": (lambda f, g, n, p: jnp.exp(f * g) + 1.0, 1.088684e-03, 1.027774e-03),
    "exp of what is lost": (lambda f, g, n, p: jnp.exp((f * 1e9) * 1e-9), 1.994519e-04, 1.881915e-04),
    "log": (lambda f, g, n, p: jnp.log(jnp.abs(f * g) + 1.0), 3.242762e-06, 7.337765e-07),
    "rsqrt": (lambda f, g, n, p: jax.lax.rsqrt(g * g + 0.1), 2.338361e-06, 4.732813e-07),
    "maximum": (lambda f, g, n, p: jnp.maximum(f * g, g), 1.421039e-06, 3.974674e-07),
    "clamp": (lambda f, g, n, p: jnp.clip(f * g, -1.0, 2.0) + 0.0, 5.705461e-07, 8.429370e-08),
    "complex": (
        lambda f, g, n, p: jnp.real(jax.lax.complex(f * g, g + 1.0)) + jnp.imag(jax.lax.complex(f, g * f)),
        5.679042e-06, 2.255939e-06),
    "narrow": (lambda f, g, n, p: (f + g).astype(jnp.bfloat16).astype(jnp.float32) * 1.0, 7.295117e-02, 1.582031e-02),
    "half": (lambda f, g, n, p: (f * 1e-6).astype(jnp.float16).astype(jnp.float32) * 1.0, 1.788139e-07, 1.490116e-08),
    "narrow and wide": (lambda f, g, n, p: f.astype(jnp.bfloat16).astype(jnp.float32) + g, 5.127158e-02, 1.367188e-02),
    "of a computed integer": (lambda f, g, n, p: jnp.floor(p * 2.0).astype(jnp.int32).astype(jnp.float32) + 1.0, 3, 1),
    "cut": (lambda f, g, n, p: (f * 2.0).astype(jnp.int32), 7, 1),
    "cut input": (lambda f, g, n, p: f.astype(jnp.int32), 0, 0),
    "floor": (lambda f, g, n, p: jnp.floor(p + 0.5), 3, 1),
    "floor twice": (lambda f, g, n, p: jnp.ceil(jnp.floor(p + 0.5)), 3, 1),
    "sign": (lambda f, g, n, p: jnp.sign(f * g), 2, 2),
    "sign of an integer": (lambda f, g, n, p: jnp.sign(n), 0, 0),
    "integers": (lambda f, g, n, p: jnp.floor(p + 0.5).astype(jnp.int32) * 3 - 1, 9, 3),
    "same": (lambda f, g, n, p: (f + g) == (f + g), 12, 1),
    "less": (lambda f, g, n, p: (p + 0.5) < jnp.round(p + 0.5), 3, 1),
    "less integers": (lambda f, g, n, p: jnp.floor(p + 0.5).astype(jnp.int32) < 2, 3, 1),
    "logic": (lambda f, g, n, p: ((p + 0.5) < 1.0) & ((p * 2.0) < 3.0) | (p > 1.0), 2, 1),
    "select": (lambda f, g, n, p: jnp.where((p + 0.5)[:, None] <= 1.0, f * g, g + 1.0), 8.580001, 3.250000),
    "select inputs": (lambda f, g, n, p: jnp.where(f > g, f, g) + 0.0, 1.249654e-06, 2.528811e-07),
    "select by what is sure": (lambda f, g, n, p: jnp.where(f > g, f * g, g), 1.045241e-06, 2.477719e-07),
    "row sums": (lambda f, g, n, p: jnp.sum(f * g, axis=1), 2.696797e-06, 1.633911e-06),
    "sum of integers": (lambda f, g, n, p: jnp.sum(jnp.floor(p + 0.5).astype(jnp.int32)), 3, 3),
    "sum of narrow": (
        lambda f, g, n, p: jnp.sum((f * g).astype(jnp.bfloat16), axis=1, dtype=jnp.float32),
        6.090730e-02, 4.020699e-02),
    "sum of alike": (lambda f, g, n, p: jnp.sum(
        jnp.broadcast_to((p * 1.1).astype(jnp.bfloat16), (64, 3)).astype(jnp.float32)
    ), 5.084139e-02, 5.084139e-02),
    "product highest": (lambda f, g, n, p: jnp.dot(f, g.T, precision="highest"), 7.421557e-06, 1.656384e-06),
    "product high": (lambda f, g, n, p: jnp.dot(f, g.T, precision="high"), 3.676873e-04, 7.791313e-05),
    "product default": (lambda f, g, n, p: jnp.dot(f * 1.1, g.T), 2.779878e-01, 6.254740e-02),
    "product left": (lambda f, g, n, p: jnp.dot(f * 1.1, g.T, precision="highest"), 9.214771e-06, 1.991257e-06),
    "product right": (lambda f, g, n, p: jnp.dot(f, (g * 1.1).T, precision="highest"), 9.214771e-06, 1.991257e-06),
    "product both": (lambda f, g, n, p: jnp.dot(f * 1.1, (g * 1.1).T, precision="highest"), 1.116814e-05, 2.361913e-06),
    "product narrow": (
        lambda f, g, n, p: jnp.dot(f.astype(jnp.bfloat16), g.astype(jnp.bfloat16).T) * 0.3, 9.297906e-02, 2.041912e-02),
    "product wide of narrow": (lambda f, g, n, p: jnp.dot(
        f.astype(jnp.bfloat16), g.astype(jnp.bfloat16).T, preferred_element_type=jnp.float32
    ) * 0.3, 7.581486e-02, 1.705838e-02),
    "product wide of narrow, picked": (lambda f, g, n, p: jnp.where(n[:, :3] > 2, 1.0, jnp.dot(
        f.astype(jnp.bfloat16), g.astype(jnp.bfloat16).T, preferred_element_type=jnp.float32
    )) * 0.3, 3.016518e-02, 1.435828e-02),
    "product wide of narrow, by a column": (lambda f, g, n, p: jnp.dot(
        f.astype(jnp.bfloat16), g.astype(jnp.bfloat16).T, preferred_element_type=jnp.float32
    ) * jnp.broadcast_to(p[:, None], (3, 3)), 4.465611e-01, 1.196523e-01),
    "parts": (lambda f, g, n, p: jax.lax.split(f * g, (1, 3), axis=1)[1] * 1.0, 2.548581e-06, 1.332800e-06),
    "top": (lambda f, g, n, p: jax.lax.top_k(jnp.stack([jnp.concatenate([p, p]), jnp.arange(6.0)]) * 1.1, 3)[1], 18, 6),
    "top of inputs": (lambda f, g, n, p: jax.lax.top_k(f, 2)[1], 0, 0),
    "largest": (lambda f, g, n, p: jnp.max(f * g, axis=1) + jnp.min(f, axis=1), 8.103225e-07, 5.045754e-07),
    "cumulative largest": (lambda f, g, n, p: jax.lax.cummax(f * g, axis=1) * 1.0, 2.667438e-06, 5.621037e-07),
    "any": (lambda f, g, n, p: jnp.any((p + 0.5) < 1.0) | jnp.all((p + 0.5) < 1.0), 2, 2),
    "argument": (lambda f, g, n, p: jnp.argmax(jnp.concatenate([p, p[::-1]]) * 1.1), 1, 1),
    "sorted": (lambda f, g, n, p: jnp.sort(f * g, axis=1), 2.598405e-06, 1.192093e-06),
    "moved": (lambda f, g, n, p: jnp.flip((f * g).T.reshape(2, 6), 0)[:, 1:5] * 1.0, 2.495002e-06, 1.332800e-06),
    "joined": (lambda f, g, n, p: jnp.concatenate([f * g, g]) * 1.0, 4.076859e-06, 1.332800e-06),
    "taken": (lambda f, g, n, p: (f * g)[jnp.array([2, 0])], 8.075298e-07, 3.974674e-07),
    "taken where it is unsure": (lambda f, g, n, p: f[jnp.floor(p + 0.5).astype(jnp.int32) - 1], 168, 14),
    "cut out": (
        lambda f, g, n, p: jax.lax.dynamic_slice(f, (jnp.floor(p[0] + 0.5).astype(jnp.int32), 1), (2, 2)), 56, 14),
    "put in": (
        lambda f, g, n, p: jax.lax.dynamic_update_slice(f * 1.1, g[:2, :2] * 1.1, (1, 1)), 8.063477e-07, 2.271242e-07),
    "scattered": (lambda f, g, n, p: (f * 1.1).at[jnp.array([1])].set(g[0] * 1.1), 1.192459e-06, 3.974674e-07),
    "added in places": (lambda f, g, n, p: f.at[jnp.array([1, 1])].add(g[:2] * 1.1), 1.888851e-06, 3.710734e-07),
    "added where it is unsure": (lambda f, g, n, p: f.at[jnp.floor(p[:1] + 0.5).astype(jnp.int32)].add(g[:1]), 24, 2),
}  # fmt: skip
"""For each rule a function, and the sum and the largest of its losses."""


def test_every_rule_loses_what_is_written_down() -> None:
    """Sum and largest of the losses; -1 where nothing is asked."""

    def every(*arrays: jax.Array) -> list[jax.Array]:
        return [function(*arrays) for function, *_ in RULES.values()]

    avals = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (F, G, N, P)]
    with jax.enable_x64(True):
        program = jax.jit(with_losses(every, *avals)).lower(F, G, N, P)
        quick = program.compile({"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True})
        losses = [np.asarray(x) for x in quick(F, G, N, P)[len(RULES) :]]
    wrong = {}
    for (name, (_, *written)), loss in zip(RULES.items(), losses, strict=True):
        finite = np.where(np.isfinite(loss), loss, -1.0).astype(np.float64)
        if [finite.sum(), finite.max()] != pytest.approx(written, 1e-5):
            wrong[name] = f"{finite.sum():.6e}, {finite.max():.6e}"
    assert wrong == {}
