"""Which points are tried next: by every strategy, from what was tried alone."""

import pytest

from ratchet.search.propose import STRATEGIES, Known, directions, propose
from ratchet.search.space import Constraint, Space, best
from tests.search.landscapes import CLEVER, HOWS, SIZES, overflow, searched, space, timed
from tools.documents import read

PLAIN = space(("BQ", SIZES), ("BKV", SIZES), ("SKIP", (False, True)), ("MODE", ("a", "b", None)))
START = {"BQ": 64, "BKV": 64, "SKIP": False, "MODE": "a"}


def bowl(point):
    """Best at 512, 256, True, "b"."""
    off = abs(SIZES.index(point["BQ"]) - 3) + 2 * abs(SIZES.index(point["BKV"]) - 2)
    return timed(point, 1.0 + off + (not point["SKIP"]) + (point["MODE"] != "b"))


@pytest.mark.parametrize("how", HOWS)
def test_every_point_is_tried_once_and_the_start_first(how):
    small = space(("BQ", SIZES), ("SKIP", (False, True)))
    start = {"BQ": 64, "SKIP": False}
    observations = searched(
        how, small, start, lambda point: timed(point, point["BQ"] - 0.5 * point["SKIP"]), budget=1000
    )
    keys = [small.key(one.point) for one in observations]
    assert observations[0].point == start
    assert len(set(keys)) == len(keys)
    assert len(keys) == (4 if how == "neighbours" else 10)


@pytest.mark.parametrize("how", CLEVER)
def test_the_best_is_met_long_before_the_grid_is_through(how):
    observations = searched(how, PLAIN, START, bowl, budget=60)
    assert best(observations).latency_ms == 1.0


@pytest.mark.parametrize("how", HOWS)
def test_a_search_that_was_cut_off_goes_on_as_if_it_had_not_been(how):
    whole = searched(how, PLAIN, START, bowl, budget=24)
    for cut in (4, 8, 20):
        assert searched(how, PLAIN, START, bowl, budget=24, done=whole[:cut]) == whole


@pytest.mark.parametrize("how", HOWS)
def test_what_no_condition_allows_is_not_proposed(how):
    narrow = Space(axes=PLAIN.axes, where=(Constraint.of("BQ * BKV <= 2**16"),), constants={})
    observations = searched(how, narrow, START, bowl, 24)
    assert all(one.point["BQ"] * one.point["BKV"] <= 2**16 for one in observations)


@pytest.mark.parametrize("how", STRATEGIES)
def test_the_documents_name_every_strategy(how):
    assert f"| `--how {how}` |" in read("docs/search.md")


def valley(point):
    """Each change of the best point loses alone, and two of them together win."""
    latencies = {(64, False): 1.0, (128, False): 1.11, (64, True): 1.07, (128, True): 0.81}
    return timed(point, latencies.get((point["BQ"], point["SKIP"]), 2.0))


@pytest.mark.parametrize("how", CLEVER)
def test_two_changes_that_lose_alone_and_win_together_are_met(how):
    others = [(name, (0, 1)) for name in ("A", "B", "C")]
    pair = space(("BQ", SIZES), ("SKIP", (False, True)), *others)
    start = {"BQ": 64, "SKIP": False, **dict.fromkeys("ABC", 0)}

    def alone_or_together(point):
        return timed(point, valley(point).latency_ms + sum(point[name] for name in "ABC"))

    observations = searched(how, pair, start, alone_or_together, budget=40)
    assert len(list(pair.points())) == 80
    assert best(observations).latency_ms == 0.81


def test_halves_come_before_their_pair():
    pair = space(("BQ", SIZES), ("SKIP", (False, True)))
    observations = searched("neighbours", pair, {"BQ": 64, "SKIP": False}, valley, budget=10, batch=1)
    assert [(one.point["BQ"], one.point["SKIP"]) for one in observations[:4]] == [
        (64, False), (128, False), (64, True), (128, True),
    ]  # fmt: skip


def test_pairs_come_in_the_order_of_what_their_halves_lost():
    axes = space(("A", (1, 2)), ("B", (1, 2)), ("C", (1, 2)))
    cost = {"A": 0.3, "B": 0.1, "C": 0.2}
    start = {"A": 1, "B": 1, "C": 1}
    observations = searched(
        "neighbours",
        axes,
        start,
        lambda point: timed(point, 1 + sum(cost[name] for name in cost if point[name] == 2)),
        budget=5,
    )
    assert observations[4].point == {"A": 1, "B": 2, "C": 2}


def by_size(point, limit=2**16):
    """VMEM grows with the blocks and shrinks with the pieces."""
    need = point["BQ"] * point["BKV"] // point["PIECES"] + 1000
    return overflow(point) if need > limit else timed(point, 1.0, need)


def test_what_needs_no_less_than_an_overflow_is_left_out():
    pytest.importorskip("optuna")
    blocks = space(("BQ", SIZES), ("BKV", SIZES), ("PIECES", (1, 2, 4)))
    start = {"BQ": 64, "BKV": 64, "PIECES": 1}
    observations = searched("tpe", blocks, start, by_size, budget=200)
    known = Known(space=blocks, start=start, observations=observations)
    assert directions(blocks, observations) == {"BQ": 1, "BKV": 1, "PIECES": -1}
    assert known.left_out() + len(observations) == 75
    assert known.left_out() > 5
    fitting = [point for point in blocks.points() if by_size(point).passed]
    assert sum(one.passed for one in observations) == len(fitting), "nothing that fits was left out"


def test_a_knob_that_contradicts_its_direction_loses_it():
    blocks = space(("BQ", SIZES), ("BKV", SIZES))
    observations = [timed({"BQ": bq, "BKV": bkv}, 1.0, bq * bkv) for bq in SIZES[:4] for bkv in SIZES[:4]]
    assert directions(blocks, observations) == {"BQ": 1, "BKV": 1}
    odd = [*observations, overflow({"BQ": 64, "BKV": 1024}), timed({"BQ": 128, "BKV": 1024}, 1.0, 5)]
    assert directions(blocks, odd)["BQ"] == 0


def test_nothing_is_left_out_before_directions_are_known():
    blocks = space(("BQ", SIZES), ("BKV", SIZES))
    known = Known(space=blocks, start={"BQ": 64, "BKV": 64}, observations=(overflow({"BQ": 64, "BKV": 128}),))
    assert known.left_out() == 0
    assert len(propose("grid", known, 100)) == 24
