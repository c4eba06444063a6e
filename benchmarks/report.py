"""``docs/optimizing-for-the-v5e-memory-hierarchy.md``: its tables, from what the suite wrote.

    python -m benchmarks.report

Puts the tables of ``docs/figures/suite.json`` into the document, without computing anything. A table is between
``<!-- table: NAME: COLUMN, COLUMN -->`` and ``<!-- end -->``; ``NAME[KEY=VALUE]`` takes the rows that have the value.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ratchet.chips import V5E

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs" / "optimizing-for-the-v5e-memory-hierarchy.md"
FIGURES = ROOT / "docs" / "figures"
LEDGER = ROOT / "results.tsv"
TARGETS = ("kernel.py", "decode_kernel.py")
Rows = list[dict[str, Any]]

_BLOCK = re.compile(r"<!-- table: (?P<what>[^:]+): (?P<columns>.+?) -->\n.*?<!-- end -->", re.DOTALL)
_PICK = re.compile(r"(?P<name>[^\[]+)(?:\[(?P<key>[^=]+)=(?P<value>[^\]]+)\])?$")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w]*\.py)")


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
    return [
        {"quantity": what, "value": value, "source": source}
        for what, value, source in (
            ("peak, TFLOP/s in bfloat16", V5E.peak_bf16_flops / 1e12, "vendor"),
            ("HBM, GB/s", V5E.hbm_bytes_per_s / 1e9, "vendor"),
            ("of which DMAs reach, share", fitted.hbm_efficiency, "fitted on published device timings"),
            ("a DMA's latency, us", fitted.dma_latency_cycles / V5E.clock_hz * 1e6, "fitted on the same"),
            ("HBM that a program can have, GiB", V5E.hbm_bytes / 2**30, "compiler"),
            ("VMEM, MiB", V5E.vmem_bytes / 2**20, "vendor's library"),
            ("of which a kernel gets unasked, MiB", V5E.default_scoped_vmem_bytes / 2**20, "compiler"),
            ("a link between chips, GB/s each way", links.link_bytes_per_s / 1e9, "literature, not calibrated"),
            ("ICI as advertised, GB/s", 400.0, "vendor: four links, both ways"),
            ("a hop, us", links.hop_s * 1e6, "literature, not calibrated"),
        )
    ]


def text_of(value: Any) -> str:
    """A cell: four digits of a float, as the printed tables have."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


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


def prose_numbers(document: str) -> Iterator[str]:
    """Numbers of the running text that are no mere counts: with a decimal point, or above 128."""
    text = re.sub(r"<!-- table.*?<!-- end -->|```.*?```|`[^`]*`|\([^)\s]*\)", " ", document, flags=re.DOTALL)
    for number in _NUMBER.findall(text):
        plain = number.rstrip(",.").replace(",", "")
        if "." in plain or int(plain) > 128:
            yield plain


def table_numbers(document: str) -> set[str]:
    """What its tables say, as written there."""
    return {cell.strip() for table in _BLOCK.finditer(document) for cell in re.split(r"[|\n]", table[0])}


def plot_programs(rows: Rows, column: str, path: Path) -> None:
    """Bars per model and program; the same bytes for the same rows."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "suite"
    import matplotlib.pyplot as plt

    models = list(dict.fromkeys(row["model"] for row in rows))
    programs = list(dict.fromkeys((row["program"], row["chips"]) for row in rows))
    figure, axes = plt.subplots(figsize=(8, 4.5))
    width = 0.8 / len(programs)
    for number, (program, chips) in enumerate(programs):
        value = {row["model"]: row[column] or 0 for row in rows if (row["program"], row["chips"]) == (program, chips)}
        places = [place + (number - (len(programs) - 1) / 2) * width for place in range(len(models))]
        label = f"{program}, {chips} chip{'s' * (chips > 1)}"
        axes.bar(places, [value.get(model, 0) for model in models], width, label=label)
    axes.set_xticks(range(len(models)), [f"{model}" for model in models], fontsize=8)
    axes.set(yscale="log", ylabel=f"{column} (modelled)")
    axes.grid(visible=True, axis="y", alpha=0.2)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    tables = json.loads((FIGURES / "suite.json").read_text())
    REPORT.write_text(rendered(REPORT.read_text(), tables))
    print(f"written: {REPORT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
