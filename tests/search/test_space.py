"""The space of a search: from comments and the command line, restricted by conditions."""

import pytest

from ratchet.search.space import MOST_POINTS, space_of
from ratchet.values.status import Refusal, Status

FILE = b"""SEQ = 1024
BQ = 256  # tune: 512, 128, 256
BKV = 512
SKIP = False  # tune: False, True
# where: SEQ % BQ == 0
"""


def test_the_command_line_adds_and_replaces():
    space = space_of(FILE, "kernel.py", ["BKV=256,512", "BQ=64,96"], ["BQ < BKV or SKIP"])
    assert [(axis.name, axis.values) for axis in space.axes] == [
        ("BQ", (64, 96)), ("SKIP", (False, True)), ("BKV", (256, 512)),
    ]  # fmt: skip
    assert list(space.points()) == [
        {"BQ": 64, "SKIP": skip, "BKV": bkv} for skip in (False, True) for bkv in (256, 512)
    ]


def test_numbers_are_in_order_and_switches_are_not():
    bq, skip = space_of(FILE, "kernel.py", [], []).axes
    assert bq.values == (128, 256, 512)
    assert bq.near(128) == (256,)
    assert set(bq.near(256)) == {128, 512}
    assert skip.near(True) == (False,)


def test_one_and_true_are_two_values():
    space = space_of(FILE, "kernel.py", ["SKIP=1,True"], [])
    points = list(space.points())
    assert len({space.key(point) for point in points}) == len(points) == 6
    assert space.axes[1].near(1) == (True,)


def test_the_nearest_point():
    space = space_of(FILE, "kernel.py", ["BKV=256,512"], [])
    assert space.nearest({"BQ": 200, "SKIP": True, "BKV": 4096}) == {"BQ": 256, "SKIP": True, "BKV": 512}
    assert space.nearest({"BQ": "no number", "SKIP": 7}) == {"BQ": 128, "SKIP": False, "BKV": 256}


@pytest.mark.parametrize(
    ("source", "given", "where", "said"),
    [
        (b"A = 1\n", [], [], "names no values to try"),
        (FILE, ["TK=1"], [], "sets no constant 'TK'"),
        (FILE, ["BQ=1", "BQ=2"], [], "named twice"),
        (FILE, [], ["BK > 1"], "names BK, no constant of kernel.py"),
        (FILE, [], ["BQ > 999"], "no combination"),
        (FILE, [], ["1 // 0"], "has no value"),
        (
            FILE,
            [f"{name}={','.join(map(str, range(1 + int(MOST_POINTS**0.5))))}" for name in ("BQ", "BKV")],
            [],
            "fewer",
        ),
    ],
)
def test_what_is_no_space_is_refused(source, given, where, said):
    with pytest.raises(Refusal) as caught:
        space_of(source, "kernel.py", given, where)
    assert caught.value.status is Status.USAGE
    assert said in caught.value.message
