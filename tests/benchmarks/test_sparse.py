"""Published gathers of the SparseCores: their rows, and the launch that a source's rows share."""

import pytest

from benchmarks import sparse
from ratchet.values.status import Refusal, Status


def timing(**changes) -> sparse.Timing:
    known = {"source": "a@1", "chip": "v5p", "rows": 8, "dim": 128, "indices": 128, "window": 128, "cores": "one",
             "inner": 2, "ms": 1.0, "note": ""}  # fmt: skip
    return sparse.Timing(**(known | changes))


def test_rows_are_read_with_their_sources():
    rows = sparse.read()
    assert {row.chip for row in rows} == {"v5p", "v6e", "tpu7x"}
    assert all(row.ms > 0 and "@" in row.source and row.indices % row.window == 0 for row in rows)


def test_a_source_has_one_launch_that_its_gathers_share():
    two, four, other = timing(), timing(inner=4, ms=0.75), timing(source="b@1", inner=0, ms=3.0)
    shown = sparse.tables({two: 1.0, four: 2.0, other: 3.3, timing(dim=256): Refusal(Status.NOT_MODELLED, "why")})
    assert [row["error"] for row in shown["published gathers"]] == ["+0.0%", "+0.0%", "+10.0%"]
    assert [row["of it launch"] for row in shown["published gathers"]] == pytest.approx([0.5, 0.25, 0.0])
    assert shown["by chip"] == [{"chip": "v5p", "rows": 3, "mean error": "3.3%", "largest": "10.0%", "bias": "+3.3%"}]
    assert shown["band"] == [{"largest error": "10.0%", "three times": "30.0%", "width of the band": "35.0%"}]
    assert shown["refused"] == [{"chip": "v5p", "table": "8x256", "why": "why"}]
