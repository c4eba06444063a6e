"""What is swept and compared in ``python -m benchmarks.attention``."""

import json

import pytest

from benchmarks.attention.__main__ import best, recipes_of
from benchmarks.attention.cases import PEERS, SHAPES
from benchmarks.attention.store import Store


@pytest.mark.parametrize("grad", [False, True])
def test_every_recipe_can_be_a_key_and_none_comes_twice(grad):
    for name in SHAPES:
        keys = [
            json.dumps(recipe, sort_keys=True)
            for impl in ("ours", *PEERS)
            for recipe in recipes_of(impl, name, grad=grad)
        ]
        assert len(keys) == len(set(keys)) >= len(PEERS) + 1


def test_useful_work_is_that_of_the_pairs_that_attend():
    assert SHAPES["headline"].flops(grad=False) == 4 * 128 * (16384 * 16385 // 2)
    assert SHAPES["not causal"].flops(grad=True) == 14 * 128 * 8 * 4096**2


def test_the_best_of_a_sweep_is_the_fastest_that_compiled(tmp_path):
    store = Store(tmp_path)
    recipes = recipes_of("flash", "headline", grad=False)
    for recipe, figures in zip(recipes, ({"ms": 2.0}, {"error": "too large"}, {"ms": 1.0}), strict=True):
        store._file(recipe).write_text(json.dumps({"recipe": recipe, "figures": figures}))
    found = best(store, recipes)
    assert found is not None
    assert found[0] == recipes[2]
    assert best(Store(tmp_path / "empty"), recipes) is None
