"""Links and the order of machines, each by itself."""

from __future__ import annotations

from math import inf

import pytest

from ratchet.tpu.chips import CHIPS, V5E, Ici
from ratchet.tpu.machine.links import Interleaving, Links
from ratchet.values.status import Status
from tests.refusals import refused

# One byte per cycle and a hop of 100 cycles, so that times can be read off.
SIMPLE = Ici(shape=(2, 2), link_bytes_per_s=1.0, hop_s=100.0, spread=0.0, source="a test")


def links() -> Links:
    return Links(SIMPLE, 1.0)


def test_a_square_has_eight_links_and_no_diagonals() -> None:
    assert len(SIMPLE.links()) == 8
    assert SIMPLE.path(0, 3) == (0, 1, 3)
    assert SIMPLE.path(2, 1) == (2, 3, 1)
    assert V5E.slice_of(4).chips == 4


def test_a_slice_of_eight_has_three_neighbours_at_most_and_no_way_around() -> None:
    slice_ = V5E.ici(8)
    assert (slice_.chips, slice_.links_of_a_chip) == (8, 3)
    assert slice_.path(0, 7) == (0, 1, 3, 5, 7)
    assert len(slice_.links()) == 20
    assert V5E.slice_of(1) == V5E.slice_of(4)
    with refused(Status.USAGE, "a mesh of 6 devices; a slice of v5e has 4 or 8"):
        V5E.slice_of(6)
    with refused(Status.SCHEDULE_UNKNOWN, "slices of v4 are not modelled; those of v5e, v5p, v6e, tpu7x are"):
        CHIPS["v4"].ici(4)


def test_one_hop() -> None:
    message = links().send(7, 0, 1, 2)
    assert (message.begin, message.left, message.arrival) == (7, 71, 171)


def test_two_hops_pass_through() -> None:
    assert links().send(0, 0, 3, 2).arrival == 64 + 2 * 100


def test_first_in_first_out_on_each_link() -> None:
    net = links()
    net.send(0, 0, 1, 2)
    assert net.send(0, 0, 1, 1).arrival == 64 + 32 + 100
    assert net.send(0, 1, 0, 1).arrival == 32 + 100, "the other direction is a link of its own"
    assert net.send(50, 0, 3, 1).begin == 96, "a way through shares its first link"


def test_signals_take_no_bandwidth() -> None:
    net = links()
    net.send(0, 0, 1, 2)
    assert net.send(0, 0, 1, 0).arrival == 100
    (use,) = [use for use in net.use() if use.messages]
    assert (use.source_chip, use.target_chip, use.bytes, use.messages, use.busy_cycles) == (0, 1, 64, 2, 64)


class Stuck(Exception):
    pass


def at_once(one: int, other: int) -> float:
    """What one machine does reaches any other without delay."""
    return 0.0


def test_machines_move_in_the_order_of_their_time() -> None:
    order: list[tuple[int, int]] = []
    moves = Interleaving(3, at_once, Stuck)

    def work(me: int, times: list[int]) -> None:
        for time in times:
            moves.before(me, time)
            order.append((time, me))

    moves.run([lambda: work(0, [5, 6, 30]), lambda: work(1, [1, 20]), lambda: work(2, [2, 25, 40])])
    assert order == sorted(order)


def test_a_wait_that_nothing_ends_is_reported() -> None:
    moves = Interleaving(2, at_once, Stuck)
    with pytest.raises(Stuck):
        moves.run([lambda: moves.until(0, lambda: inf), lambda: None])


def test_the_first_failure_ends_all() -> None:
    moves = Interleaving(2, at_once, Stuck)

    def fail() -> None:
        moves.before(1, 10)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        moves.run([lambda: moves.until(0, lambda: inf), fail])


@pytest.mark.parametrize(("ahead", "first"), [(0.0, [(1, "other"), (2, "me")]), (5.0, [(2, "me"), (1, "other")])])
def test_a_machine_runs_ahead_of_another_by_what_a_message_takes(ahead: float, first: list[tuple[int, str]]) -> None:
    order: list[tuple[int, str]] = []
    moves = Interleaving(2, lambda one, other: ahead, Stuck)

    def work(me: int, time: int, name: str) -> None:
        moves.seen(me, time)
        order.append((time, name))

    moves.run([lambda: work(0, 2, "me"), lambda: work(1, 1, "other")])
    assert order == first
