"""Which points fit: few compiles, no wrong answer, the edge compiled."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.commands.cli import main
from ratchet.kernelfile.knobs import points
from ratchet.tune.fit import broken, largest, search
from ratchet.values.points import Fit
from ratchet.values.program import Vmem
from ratchet.values.status import Status
from ratchet.view.points import fit_document, fit_table

BLOCKS = Path(__file__).with_name("blocks.py")
SIDES = (128, 256, 512, 1024, 2048)


def compiler(need, limit, count=None, odd=()):
    """Compiles points in no time: ``need`` and ``limit`` say what a point needs and may use."""
    count = [] if count is None else count

    def compiled(point):
        count.append(point)
        used, allowed = need(**point), limit(**point) if callable(limit) else limit
        status = Status.PASS if used <= allowed else Status.VMEM_OVERFLOW
        if point in odd:
            return Fit(point=point, chip="v5e", status=Status.COMPILE_TIMEOUT, reason="too long", compiled=True)
        vmem = Vmem(op="k", is_kernel=True, allocations=(), used_bytes=used, limit_bytes=allowed, chip_bytes=1 << 27)
        return Fit(point=point, chip="v5e", status=status, compiled=True, vmem=vmem)

    return compiled


def matmul(bm, bk, bn):
    """Windows twice and a scratch accumulator."""
    return 2 * 2 * (bm * bk + bk * bn + bm * bn) + 4 * bm * bn


def grid(**sides):
    return points(list(sides.items()))


def test_a_sweep_of_125_points_takes_few_compiles_and_none_is_wrong():
    count = []
    every = grid(bm=SIDES, bk=SIDES, bn=SIDES)
    fits = list(search(every, "v5e", compiler(matmul, 16 << 20, count)))
    assert len(fits) == 125
    assert len(count) == sum(fit.compiled for fit in fits) < 40
    assert all(fit.fits == (matmul(**fit.point) <= 16 << 20) for fit in fits)
    assert all(fit.compiled for fit in largest(fits))
    assert broken(fits) == []


@settings(deadline=None, max_examples=50, derandomize=True)
@given(
    a=st.lists(st.integers(1, 50), min_size=1, max_size=5, unique=True),
    b=st.lists(st.integers(1, 50), min_size=1, max_size=5, unique=True),
    signs=st.tuples(st.sampled_from((1, -1)), st.sampled_from((1, -1))),
    limit=st.integers(1, 3000),
)
def test_knobs_may_need_less_as_they_grow(a, b, signs, limit):
    def need(a, b):
        return (a if signs[0] > 0 else 60 - a) * (b if signs[1] > 0 else 60 - b)

    fits = list(search(grid(a=tuple(a), b=tuple(b)), "v5e", compiler(need, limit)))
    assert len(fits) == len(a) * len(b)
    assert [fit for fit in fits if fit.fits != (need(**fit.point) <= limit)] == []


def test_a_knob_that_raises_the_limit_is_one_that_needs_less_and_no_number_settles_nothing_of_another():
    limits = compiler(lambda rows, limit: rows * 2560, lambda rows, limit: limit)
    fits = list(search(grid(rows=SIDES, limit=(1 << 18, 1 << 20, 1 << 22)), "v5e", limits))
    assert all(fit.fits == (fit.point["rows"] * 2560 <= fit.point["limit"]) for fit in fits)
    assert len(fits) > sum(fit.compiled for fit in fits)
    layouts = compiler(lambda rows, layout: rows * (4 if layout == "wide" else 1), 1024)
    fits = list(search(grid(rows=SIDES, layout=("wide", "narrow", None)), "v5e", layouts))
    assert all(fit.fits == (fit.point["rows"] * (4 if fit.point["layout"] == "wide" else 1) <= 1024) for fit in fits)


def test_a_point_that_fails_for_another_reason_settles_nothing():
    odd = [{"bm": 1024, "bk": 128, "bn": 128}]
    fits = list(search(grid(bm=SIDES, bk=SIDES, bn=(128,)), "v5e", compiler(matmul, 4 << 20, odd=odd)))
    others = [fit for fit in fits if fit.point not in odd]
    assert all(fit.fits == (matmul(**fit.point) <= 4 << 20) for fit in others)
    table = fit_table(fits, ["bm", "bk", "bn"], target="t", every=False)
    assert [fit.fits for fit in fits if fit.point in odd and fit.compiled] in ([], [None])
    assert "points compiled" in table


def test_a_point_without_a_step_settles_nothing_and_is_not_the_largest():
    def need(bm, bn):
        return 0 if bm > 512 else bm * bn

    fits = list(search(grid(bm=SIDES, bn=SIDES), "v5e", compiler(need, 1 << 18)))
    assert all(fit.fits == (need(**fit.point) <= 1 << 18) for fit in fits)
    assert all(fit.point["bm"] <= 512 for fit in largest(fits))
    assert "uses no VMEM: no step?" in fit_table(fits, ["bm", "bn"], target="t", every=False)


def test_a_sweep_in_full_says_where_the_assumption_fails():
    def need(rows):
        return 100 if rows == 256 else rows // 8

    every = list(search(grid(rows=SIDES), "v5e", compiler(need, 70), every=True))
    assert all(fit.compiled for fit in every)
    assert [(small.point["rows"], large.point["rows"]) for small, large in broken(every)] == [(256, 512)]
    table = fit_table(every, ["rows"], target="t", every=True)
    assert "overflows" in table
    assert "all 5 points compiled" in table


def test_the_document_counts_what_was_saved():
    fits = list(search(grid(bm=SIDES, bk=SIDES, bn=(1024,)), "v5e", compiler(matmul, 16 << 20)))
    document = json.loads(json.dumps(fit_document(fits, target="t")))
    assert document["compiled"] + document["saved"] == 25
    assert {"bm": 1024, "bk": 1024, "bn": 1024} in document["largest"]["v5e"]


def test_constants_of_the_file_and_keyword_arguments_are_knobs(tmp_path, monkeypatch, capsys):
    source = BLOCKS.read_text() + "\n\nSTEP = 64\n\n\ndef twice(x, limit):\n    return doubled(x, STEP, limit)\n"
    (tmp_path / "mine.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    given = ["fit", "mine.py:twice", "--input", "f32[1024,512]", "STEP=64,256,2048", f"limit={1 << 20}", "--json"]
    assert main(given, lambda *_, **__: pytest.fail("nothing is judged")) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {point["point"]["STEP"]: point for point in document["points"]}
    assert (rows[64]["fits"], rows[256]["fits"]) == (True, False)
    assert rows[2048]["used_bytes"] == 0, "its grid has no step, which says nothing of the others"
    assert rows[256]["used_bytes"] > rows[256]["limit_bytes"] == 1 << 20
    assert document["largest"] == {"v5e": [{"STEP": 64, "limit": 1 << 20}]}
    assert (tmp_path / "mine.py").read_text() == source
