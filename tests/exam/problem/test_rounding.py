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


@pytest.mark.parametrize(("precision", "eps"), [(None, 2.0**-8), ("high", 2.0**-16), ("highest", 2.0**-22)])
def test_a_product_loses_what_its_precision_asks_for(precision, eps):
    _, (loss,) = analysed(lambda x, w: jnp.dot(x, w, precision=precision), X, W)
    typical = np.sqrt(np.square(X) @ np.square(W))
    assert 0.1 * eps < np.median(loss / typical) < 4 * eps


def test_rows_of_any_size_have_a_loss_of_their_own_size():
    size = 10.0 ** np.arange(0, -128, -1)
    rows = np.repeat(size[:30, None] ** 1.0, 256, axis=1).astype(np.float32) * X[:30]
    _, (loss,) = analysed(lambda x, w: jnp.dot(x, w, precision="highest"), rows, W)
    ratio = np.median(loss, axis=1) / size[:30]
    assert ratio.max() < 2 * ratio.min()


def test_narrow_values_in_a_wide_dtype_lose_nothing_in_a_product():
    _, (loss,) = analysed(lambda x, w: jnp.dot(x.astype(jnp.float32), w.astype(jnp.float32)), B, W.astype(jnp.bfloat16))
    assert np.median(loss) < 2.0**-16 * 16


def test_a_factor_after_a_product_may_be_rounded_into_an_operand():
    def product(q, k):
        return jnp.dot(q, k, preferred_element_type=jnp.float32)

    w = W.astype(jnp.bfloat16)
    _, (plain,) = analysed(product, B, w)
    _, (scaled,) = analysed(lambda q, k: product(q, k) * 0.1, B, w)
    assert np.median(plain) < 1e-4
    assert np.median(scaled) > 0.1 * 16 * 2.0**-11


def test_an_integer_may_be_off_where_a_rounding_decides_and_nowhere_else():
    x = np.array([[0.2, 0.5, 1.4999999, 3.0, 127.6]], np.float32)
    (exact,), (loss,) = analysed(lambda x: jnp.clip(jnp.round(x * 1.0), -127, 127).astype(jnp.int8), x)
    assert exact.tolist() == [[0, 0, 1, 3, 127]]
    assert loss.tolist() == [[0, 1, 1, 0, 0]]


def test_comparing_inputs_has_one_answer_and_comparing_sums_may_have_two():
    same = np.array([[1.0, 2.0]], np.float32)
    _, (loss,) = analysed(lambda x, y: x > y, same, same)
    assert not loss.any()
    _, (loss,) = analysed(lambda x, y: x + 1 > y + 1, same, same)
    assert loss.all()
    _, (loss,) = analysed(lambda x, y: jnp.where(x + 1 > y + 1, x, -y), same, same)
    np.testing.assert_allclose(loss, [[2.0, 4.0]], rtol=1e-5)


def test_ties_of_what_is_computed_may_go_either_way():
    x = np.zeros((2, 8), np.float32)
    x[:, 3], x[:, 5], x[1, 5] = 1.0, 1.0, 2.0
    _, (loss,) = analysed(lambda x: jnp.argmax(x, axis=1), x)
    assert not loss.any(), "the first of equal inputs"
    _, (loss,) = analysed(lambda x: jnp.argmax(x / 3, axis=1), x)
    assert loss.tolist() == [2, 0]
    _, (_, places) = analysed(lambda x: jax.lax.top_k(x / 3, 1), x)
    assert (places > 0).tolist() == [[True], [False]]
    _, (values, order) = analysed(lambda x: (jnp.sort(x / 3, axis=1), jnp.argsort(x / 3, axis=1)), x)
    assert (values < 1e-6).all()
    assert order[0].any()


