"""The operator against float64, for every pair of its options, and under JAX's transformations."""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from pallas_flash import Config, ForwardBlocks, attention
from pallas_flash.kernels.flash_backward import flash_backward
from tests.pallas_flash.cases import OPTIONS, SMALL, Case, covering, numbered, pairs_of
from tests.pallas_flash.rounding import allowance
from tests.tiers import slow_but

TABLE = dict(numbered())
OUTPUTS = ("out", "lse", "dq", "dk", "dv", "dsinks")
ULPS = 8.0
"""Units in the last place of its terms that an element may be off. The kernels lose less than 1, in the whole table."""
QUICKLY = {"xla_backend_optimization_level": 0}
"""Compiling takes most of these tests' time, and running next to none."""


def test_the_table_holds_every_pair_of_two_options():
    wanted = {
        (i, a, j, b)
        for (i, one), (j, other) in itertools.combinations(enumerate(OPTIONS.values()), 2)
        for a in one
        for b in other
    }
    assert set().union(*(pairs_of(tuple(row.values())) for row in covering())) == wanted


@pytest.mark.parametrize("name", slow_but(2, list(TABLE)))
def test_values_and_gradients_are_as_exact_as_the_precision_allows(name, monkeypatch):
    case = Case(TABLE[name])
    if case.row["passes"] == 2:
        monkeypatch.setattr("pallas_flash.config.ONE_PASS", 0)
    check_all(case)


GROUPED = [name for name, row in TABLE.items() if row["heads"][0] > row["heads"][1] and row["passes"] == 1]


@pytest.mark.parametrize("name", slow_but(1, GROUPED[:3]))
def test_gradients_of_a_key_head_in_parts_are_as_exact(name, monkeypatch):
    monkeypatch.setattr("pallas_flash.config.one_pass", lambda shape, _: shape.heads == shape.kv_heads)
    passes = []

    def backward(q, k, *operands, **options):
        passes.append((q.shape[1], k.shape[1], options["gradients"]))
        return flash_backward(q, k, *operands, **options)

    monkeypatch.setattr("pallas_flash.operator.flash_backward", backward)
    check_all(Case(TABLE[name]))
    heads = TABLE[name]["heads"][0]
    assert set(passes) == {(heads, heads, "all")}


def check_all(case):
    """Outputs and gradients of a case against float64."""

    def attend(q, k, v, sinks):
        found = attention(q, k, v, sinks=sinks, **case.arguments, return_residuals=case.row["residuals"], config=SMALL)
        return found if case.row["residuals"] else (found, jnp.zeros(found.shape[:3]))

    @functools.partial(jax.jit, compiler_options=QUICKLY)
    def all_of(q, k, v, do, sinks):
        (out, lse), pull = jax.vjp(attend, q, k, v, sinks)
        return out, lse, *(x for x in pull((do, jnp.zeros_like(lse))) if x is not None)

    found = all_of(*case.operands, case.sinks)
    compared = zip(OUTPUTS[: len(found)], found, case.exact(), allowance(case, ULPS), strict=True)
    for what, got, wanted, allowed in compared:
        if what != "lse" or case.row["residuals"]:
            check_within(what, np.asarray(got, np.float64), wanted, allowed)


STAGED = ForwardBlocks(block_q=768, block_kv=256, rows=128, unroll=3)
"""Enough tiles for stages that work on different tasks."""
LONG: dict[str, dict[str, Any]] = {
    "turns before the diagonal": {"causal": True},
    "whole turns with padded keys": {"lengths": (700, 1700)},
    "a causal window": {"causal": True, "window": 300, "softcap": 4.0},
    "a window of one key": {"causal": True, "window": 0},
    "a window of two blocks": {"causal": True, "window": 1535, "lengths": (2900, 2900)},
    "a window of two blocks and a key": {"causal": True, "window": 1536, "lengths": (2900, 2900)},
    "a window of three blocks": {"causal": True, "window": 2303, "lengths": (3072, 3072), "blocks": {"ahead": 7}},
    "a window of some blocks": {"causal": True, "window": 1000},
    "any window": {"window": (300, 100)},
    "several chunks": {"causal": True, "chunk": 768},
    "several whole chunks": {"lengths": (700, 2300), "chunk": 768},
    "a window over several chunks": {"causal": True, "window": 300, "chunk": 768},
    "tiles of a table": {"mask": "rule", "causal": True, "documents": True},
    "two tiles": {"causal": True, "blocks": {"block_q": 256, "unroll": 1}},
    "blocks wider than rows": {"causal": True, "blocks": {"rows": 256, "block_kv": 384, "unroll": 2}},
}


@pytest.mark.parametrize("name", slow_but(2, list(LONG)))
def test_tasks_in_stages_are_as_exact(name):
    changed = dict(LONG[name])
    blocks = dataclasses.replace(STAGED, chunk_kv=changed.pop("chunk", 1 << 14), **changed.pop("blocks", {}))
    plain = {option: values[0] for option, values in OPTIONS.items()}
    row = {**plain, "dim": 64, "dtype": "float32", "heads": (1, 1), "lengths": (1700, 1700), "sinks": True, **changed}
    case = Case(row)
    config = Config(forward=blocks, without_tpu="interpret")

    @functools.partial(jax.jit, compiler_options=QUICKLY)
    def attend(q, k, v):
        return attention(q, k, v, sinks=case.sinks, **case.arguments, return_residuals=True, config=config)

    compared = zip(OUTPUTS, attend(*case.operands[:3]), case.exact(), allowance(case, ULPS), strict=False)
    for what, got, wanted, allowed in compared:
        check_within(what, np.asarray(got, np.float64), wanted, allowed)


