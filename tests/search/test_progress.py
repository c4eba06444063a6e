"""How far a search is: its screen, and what others see of it."""

import io
from dataclasses import replace

import pytest

from ratchet.exam.judge.secret import FOLDER
from ratchet.loop.decide import decide
from ratchet.loop.rows import baseline_reason
from ratchet.search.progress import Progress, Searching, trials_of, under_way
from ratchet.search.space import Axis, Observation, Space
from ratchet.search.study import opened
from ratchet.values import Band
from ratchet.values.status import Refusal, Status
from ratchet.view.points import candidates_table
from ratchet.view.searching import Screen, duration, headline, outcome, stopped, trial_lines
from tests.loop.test_decide import row, verdict

SPACE = Space(axes=(Axis.of("BQ", (128, 1024)), Axis.of("BKV", (512, 1024))), where=(), constants={})
NOW = Searching(kernel="kernel.py", how="tpe", of=12, began_ms=4.0)
LONG = "VMEM_OVERFLOW: compile: the kernel needs 19.80MiB of VMEM, the limit is 16.00MiB; use smaller blocks"


def seen(ms=None, bq=128, *, kept=False, reason="slower: time +5 %; score 1", status=Status.UNCHECKED):
    return Observation(
        point={"BQ": bq, "BKV": 512}, status=status, latency_ms=ms, kept=kept, reason=reason, id="20261128-181819-17f6"
    )


def followed(tmp_path, ones, *, seconds=None):
    (tmp_path / FOLDER / "search").mkdir(parents=True, exist_ok=True)
    ticks = iter(range(0, 1000, 10))
    made = Progress(root=tmp_path, study="s", now=NOW, seconds=seconds, clock=lambda: float(next(ticks)))
    for one, known in ones:
        made.trial(one, known=known)
    return made


def test_best_kept_and_time_left_are_of_the_trials_so_far(tmp_path):
    now = followed(tmp_path, [(seen(4.0), True), (seen(2.0, kept=True), False), (seen(3.0), False)]).now
    assert (now.done, now.kept, now.best_ms) == (3, 1, 2.0)
    # Two were judged in the 30 s up to the third; nine are left.
    assert now.left_s == pytest.approx(9 * 30 / 2)
    assert followed(tmp_path, [(seen(1.0), False)], seconds=15).now.left_s == 5


def test_what_others_see_is_what_the_screen_has_while_the_study_is_held(tmp_path):
    made = followed(tmp_path, [(seen(2.0), False)])
    assert under_way(tmp_path) == (), "left by a run that was killed"
    with opened(tmp_path, "s"):
        assert under_way(tmp_path) == (made.now,)
        (tmp_path / FOLDER / "search" / "s.now").write_text("{")
        assert under_way(tmp_path) == ()
        made.trial(seen(2.0))
        assert under_way(tmp_path) == (made.now,)
        made.end()
        assert under_way(tmp_path) == ()
    made.trial(seen(2.0))
    assert under_way(tmp_path) == ()


def test_a_search_has_no_more_trials_than_points():
    assert trials_of(SPACE, 60) == 4
    assert trials_of(SPACE, 3) == 3


def test_the_headline_and_what_an_interruption_leaves():
    now = replace(NOW, done=7, kept=2, best_ms=0.6178, best={"BQ": 1024, "BKV": 1024}, left_s=110.0)
    said = "search kernel.py · tpe · 7 of 12 · best 0.6178 ms (6.47x) BQ 1024, BKV 1024 · 2 min left"
    assert headline(now) == said
    assert headline(NOW) == "search kernel.py · tpe · 0 of 12"
    assert stopped(now) == "stopped at 7 of 12, 2 kept, best 0.6178 ms; the same command goes on"
    assert stopped(NOW) == "stopped at 0 of 12, none kept; the same command goes on"
    assert [duration(one) for one in (0.2, 89, 90, 5400)] == ["1 s", "89 s", "2 min", "1 h 30 min"]


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (seen(2.0, kept=True), "kept"),
        (
            seen(reason=LONG, status=Status.VMEM_OVERFLOW),
            "VMEM_OVERFLOW: compile: the kernel needs 19.80MiB of VMEM, the limit is 16.00MiB",
        ),
    ],
)
def test_what_became_of_a_trial_in_a_few_words(one, said):
    assert outcome(one) == said


