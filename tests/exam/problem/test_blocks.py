"""Evaluating a function in blocks: the same answers, and no axis is cut along which it mixes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ratchet.exam.problem import blocks as module
from ratchet.exam.problem.blocks import blockwise, in_blocks
from ratchet.exam.problem.promote import by_rows, with_losses


def _arrays(*shapes):
    return [jax.random.normal(jax.random.key(n), shape, jnp.float32) for n, shape in enumerate(shapes)]


def attention(q, k, v):
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / 8
    row = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    column = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 2)
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(jnp.where(row >= column, scores, -jnp.inf), -1), v)


def norm(x, gain):
    mean = jnp.mean(x, -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-6) * gain, mean[:, 0]


def heads(x, w):
    parts = x.reshape(x.shape[0], 4, -1)
    return jax.nn.relu(parts).sum(1) @ w, jnp.argmax(parts, -1)


def transposed(x):
    return jnp.sort(x.T, axis=1)


CUT = {
    "attention": (attention, ((2, 64, 16), (2, 64, 16), (2, 64, 16)), (1, None, None)),
    "norm": (norm, ((64, 32), (32,)), (0, None)),
    "heads": (heads, ((64, 32), (8, 16)), (0, None)),
    "transposed": (transposed, ((64, 32),), (1,)),
}
WHOLE = {
    "a sum of all": (jnp.sum, ((64, 32),)),
    "both sides of a product": (lambda x: x @ x.T, ((64, 64),)),
    "cumulative along both": (lambda x: jnp.cumsum(jnp.cumsum(x, 0), 1), ((64, 32),)),
    "reversed and added": (lambda x: jnp.sort(x, 1) + jnp.flip(x, 0), ((64, 32),)),
    "a loop": (lambda x: jax.lax.fori_loop(0, 3, lambda _, y: y + 1, x), ((64, 32),)),
    "a table": (lambda x, i: x[i.astype(int), :], ((64, 32), (64,))),
    "shifted rows": (lambda x: jnp.sum(x[1:] - x[:-1], 1), ((64, 32),)),
}


@pytest.mark.parametrize("name", CUT)
def test_blocks_give_what_the_whole_gives(name, monkeypatch):
    function, shapes, inputs = CUT[name]
    arrays = _arrays(*shapes)
    blocks = in_blocks(jax.make_jaxpr(function)(*arrays), 512)
    assert blocks is not None
    assert blocks.inputs == inputs
    assert blocks.count > 1
    with jax.enable_x64(True):
        whole = jax.jit(with_losses(function, *arrays))(*arrays)
        monkeypatch.setattr("ratchet.exam.problem.promote.in_blocks", lambda closed: in_blocks(closed, 512))
        cut = jax.jit(with_losses(function, *arrays))(*arrays)
        for number, (one, other) in enumerate(zip(whole, cut, strict=True)):
            is_loss = number >= len(whole) // 2
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=1e-6 if is_loss else 1e-9, atol=1e-300)


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_mixed_is_not_cut(name):
    function, shapes = WHOLE[name]
    assert in_blocks(jax.make_jaxpr(function)(*_arrays(*shapes)), 16) is None


def test_what_every_block_takes_whole_does_not_make_blocks_smaller():
    def experts(x, up, down):
        return jnp.einsum("eth,ehd->td", jnp.einsum("td,edh->eth", x, up), down)

    def size(rows, count):
        blocks = in_blocks(jax.make_jaxpr(experts)(*_arrays((rows, 8), (count, 8, 16), (count, 16, 8))), 512)
        return blocks and blocks.size

    assert size(64, 4) == 8, "4 x 8 x 16 elements of the largest that is cut"
    assert size(64, 8) == 4, "weights of 1024 elements do not count"
    assert size(4, 8) is None, "nothing that is cut is larger than 512"


def test_what_is_small_is_left_whole_and_has_no_rows():
    arrays = _arrays((64, 32), (32,))
    assert in_blocks(jax.make_jaxpr(norm)(*arrays)) is None
    assert by_rows(norm, *arrays)[1] is None


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("name", CUT)
def test_a_function_as_it_is_written_gives_the_same_in_blocks(name, dtype, monkeypatch):
    function, shapes, _ = CUT[name]
    arrays = [array.astype(dtype) for array in _arrays(*shapes)]
    assert blockwise(function, *arrays) is None
    monkeypatch.setattr(module, "in_blocks", lambda closed: in_blocks(closed, 512))
    some_at_a_time = blockwise(function, *arrays)
    assert some_at_a_time is not None
    wanted, got = jax.tree.leaves(jax.jit(function)(*arrays)), jax.jit(some_at_a_time)(*arrays)
    assert [(x.shape, x.dtype) for x in got] == [(x.shape, x.dtype) for x in wanted]
    for one, other in zip(got, wanted, strict=True):
        unit = float(jnp.finfo(dtype).eps) if jnp.issubdtype(one.dtype, jnp.floating) else 0.0
        np.testing.assert_allclose(*(np.asarray(x, np.float64) for x in (one, other)), rtol=4 * unit, atol=4 * unit)


def test_what_cannot_be_cut_is_no_function_in_blocks(monkeypatch):
    monkeypatch.setattr(module, "in_blocks", lambda closed: in_blocks(closed, 512))
    assert blockwise(*(WHOLE["a sum of all"][0], *_arrays((64, 32)))) is None


@pytest.mark.parametrize("name", CUT)
def test_some_rows_are_those_of_the_whole(name, monkeypatch):
    """In any order, some of them twice; a block that is not asked for costs nothing and is zero."""
    function, shapes, _ = CUT[name]
    arrays = _arrays(*shapes)
    monkeypatch.setattr("ratchet.exam.problem.promote.in_blocks", lambda closed: in_blocks(closed, 512))
    evaluate, blocks = by_rows(function, *arrays)
    assert blocks is not None
    count = 2
    numbers = np.random.default_rng(0).integers(0, blocks.length, blocks.length).astype(np.int32)
    with jax.enable_x64(True):
        whole = jax.jit(with_losses(function, *arrays))(*arrays)
        some = jax.jit(evaluate)(jnp.int32(count), numbers, *arrays)
    for one, other, axis in zip(some, whole, blocks.outputs * 2, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        got, left = np.split(np.asarray(one), [count * blocks.size], axis)
        np.testing.assert_array_equal(got, np.take(np.asarray(other), numbers[: count * blocks.size], axis))
        assert not left.any()