def test_integers_stay_exact_through_everything():
    n = np.arange(64, dtype=np.int32).reshape(8, 8)
    _, losses = analysed(lambda n: (n * 3 // 2, jnp.cumsum(n), jnp.sort(n)[::-1], n @ n, (n > 3) & (n < 9)), n)
    assert not any(loss.any() for loss in losses)


def test_infinity_and_masks_lose_nothing():
    mask = np.tri(128, 256, dtype=bool)
    (exact,), (loss,) = analysed(lambda x, m: jax.nn.softmax(jnp.where(m, x, -jnp.inf), axis=1), X, mask)
    assert np.isfinite(loss).all()
    assert (loss[~mask] < 1e-37).all()
    assert exact[0, 0] == 1


def test_a_minimum_loses_what_its_elements_may() -> None:
    _, (loss,) = analysed(lambda x: jnp.min(jnp.exp(x), axis=1), X)
    _, (of_maximum,) = analysed(lambda x: jnp.max(-jnp.exp(x), axis=1), X)
    assert (loss > 0).all()
    np.testing.assert_allclose(loss, of_maximum)


def test_what_is_sorted_along_is_sure_where_no_keys_are_near() -> None:
    place = np.arange(8, dtype=np.float32)
    apart = np.arange(8, 0, -1).astype(np.float32)
    near = np.where(place == 3, np.nextafter(np.float32(4), np.float32(5)), apart)
    for keys, sure in ((apart, True), (near, False)):
        _, losses = analysed(lambda k, v: jax.lax.sort((jnp.exp(k), v), num_keys=1)[1], keys, place)
        assert np.isfinite(losses[0]).all()
        assert (losses[0].max() < 1e-5) == sure


def test_a_place_that_no_rounding_moves_is_sure() -> None:
    def taken(x: jax.Array, offset: jax.Array) -> jax.Array:
        first = jnp.floor(jnp.exp(offset)).astype(jnp.int32)
        return jax.lax.dynamic_slice_in_dim(x, first, 8, axis=0)

    _, (sure,) = analysed(taken, X, np.float32(1.0))
    _, (unsure,) = analysed(taken, X, np.float32(np.log(3.0)))
    assert sure.max() < 1e-5
    assert unsure.max() > 1, "e^log 3 may be just below 3"


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_what_an_unknown_operation_loses_grows_with_its_values(scale: float) -> None:
    function, x = FUNCTIONS["fourier"]
    (_, (one,)), (_, (other,)) = analysed(function, x), analysed(function, x * np.float32(scale))
    np.testing.assert_allclose(other, one * scale, rtol=0.2)


# --- the losses of every rule, to five digits: a change here is a change of what is allowed, and needs a reason ---

F = np.array([[-1.5, -0.3, 0.0, 0.7], [1.0, 2.25, 3.0, -4.0], [0.5, 6.0, -7.0, 1e-3]], np.float32)
G = np.array([[0.9, 1.7, -2.0, 0.4], [3.0, -0.6, 1.2, 5.0], [2.0, 0.8, -1.1, 4.0]], np.float32)
N = np.array([[3, 1, 2, 0], [7, 5, 4, 6], [2, 2, 8, 1]], np.int32)
P = np.array([0.5, 1.5, 2.5], np.float32)
"""Places: what is computed of them is near to a step."""

RULE = {
    "the input": lambda f, g, n, p: f,
    "one rounding": lambda f, g, n, p: (f * g) * 1.0,
    "difference": lambda f, g, n, p: (f * g) - g,
    "product": lambda f, g, n, p: (f + g) * (f - g),
    "quotient": lambda f, g, n, p: (f + 1.0) / (g + 1.0),
    "negative": lambda f, g, n, p: -(f * g) + f,
    "square": lambda f, g, n, p: jnp.square(f + g) + 1.0,
    "cube": lambda f, g, n, p: (f + g) ** 3 + 1.0,
    "inverse square": lambda f, g, n, p: jax.lax.integer_pow(g, -2) + 1.0,
    "exp": lambda f, g, n, p: jnp.exp(f * g) + 1.0,
    "exp of what is lost": lambda f, g, n, p: jnp.exp((f * 1e9) * 1e-9),
    "log": lambda f, g, n, p: jnp.log(jnp.abs(f * g) + 1.0),
    "rsqrt": lambda f, g, n, p: jax.lax.rsqrt(g * g + 0.1),
    "maximum": lambda f, g, n, p: jnp.maximum(f * g, g),
    "clamp": lambda f, g, n, p: jnp.clip(f * g, -1.0, 2.0) + 0.0,
    "complex": lambda f, g, n, p: jnp.real(jax.lax.complex(f * g, g + 1.0)) + jnp.imag(jax.lax.complex(f, g * f)),
    "narrow": lambda f, g, n, p: (f + g).astype(jnp.bfloat16).astype(jnp.float32) * 1.0,
    "half": lambda f, g, n, p: (f * 1e-6).astype(jnp.float16).astype(jnp.float32) * 1.0,
    "narrow and wide": lambda f, g, n, p: f.astype(jnp.bfloat16).astype(jnp.float32) + g,
    "of a computed integer": lambda f, g, n, p: jnp.floor(p * 2.0).astype(jnp.int32).astype(jnp.float32) + 1.0,
    "cut": lambda f, g, n, p: (f * 2.0).astype(jnp.int32),
    "cut input": lambda f, g, n, p: f.astype(jnp.int32),
    "floor": lambda f, g, n, p: jnp.floor(p + 0.5),
    "floor twice": lambda f, g, n, p: jnp.ceil(jnp.floor(p + 0.5)),
    "sign": lambda f, g, n, p: jnp.sign(f * g),
    "sign of an integer": lambda f, g, n, p: jnp.sign(n),
    "integers": lambda f, g, n, p: jnp.floor(p + 0.5).astype(jnp.int32) * 3 - 1,
    "same": lambda f, g, n, p: (f + g) == (f + g),
    "less": lambda f, g, n, p: (p + 0.5) < jnp.round(p + 0.5),
    "less integers": lambda f, g, n, p: jnp.floor(p + 0.5).astype(jnp.int32) < 2,
    "logic": lambda f, g, n, p: ((p + 0.5) < 1.0) & ((p * 2.0) < 3.0) | (p > 1.0),
    "select": lambda f, g, n, p: jnp.where((p + 0.5)[:, None] <= 1.0, f * g, g + 1.0),
    "select inputs": lambda f, g, n, p: jnp.where(f > g, f, g) + 0.0,
    "select by what is sure": lambda f, g, n, p: jnp.where(f > g, f * g, g),
    "row sums": lambda f, g, n, p: jnp.sum(f * g, axis=1),
    "sum of integers": lambda f, g, n, p: jnp.sum(jnp.floor(p + 0.5).astype(jnp.int32)),
    "sum of narrow": lambda f, g, n, p: jnp.sum((f * g).astype(jnp.bfloat16), axis=1, dtype=jnp.float32),
    "sum of alike": lambda f, g, n, p: jnp.sum(
        jnp.broadcast_to((p * 1.1).astype(jnp.bfloat16), (64, 3)).astype(jnp.float32)
    ),
    "product highest": lambda f, g, n, p: jnp.dot(f, g.T, precision="highest"),
    "product high": lambda f, g, n, p: jnp.dot(f, g.T, precision="high"),
    "product default": lambda f, g, n, p: jnp.dot(f * 1.1, g.T),
    "product left": lambda f, g, n, p: jnp.dot(f * 1.1, g.T, precision="highest"),
    "product right": lambda f, g, n, p: jnp.dot(f, (g * 1.1).T, precision="highest"),
    "product both": lambda f, g, n, p: jnp.dot(f * 1.1, (g * 1.1).T, precision="highest"),
    "product narrow": lambda f, g, n, p: jnp.dot(f.astype(jnp.bfloat16), g.astype(jnp.bfloat16).T) * 0.3,
    "product wide of narrow": lambda f, g, n, p: jnp.dot(
        f.astype(jnp.bfloat16), g.astype(jnp.bfloat16).T, preferred_element_type=jnp.float32
    ) * 0.3,
    "product wide of narrow, picked": lambda f, g, n, p: jnp.where(n[:, :3] > 2, 1.0, jnp.dot(
        f.astype(jnp.bfloat16), g.astype(jnp.bfloat16).T, preferred_element_type=jnp.float32
    )) * 0.3,
    "product wide of narrow, by a column": lambda f, g, n, p: jnp.dot(
        f.astype(jnp.bfloat16), g.astype(jnp.bfloat16).T, preferred_element_type=jnp.float32
    ) * jnp.broadcast_to(p[:, None], (3, 3)),
    "parts": lambda f, g, n, p: jax.lax.split(f * g, (1, 3), axis=1)[1] * 1.0,
    "top": lambda f, g, n, p: jax.lax.top_k(jnp.stack([jnp.concatenate([p, p]), jnp.arange(6.0)]) * 1.1, 3)[1],
    "top of inputs": lambda f, g, n, p: jax.lax.top_k(f, 2)[1],
    "largest": lambda f, g, n, p: jnp.max(f * g, axis=1) + jnp.min(f, axis=1),
    "cumulative largest": lambda f, g, n, p: jax.lax.cummax(f * g, axis=1) * 1.0,
    "any": lambda f, g, n, p: jnp.any((p + 0.5) < 1.0) | jnp.all((p + 0.5) < 1.0),
    "argument": lambda f, g, n, p: jnp.argmax(jnp.concatenate([p, p[::-1]]) * 1.1),
    "sorted": lambda f, g, n, p: jnp.sort(f * g, axis=1),
    "moved": lambda f, g, n, p: jnp.flip((f * g).T.reshape(2, 6), 0)[:, 1:5] * 1.0,
    "joined": lambda f, g, n, p: jnp.concatenate([f * g, g]) * 1.0,
    "taken": lambda f, g, n, p: (f * g)[jnp.array([2, 0])],
    "taken where it is unsure": lambda f, g, n, p: f[jnp.floor(p + 0.5).astype(jnp.int32) - 1],
    "cut out": lambda f, g, n, p: jax.lax.dynamic_slice(f, (jnp.floor(p[0] + 0.5).astype(jnp.int32), 1), (2, 2)),
    "put in": lambda f, g, n, p: jax.lax.dynamic_update_slice(f * 1.1, g[:2, :2] * 1.1, (1, 1)),
    "scattered": lambda f, g, n, p: (f * 1.1).at[jnp.array([1])].set(g[0] * 1.1),
    "added in places": lambda f, g, n, p: f.at[jnp.array([1, 1])].add(g[:2] * 1.1),
    "added where it is unsure": lambda f, g, n, p: f.at[jnp.floor(p[:1] + 0.5).astype(jnp.int32)].add(g[:1]),
}  # fmt: skip

WRITTEN = {
    "the input": (7.823408e-07, 2.086163e-07),
    "one rounding": (2.905105e-06, 1.332800e-06),
    "difference": (3.035300e-06, 1.281846e-06),
    "product": (1.091117e-05, 3.250194e-06),
    "quotient": (2.835782e-05, 2.684525e-05),
    "negative": (2.794008e-06, 1.143415e-06),
    "square": (1.300102e-05, 4.611226e-06),
    "cube": (1.408541e-04, 6.882551e-05),
    "inverse square": (1.377037e-06, 4.701547e-07),
    "exp": (1.088684e-03, 1.027774e-03),
    "exp of what is lost": (1.994519e-04, 1.881915e-04),
    "log": (3.242762e-06, 7.337765e-07),
    "rsqrt": (2.338361e-06, 4.732813e-07),
    "maximum": (1.421039e-06, 3.974674e-07),
    "clamp": (5.705461e-07, 8.429370e-08),
    "complex": (5.679042e-06, 2.255939e-06),
    "narrow": (7.295117e-02, 1.582031e-02),
    "half": (1.788139e-07, 1.490116e-08),
    "narrow and wide": (5.127158e-02, 1.367188e-02),
    "of a computed integer": (3.000000e00, 1.000000e00),
    "cut": (7.000000e00, 1.000000e00),
    "cut input": (0.000000e00, 0.000000e00),
    "floor": (3.000000e00, 1.000000e00),
    "floor twice": (3.000000e00, 1.000000e00),
    "sign": (2.000000e00, 2.000000e00),
    "sign of an integer": (0.000000e00, 0.000000e00),
    "integers": (9.000000e00, 3.000000e00),
    "same": (1.200000e01, 1.000000e00),
    "less": (3.000000e00, 1.000000e00),
    "less integers": (3.000000e00, 1.000000e00),
    "logic": (2.000000e00, 1.000000e00),
    "select": (8.580001e00, 3.250000e00),
    "select inputs": (1.249654e-06, 2.528811e-07),
    "select by what is sure": (1.045241e-06, 2.477719e-07),
    "row sums": (2.696797e-06, 1.633911e-06),
    "sum of integers": (3.000000e00, 3.000000e00),
    "sum of narrow": (6.090730e-02, 4.020699e-02),
    "sum of alike": (5.084139e-02, 5.084139e-02),
    "product highest": (7.421557e-06, 1.656384e-06),
    "product high": (3.676873e-04, 7.791313e-05),
    "product default": (2.240875e-01, 4.499246e-02),
    "product left": (9.214771e-06, 1.991257e-06),
    "product right": (9.214771e-06, 1.991257e-06),
    "product both": (1.116814e-05, 2.361913e-06),
    "product narrow": (9.297906e-02, 2.041912e-02),
    "product wide of narrow": (7.581486e-02, 1.705838e-02),
    "product wide of narrow, picked": (3.016518e-02, 1.435828e-02),
    "product wide of narrow, by a column": (4.465611e-01, 1.196523e-01),
    "parts": (2.548581e-06, 1.332800e-06),
    "top": (1.800000e01, 6.000000e00),
    "top of inputs": (0.0, 0.0),
    "largest": (8.103225e-07, 5.045754e-07),
    "cumulative largest": (2.667438e-06, 5.621037e-07),
    "any": (2.000000e00, 2.000000e00),
    "argument": (1.000000e00, 1.000000e00),
    "sorted": (2.598405e-06, 1.192093e-06),
    "moved": (2.495002e-06, 1.332800e-06),
    "joined": (4.076859e-06, 1.332800e-06),
    "taken": (8.075298e-07, 3.974674e-07),
    "taken where it is unsure": (1.680000e02, 1.400000e01),
    "cut out": (5.600000e01, 1.400000e01),
    "put in": (8.063477e-07, 2.271242e-07),
    "scattered": (1.192459e-06, 3.974674e-07),
    "added in places": (1.888851e-06, 3.710734e-07),
    "added where it is unsure": (2.400000e01, 2.000000e00),
}
"""Sum and largest of the losses of each."""


def test_every_rule_loses_what_is_written_down() -> None:
    """Sum and largest of the losses; -1 where nothing is asked."""

    def every(*arrays: jax.Array) -> list[jax.Array]:
        return [function(*arrays) for function in RULE.values()]

    avals = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (F, G, N, P)]
    with jax.enable_x64(True):
        program = jax.jit(with_losses(every, *avals)).lower(F, G, N, P)
        quick = program.compile({"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True})
        losses = [np.asarray(x) for x in quick(F, G, N, P)[len(RULE) :]]
    found = {}
    for name, loss in zip(RULE, losses, strict=True):
        finite = np.where(np.isfinite(loss), loss, -1.0).astype(np.float64)
        found[name] = (finite.sum(), finite.max())
    wrong = {name: f"{s:.6e} {m:.6e}" for name, (s, m) in found.items() if (s, m) != pytest.approx(WRITTEN[name], 1e-5)}
    assert wrong == {}
