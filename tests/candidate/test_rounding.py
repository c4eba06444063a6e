"""What honest arithmetic may lose: the analysis against evaluations in the reference's own dtypes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ratchet.candidate.promote import with_losses

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
