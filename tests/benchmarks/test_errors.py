"""Statistics of the fidelity benchmark."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.lib.published import errors

POSITIVE = st.floats(0.1, 100)


def test_summary() -> None:
    found = errors.summarise([1.0, 2.0, 4.0], [1.1, 2.0, 3.0])
    assert found.mean == pytest.approx(0.35 / 3)
    assert found.median == pytest.approx(0.1)
    assert found.largest == pytest.approx(0.25)
    assert found.bias == pytest.approx(-0.05)


def test_nothing_to_summarise() -> None:
    with pytest.raises(ValueError, match="0 measured"):
        errors.summarise([], [])


@given(st.lists(POSITIVE, min_size=2, max_size=20, unique=True))
def test_order_alone_decides_the_rank_correlation(values: list[float]) -> None:
    assert errors.rank_correlation(values, [value**3 for value in values]) == pytest.approx(1)
    assert errors.rank_correlation(values, [-value for value in values]) == pytest.approx(-1)


def test_ties_share_their_rank() -> None:
    assert errors.rank_correlation([1, 2, 2, 3], [1, 2, 2, 3]) == pytest.approx(1)
    assert errors.rank_correlation([1, 1, 1], [1, 2, 3]) == 0


@given(st.lists(POSITIVE, min_size=1, max_size=20), st.floats(0, 5))
def test_a_constant_is_found_again(modelled: list[float], constant: float) -> None:
    measured = [value + constant for value in modelled]
    assert errors.dispatch_ms(measured, modelled) == pytest.approx(constant, abs=1e-9)
    assert errors.dispatch_left_out_ms(measured, modelled) == pytest.approx([constant] * len(modelled), abs=1e-9)


def test_an_outlier_does_not_move_the_constant() -> None:
    modelled = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert errors.dispatch_ms([1.2, 2.2, 3.2, 4.2, 9.0], modelled) == pytest.approx(0.2)


def test_a_call_takes_no_less_than_its_program() -> None:
    assert errors.dispatch_ms([1.0], [2.0]) == 0
