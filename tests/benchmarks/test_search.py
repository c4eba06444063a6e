"""The benchmark of searches: the recorded space is that of its kernel, and ours stays as good on it."""

import pytest

from benchmarks.search import SPACE, Recorded, at_random, optuna_alone, ours, summary
from ratchet.values.status import Status


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return Recorded()


def test_the_space_is_that_of_the_kernel(recorded: Recorded) -> None:
    assert len(recorded.results) == 144
    assert recorded.naive == {"BQ": 128, "BKV": 256, "PIECES": 1, "UNMASKED": False}
    assert {one.status for one in recorded.results.values()} == {Status.UNCHECKED, Status.VMEM_OVERFLOW}
    assert SPACE.stat().st_size < 30_000


def test_neighbours_come_within_a_percent_in_a_third_of_the_grid(recorded: Recorded) -> None:
    tried = ours(recorded, "neighbours", recorded.naive)
    assert recorded.within(tried) <= len(recorded.results) / 3


@pytest.mark.slow
def test_tpe_does_so_too(recorded: Recorded) -> None:
    pytest.importorskip("optuna")
    third = len(recorded.results) // 3
    assert recorded.within(ours(recorded, "tpe", recorded.naive, budget=third)) <= third


def test_every_search_asks_for_a_point_once(recorded: Recorded) -> None:
    pytest.importorskip("optuna")
    for tried in (optuna_alone(recorded, 0), at_random(recorded, 0)):
        assert len({recorded.space.key(one.point) for one in tried}) == len(tried) == 60


def test_a_search_that_never_comes_near_has_no_number(recorded: Recorded) -> None:
    worst = max(recorded.results.values(), key=lambda one: one.latency_ms or 0.0)
    row = summary(recorded, "none", [[worst]])
    assert row["trials to 1 %, median"] is None
    assert row["there within a third of the grid"] == 0
