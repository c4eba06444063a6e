"""What is swept and compared in ``python -m benchmarks.attention``."""

import json
from dataclasses import asdict

import jax
import numpy as np
import pytest

from benchmarks.attention import SWEPT, best, recipes_of
from benchmarks.lib.attention.cases import PATTERNS, PEERS, SHAPES, TRAINING, Shape, attention_programs
from benchmarks.lib.attention.programs import attends, build
from benchmarks.lib.attention.worker import repeated
from tests.hlo_texts import hlo_of


@pytest.mark.parametrize("grad", [False, True])
def test_every_recipe_can_be_a_key_and_none_comes_twice(grad):
    for name in SHAPES:
        recipes = [recipe for impl in ("ours", *PEERS) for recipe in recipes_of(impl, name, grad=grad)]
        keys = [json.dumps(recipe, sort_keys=True) for recipe in recipes]
        assert len(keys) == len(set(keys)) >= len(PEERS) + 1


IMPLS = ("ours", "flash", "splash", "tokamax")


@pytest.mark.parametrize("chip", [chip for chip in SWEPT if chip != "v5e"])
@pytest.mark.parametrize("name", SHAPES)
def test_off_the_v5e_every_kernel_is_tried_in_as_many_ways(chip, name):
    for grad, settings in ((False, 4), (True, 3)):
        tried = [recipes_of(impl, name, grad=grad, chip=chip) for impl in IMPLS]
        assert {len(recipes) for recipes in tried} == {settings}
        recipes = [recipe for own in tried for recipe in own]
        assert len({json.dumps(recipe, sort_keys=True) for recipe in recipes}) == len(recipes)
        assert {recipe["chip"] for recipe in recipes} == {chip}


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_are_tried_in_as_many_ways_by_those_that_have_them(name):
    tried = {impl: len(recipes_of(impl, name, grad=False)) for impl in IMPLS}
    assert set(tried.values()) <= {0, 4}
    assert [impl for impl, count in tried.items() if not count] == ([] if name == "documents" else ["flash"])


@pytest.mark.parametrize("chip", SWEPT)
@pytest.mark.parametrize("grad", [False, True])
def test_layers_of_models_are_tried_in_as_many_ways_by_those_that_have_them(chip, grad):
    for name, shape in TRAINING.items():
        tried = {impl: recipes_of(impl, name, grad=grad, chip=chip) for impl in IMPLS}
        plain = not (shape.window or shape.softcap or shape.sinks or shape.dim_v)
        assert {impl: len(recipes) for impl, recipes in tried.items() if recipes} == dict.fromkeys(
            IMPLS if plain else ("ours", "splash", "tokamax"), 3 if grad else 4
        )
        keys = [json.dumps(recipe, sort_keys=True) for recipes in tried.values() for recipe in recipes]
        assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("name", ["deepseek-v3", "gpt-oss 20b window", "gemma-2 9b"])
@pytest.mark.parametrize("impl", ["ours", "splash", "xla"])
def test_programs_of_layers_with_extras_have_the_shapes_of_the_layer(impl, name):
    shape = TRAINING[name]
    function, avals = build(shape.program(impl, {}, grad=True))
    out, *gradients = jax.eval_shape(function, *avals)
    assert out.shape == (shape.batch, shape.heads, shape.seq, shape.dim_v or shape.dim)
    assert [x.shape for x in gradients] == [x.shape for x in avals[:3]]


@pytest.mark.parametrize(
    "shape",
    [
        Shape(batch=1, heads=1, kv_heads=1, seq=64, dim=128, causal=True, window=8),
        Shape(batch=1, heads=1, kv_heads=1, seq=64, dim=128, causal=True, documents=4),
        Shape(batch=1, heads=1, kv_heads=1, seq=64, dim=128, causal=False, documents=4),
        Shape(batch=1, heads=1, kv_heads=1, seq=64, dim=128, causal=True, prefix=16),
        Shape(batch=1, heads=1, kv_heads=1, seq=64, dim=128, causal=False),
    ],
)
def test_pairs_are_counted_as_they_attend(shape):
    at = np.arange(shape.seq)
    assert shape.pairs == attends(asdict(shape), at[:, None], at[None, :]).sum()


def test_useful_work_is_that_of_the_pairs_that_attend():
    assert SHAPES["headline"].flops(grad=False) == 4 * 128 * (16384 * 16385 // 2)
    assert TRAINING["deepseek-v3"].flops(grad=False) == 2 * (192 + 128) * 4 * (4096 * 4097 // 2)
    assert SHAPES["not causal"].flops(grad=True) == 14 * 128 * 8 * 4096**2


def test_the_best_of_a_sweep_is_the_fastest_that_compiled(tmp_path):
    programs = attention_programs(tmp_path)
    recipes = recipes_of("flash", "headline", grad=False)
    assert len(recipes) == 3
    for recipe, figures in zip(recipes, ({"ms": 2.0}, {"error": "too large"}, {"ms": 1.0}), strict=True):
        programs.put(recipe, figures)
    found = best(programs, recipes)
    assert found is not None
    assert found[0] == recipes[2]
    assert best(attention_programs(tmp_path / "empty"), recipes) is None


MODULE = """HloModule m

ENTRY %main (x: f32[8,128]) -> f32[8,128] {
  %x = f32[8,128]{1,0:T(8,128)} parameter(0)
  %two = s8[]{:T(512)} constant(2)
  %half = f32[]{:T(128)} constant(0.5)
  %table = s8[1,2,2]{2,1,0:T(4,128)(4,1)} broadcast(%two), dimensions={}
  %scale = f32[8,128]{1,0:T(8,128)} broadcast(%half), dimensions={}
  ROOT %kernel = f32[8,128]{1,0:T(8,128)} custom-call(%table, %x, %scale), custom_call_target="tpu_custom_call"
}
"""


def test_tables_that_xla_repeats_are_known():
    found = repeated(hlo_of(MODULE))
    assert {name: values.tolist() for name, values in found.items()} == {"kernel:0": [[[2, 2], [2, 2]]]}
