"""Published timings: rows of the files in ``benchmarks/data`` -> cases. Pure, except that it reads the file.

Three forms are read. Matmul-like rows have columns ``source kernel lhs rhs group_sizes config status ms timer jax
trust`` and, unless ``chip`` says another, were timed on a v5e; ``options`` is JSON. Attention rows have ``chip q k v
mask soft_cap precision config ms ms_min ms_max source`` and may have ``residuals``. Sweeps have ``chip source op impl
shape config status ms timer note``.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).resolve().parent.parent.parent / "data"
DEFAULT_FILES = tuple(sorted(DATA.glob("*.csv")))

ATTENTION_KERNEL = "tokamax pallas_mosaic_tpu_flash_attention"
"""Attention rows name their kernel only in the column of their source."""

_BUILDERS = (
    ("andamento", ("kernels", "matmul"), "tiled matmul"),
    ("docs matmul", ("kernels", "matmul"), "tiled matmul"),
    ("pallas_forge.tiled_matmul", ("kernels", "matmul"), "tiled matmul"),
    ("tpu-kernels matmul, pallas", ("kernels", "matmul"), "tiled matmul"),
    ("tpu-kernels scale", ("kernels", "stream"), "streaming"),
    ("tpu-kernels segment_cumsum", ("kernels", "segments"), "segmented cumsum"),
    ("tpu-kernels sharded_matmul", ("kernels", "sharded"), "sharded matmul"),
    ("XLA ppermute", ("kernels", "around"), "ring permutation"),
    ("XLA all_gather", ("kernels", "gathered"), "all-gather"),
    ("tokamax pallas_mosaic_tpu gmm", ("tokamax", "grouped"), "grouped matmul"),
    ("tokamax pallas_mosaic_tpu tgmm", ("tokamax", "grouped"), "grouped matmul"),
    (ATTENTION_KERNEL, ("tokamax", "attention"), "attention"),
    ("KernelForge flash attention", ("kernels", "attention"), "attention"),
)
"""A part of a kernel's name, the module beside this one and the function in it that build it, and its kind."""


def builder_of(kernel: str) -> tuple[str, str]:
    """Names of the module and of the function that build a kernel, empty if none does."""
    return next((builder for part, builder, _ in _BUILDERS if part in kernel), ("", ""))


def kind_of(kernel: str) -> str:
    """What kind of kernel one is; its own name where nothing builds it."""
    return next((kind for part, _, kind in _BUILDERS if part in kernel), kernel)


