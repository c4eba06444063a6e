"""A sweep's table, and the commands that it offers: names and values in them are data."""

import shlex

from ratchet.values import SweepResult
from ratchet.view.verdicts import offer, sweep_table
from tests.view.timelines import verdict


def result(**point):
    return SweepResult(point=point, verdict=verdict(), seconds=1.0)


def words(text):
    return [shlex.split(line.removeprefix("To try the best:")) for line in text.splitlines()]


def test_an_offer_can_be_pasted():
    assert offer(result(BQ=256), kernel="kernel.py").splitlines() == [
        "To try the best: ./ratchet.sh sweep kernel.py BQ=256 --apply",
        "                 ./ratchet.sh --kernel kernel.py 'experiment: BQ 256'",
    ]


def test_what_an_offer_names_is_no_command():
    kernel, value = "a b;touch $(c)'.py", 'x`y` "z" $HOME'
    sweep, experiment = words(offer(result(MODE=value), kernel=kernel))
    assert sweep == ["./ratchet.sh", "sweep", kernel, f"MODE={value!r}", "--apply"]
    assert experiment == ["./ratchet.sh", "--kernel", kernel, f"experiment: MODE {value}"]


def test_an_offer_has_no_escape_sequence():
    assert "\x1b" not in offer(result(MODE="\x1b[2J"), kernel="k\x1b[2J.py")


def test_nothing_is_offered_where_the_file_is_the_best():
    assert offer(result(), kernel="kernel.py") == "No point is faster than the file as it is."


def test_numbers_of_a_sweep_are_under_one_another():
    head, first, last, said = sweep_table([result(BQ=8), result(BQ=1024)], ["BQ"], kernel="kernel.py").splitlines()
    assert head.startswith("  BQ  ")
    assert first.startswith("   8  ")
    assert last.startswith("1024  ")
    assert said.startswith("2 points of kernel.py")