def check_within(what, got, wanted, allowed):
    """All elements off by no more than is allowed; -inf where a query attends nothing, and nowhere else."""
    empty = np.isneginf(wanted)
    assert np.array_equal(np.isneginf(got), empty), what
    error = np.abs(np.where(empty, 0, got) - np.where(empty, 0, wanted))
    # The worst of them; one that is allowed nothing has no terms, and is exact.
    at = np.unravel_index(np.argmax(error / np.where(allowed > 0, allowed, np.finfo(float).tiny)), error.shape)
    assert np.all(error <= allowed), f"{what}{list(map(int, at))}: {got[at]}, wanted {wanted[at]} +- {allowed[at]:.2g}"


@pytest.mark.parametrize("dtype", OPTIONS["dtype"])
def test_a_window_of_one_key_less_is_outside_of_what_roundings_can_do(dtype):
    row = {**next(row for row in TABLE.values() if row["window"] == 50), "dtype": dtype}
    case, other = Case(row), Case({**row, "window": 49})
    for what, got, wanted, allowed in zip(OUTPUTS, other.exact(), case.exact(), allowance(case, ULPS), strict=False):
        if what in ("out", "dv"):
            with pytest.raises(AssertionError, match=rf"{what}\["):
                check_within(what, got, wanted, allowed)


def operands(batch=1, heads=2, kv_heads=1, length=160, dim=64, dtype="float32"):
    rng = np.random.default_rng(3)
    shapes = ((batch, heads, length, dim), (batch, kv_heads, length, dim), (batch, kv_heads, length, dim))
    return [jnp.asarray(rng.standard_normal(shape), dtype) for shape in shapes]


@pytest.mark.parametrize("options", slow_but(1, [{"window": 30, "softcap": 3.0}, {"causal": True}]))
def test_gradients_agree_with_finite_differences(options):
    def both(q, k, v):
        return attention(q, k, v, **options, return_residuals=True, config=SMALL)

    check_grads(jax.jit(both), operands(), order=1, modes=["rev"], atol=2e-2, rtol=2e-2)


def test_vmap_is_a_loop():
    q, k, v = operands(batch=3)
    ids = jnp.asarray(np.sort(np.random.default_rng(0).integers(0, 3, (3, 1, 160)), axis=2), jnp.int32)
    one = jax.jit(lambda q, k, v, ids: attention(q, k, v, causal=True, segment_ids=ids, config=SMALL))
    mapped = jax.vmap(one)(q[:, None], k[:, None], v[:, None], ids)
    for i in range(3):
        assert np.array_equal(mapped[i], one(q[i : i + 1], k[i : i + 1], v[i : i + 1], ids[i]))


def test_a_batch_of_documents_is_each_on_its_own():
    q, k, v = operands(batch=2, length=256)
    ids = jnp.asarray([[0] * 128 + [1] * 128, [0] * 200 + [1] * 56], jnp.int32)
    whole = jax.jit(lambda *args: attention(*args[:3], segment_ids=args[3], config=SMALL))(q, k, v, ids)
    for b, end in ((0, 128), (1, 200)):
        alone = attention(q[b : b + 1, :, :end], k[b : b + 1, :, :end], v[b : b + 1, :, :end], config=SMALL)
        assert np.allclose(whole[b, :, :end], alone[0], atol=1e-5)


def test_keys_in_several_chunks_are_all_attended():
    q, k, v = operands(length=700)
    for options in ({"causal": True}, {"window": (150, 20)}, {}):
        one = attention(q, k, v, **options, config=SMALL)
        assert SMALL.forward is not None
        large = dataclasses.replace(SMALL, forward=dataclasses.replace(SMALL.forward, chunk_kv=2048))
        assert np.allclose(one, attention(q, k, v, **options, config=large), atol=1e-5)


@pytest.mark.slow
def test_the_fallback_computes_the_same_and_says_what_it_is():
    q, k, v = operands()
    fallback = Config(without_tpu="fallback")

    def loss(config):
        return lambda *args: (attention(*args, causal=True, softcap=5.0, config=config) ** 2).sum()

    with pytest.warns(UserWarning, match=r"no TPU here \(cpu\).*plain XLA"):
        plain = jax.grad(loss(fallback), (0, 1, 2))(q, k, v)
    for a, b in zip(plain, jax.jit(jax.grad(loss(SMALL), (0, 1, 2)))(q, k, v), strict=True):
        assert np.allclose(a, b, atol=1e-4)


def test_without_a_tpu_the_default_refuses():
    with pytest.raises(ValueError, match="interpret mode"):
        attention(*operands(), causal=True)


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        ({"q": (1, 3, 160, 64)}, "3 heads on 2 key heads"),
        ({"q": (1, 2, 160, 80)}, "dim is 80"),
        ({"v": (1, 2, 100, 64)}, "wanted the same batch, heads and length"),
        ({"v": (1, 2, 160, 80)}, "dim is 80"),
        ({"sinks": (3,)}, r"sinks are \[3\], wanted \[2\]"),
        ({"q": (2, 160, 64)}, "3, 4, 4 dimensions"),
    ],
)
def test_operands_that_do_not_fit_are_named(changed, reported):
    shapes = {name: (1, 2, 160, 64) for name in "qkv"} | changed
    with pytest.raises(ValueError, match=reported):
        attention(**{name: jnp.zeros(shape) for name, shape in shapes.items()})


def test_a_mask_of_the_wrong_shape_is_named():
    with pytest.raises(ValueError, match=r"mask is bool\[3, 4\], wanted bool\[160, 160\]"):
        attention(*operands(), mask=np.ones((3, 4), bool))