@dataclass(frozen=True, kw_only=True)
class Array:
    """``bf16[8,4096,4096]``."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One published timing."""

    number: str
    """File and line, for messages: ``v5e_published_latency.csv:12``."""
    source: str
    kernel: str
    chip: str
    arrays: tuple[Array, ...]
    config: Mapping[str, str]
    """The source's own settings, as text: ``{"bm": "128", …}``; words without ``=`` are keys with ``""``."""
    group_sizes: tuple[int, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    """What else decides the program: mask, soft cap, precision."""
    status: str
    """``ok`` or ``vmem_oom``."""
    measured_ms: float | None
    timer: str
    """``device`` (profiler) or ``wall`` (carries the source's own constant dispatch time)."""
    doubtful: bool

    @property
    def family(self) -> str:
        """Cases of one family differ in sizes only, and share whatever its source left out."""
        return self.source.split("@")[0].split(" (")[0].split(" data/")[0].split(" bench_history/")[0].strip()

    @property
    def older(self) -> bool:
        """Whether XLA let the TensorCore copy the result into its layout when it was timed.

        Attention on tpu7x is published of February or April and of July 2026, and takes less in July, by about such a
        copy, for the same program too: since then a SparseCore makes it.
        """
        return self.chip == "tpu7x" and "attention" in self.kernel and "" < self.date < "2026-07"

    @property
    def date(self) -> str:
        """Year and month of the timing, ``2026-07``, where its source says so."""
        found = re.search(r"\((\d{4}-\d\d)-\d\d ", self.source)
        return found[1] if found else ""

    @property
    def recipe(self) -> dict[str, Any]:
        """All that decides the compiled program."""
        return {
            "kernel": self.kernel,
            "chip": self.chip,
            "arrays": [str(array) for array in self.arrays],
            "config": dict(self.config),
            "group_sizes": list(self.group_sizes),
            "options": dict(self.options),
        }

    @property
    def label(self) -> str:
        """Short, for a table."""
        config = " ".join(f"{key}={value}" if value else key for key, value in self.config.items())
        return f"{' '.join(map(str, self.arrays[:2]))} {config}"


class BadCases(ValueError):
    """A file of cases that does not read as one; names the line."""


def read(path: Path) -> list[Case]:
    """All cases of one file, in its order.

    Raises:
        BadCases: if a column is missing or a field does not read.
    """
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        columns = set(reader.fieldnames or ())
        make, wanted = _form_of(columns)
        if not wanted <= columns:
            raise BadCases(
                f"{path.name}: column(s) {', '.join(sorted(wanted - columns))} missing; has {sorted(columns)}"
            )
        cases = []
        for row in reader:
            number = f"{path.name}:{reader.line_num}"
            try:
                cases.append(make({k: v or "" for k, v in row.items() if k is not None}, number))
            except (ValueError, KeyError, TypeError) as error:
                raise BadCases(f"{number}: {error}") from error
        return _republished(_with_residuals(cases))


def add_cases(parser: ArgumentParser, default: Iterable[Path], help_text: str = "CSV files or folders of them") -> None:
    """The option that names files for :func:`read_all`."""
    parser.add_argument("--cases", type=Path, nargs="+", metavar="FILE.csv", default=list(default), help=help_text)


def read_all(paths: Iterable[Path]) -> list[Case]:
    """All cases of files, or of folders of them; one that does not read ends the command."""
    files = [file for path in paths for file in (sorted(path.glob("*.csv")) if path.is_dir() else [path])]
    try:
        return [case for file in files for case in read(file)]
    except (BadCases, OSError) as error:
        sys.exit(str(error))


def _with_residuals(cases: list[Case]) -> list[Case]:
    """The cases; a grouped product that comes a second time returns its residuals too.

    tokamax times each product without and with them, in this order, and its rows do not say so. The residuals are the
    result once more: of 26 such pairs of rows the second takes longer by one copy of the result, at the same rate.
    """
    seen: set[str] = set()
    marked: list[Case] = []
    for case in cases:
        key = json.dumps([case.recipe, case.source], sort_keys=True)
        again = key in seen and "tokamax" in case.kernel and "gmm" in case.kernel
        marked.append(replace(case, options={**case.options, "residuals": True}) if again else case)
        seen.add(key)
    return marked


def _republished(cases: list[Case]) -> list[Case]:
    """The cases; a grouped product with the very time that an earlier row gives for other group sizes is doubtful.

    tokamax came to write how many groups there are in place of their sizes, and took over times that it had.
    """
    seen: dict[str, Case] = {}
    marked: list[Case] = []
    for case in cases:
        recipe = {name: value for name, value in case.recipe.items() if name != "group_sizes"}
        key = json.dumps([recipe, case.measured_ms], sort_keys=True)
        first = seen.setdefault(key, case)
        again = case.measured_ms is not None and first.group_sizes != case.group_sizes
        marked.append(replace(case, doubtful=True) if again else case)
    return marked


def _form_of(columns: set[str]) -> tuple[Callable[[Mapping[str, str], str], Case], set[str]]:
    """What reads a row with these columns, and the columns that it needs."""
    if "q" in columns:
        return _attention, {"chip", "q", "k", "v", "config", "ms", "source"}
    if "op" in columns:
        return _sweep, {"chip", "source", "op", "impl", "shape", "config", "status", "ms", "timer"}
    return _matmul, {"source", "kernel", "lhs"}


_SHARDED = "bf16[8192,8192]@bf16[8192,8192]"
"""What the sharded matmuls of a sweep multiply where they give the shape as ``same``, as that of its other matmuls."""


def _case(row: Mapping[str, str], number: str, **other: Any) -> Case:
    """What rows of all forms have in common; by a profiler, and sure, unless ``trust`` says another."""
    known = {
        "number": number,
        "source": row["source"],
        "chip": row.get("chip") or "v5e",
        "config": parse_config(row.get("config", "")),
        "status": row.get("status") or "ok",
        "measured_ms": float(row["ms"]) if row.get("ms") else None,
        "timer": "device" if row.get("timer", "").startswith("device") else "wall",
        "doubtful": "doubtful" in row.get("trust", ""),
    }
    return Case(**known | other)


def _sweep(row: Mapping[str, str], number: str) -> Case:
    sharded = row["op"].startswith("sharded_matmul") and row["shape"].startswith("same")
    shape = _SHARDED if sharded else row["shape"]
    arrays = re.findall(r"\w+\[[\d,\s]*\]", shape.partition("->")[0])
    kernel = f"tpu-kernels {row['op']}, {row['impl']}"
    return _case(row, number, kernel=kernel, arrays=tuple(map(parse_array, arrays)))


def _matmul(row: Mapping[str, str], number: str) -> Case:
    options = json.loads(row.get("options") or "{}")
    case = _case(
        row,
        number,
        kernel=_product(row["kernel"], options),
        arrays=tuple(parse_array(row[name]) for name in ("lhs", "rhs") if row.get(name)),
        group_sizes=parse_group_sizes(row.get("group_sizes", "")),
        options={"out": options["out"]} if options.get("out") else {},
        **({"timer": "device"} if row.get("trust") == "device" else {}),
    )
    return replace(case, config=_tiles(case))


def _attention(row: Mapping[str, str], number: str) -> Case:
    return _case(
        row,
        number,
        kernel=row.get("kernel") or ATTENTION_KERNEL,
        arrays=tuple(parse_array(row[name]) for name in "qkv"),
        options={
            "mask": json.loads(row.get("mask") or "{}"),
            "soft_cap": float(row["soft_cap"]) if row.get("soft_cap") else None,
            "precision": json.loads(row.get("precision") or "null"),
            **({"residuals": True} if row.get("residuals") == "True" else {}),
        },
        timer="wall" if row.get("trust") == "wall" else "device",
    )


_SWAPPED_SINCE = "2026-05"
"""tokamax's timings of 2026-04-20 name the tiles of a transposed product by its own k and n, those of 2026-07-21 by
those of the product that it is the derivative of: else some are larger than the axis that they divide."""


def _tiles(case: Case) -> Mapping[str, str]:
    """The settings, with the tiles named as the builder wants them."""
    if "transpose_rhs" not in case.kernel or case.date < _SWAPPED_SINCE:
        return case.config
    return {**case.config, "tile_k": case.config["tile_n"], "tile_n": case.config["tile_k"]}


_PRODUCTS = {"[[1], [1]]": "gmm", "[[1], [2]]": "gmm_transpose_rhs(dlhs)", "[[0], [0]]": "tgmm(drhs)"}
"""tokamax's names of its grouped products by the dimensions that are contracted."""


def _product(kernel: str, options: Mapping[str, Any]) -> str:
    """The kernel with the name of the grouped product that its options say, if they do."""
    if "ragged_dot" not in kernel or "dims" not in options:
        return kernel
    if str(options["dims"]) not in _PRODUCTS or options.get("activation"):
        raise ValueError(f"a ragged dot with options {options}")
    return kernel.replace("ragged_dot", _PRODUCTS[str(options["dims"])])


def parse_group_sizes(text: str) -> tuple[int, ...]:
    """Reads ``3 0 9``, or ``{'num_groups': 4, 'total_size': 64}``: rows drawn evenly, as by tokamax's own sizes."""
    drawn = re.fullmatch(r"\{'num_groups': (\d+), 'total_size': (\d+)\}", text.strip())
    if drawn is None:
        return tuple(int(number) for number in re.findall(r"\d+", text))
    groups, rows = map(int, drawn.groups())
    members = np.random.default_rng(0).choice(groups, (rows,), replace=True)
    return tuple(np.bincount(members, minlength=groups).tolist())


def parse_array(text: str) -> Array:
    """Reads ``bf16[4096,128]``. Raises ValueError."""
    match = re.fullmatch(r"\s*(\w+)\[([\d,\s]*)\]\s*", text)
    if match is None:
        raise ValueError(f"{text!r} is no array type like bf16[4096,128]")
    return Array(dtype=match.group(1), shape=tuple(int(n) for n in match.group(2).split(",") if n.strip()))


def parse_config(text: str) -> dict[str, str]:
    """Reads ``bm=128 bk=256``; anything else is kept as words of its own."""
    options = dict(re.findall(r"(\w+)=(\S+)", text))
    words = " ".join(re.sub(r"\w+=\S+", " ", text).split())
    return {**options, words: ""} if words else options
