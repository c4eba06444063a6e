"""Ordinary operators are not refused, and their subtly wrong variants are: the corpus of ``benchmarks.margins``."""

import math

import jax
import pytest

from benchmarks import margins
from benchmarks.lib.programs import of_source
from benchmarks.lib.sources import names_of
from tests.kernels import CANDIDATES, HONEST, edited
from tests.tiers import cases

WRONG = names_of((CANDIDATES / "wrong" / "variants.py").read_text())["VARIANTS"]
QUICK = ("quantise_int8",)


@pytest.mark.parametrize("name", cases(QUICK, HONEST))
def test_the_honest_pass_with_a_margin_and_the_wrong_do_not(name):
    if '"mesh"' in HONEST[name] and len(jax.devices("cpu")) < 4:
        pytest.skip("needs four devices: python -m benchmarks.margins has them")
    artefact, problem = of_source(HONEST[name])
    asked = margins.Asked(problem, secrets=1)
    assert asked.rounded() <= 0.5
    assert asked.native() <= 0.5
    reached, where = asked.kernel(artefact.program)
    assert max(reached) <= 1, where
    for variant, (of, edits) in WRONG.items():
        if of == name:
            spoiled, _ = of_source(edited(HONEST[name], *edits), freeze=False)
            reached, where = asked.kernel(spoiled.program)
            assert min(reached) > 1, f"{variant}: {where}"
            assert not math.isnan(min(reached))


def test_every_variant_is_of_a_kernel_and_changes_it():
    for of, edits in WRONG.values():
        assert edited(HONEST[of], *edits) != HONEST[of]
