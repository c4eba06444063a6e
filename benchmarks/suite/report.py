"""``docs/optimizing-for-the-v5e-memory-hierarchy.md``: its tables, from the rows that the suite computed.

A table is between ``<!-- table: NAME: COLUMN, COLUMN -->`` and ``<!-- end -->``; ``NAME[KEY=VALUE]`` takes the rows
that have the value.
"""

from __future__ import annotations

import csv
import io
import re
from typing import Any

from benchmarks.lib.sources import ROOT
from benchmarks.lib.table import text_of
from ratchet.tpu.chips import V5E

REPORT = ROOT / "docs" / "optimizing-for-the-v5e-memory-hierarchy.md"
FIGURES = ROOT / "docs" / "figures"
LEDGER = ROOT / "results.tsv"
TARGETS = ("kernel.py", "decode_kernel.py")
Rows = list[dict[str, Any]]

_BLOCK = re.compile(r"<!-- table: (?P<what>[^:]+): (?P<columns>.+?) -->\n.*?<!-- end -->", re.DOTALL)
_PICK = re.compile(r"(?P<name>[^\[]+)(?:\[(?P<key>[^=]+)=(?P<value>[^\]]+)\])?$")


def history(ledger: str) -> Rows:
    """Of each target: the baseline and what was kept, oldest first, with the experiments reverted in between."""
    rows = []
    for kernel in TARGETS:
        best, reverted = 0.0, 0
        for row in csv.DictReader(io.StringIO(ledger), delimiter="\t", quoting=csv.QUOTE_NONE):
            if row["kernel"] != kernel or row["decision"] not in ("baseline", "kept", "reverted"):
                continue
            if row["decision"] == "reverted" or (row["decision"] == "baseline" and best):
                reverted += row["decision"] == "reverted"
                continue
            ms = float(row["median_ms"])
            rows.append(
                {
                    "kernel": kernel,
                    "experiment": row["note"].split("\\n")[0].removeprefix("experiment: "),
                    "us": ms * 1e3,
                    "times faster": best / ms if best else None,
                    "VMEM MiB": int(row["vmem_bytes"]) / 2**20,
                    "reverted before": reverted,
                }
            )
            best, reverted = ms, 0
    return rows


def chip_rows() -> Rows:
    """What the model takes the chip to be."""
    fitted, links = V5E.constants, V5E.ici
    read_latency = (fitted.read_issue_cycles + fitted.read_latency_cycles) / V5E.clock_hz * 1e6
    return [
        {"quantity": what, "value": value, "source": source}
        for what, value, source in (
            ("peak, TFLOP/s in bfloat16", V5E.peak_bf16_flops / 1e12, "vendor"),
            ("HBM, GB/s", V5E.hbm_bytes_per_s / 1e9, "vendor"),
            ("of which DMAs reach, share", fitted.hbm_efficiency, "fitted on published device timings"),
            ("a read's latency, us", read_latency, "fitted on the same"),
            ("HBM that a program can have, GiB", V5E.hbm_bytes / 2**30, "compiler"),
            ("VMEM, MiB", V5E.vmem_bytes / 2**20, "vendor's library"),
            ("of which a kernel gets unasked, MiB", V5E.default_scoped_vmem_bytes / 2**20, "compiler"),
            ("a link between chips, GB/s each way", links.link_bytes_per_s / 1e9, "fitted on two published programs"),
            ("ICI as advertised, GB/s", 400.0, "vendor: four links, both ways"),
            ("a hop, us", links.hop_s * 1e6, "fitted on two published programs"),
        )
    ]


def markdown(rows: Rows, columns: list[str]) -> str:
    """A table of those columns. Raises KeyError for a column that no row has."""
    for column in columns:
        if not any(column in row for row in rows):
            raise KeyError(f"no row has {column!r}; there are {', '.join(rows[0])}")
    lines = [columns, ["---"] * len(columns), *([text_of(row.get(column)) for column in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def rendered(document: str, tables: dict[str, Rows]) -> str:
    """The document with its tables made anew; raises KeyError for a table or column that is not there."""

    def block(match: re.Match[str]) -> str:
        pick = _PICK.match(match["what"])
        assert pick is not None
        rows = tables[pick["name"]]
        if pick["key"]:
            rows = [row for row in rows if str(row[pick["key"]]) == pick["value"]]
        table = markdown(rows, match["columns"].split(", "))
        return f"<!-- table: {match['what']}: {match['columns']} -->\n{table}\n<!-- end -->"

    return _BLOCK.sub(block, document)
