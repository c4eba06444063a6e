"""When a search ends."""

import pytest

from ratchet.search.run import Ending, Limits, ending
from tests.search.landscapes import overflow, timed

FAST = timed({"A": 1}, 1.0)
SLOW = timed({"A": 2}, 2.0)
SAME = timed({"A": 3}, 1.0)


@pytest.mark.parametrize(
    ("limits", "observations", "expected"),
    [
        (Limits(trials=3), [FAST, SLOW], None),
        (Limits(trials=2), [FAST, SLOW], Ending.BUDGET),
        (Limits(trials=9, seconds=10.0), [FAST], None),
        (Limits(trials=9, seconds=5.0), [FAST], Ending.TIME),
        (Limits(trials=9, patience=2), [SLOW, FAST, SLOW], None),
        (Limits(trials=9, patience=2), [FAST, SLOW, SAME], Ending.PATIENCE),
        (Limits(trials=9, patience=2), [overflow({"A": 1}), overflow({"A": 2})], None),
    ],
)
def test_it_ends_where_a_limit_is_reached(limits, observations, expected):
    assert ending(limits, observations, seconds=6.0) is expected
