"""Pages that say what the code says: exit codes, the ledger's columns, the site."""

import re
import shutil
from dataclasses import fields
from datetime import datetime

import pytest

import ratchet
from ratchet.loop import ledger, table
from ratchet.process.boot import home
from ratchet.selftest.defences import DEFENCES
from ratchet.values import Row
from ratchet.values.row import Decision
from ratchet.values.status import Status
from tools import docs, hooks
from tools.documents import ROOT, pages, read
from tools.hooks import names

FORMS = {
    "40 hex digits": r"[0-9a-f]{40}",
    "16 hex digits": r"[0-9a-f]{16}",
    "64 hex digits": r"[0-9a-f]{64}",
    "UTC time and 4 hex digits": r"\d{8}-\d{6}-[0-9a-f]{4}",
    "UTC, to the second": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
}


def table_of(page, columns):
    """The cells of every row of the page's tables with so many columns."""
    rows = [re.split(r" *(?<!\\)\| *", line.strip("| ")) for line in read(page).splitlines() if line.startswith("|")]
    return [row for row in rows if len(row) == columns and not set(row[0]) <= set("-:")]


def test_every_status_has_its_causes_and_cures():
    rows = [cells for cells in table_of("docs/exit-codes.md", 4) if cells[0].isdigit()]
    assert {(int(cells[0]), cells[1].strip("`")) for cells in rows} == {(one.exit_code, one.name) for one in Status}
    assert len(rows) == len(Status)
    assert all(all(cells[2:]) for cells in rows if cells[1] != "`PASS`")


def test_markers_of_the_pages_are_exchanged_for_what_the_code_says():
    everything = "".join(read(page) for page in pages())
    assert [marker for marker in hooks.MADE if everything.count(marker) != 1] == []
    assert [one.meaning for one in Status if f"| `{one.name}` | {one.meaning} |" not in hooks.statuses()] == []
    assert [one.name for one in DEFENCES if f"| {one.name} | {one.what} |" not in hooks.defences()] == []


def test_every_column_of_the_ledger_is_explained():
    named = [cells for cells in table_of("docs/ledger.md", 5) if cells[0].startswith("`")]
    assert [cells[0].strip("`") for cells in named] == [field.name for field in fields(Row)]
    kinds = {"float": table.FLOATS, "integer": table.INTEGERS, "time": [table.TIME]}
    assert {kind: [c[0].strip("`") for c in named if c[1] == kind] for kind in kinds} == kinds
    assert {cells[1] for cells in named} == {"text", *kinds}


def test_every_decision_of_the_ledger_is_named():
    (cells,) = [cells for cells in table_of("docs/ledger.md", 5) if cells[0] == "`decision`"]
    words = {value for name, value in vars(Decision).items() if name.isupper()} | {ledger.MERGED}
    assert set(re.findall(r"`(\w+)`", cells[4])) == words


def test_the_examples_of_the_columns_are_those_of_the_row_that_is_named():
    (id_,) = re.findall(r"of the row `([\w-]+)`", read("docs/ledger.md"))
    (row,) = [row for row in ledger.read(ROOT / ledger.NAME) if row.id == id_]
    for name, _, form, example, _ in (cells for cells in table_of("docs/ledger.md", 5) if cells[0].startswith("`")):
        value = getattr(row, name.strip("`"))
        shown = example.strip("`")
        assert value.startswith(shown[:-1]) if shown.endswith("…") else value == shown, name
        if form in FORMS:
            assert re.fullmatch(FORMS[form], value), name
    assert datetime.fromisoformat(row.time).tzinfo is not None


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("a site")
    assert docs.make(folder) == 0, "mkdocs warned; `python -m tools.docs` says of what"
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
def test_the_site_is_whole_and_asks_nobody_for_anything(site):
    """It has the help of every command, every public name and the files that pages link to; nothing is loaded."""
    loads = re.compile(
        r"""<(?:script|img|iframe)[^>]*\bsrc="?(?:https?:)?//|<link[^>]*rel="?(?:stylesheet|preconnect|icon)[^>]*//|@import|url\((?:https?:)?//"""
    )
    pages = [path for path in site.rglob("*") if path.suffix in (".html", ".css")]
    assert [path.name for path in pages if loads.search(path.read_text())] == []
    commands, library = ((site / f"{name}.html").read_text() for name in ("commands", "library"))
    assert [name for name in names() if f"usage: {home.PROGRAM} {name} " not in commands and name != "run"] == []
    assert [name for name in ratchet.__all__ if f'id="ratchet.{name}"' not in library] == []
    assert ":func:" not in library
    made = {"exit-codes": "VMEM_OVERFLOW", "testing": "frozen problem", "mosaic_coverage": "tpu.matmul"}
    assert [page for page, said in made.items() if said not in (site / f"{page}.html").read_text()] == []
    assert (site / "source" / "action" / "action.yml.txt").read_text() == (ROOT / "action" / "action.yml").read_text()
    assert 'href="source/action/action.yml.txt"' in (site / "ci.html").read_text()
    assert 'href="protocol.html"' in (site / "agents.html").read_text()


def test_a_folder_with_something_else_is_not_emptied(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    assert docs.main([str(tmp_path)]) == 1
    assert "holds something else than a site" in capsys.readouterr().err
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_link_that_leads_nowhere_is_a_warning(tmp_path, monkeypatch):
    pytest.importorskip("mkdocs")
    tree = tmp_path / "tree"
    (tree / "docs").mkdir(parents=True)
    (tree / "docs" / "index.md").write_text("# One\n[lost](nowhere.md)\n")
    settings = "site_name: x\ntheme: {name: material, font: false}\nvalidation: {links: {not_found: warn}}\n"
    (tree / "mkdocs.yml").write_text(settings)
    monkeypatch.setattr(docs, "ROOT", tree)
    assert docs.make(tmp_path / "out") == 1
