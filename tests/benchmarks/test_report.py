"""The report on the memory hierarchy says what the suite's data says, and names commands that exist."""

import importlib.util
import json
import re
from collections.abc import Iterator

import pytest

from benchmarks.lib import report

_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w]*\.py)")

TABLES = {"t": [{"a": 1, "b": 2.34567}, {"a": 3, "b": None, "c": "x"}]}


def prose_numbers(document: str) -> Iterator[str]:
    """Numbers of the running text that are no mere counts: with a decimal point, or above 128."""
    text = re.sub(r"<!-- table.*?<!-- end -->|```.*?```|`[^`]*`|\([^)\s]*\)", " ", document, flags=re.DOTALL)
    for number in _NUMBER.findall(text):
        plain = number.rstrip(",.").replace(",", "")
        if "." in plain or int(plain) > 128:
            yield plain


def table_numbers(document: str) -> set[str]:
    """What its tables say, as written there."""
    return {cell.strip() for table in report._BLOCK.finditer(document) for cell in re.split(r"[|\n]", table[0])}


def test_tables_are_put_between_their_marks():
    document = "before\n<!-- table: t: a, b -->\nold\n<!-- end -->\nafter\n<!-- table: t[a=3]: c -->\n<!-- end -->\n"
    made = report.rendered(document, TABLES)
    assert "| 1 | 2.346 |\n| 3 |  |\n<!-- end -->\nafter" in made
    assert "| c |\n| --- |\n| x |" in made
    assert "old" not in made
    assert report.rendered(made, TABLES) == made


def test_a_column_that_is_not_there_is_an_error():
    with pytest.raises(KeyError, match="no row has 'd'"):
        report.rendered("<!-- table: t: a, d -->\n<!-- end -->", TABLES)


def test_numbers_of_prose_are_distinguished_from_those_of_code_and_tables():
    text = "At 2.5 and 1,024 of 12. `python 9.9` [x](500.md)\n<!-- table: t: a -->\n| 7.7 |\n<!-- end -->\n"
    assert list(prose_numbers(text)) == ["2.5", "1024"]
    assert "7.7" in table_numbers(text)


def test_history_tells_what_was_kept_and_what_it_took():
    columns = ("kernel", "decision", "median_ms", "vmem_bytes", "note")
    rows = [
        ("kernel.py", "baseline", "4", "1048576", "baseline"),
        ("kernel.py", "reverted", "", "", "experiment: a"),
        ("kernel.py", "kept", "1", "2097152", "experiment: b\\n\\nwhy"),
        ("kernel.py", "baseline", "1", "2097152", "again"),
        ("other.py", "kept", "1", "1", "experiment: c"),
    ]
    ledger = "\n".join("\t".join(row) for row in (columns, *rows)) + "\n"
    first, second = report.history(ledger)
    assert (first["us"], first["times faster"]) == (4000.0, None)
    assert second == {
        "kernel": "kernel.py",
        "experiment": "b",
        "us": 1000.0,
        "times faster": 4.0,
        "VMEM MiB": 2.0,
        "reverted before": 1,
    }


def test_the_report_has_the_tables_of_the_data_beside_it():
    tables = json.loads((report.FIGURES / "suite.json").read_text())
    document = report.REPORT.read_text()
    assert report.rendered(document, tables) == document, "write it anew: python -m benchmarks.suite --report --only"
    assert "<!-- table: " in document


def test_every_number_of_the_running_text_stands_in_a_table():
    document = report.REPORT.read_text()
    known = {cell.replace(",", "") for cell in table_numbers(document)}
    assert [number for number in prose_numbers(document) if number not in known] == []


def test_every_command_and_figure_of_the_report_exists():
    document = report.REPORT.read_text()
    modules = set(re.findall(r"python -m ([\w.]+)", document))
    assert "benchmarks.suite" in modules
    for module in modules:
        assert importlib.util.find_spec(module), module
    scripts = set(re.findall(r"`python (\w+\.py)", document))
    assert all((report.ROOT / script).exists() for script in scripts)
    for target in re.findall(r"\]\(([^)#]+)\)", document):
        assert target.startswith("http") or (report.REPORT.parent / target).exists(), target
    figures = {path.name for path in report.FIGURES.glob("*.svg")}
    assert figures - {"modelled_vs_measured.svg", "trajectory.svg"} == set(
        re.findall(r"figures/([\w-]+\.svg)", document)
    )
