"""The ledger as a person reads it: tables, one row, the state; wide, narrow and in a pipe."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.text import Text

from ratchet.search.progress import Searching
from ratchet.values import Row
from ratchet.values.row import Origin, Origins
from ratchet.view.ledger import entries, entry_document, log_table, origins_text, top_table
from ratchet.view.status import State, show, status_document, status_text
from ratchet.view.text import percent, time_change, times

from .timelines import row

LONG = "keep keys in VMEM: " + "because each block is read again for every row of queries; " * 6 + "the end"
MODELLED = {"kernel": "kernel.py", "evaluator": "v5e-model", "chip": "v5e", "problem": "p"}


def scored(name: str, ms: float, decision: str, note: str = "a note", **others: str) -> Row:
    status = "PASS" if decision in ("kept", "baseline") else "NOT_BETTER"
    given = {**MODELLED, "id": name, "commit": name[0] * 40, "util_pct": "61.234", "score": str(1e4 / ms**2), **others}
    return row(status=status, decision=decision, note=note, median_ms=repr(ms), **given)


ROWS = [
    scored("a1", 1.0, "baseline", "baseline"),
    row(id="b2", commit="b" * 40, status="TIMEOUT", decision="reverted", note="loop\nforever", **MODELLED),
    scored("c3", 0.8, "kept", LONG),
    scored("d4", 0.84, "reverted", "[red]ü 高い[/red]"),
    scored("e5", 0.4, "kept", "x"),
    scored("f6", 7.0, "baseline", "other problem", problem="q"),
]


def state(*rows: Row, **others: object) -> State:
    given = {"branch": "refs/heads/main", "commit": "c" * 40, "edited": (), "running": "", "unfinished": ""}
    return State(**{**given, "rows": rows, **others})  # type: ignore[arg-type]


def test_changes_are_times_faster_and_per_cent_of_time() -> None:
    assert times(1.25) == "1.250x"
    assert times(11.432) == "11.4x"
    assert time_change(1.25) == "-20.0 %"
    assert time_change(0.5) == "+100 %"
    assert time_change(1.0) == "same"
    assert percent(-0.02683) == "-0.0268 %"
    first, failed, kept, slower, twice, other = entries(ROWS)
    assert (first.faster, failed.faster, other.faster) == (None, None, None)
    assert (kept.faster, kept.before) == (pytest.approx(1.25), ROWS[0])
    assert (slower.before, twice.before) == (ROWS[2], ROWS[2]), "beside the kept one, not the row before"
    assert slower.time_change_pct == pytest.approx(5.0)


def test_baselines_that_repeat_what_was_known_are_one_line() -> None:
    again = [scored(name, 0.4, "baseline", "baseline", seal=name) for name in ("g7", "h8")]
    table = log_table([*ROWS[:5], *again])
    assert [line.split()[1] for line in table.split("\n")[2:-1] if line[0] == "*"] == ["a1", "c3", "e5"]
    assert "x (judged again 2 times, unchanged)" in table
    whole = [entry_document(one) for one in entries([*ROWS[:5], *again])]
    assert [(one["id"], one["repeats"], one["judged_again"]) for one in whole[4:]] == [
        ("e5", None, 2),
        ("g7", "e5", 0),
        ("h8", "e5", 0),
    ]
    assert status_document(state(*ROWS[:5], *again))["experiments"] == 5


def test_a_pipe_gets_everything_whole() -> None:
    problem, title, heading, *lines, legend = log_table(ROWS).split("\n")
    assert problem == "NEW problem q of kernel.py: frozen by row f6 at , in place of p (row a1 at )"
    assert title == "modelled latency of kernel.py by v5e-model"
    assert heading.split() == ["id", "commit", "score", "ms", "faster", "time", "util", "%", "status", "note"]
    assert legend.startswith("* kept")
    assert [line.split()[0] for line in lines] == ["*", "b2", "*", "d4", "*", "*"]
    assert lines[2].endswith(LONG)
    assert lines[1].endswith("loop forever")
    assert "1.250x  -20.0 %" in lines[2]
    assert "[red]ü 高い[/red]" in lines[3]
    assert "%" not in lines[5], "another problem: nothing to compare with"
    assert len({line.index("PASS") for line in (lines[0], lines[2], lines[4])}) == 1


@pytest.mark.parametrize("width", [40, 60, 80, 110, 160, 250])
def test_a_terminal_gets_lines_that_fit(width: int) -> None:
    made = entries(ROWS)
    for text in (
        log_table(ROWS, width=width),
        top_table(ROWS, most=3, width=width),
        status_text(state(*ROWS), width=width),
    ):
        assert text
        table_of_status = "kernel     evaluator" in text  # its columns are few, and never cut
        assert table_of_status or max(map(cell_len, text.split("\n"))) <= width
    assert all(cell_len(line) <= max(width, 40) for one in made for line in show(one, width=width).split("\n"))
    for name in ("a1", "b2", "c3", "d4", "e5", "f6"):
        assert name in log_table(ROWS, width=width)
    for number in ("0.8000", "-20.0 %", "TIMEOUT"):
        assert number in log_table(ROWS, width=width)


def test_colours_change_no_text() -> None:
    for width in (40, 100):
        styled = log_table(ROWS, width=width, colour=True)
        assert "\x1b[" in styled
        assert Text.from_ansi(styled).plain.split("\n") == log_table(ROWS, width=width).split("\n")
    assert "\x1b" not in log_table(ROWS, width=100)


def test_files_and_evaluators_have_a_table_each() -> None:
    elsewhere = replace(ROWS[2], id="g7", evaluator="v6e-model", chip="v6e")
    other = replace(ROWS[2], id="h8", kernel="other.py")
    text = log_table([*ROWS[:2], elsewhere, other])
    titles = [line for line in text.split("\n") if line.startswith("modelled latency of")]
    assert titles == [
        "modelled latency of kernel.py by v5e-model",
        "modelled latency of kernel.py by v6e-model",
        "modelled latency of other.py by v5e-model",
    ]
    assert "1.250x" not in text, "a series of its own: nothing to compare with"
    assert text.count("* kept") == 1


def test_top_has_the_largest_gain_first_and_nothing_slower() -> None:
    slower = scored("g7", 0.5, "kept", "a trade")  # kept on purpose
    _, _, first, second, _ = top_table([*ROWS[:5], slower], most=9).split("\n")
    assert (first.split()[1], second.split()[1]) == ("e5", "c3")
    assert "2.00x  -50.0 %" in first
    assert len(top_table(ROWS, most=1).split("\n")) == 4


def test_show_says_everything_with_digits_that_mean_something() -> None:
    full = replace(
        ROWS[2], band_low_ms="0.712345678", band_high_ms="0.87654321", wait_ms="0.0123456789", seconds="67.3",
        regime="compute-bound", tflops="184.39605211754352", bw_util_pct="5.496437101820577", vmem_bytes="26415104",
        spills="65337", reason="faster", previous="f" * 64, note="one\ntwo\x1b[2J",
    )  # fmt: skip
    [_, entry] = entries([ROWS[0], full])
    text = show(entry, blame="hlo_dumps/c3/blame.txt")
    assert text.startswith("experiment c3 · PASS · kept")
    for said in (
        "  note         one\n               two\n",
        "  latency      0.8000 ms modelled, 9 times in 10 between 0.7123 and 0.8765 ms on a device; 0.01235 ms of it",
        "  against      1.250x as fast as a1: time -20.0 %",
        "  roofline     61.2 % reached, compute-bound, 184.4 TFLOP/s, compulsory bytes use 5.5 % of HBM",
        "  VMEM         25.19 MiB",
        "  spills       65,337",
        "  judged by    v5e-model · v5e · modelled: no device was timed",
        f"  previous     {'f' * 64}",
        "  blame        hlo_dumps/c3/blame.txt",
    ):
        assert said in text
    assert "timing" not in text
    [odd] = entries([replace(ROWS[0], median_ms="soon", util_pct="nan", spills="many")])
    assert "soon ms modelled" in show(odd)
    assert "many" in show(odd)


def test_status_has_a_line_for_each_kernel() -> None:
    text = status_text(state(*ROWS, edited=("kernel.py",), running="an idea", unfinished="z9"))
    head, running, cut_off, edited, problem, last, _, heading, line = text.split("\n")
    assert head == "branch      main at ccccccccc"
    assert running == "running     an experiment: an idea"
    assert "z9" in cut_off
    assert edited.startswith("edited      kernel.py: `")
    assert problem.startswith("problem     NEW q of kernel.py: frozen by row f6")
    assert last.endswith("other problem")
    assert heading.split() == ["kernel", "evaluator", "latency", "roofline", "faster", "kept", "slower", "failed"]
    # two steps of 1.25 and 2 times; HEAD is the newest baseline, of another problem
    assert line.split() == "kernel.py v5e-model 7.000 ms modelled 61.2 % 2.50x (-60.0 %) 4 1 1".split()


def test_a_merge_is_of_no_kernel_and_a_candidate_is_no_edit() -> None:
    merge = row(id="g7", kernel="results.tsv", status="NO_CHANGE", decision="merged", note="merge: 2 rows")
    text = status_text(state(*ROWS, merge, candidate="a b.py", running="an idea"))
    assert "  results.tsv" not in text
    assert "candidate   a b.py holds what the run tries: it is not your edit, and HEAD's comes back" in text
    assert "edited" not in text
    assert len(status_document(state(*ROWS, merge))["series"]) == 1
    left = status_text(state(*ROWS, candidate="a b.py"))
    assert "candidate   a b.py holds what a run tries: the next run brings HEAD's back" in left
    search = Searching(kernel="a b.py", how="tpe", of=12, done=5, began_ms=2.0, best_ms=1.0, best={"BQ": 8})
    between = status_text(state(*ROWS, candidate="a b.py", searching=(search,)))
    assert "searching   search a b.py · tpe · 5 of 12 · best 1.000 ms (2.00x) BQ 8\n" in between
    assert "candidate   a b.py holds what the run tries: it is not your edit, and HEAD's comes back" in between
    mine = status_text(state(*ROWS, edited=("a b.py",)))
    assert "edited      a b.py: `./ratchet.sh --kernel 'a b.py' \"message\"` judges it" in mine


def test_json_has_numbers_and_nulls() -> None:
    first, failed, kept, *_ = map(entry_document, entries(ROWS))
    assert (kept["median_ms"], kept["times_faster"], kept["against"]) == (0.8, 1.25, "a1")
    assert kept["time_change_pct"] == pytest.approx(-20)
    assert (failed["median_ms"], failed["times_faster"], failed["kind"]) == (None, None, "modelled")
    assert (first["against"], first["vmem_bytes"]) == (None, None)
    document = status_document(state(*ROWS, running="x"))
    [series] = document["series"]
    assert (series["kept"], series["slower"], series["failed"]) == (4, 1, 1)
    assert series["statuses"] == {"TIMEOUT": 1}
    assert document["running"] == "x"
    assert document["unfinished"] is None


# --- who made the rows ---


HERE, ELSEWHERE, UNSIGNED = Origin.HERE, Origin.ELSEWHERE, Origin.UNSIGNED


def said(*origins: Origin, no_key: str = "") -> str:
    return origins_text(Origins(no_key=no_key, by_id={f"row{number}": one for number, one in enumerate(origins)}))


@pytest.mark.parametrize(
    ("made", "text"),
    [
        ((), "0 made with this machine's key"),
        ((UNSIGNED,), "0 made with this machine's key, 1 not signed"),
        (
            (UNSIGNED, UNSIGNED, ELSEWHERE, HERE),
            "1 made with this machine's key, 1 signed with another key, 2 not signed",
        ),
        (
            (UNSIGNED, HERE, UNSIGNED, HERE, ELSEWHERE),
            "2 made with this machine's key, 1 signed with another key, 2 not signed\n"
            "not from this machine's key, after a row that is: row2, row4; did you pull them?",
        ),
    ],
)
def test_rows_are_counted_by_origin_and_strangers_after_an_own_row_named(made, text):
    assert said(*made) == f"origin: {text}"


def test_a_long_list_is_cut_and_an_id_cannot_print():
    strangers = {"\x1b[2J": UNSIGNED, **{f"{number}": UNSIGNED for number in range(20)}}
    text = origins_text(Origins(no_key="", by_id={"a": HERE, **strangers}))
    assert text.endswith("7, 8 and 11 more; did you pull them?")
    assert "\x1b" not in text


def test_without_a_key_origin_is_not_known():
    text = said(no_key="no home folder")
    assert text == "origin: not known, only that the rows are consistent, for this machine has no key (no home folder)"
