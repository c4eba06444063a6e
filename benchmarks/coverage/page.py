"""Records of public kernels as tables and as ``docs/coverage.md``. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.coverage.calls import CASES
from benchmarks.coverage.cores import NAMES
from benchmarks.lib.repositories import REPOSITORIES

Record = Mapping[str, Any]
NOTICED_PERCENT = 0.5
"""Of a latency: less is no change."""
COLUMNS = ("repository", "kernels", "traced", "compiled", "executed", "right", "findings", "modelled")
STEPS = ("traced", "compiled", "executed", "modelled")

_HEAD = """# Public kernels

Public Pallas TPU kernels, or variants that take another path, as their repositories have them: called by a few lines of
ours at small shapes, compiled for v5e or a slice of it, executed for their values with hazards, and modelled. No code
of theirs is here: programs of guides and tests run as they are, up to where they call the kernel, on the slice's mesh.
Written by `python -m benchmarks.coverage --sources DIR --page docs/coverage.md`, which also prints a line for each
kernel: values, error, microseconds. `--clone` prints how the sources are fetched, at the commits that are listed in
`benchmarks/lib/repositories.py`.

*Right* means equal to the repository's own reference, or to one that says the same in plain JAX, else to Pallas's
interpreter. A *finding* is a hazard that the judge reports of the kernel as it is called here; its outputs are then not
compared. None was confirmed on a TPU. *NOT_CALLED*: our lines cannot trace it in the judge's environment. What does not
compile is refused by Google's compiler and does not count against the judge.
"""


SEVERAL = "## SparseCores and two TensorCores\n"
_SEVERAL = f"""{SEVERAL}
Kernels for SparseCores of v6e and tpu7x and for the two TensorCores of v5p. Methods of JAX's own tests run whole: what
a TPU would run is exported and executed here, call by call, and their assertions judge it. This section is written by
`python -m benchmarks.coverage --sources DIR --cores docs/coverage.md`; the lines of the terminal say why which latency
is not modelled.
"""
_UNASKED = (
    "what is left out, behind a mask or in rows of other subcores, is what memory held; the test compares none of it."
)

READ = {
    **dict.fromkeys(
        (
            "jax-source/VectorSubcoreTest, load gather masked",
            "jax-source/VectorSubcoreTest, load expanded",
            "jax-source/VectorSubcoreTest, store compressed",
            "jax-source/VectorSubcoreTest, shared scratch",
            "jax-source/PallasCallMegacoreTest, pipeline axis queries",
        ),
        _UNASKED,
    ),
    "jax-source/VectorSubcoreTest, barrier": (
        "behind the barrier each subcore reads its neighbour's row of the output and then writes its own: one that is "
        "ahead writes the row before its neighbour has read it."
    ),
    "sglang-jax/ragged paged attention, window": (
        "the loop over blocks of keys begins at block 0 (line 1038), the copies at the first block that the window "
        "reaches (lines 870 and 1078), so that a copy of 28 keys is waited for as one of 32: on a TPU that hangs. The "
        "schedule machine ends at the same wait."
    ),
    "sglang-jax/greedy verification of a tree": (
        "`o_predicts_ref` is written at the accepted tokens alone, and no input is aliased to it: 10 of 13 elements "
        "are what memory held. Which of them a caller reads was not looked at."
    ),
    "jetstream/chunked prefill": (
        "keys, values and both buffers of each share one semaphore, so that a wait for keys is over when as many bytes "
        "of values have come. It is right where copies arrive in the order in which they were started, which nothing "
        "promises."
    ),
    "tpu-inference/gated delta rule, decode": (
        "block i fetches the states of block i + 1 into the buffer that block i - 1 began to store from; that store is "
        "waited for in block i + 1 (line 397), behind the fetch (line 292)."
    ),
    "tpu-inference/gated delta rule, recurrent scan": (
        "at the boundary both outputs are windows of one array and write the rows that they share; what they write was "
        "made equal there, so that the order does not matter."
    ),
    "tpu-inference/causal convolution, ragged": (
        "line 170 takes more rows of a buffer than it has, for a copy that is only waited for, of which the size alone "
        "counts."
    ),
    **dict.fromkeys(
        (
            "jax/all-gather",
            "jax/all-gather, in VMEM",
            "jax/all-gather, four chips",
            "jax/all-gather, of rows of a plane",
        ),
        "all copies to one neighbour share a semaphore (lines 91 and 104), and a neighbour that is ahead starts the "
        "next when its own has left: the wait for one may end with bytes of the next. It is right where copies arrive "
        "in the order in which they were started, which nothing promises; JAX's guide has a semaphore for each.",
    ),
    "jax-source/guide, reduce-scatter with a pipeline": (
        "the inner kernel adds to its block of output, which is never read in: since March 2026 it lacks what "
        "accumulated before, and the first column of blocks loses what the neighbour sent."
    ),
    **dict.fromkeys(
        (
            "tpu-inference/experts over chips",
            "tpu-inference/experts over chips, sigmoid",
            "sglang-jax/experts over chips v1",
        ),
        "the wait for what an expert two before sent reads that expert's size first (lines 565 and 1237), which of the "
        "first chip's first experts is before the table; `lax.select` drops what was read.",
    ),
    "sglang-jax/experts over chips v2": (
        "chips write into operands that are no outputs (`pl.empty` arrays in the place of scratch, line 762): nothing "
        "says that XLA keeps each for this kernel alone."
    ),
    "tokamax/ring attention, causal": (
        "blocks that are full have -1 in the place of their mask's number, which the index map takes as it is (line "
        "239 of the kernel that it calls): the block before the first is fetched, and not used."
    ),
    "tpu-collectives/all-gather": (
        "each turn sets the output to zero (line 589) without waiting for the others: a neighbour that is ahead has "
        "sent into it already."
    ),
    "tpu-collectives/matmul reduce-scatter": (
        "the sum is sent to where a half went before (lines 391 and 370, into `Partials`), as soon as the sender has "
        "what it waits for: a neighbour that is behind adds the sum in the place of the half (line 385)."
    ),
    "maxtext/grouped matmul v2": (
        "in a tile that is full to its 128th row, line 621 loads the 17th of 16 blocks of rows. `jnp.where` drops what "
        "was loaded, so that no output depends on it."
    ),
}
"""By kernel, what a finding of it is, as its source says at the commit that is listed."""


def is_whole(record: Record) -> bool:
    """Whether the kernel was executed and modelled."""
    return record.get("executed") == "yes" and record.get("modelled") == "yes"


def totals(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Kernels by repository and in all: how many reached which step."""
    rows = []
    groups: dict[str, list[Record]] = {}
    for record in records:
        name = record["name"].partition("/")[0]
        groups.setdefault(REPOSITORIES[name].origin if name in REPOSITORIES else name, []).append(record)
    for name, group in (*groups.items(), ("all", list(records))):
        compiled = [one for one in group if one.get("compiled") == "yes"]
        whole = sum(map(is_whole, compiled))
        rows.append(
            {
                "repository": name,
                "kernels": len(group),
                "traced": sum(one.get("traced") == "yes" for one in group),
                "compiled": len(compiled),
                "executed": sum(one.get("executed") == "yes" for one in compiled),
                "right": sum(one.get("values") == "right" for one in compiled),
                "findings": sum(one.get("values") == "finding" for one in compiled),
                "modelled": sum(one.get("modelled") == "yes" for one in compiled),
                "both": whole,
                "share of compiled": f"{whole / len(compiled):.0%}" if compiled else "",
            }
        )
    return rows