def test_what_became_of_a_trial_is_read_from_what_is_ruled():
    def timed(score, latency_ms, wait_ms):
        band = Band(bound_by="bandwidth", low_ms=latency_ms * 0.9, high_ms=latency_ms * 1.1)
        one = verdict(score)
        return replace(one, score=replace(one.score, latency_ms=latency_ms, wait_ms=wait_ms, band=band))

    known = replace(row(1000.0), wait_ms="1.0", band_low_ms="1.8", band_high_ms="2.2")
    said = [
        outcome(seen(one.score.latency_ms, reason=decide(one, known).reason))
        for one in (
            timed(999.0, 2.002, 1.002),
            timed(900.0, 2.2, 1.0),
            timed(1100.0, 1.8, 1.0),
            timed(1000.0, 2.0, 1.0),
        )
    ]
    assert said == [
        "counts as the same, a change of waiting under 1%",
        "slower",
        "faster",
        "the same to the last digit",
    ]
    assert outcome(seen(2.0, reason=baseline_reason(verdict(1000.0), None))) == "as it is"


def test_a_trial_is_a_line_and_goes_on_below_where_the_terminal_ends():
    assert trial_lines(5, seen(0.5, 1024, kept=True), SPACE, 2.0, 80) == [
        "  5  BQ 1024  BKV  512  0.5000 ms  -75.0 %  kept"
    ]
    lines = trial_lines(6, seen(reason=LONG, status=Status.VMEM_OVERFLOW), SPACE, 2.0, 60)
    assert max(map(len, lines)) <= 60
    assert " ".join(" ".join(lines).split()).endswith("the limit is 16.00MiB")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_the_headline_stays_below_and_fits(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    stream, now = Terminal(), replace(NOW, done=1, best_ms=2.0, best={"BQ": 128, "BKV": 512}, left_s=5)
    with Screen(SPACE, 4.0, stream) as screen:
        screen.trial(now, seen(2.0, kept=True))
        screen.trial(now, seen(3.0))
    text = stream.getvalue()
    assert "5 s left" in text
    assert "2.000 ms  -50.0 %  kept" in text
    assert "3.000 ms  +50.0 %  slower" in text, "beside the one that was kept"
    assert text.count("\x1b[?25h") == text.count("\x1b[?25l") > 0, "the cursor comes back"


def test_without_a_terminal_lines_come_whole(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    stream = io.StringIO()
    with Screen(SPACE, 4.0, stream) as screen:
        screen.head(NOW)
        screen.trial(NOW, seen(reason=LONG, status=Status.VMEM_OVERFLOW))
    assert stream.getvalue().splitlines()[0] == headline(NOW)
    assert len(stream.getvalue().splitlines()) == 2


def test_a_table_of_trials_fits_the_given_width():
    shown = [("BQ 128, BKV 512", seen(2.0)), ("BQ 64, BKV 512", seen(reason=LONG, status=Status.VMEM_OVERFLOW))]
    assert max(map(len, candidates_table(shown, width=80).splitlines())) <= 80
    assert "the limit is 16.00MiB" in candidates_table(shown, width=200)


def test_what_an_interrupted_search_leaves_is_its_reason(tmp_path):
    from ratchet.commands import search

    (tmp_path / FOLDER / "search").mkdir(parents=True)
    screen = Screen(SPACE, 4.0, io.StringIO())

    def interrupted():
        with search._following(tmp_path, "s", screen, NOW, None) as progress:
            progress.trial(seen(2.0))
            raise KeyboardInterrupt

    with pytest.raises(Refusal, match=r"stopped at 1 of 12, none kept, best 2\.000 ms; the same command") as caught:
        interrupted()
    assert caught.value.status is Status.INTERRUPTED
    assert under_way(tmp_path) == ()
