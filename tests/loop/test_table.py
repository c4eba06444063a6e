"""The ledger as a DataFrame."""

import dataclasses

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.loop import ledger, table
from ratchet.values import Row
from ratchet.values.status import Refusal, Status
from tests.imports import HERE

EMPTY = Row(**dict.fromkeys(ledger.COLUMNS, ""))


def row(**changed: str) -> Row:
    return dataclasses.replace(EMPTY, **changed)


def test_every_number_of_the_repositorys_own_ledger_is_the_one_in_the_file():
    path = HERE / ledger.NAME
    rows, read = ledger.read(path), table.read(path)
    assert tuple(read.columns) == ledger.COLUMNS
    assert len(read) == len(rows) > 50
    for name in ledger.COLUMNS:
        for cell, value in zip((getattr(row, name) for row in rows), read[name], strict=True):
            if not cell:
                assert pd.isna(value), name
            elif name in table.FLOATS:
                assert repr(float(value)) == repr(float(cell)), name
            elif name in table.INTEGERS:
                assert value == int(cell), name
            elif name == "time":
                assert value.strftime("%Y-%m-%dT%H:%M:%SZ") == cell
            else:
                assert value == cell, name


def test_columns_have_the_dtypes_of_what_they_hold(tmp_path):
    for rows in ([], [row(id="a")], [row(id="a", time="2026-11-21T05:21:26Z", score="1.5", spills="3", note="x")]):
        dtypes = table.table(rows).dtypes.astype(str)
        assert dtypes["score"] == "Float64"
        assert dtypes["spills"] == "Int64"
        assert dtypes["note"] == "string"
        assert isinstance(dtypes["time"], str)
        assert dtypes["time"].endswith("UTC]")
    assert table.read(tmp_path / "not there").empty


def test_columns_named_by_a_unit_are_numbers():
    named = {name for name in ledger.COLUMNS if name.endswith(("_ms", "_pct", "_bytes", "speedup"))}
    assert len(named) > 8
    assert named <= {*table.FLOATS, *table.INTEGERS} <= set(ledger.COLUMNS)


@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=60))
def test_text_is_as_it_was_before_it_was_escaped(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("ledger") / ledger.NAME
    ledger.append(path, row(id="1", note=text))
    assert list(table.read(path)["note"]) == [text]


@pytest.mark.parametrize(("column", "wanted"), [("score", "a number"), ("samples", "a number"), ("time", "a time")])
def test_what_is_no_number_is_refused_by_row_and_column(column, wanted):
    with pytest.raises(Refusal, match=f"row two: {column} is 'soon', wanted {wanted}") as refused:
        table.table([row(id="one"), row(id="two", **{column: "soon"})])
    assert refused.value.status is Status.LEDGER_BROKEN


def test_fidelity_is_of_the_rows_that_have_both_latencies():
    rows = [
        row(id="inside", chip="v5e", median_ms="2.2", modelled_ms="2.0", band_low_ms="1.8", band_high_ms="2.3"),
        row(id="modelled only", median_ms="2.2"),
        row(id="outside", median_ms="3.0", modelled_ms="2.0", band_low_ms="1.8", band_high_ms="2.3"),
        row(id="no band", median_ms="3.0", modelled_ms="2.0"),
        row(id="nothing to divide by", median_ms="3.0", modelled_ms="0.0"),
    ]
    both = table.fidelities(table.table(rows))
    assert [(one.id, one.chip, one.outside_band) for one in both] == [
        ("inside", "v5e", False), ("outside", "", True), ("no band", "", False),
    ]  # fmt: skip
    assert both[0].ratio == 2.2 / 2.0
    assert table.fidelities(table.table([])) == ()
