"""Which row froze a problem, and that another problem in its place is said first."""

import dataclasses

from ratchet.loop.frozen import changed, current, frozen
from ratchet.values import Row
from ratchet.view.ledger import log_table
from ratchet.view.status import State, status_document, status_text

BLANK = Row(**dict.fromkeys((one.name for one in dataclasses.fields(Row)), ""))


def row(number, problem, status="PASS", kernel="k.py", **others):
    made = {"id": f"r{number}", "time": f"t{number}", "problem": problem, "status": status, "kernel": kernel}
    return dataclasses.replace(BLANK, **made, **others)


ROWS = (
    row(1, "aaaa", "WRONG_VALUES"),
    row(2, "aaaa"),
    row(3, "aaaa", "NOT_BETTER"),
    row(4, "bbbb", "UNCHECKED"),
    row(5, "cccc", kernel="other.py"),
    row(6, "bbbb", "NOT_BETTER"),
)
NEW = "NEW problem bbbb of k.py: frozen by row r6 at t6, in place of aaaa (row r2 at t2)"
FIRST = "problem cccc of other.py: frozen by row r5 at t5"


def test_the_first_row_that_passed_froze_the_problem():
    assert [(one.row.id, one.before and one.before.id) for one in frozen(ROWS)] == [
        ("r2", None),
        ("r5", None),
        ("r6", "r2"),
    ]
    assert [one.said for one in current(ROWS)] == [NEW, FIRST]


def test_a_problem_that_comes_back_is_new_again():
    back = row(7, "aaaa")
    assert changed(ROWS, back).startswith("NEW problem aaaa of k.py: frozen by row r7")
    assert changed(ROWS, ROWS[-1]) == NEW
    assert changed(ROWS, ROWS[1]) == changed(ROWS, row(8, "bbbb")) == ""


def test_the_log_begins_with_what_changed():
    lines = log_table(ROWS).splitlines()
    assert lines[:2] == [NEW, FIRST]


def test_the_status_says_who_froze_each_problem():
    state = State(branch="refs/heads/main", commit="c" * 40, edited=(), running="", unfinished="", rows=ROWS)
    lines = [" ".join(line.split()) for line in status_text(state).splitlines()]
    assert f"problem {NEW.replace('problem ', '', 1)}" in lines
    assert status_document(state)["problems"][1] == {
        "problem": "cccc",
        "kernel": "other.py",
        "frozen_by": "r5",
        "at": "t5",
    }
