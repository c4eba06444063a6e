"""The statistics of measured mode: exact properties, and simulations of what the error budget promises."""

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.exam.measure import stats
from ratchet.exam.measure.stats import CANNOT_TELL, FASTER, NOT_FASTER

DIFFERENCES = st.lists(st.floats(-0.5, 0.5, allow_nan=False), min_size=1, max_size=12)
TIMES = st.lists(st.floats(0.01, 100), min_size=1, max_size=9)


def comparison(generator, shift, spread, most, level=0.05 / 2):
    """One comparison, launch by launch, with as many looks as launches; returns the answer and the launches."""
    seen = []
    for _ in range(most):
        seen.append(shift + generator.choice((-1, 1)) * spread(generator))
        if (said := stats.answer(seen, level)) != CANNOT_TELL:
            return said, len(seen)
    return CANNOT_TELL, most


NOISE = {
    "normal": lambda g: g.gauss(0, 0.01),
    "heavy tails": lambda g: 0.003 / max(1e-6, g.random()) ** 0.7,
    "two modes": lambda g: 0.02,
    "growing": lambda g: g.expovariate(1) * 10 ** g.uniform(-4, 0),
}


@given(DIFFERENCES)
def test_betting_on_signs_is_a_fair_game(differences):
    """Over all signs of the same sizes, the mean wealth is exactly 1: no size or number of launches is lucky."""
    sizes = [abs(d) for d in differences[:8]]
    games = [math.exp(stats.log_wealth([s * d for s, d in zip(signs, sizes, strict=True)]))
             for signs in itertools.product((-1, 1), repeat=len(sizes))]  # fmt: skip
    assert math.fsum(games) / len(games) == pytest.approx(1, rel=1e-9)


@given(DIFFERENCES, st.floats(-0.1, 0.0))
def test_a_slower_kernel_loses_at_it(differences, shift):
    """Sizes symmetric about a loss: the mean wealth is at most 1."""
    sizes = [abs(d) for d in differences[:8]]
    games = [math.exp(stats.log_wealth([shift + s * d for s, d in zip(signs, sizes, strict=True)]))
             for signs in itertools.product((-1, 1), repeat=len(sizes))]  # fmt: skip
    assert math.fsum(games) / len(games) <= 1 + 1e-9


def test_the_budget_is_never_overspent():
    spent = math.fsum(stats.level(test) for test in range(1, 100_000))
    assert 0.99 * stats.BUDGET < spent <= stats.BUDGET
    with pytest.raises(ValueError, match="counted from 1"):
        stats.level(0)


@given(TIMES, TIMES, st.floats(0.1, 10))
def test_a_difference_turns_its_sign_with_the_roles_and_knows_no_unit(one, other, unit):
    count = min(len(one), len(other))
    one, other = one[:count], other[:count]
    forth, back = stats.difference(one, other), stats.difference(other, one)
    assert forth == pytest.approx(-back, abs=1e-12)
    assert stats.difference([unit * t for t in one], [unit * t for t in other]) == pytest.approx(forth, abs=1e-9)


def test_times_without_a_partner_are_refused():
    with pytest.raises(ValueError, match="2 times against 1"):
        stats.difference([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="no launch"):
        stats.conclude([], test=1, samples=0, seconds=0)


@given(DIFFERENCES.filter(lambda d: len(d) > 6))
@settings(max_examples=50)
def test_an_interval_shrinks_with_its_confidence_and_turns_with_the_roles(differences):
    low, high = stats.interval(differences, 0.05)
    wide = stats.interval(differences, 0.01)
    assert wide[0] <= low <= high <= wide[1]
    turned = stats.interval([-d for d in differences], 0.05)
    assert turned == pytest.approx((-high, -low), abs=1e-9)


def test_a_handful_of_launches_bounds_nothing():
    assert stats.interval([0.5] * 5) == (-math.inf, math.inf)
    low, high = stats.interval([0.5] * 20)
    assert 0.49 < low <= high < 0.51


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
def test_equal_kernels_are_kept_no_oftener_than_the_level_says(noise):
    """400 comparisons at 2.5 %, each looked at after every launch: at most 10 expected, 22 is 3.8 sigma above."""
    generator = random.Random(1)
    kept = sum(comparison(generator, 0.0, noise, 25)[0] == FASTER for _ in range(400))
    assert kept <= 22


def test_a_whole_history_keeps_to_its_budget():
    """100 ledgers of 30 comparisons of equal kernels: at most 5 expected to err at all, 13 is 3.7 sigma above."""
    generator = random.Random(2)
    erring = 0
    for _ in range(100):
        answers = (comparison(generator, 0.0, NOISE["normal"], 20, stats.level(k))[0] for k in range(1, 31))
        erring += any(one == FASTER for one in answers)
    assert erring <= 13


def test_true_gains_are_kept_and_true_losses_end_early():
    generator = random.Random(3)
    level = stats.level(30)
    gains = [comparison(generator, 0.03, NOISE["normal"], 60, level) for _ in range(100)]
    assert sum(said == FASTER for said, _ in gains) >= 95
    losses = [comparison(generator, -0.03, NOISE["normal"], 60, level) for _ in range(100)]
    assert all(said == NOT_FASTER for said, _ in losses)
    assert max(launches for _, launches in losses) < 25


def test_the_interval_holds_the_truth_at_all_times_at_once():
    """100 comparisons, looked at several times, at 95 %: at most 5 are expected to miss, 13 is 3.7 sigma above."""
    generator = random.Random(4)
    missed = 0
    for _ in range(100):
        seen = [generator.gauss(0.02, 0.015) for _ in range(30)]
        intervals = (stats.interval(seen[:n]) for n in (8, 15, 30))
        missed += not all(low <= 0.02 <= high for low, high in intervals)
    assert missed <= 13


def test_cannot_tell_says_how_long_it_would_take():
    generator = random.Random(5)
    seen = [generator.gauss(0.01, 0.012) for _ in range(10)]
    conclusion = stats.conclude(seen, test=10, samples=300, seconds=20.0)
    assert conclusion.answer == CANNOT_TELL
    assert conclusion.low < 1.0 < conclusion.high
    assert 5 < conclusion.more_launches < 300
    assert conclusion.more_seconds == pytest.approx(2.0 * conclusion.more_launches)
    wide = stats.conclude([0.3, -0.3] * 3, test=1, samples=6, seconds=1.0)
    assert wide.answer == CANNOT_TELL
    assert wide.more_launches is None, "launches like these never decide it"


def test_conclusions_carry_what_a_row_needs():
    conclusion = stats.conclude([0.05] * 20, test=3, samples=600, seconds=10.0)
    assert (conclusion.answer, conclusion.launches, conclusion.samples, conclusion.test) == (FASTER, 20, 600, 3)
    assert conclusion.speedup == pytest.approx(math.exp(0.05))
    assert conclusion.level == stats.level(3)
    assert conclusion.more_launches is None
    assert 1.04 < conclusion.low <= conclusion.speedup <= conclusion.high < 1.06