def row(record: Record) -> dict[str, Any]:
    """One kernel's line."""
    error = record.get("error")
    compared = ", ".join(filter(None, (record.get("values"), record.get("compared_with"))))
    return {
        "kernel": record["name"],
        "chips": record.get("chips", ""),
        **{step: record.get(step, "") for step in STEPS[:3]},
        "values": compared,
        "error": None if error is None else f"{error:.1e}",
        "modelled": record.get("modelled", ""),
        "µs": None if record.get("latency_ms") is None else f"{1000 * record['latency_ms']:.2f}",
    }


def changes(before: Sequence[Record], after: Sequence[Record]) -> list[dict[str, Any]]:
    """What differs of kernels that two compilers compile: a row where anything does."""
    olds = {one["name"]: one for one in before if one.get("compiled") == "yes"}
    news = [one for one in after if one.get("compiled") == "yes" and one["name"] in olds]
    rows = []
    for new in news:
        old = olds[new["name"]]
        latencies = old.get("latency_ms"), new.get("latency_ms")
        known = {name: (old.get(name), new.get(name)) for name in ("vmem_bytes", "spills", "copied_bytes")}
        changed = {name: f"{one} → {other}" for name, (one, other) in known.items() if one != other}
        moved = 100 * (latencies[1] / latencies[0] - 1) if all(latencies) else None
        if changed or moved is None or abs(moved) >= NOTICED_PERCENT:
            rows.append({"kernel": new["name"], "latency %": moved, **changed})
    return rows


