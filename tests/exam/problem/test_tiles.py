"""Evaluating a function in tiles: the same answers and losses, also where tiles are masked and left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ratchet.exam.problem.promote import with_losses
from ratchet.exam.problem.tiles import Tiles, in_tiles
from tests.tiers import slow_but

ROWS, COLUMNS, DEPTH = 128, 512, 16
ATTENDED = ((ROWS, DEPTH), (COLUMNS, DEPTH), (COLUMNS, DEPTH))


def _attention(mask: Callable[[Any, Any], Any] | None, fill: float = -jnp.inf) -> Callable[..., Any]:
    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("qd,kd->qk", q, k, preferred_element_type=jnp.float32) / 4
        if mask is not None:
            places = (jax.lax.broadcasted_iota(jnp.int32, scores.shape, axis) for axis in (0, 1))
            scores = jnp.where(mask(*places), scores, fill)
        return jnp.dot(jax.nn.softmax(scores).astype(v.dtype), v, preferred_element_type=jnp.float32).astype(q.dtype)

    return attention


def _causal(row: Any, column: Any) -> Any:
    return column <= row + 64


def _window(row: Any, column: Any) -> Any:
    return (column <= row + 200) & (column > row + 100)


def _variance(x: Any) -> Any:
    mean = jnp.mean(x, 1, keepdims=True)
    return jnp.mean(jnp.square(x - mean), 1), jnp.max(x, 1)


def _by_lengths(x: Any, lengths: Any) -> Any:
    """Of each row the first elements alone, by an input; what is left out counts as three."""
    row = jnp.where(jax.lax.broadcasted_iota(jnp.int32, x.shape, 1) < lengths[:, None], x, 3.0)
    return jnp.sum(row, 1), jnp.min(row, 1)


MASKED = {
    "causal": _attention(_causal),
    "causal, finite": _attention(_causal, -1e30),
    "window": _attention(_window),
    "no row of one": _attention(lambda row, column: column < row - 64, -1e30),
    "nothing masked": _attention(lambda row, column: column >= 0 * row),
}
OTHERS = {
    "attention": (_attention(None), ATTENDED),
    "variance": (_variance, ((ROWS, COLUMNS),)),
    "product": (lambda a, b: jnp.tanh(a @ b) * 2, ((ROWS, COLUMNS), (COLUMNS, DEPTH))),
    "columns first": (lambda x: jnp.sum(jnp.exp(x), 0), ((COLUMNS, ROWS),)),
}


def _arrays(shapes: Any, dtype: Any = jnp.float32) -> list[Any]:
    return [jax.random.normal(jax.random.key(n), shape, dtype) for n, shape in enumerate(shapes)]


def _small(closed: Any) -> Tiles | None:
    return in_tiles(closed, 1 << 12, 64 * ROWS)


def _agree(function: Callable[..., Any], arrays: list[Any], monkeypatch: pytest.MonkeyPatch) -> Tiles:
    """Evaluates it as a whole and in tiles, and compares."""
    found, used = [], []
    for tiles in (lambda _: None, lambda closed: used.append(_small(closed)) or used[0]):
        monkeypatch.setattr("ratchet.exam.problem.promote.in_tiles", tiles)
        with jax.enable_x64(True):
            found.append([np.asarray(x) for x in jax.jit(with_losses(function, *arrays))(*arrays)])
    assert used[0] is not None
    (whole, tiled), count = found, len(found[0]) // 2
    for n, (a, b) in enumerate(zip(whole, tiled, strict=True)):
        np.testing.assert_allclose(b, a, rtol=1e-4 if n >= count else 1e-11, atol=1e-12, err_msg=str(n))
    return used[0]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("name", MASKED)
def test_masked_tiles_are_left_out(name: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tiles = _agree(MASKED[name], _arrays(ATTENDED, dtype), monkeypatch)
    assert tiles.count == 8
    assert [stage.skips for stage in tiles.stages if stage.sums] == [True] * 3


@pytest.mark.parametrize("bad", slow_but(1, [jnp.nan, jnp.inf, 1e6]))
def test_what_is_masked_may_be_anything(bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zero times it counts as it does where nothing is left out."""
    q, k, v = _arrays(ATTENDED)
    for which in (1, 2):
        arrays = [q, k, v]
        arrays[which] = arrays[which].at[COLUMNS - 3].set(bad)
        _agree(MASKED["causal"], arrays, monkeypatch)


@pytest.mark.parametrize("name", OTHERS)
def test_tiles_give_what_the_whole_gives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, shapes = OTHERS[name]
    tiles = _agree(function, _arrays(shapes), monkeypatch)
    assert not any(stage.skips for stage in tiles.stages)


def test_an_input_may_say_what_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = jnp.arange(ROWS, dtype=jnp.int32) % 70
    tiles = _agree(_by_lengths, [*_arrays(((ROWS, COLUMNS),)), lengths], monkeypatch)
    assert tiles.masks


def test_a_mask_that_may_be_off_leaves_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compared was computed: which elements are masked has a loss of its own."""

    def function(x: Any) -> Any:
        return jnp.sum(jnp.where(jnp.exp(x) < 1.0, x, 0.0), 1)

    _agree(function, _arrays(((ROWS, COLUMNS),)), monkeypatch)


def test_what_is_small_or_has_no_axis_to_sum_along_is_left_whole() -> None:
    (x,) = _arrays(((ROWS, COLUMNS),))
    assert in_tiles(jax.make_jaxpr(lambda x: jnp.sum(x, 1))(x)) is None
    assert _small(jax.make_jaxpr(lambda x: jnp.sort(x, 1).sum(1))(x)) is None
    assert _small(jax.make_jaxpr(lambda x: x + 1)(x)) is None
    assert _small(jax.make_jaxpr(lambda x: (x + 1, jnp.sum(x, 1)))(x)) is None