def in_words(record: Record) -> str:
    """One line for whoever waits."""
    steps = [f"{step} {record[step]}" for step in STEPS if record.get(step)]
    reasons = "; ".join(f"{step}: {why:.400}" for step, why in record.get("reasons", {}).items())
    values = f"; values {record['values']} {record.get('error')}" if record.get("values") else ""
    return ", ".join(steps) + values + (f" ({reasons})" if reasons else "")


def refusals(records: Sequence[Record]) -> list[tuple[str, str, str, str]]:
    """Step, status, kernel and reason of everything that was refused."""
    return [
        (step, record.get(step, "") or record.get("values", ""), record["name"], why)
        for step in (*STEPS, "values")
        for record in records
        for why in [record.get("reasons", {}).get(step)]
        if why
    ]


def several(records: Sequence[Record]) -> str:
    """The section of kernels on several cores."""
    counted = [{name: one[name] for name in COLUMNS} for one in totals(records)]
    unknown = [one["modelled"] for one in records if one.get("modelled") not in (None, "", "yes")]
    alike = _alike([one for one in refusals(records) if one[0] != "modelled"])
    lines = [f"- {'; '.join(names)}, {what}\n" for what, names in alike.items()] + _findings(records)
    why = ", ".join(sorted(set(unknown)))
    missing = len(NAMES) - len(records)
    left = f"\n{missing} more kernels of the list were not run for this page.\n" if missing else ""
    said = f"\n{len(unknown)} latencies are refused: {why}.\n{left}" if unknown else left
    return f"{_SEVERAL}\n{_markdown(counted)}\n{said}\n{''.join(lines)}"


def with_several(page: str, records: Sequence[Record]) -> str:
    """A page with that section anew."""
    before, _, rest = page.partition(SEVERAL)
    _, heading, after = rest.partition("\n## ")
    return before.rstrip("\n") + "\n\n" + several(records) + (heading + after if heading else "")


def text(records: Sequence[Record], compiler: str = "", beside: Mapping[str, Sequence[Record]] | None = None) -> str:
    """The page; ``beside``: what other compilers made of the same kernels."""
    on_cores = [one for one in records if one["name"] in NAMES]
    records = [one for one in records if one["name"] not in NAMES]
    missing = len(CASES) - len(NAMES) - len(records)
    left = [f"\n{missing} more kernels of the list were not run for this page.\n"] if missing else []
    counted = [{name: one[name] for name in COLUMNS} for one in totals(records)]
    if sliced := [one for one in records if "=" in one.get("chips", "")]:
        counted.append({**totals(sliced)[-1], "repository": "of them, on several chips"})
    for other, own in (beside or {}).items():
        counted.append({**totals(own)[-1], "repository": f"all, with {other}"})
    made_with = f"With {compiler}:\n\n" if compiler else ""
    parts = [_HEAD, f"\n## In all\n\n{made_with}{_markdown(counted)}", *left]
    if alike := _alike(refusals(records)):
        parts += ["\n## Refused\n", "\n", *(f"- {'; '.join(names)}, {why}\n" for why, names in alike.items())]
    if read := _findings(records):
        parts += ["\n## What the findings are\n", "\n", *read]
    page = "\n".join(part.rstrip("\n") for part in parts) + "\n"
    return with_several(page, on_cores) if on_cores else page


def _alike(refused: Sequence[tuple[str, str, str, str]]) -> dict[str, list[str]]:
    alike: dict[str, list[str]] = {}
    for step, status, name, why in refused:
        if step != "values":
            alike.setdefault(f"{step}: {status}: {_short(why)}", []).append(f"*{name}*")
    return alike


def _findings(records: Sequence[Record]) -> list[str]:
    read: dict[str, list[str]] = {}
    for name in (one["name"] for one in records if _is_read(one)):
        read.setdefault(READ[name], []).append(f"*{name}*")
    return [f"- {'; '.join(names)}: {said}\n" for said, names in read.items()]


def _is_read(record: Record) -> bool:
    return record.get("values") == "finding" and record["name"] in READ


def _short(why: str) -> str:
    return " ".join(why.replace("|", "/").split())[:80]


def _markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    head = list(rows[0]) if rows else []
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    cells = [[("" if one[name] is None else str(one[name])).replace("|", "/") for name in head] for one in rows]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in cells)])
